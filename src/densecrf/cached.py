"""`functools.cached_property` without a lock, as it is from Python 3.12 on.

The lock of older Pythons is held while the value is made, for all instances at once: models could
not build their lattices in parallel, and a child that is forked meanwhile would wait for it for
ever. Without it two threads may make the same value twice.
"""

import functools
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - the name of what it replaces
        """A property that is made on first use and kept in the instance's dictionary."""

        def __init__(self, make):
            super().__init__(make)
            self.lock = nullcontext()


__all__ = ["cached_property"]
