"""`functools.cached_property` without a lock, as it is from Python 3.12 on.

Older Pythons hold one lock for all instances while a value is computed: models could not build
their lattices in parallel, and a child forked meanwhile would deadlock. Without it, two threads may
compute the same value twice.
"""

import functools
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - the name of what it replaces
        """A property that is computed on first use and stored in the instance's dictionary."""

        def __init__(self, make):
            super().__init__(make)
            self.lock = nullcontext()


__all__ = ["cached_property"]
