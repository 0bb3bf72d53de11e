"""Certified MAP inference in fully connected conditional random fields.

The public names below are loaded on first use (PEP 562), so that ``import densecrf`` needs NumPy
alone and costs a few milliseconds; the compiled core is loaded by the first filter that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from densecrf._moved import MOVED, register

if TYPE_CHECKING:
    from densecrf import data, drop_in, io, large, metrics, model, operators
    from densecrf import torch as torch
    from densecrf.learning.adaptation import adapt
    from densecrf.learning.fit import fit
    from densecrf.model.compatibility import LabelTree
    from densecrf.model.crf import DenseCRF
    from densecrf.model.kernels import Bilateral, Features, Spatial
    from densecrf.model.parameters import Parameters
    from densecrf.problem.certificate import certify
    from densecrf.refinement import Failure, refine, refine_many
    from densecrf.solvers import METHODS
    from densecrf.solvers.branch_and_bound import branch_and_bound
    from densecrf.solvers.result import Result, Trace
    from densecrf.validation import ArgumentError, ArgumentWarning

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "ArgumentError",
    "ArgumentWarning",
    "Bilateral",
    "DenseCRF",
    "Failure",
    "Features",
    "LabelTree",
    "Parameters",
    "Result",
    "Spatial",
    "Trace",
    "__version__",
    "adapt",
    "branch_and_bound",
    "certify",
    "data",
    "drop_in",
    "fit",
    "io",
    "large",
    "metrics",
    "model",
    "operators",
    "refine",
    "refine_many",
]

_DEFINED_IN = {
    "METHODS": "densecrf.solvers",
    "ArgumentError": "densecrf.validation",
    "ArgumentWarning": "densecrf.validation",
    "Bilateral": "densecrf.model.kernels",
    "DenseCRF": "densecrf.model.crf",
    "Failure": "densecrf.refinement",
    "Features": "densecrf.model.kernels",
    "LabelTree": "densecrf.model.compatibility",
    "Parameters": "densecrf.model.parameters",
    "Result": "densecrf.solvers.result",
    "Spatial": "densecrf.model.kernels",
    "Trace": "densecrf.solvers.result",
    "adapt": "densecrf.learning.adaptation",
    "branch_and_bound": "densecrf.solvers.branch_and_bound",
    "certify": "densecrf.problem.certificate",
    "fit": "densecrf.learning.fit",
    # Not "densecrf.refine": importing that module would put it in the function's place.
    "refine": "densecrf.refinement",
    "refine_many": "densecrf.refinement",
}
_SUBMODULES = frozenset(
    {
        "data",
        "drop_in",
        "io",
        "large",
        "metrics",
        "model",
        "operators",
        "torch",
        "widget",
    }
)

register()


def __getattr__(name: str) -> Any:
    """Import the module that defines the public `name` and keep it."""
    if name in _SUBMODULES or f"densecrf.{name}" in MOVED:
        return import_module(f"densecrf.{name}")
    if name == "Model":  # its former name, for one release
        return import_module("densecrf.model.presets").Model
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'densecrf' has no attribute {name!r}")
    value = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__, *_SUBMODULES})
