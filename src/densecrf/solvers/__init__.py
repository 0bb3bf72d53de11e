"""The methods, one per file, and `solve`, which runs them.

`solve` checks the arguments, finds a starting point, drives the method through the loop that all
methods share, and packs the result. The names below are loaded on first use (PEP 562): modules
below the solvers import `densecrf.solvers.result`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecrf.solvers.minimisation import solve
    from densecrf.solvers.registry import METHODS, Method

__all__ = ["METHODS", "Method", "solve"]


def __getattr__(name: str) -> Any:
    """Import the module that defines the public `name`."""
    if name not in __all__:
        raise AttributeError(f"module 'densecrf.solvers' has no attribute {name!r}")
    module = "minimisation" if name == "solve" else "registry"
    return getattr(import_module(f"densecrf.solvers.{module}"), name)
