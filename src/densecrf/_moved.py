"""Modules that have moved: their old paths work for one release, with a warning.

``import densecrf`` registers a finder for the paths below. A module imported by its old path, or a
submodule of it, is the module of the new path itself, so that classes are the same objects and old
pickles can be read.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import cast

__all__ = ["MOVED", "register"]

#: Old path and new path; submodules move along.
MOVED = {
    "densecrf.certificates": "densecrf.problem.certificate",
    "densecrf.changes": "densecrf.solvers.changes",
    "densecrf.compatibility": "densecrf.model.compatibility",
    "densecrf.experiments": "densecrf",  # its metrics; the experiments are not in the package
    "densecrf.filters": "densecrf.operators",
    "densecrf.hard_labels": "densecrf.model.unaries",
    "densecrf.kernels": "densecrf.model.kernels",
    "densecrf.label_prior": "densecrf.model.label_prior",
    "densecrf.monai": "densecrf.drop_in.monai",
    "densecrf.pairwise": "densecrf.operators.pairwise",
    "densecrf.presets": "densecrf.model.presets",
    "densecrf.projections": "densecrf.problem.projections",
    "densecrf.pydensecrf": "densecrf.drop_in.pydensecrf",
    "densecrf.resample": "densecrf.model.resample",
    "densecrf.result": "densecrf.solvers.result",
    "densecrf.rounding": "densecrf.problem.rounding",
    "densecrf.scribbles": "densecrf.model.scribbles",
    "densecrf.simplecrf": "densecrf.drop_in.simplecrf",
    "densecrf.unaries": "densecrf.model.unaries",
    "densecrf.verification": "densecrf.solvers.verification",
}


class Moved(MetaPathFinder, Loader):
    """Finds and loads modules by their old paths."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self.paths = paths

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the specification of an old path, None for other paths."""
        new = self._new(fullname)
        if not new or (found := find_spec(new)) is None:
            return None
        spec = ModuleSpec(fullname, self, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the new path; warn of the moved one, not of its submodules."""
        new = self._new(spec.name)
        if spec.name in self.paths:
            _warn(f"{spec.name} has moved to {new}; the old path will be removed in 0.3.0")
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has been executed, its own specification again."""
        module.__spec__ = cast("ModuleSpec", module.__spec__).loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code, for ``python -m``."""
        found = find_spec(self._new(fullname))
        return None if found is None else cast("InspectLoader", found.loader).get_code(found.name)

    def _new(self, fullname: str) -> str:
        """Return the new path, from the longest old path that contains this one; "" for none."""
        old = fullname
        while old and old not in self.paths:
            old = old.rpartition(".")[0]
        return self.paths[old] + fullname[len(old) :] if old else ""


def _warn(message: str) -> None:
    """Warn at the line that imports, outside this package and Python's import system."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in (
        "densecrf",
        "importlib",
        "runpy",
    ):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__")
    place = (frame.f_code.co_filename, frame.f_lineno, name, registry)
    warnings.warn_explicit(message, DeprecationWarning, *place)


def register() -> None:
    """Let old paths be found; once."""
    if not any(isinstance(finder, Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, Moved(MOVED))
