"""Certified MAP inference in fully connected conditional random fields.

The public names below are loaded on first use (PEP 562), so that ``import densecrf`` imports only
NumPy, in milliseconds; the first filter that needs the compiled core loads it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from densecrf._moved import MOVED, register

if TYPE_CHECKING:
    from densecrf import data, drop_in, io, large, metrics, model, operators
    from densecrf import torch as torch
    from densecrf.large.video import refine_video
    from densecrf.learning.adaptation import adapt
    from densecrf.learning.fit import fit
    from densecrf.masks import RefinedMasks, refine_masks
    from densecrf.model.activation_maps import with_background
    from densecrf.model.boxes import from_box
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
    "RefinedMasks",
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
    "from_box",
    "io",
    "large",
    "metrics",
    "model",
    "operators",
    "refine",
    "refine_many",
    "refine_masks",
    "refine_video",
    "with_background",
]

# "refine" is not in a module "densecrf.refine": importing it would replace the function.
_DEFINED_IN = {
    name: f"densecrf.{module}"
    for module, names in {
        "large.video": ("refine_video",),
        "learning.adaptation": ("adapt",),
        "learning.fit": ("fit",),
        "model.activation_maps": ("with_background",),
        "model.boxes": ("from_box",),
        "model.compatibility": ("LabelTree",),
        "model.crf": ("DenseCRF",),
        "model.kernels": ("Bilateral", "Features", "Spatial"),
        "model.parameters": ("Parameters",),
        "problem.certificate": ("certify",),
        "masks": ("RefinedMasks", "refine_masks"),
        "refinement": ("Failure", "refine", "refine_many"),
        "solvers": ("METHODS",),
        "solvers.branch_and_bound": ("branch_and_bound",),
        "solvers.result": ("Result", "Trace"),
        "validation": ("ArgumentError", "ArgumentWarning"),
    }.items()
    for name in names
}
_SUBMODULES = ("data", "drop_in", "io", "large", "metrics", "model", "operators", "torch", "widget")

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
