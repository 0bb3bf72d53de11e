"""Presets: ours, and the parameters in use in published projects.

`PRESETS["default"]` is the default of `densecrf.refine`, the command line and `densecrf.torch`.
Those of papers and projects are the arguments of pydensecrf in their published programs, for five
iterations of mean field or more (ten in most, 50 in RCF); `about` names the source and, after the
semicolon, other users.
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
        2,
        8,
        40,
        10,
        5,
        confidence=0.98,
        pixels=300 * 355,
        scale_sigmas=True,
        about="ours, for strokes and other seeds",
    ),
    "pydensecrf": Parameters(3, 3, 80, 13, 10, about="the example of pydensecrf's documentation"),
    "deeplab": Parameters(1, 3, 67, 3, 4, about="DeepLab (Chen et al. 2018); STEGO, CLIP-ES"),
    "afa": Parameters(3, 3, 64, 5, 4, about="AFA (Ru et al. 2022); WeCLIP"),
    "cam": Parameters(3, 3, 50, 5, 10, about="class activation maps to pseudo-labels, as irn"),
    "irn": Parameters(3, 3, 50, 5, 10, about="IRN (Ahn, Cho and Kwak 2019); AdvCAM"),
    "psa": Parameters(3, 3, 80, 13, 10, about="PSA (Ahn and Kwak 2018); SEAM, PuzzleCAM"),
    "toco": Parameters(1, 1, 121, 5, 4, about="ToCo (Ru et al. 2023); SeCo, DuPL"),
    "mctformer": Parameters(4, 3, 83, 5, 3, about="MCTformer (Xu et al. 2022)"),
    "cutler": Parameters(
        3,
        7,
        50,
        5,
        10,
        confidence=0.731,
        about="CutLER (Wang et al. 2023), masks; TokenCut on video",
        caution="made for ten iterations of mean field; its optimum is often the empty mask",
    ),
    "video": Parameters(3, 0, 60, 5, 5, about="RCF (Lian, Wu and Yu 2023), frame by frame"),
    "pathology": Parameters(15, 30, 10, 20, 50, about="ConStruct (Le et al. 2026), tissue"),
    "manga": Parameters(
        1, 3, 23, 7, 20, normalization="none", about="manga-image-translator, masks of text"
    ),
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
    """Return a name of version 0.1, with a warning."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    now = _FORMER[name]
    what = f"densecrf.model.presets.{name} is now {now.__module__}.{now.__name__}"
    warnings.warn(what, DeprecationWarning, stacklevel=outside())
    return now
