"""The import name ``pydensecrf``, for child processes of `densecrf.pydensecrf.__main__` alone."""

import sys

from densecrf.pydensecrf import install

del sys.modules[__name__]
install()
