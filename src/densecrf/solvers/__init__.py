"""The methods, one per file, and `solve`, which runs them.

`solve` checks what the user gave, finds a starting point, drives the method through the loop that
all share, and packs the result.
"""

from densecrf.solvers.minimisation import solve
from densecrf.solvers.registry import METHODS, Method

__all__ = ["METHODS", "Method", "solve"]
