"""`functools.cached_property` without a lock, as it is from Python 3.12 on.

The lock of older Pythons is held while the value is made, for all instances at once: models could
not build their lattices in parallel, and a child that is forked meanwhile would wait for it for
ever. Without it two threads may make the same value twice; the first one is kept.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:  # noqa: N801 - the name of what it replaces
        """A property that is made on first use and kept in the instance's dictionary."""

        def __init__(self, make):
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._make(instance))


__all__ = ["cached_property"]
