"""Programs that have a module of their own called ``densecrf``.

Such a module often lies beside a script that uses pydensecrf. There, ``import densecrf`` has to
find that module, and this package's modules have to find each other all the same.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["make_way", "restore"]

NAME = __name__.partition(".")[0]


class Namesake(MetaPathFinder):
    """Finds the program's own module."""

    def __init__(self, spec: ModuleSpec) -> None:
        self.spec = spec

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the program's module, or None for all others."""
        return self.spec if fullname == NAME else None


def make_way(folder: str) -> None:
    """Let ``import densecrf`` find a module of that name in this folder, where there is one.

    Its search path leads to this package's modules, for those that are loaded later.
    """
    ours = sys.modules[NAME]
    spec = PathFinder.find_spec(NAME, [folder])
    if spec is None or spec.origin is None or spec.origin == ours.__file__:
        return
    spec.submodule_search_locations = [*(spec.submodule_search_locations or ()), *ours.__path__]
    del sys.modules[NAME]
    sys.meta_path.insert(0, Namesake(spec))


def restore(theirs: ModuleType) -> None:
    """Put the program's module, imported before this package, in its place again."""
    theirs.__path__ = [*getattr(theirs, "__path__", ()), *sys.modules[NAME].__path__]
    sys.modules[NAME] = theirs
