"""The import name ``pydensecrf``."""

import sys

from densecrf.drop_in.pydensecrf import install

del sys.modules[__name__]
install()
