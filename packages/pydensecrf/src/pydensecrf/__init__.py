"""The import name ``pydensecrf``."""

import sys

from densecrf.pydensecrf import install

del sys.modules[__name__]
install()
