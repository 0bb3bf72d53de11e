"""Presets: the parameters that people copy from project to project, and ours.

`PRESETS["default"]` is the default of `densecrf.refine`, the command line and `densecrf.torch`.
"""

import os
import warnings
from typing import Any

from densecrf.model.parameters import Parameters, read_parameters, write_parameters
from densecrf.model.resolution import COARSEST, REACH
from densecrf.validation import check_choice, outside

__all__ = ["PRESETS", "get_parameters"]

#: All presets by name.
PRESETS: dict[str, Parameters] = {
    "default": Parameters(
        COARSEST / 4,
        1,
        REACH * COARSEST,
        6,
        5,
        confidence=None,
        grain=COARSEST,
        about="ours, for lp: follows the resolution of the scores",
    ),
    "scribbles": Parameters(
        3,
        2,
        80,
        6,
        5,
        confidence=0.98,
        pixels=300 * 355,
        scale_sigmas=True,
        about="ours, for strokes and other seeds",
    ),
    "pydensecrf": Parameters(3, 3, 80, 13, 10, about="the example of pydensecrf's documentation"),
    "deeplab": Parameters(1, 3, 67, 3, 4, about="DeepLab, for network outputs"),
    "afa": Parameters(3, 3, 64, 5, 4, about="AFA, weakly supervised segmentation"),
    "cam": Parameters(3, 3, 50, 5, 10, about="class activation maps to pseudo-labels"),
    "tuned": Parameters(
        4.33,
        3.0,
        55.1,
        7.89,
        5.71,
        pixels=213 * 320,
        about="ours, tuned for lp on network outputs (MSRC)",
    ),
}


def get_parameters(model: str | os.PathLike[str] | Parameters) -> Parameters:
    """Return parameters by the name of a preset, from a file (.json), or the given ones."""
    if isinstance(model, Parameters):
        return model
    if os.fspath(model).endswith(".json"):
        return read_parameters(model)
    return PRESETS[check_choice("model", model, tuple(PRESETS))]


_FORMER: dict[str, Any] = {
    "Model": Parameters,
    "get_model": get_parameters,
    "read_model": read_parameters,
    "write_model": write_parameters,
}


def __getattr__(name: str) -> Any:
    """Return what had another name before, for one release."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    now = _FORMER[name]
    what = f"densecrf.model.presets.{name} is now {now.__module__}.{now.__name__}"
    warnings.warn(what, DeprecationWarning, stacklevel=outside())
    return now
