"""Kernel parameters by name: those that people copy from project to project, and ours.

Every preset has one `Spatial` and one `Bilateral` kernel, on colours from 0 to 255.
"""

import json
import math
import os
from dataclasses import asdict, dataclass, fields, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from densecrf.io.atomic import write_json
from densecrf.io.errors import FileFormatError
from densecrf.kernels import Bilateral, Spatial
from densecrf.validation import ArgumentError, check_choice

__all__ = ["PRESETS", "Preset", "get_preset", "read_preset", "write_preset"]

NUMBERS = ("sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight")


@dataclass(frozen=True)
class Preset:
    """Parameters of the two usual kernels, and what goes with them.

    Its defaults are the defaults of `densecrf.refine`, the command line and `densecrf.torch`.

    Attributes
    ----------
    sigma, weight : float
        Standard deviation (pixels) and weight of the spatial kernel.
    sigma_xy, sigma_color, bilateral_weight : float
        Standard deviations (pixels; colours from 0 to 255) and weight of the bilateral kernel.
    confidence : float
        Probability that a hard label is right.
    pixels : int
        Size of the images that it was made for; see `scaled`.
    about : str
        Where it comes from.

    Examples
    --------
    Change one number of a preset:

    >>> from dataclasses import replace
    >>> replace(PRESETS["deeplab"], bilateral_weight=6).sigma_xy
    67
    """

    sigma: Any = 3
    weight: float = 3
    sigma_xy: Any = 80
    sigma_color: Any = 13
    bilateral_weight: float = 10
    confidence: float = 0.7
    pixels: int = 375 * 500
    about: str = ""

    def factor(self, pixels: int) -> float:
        """Return how much longer an image of that many pixels is than those of `pixels`."""
        return sqrt(pixels / self.pixels)

    def kernels(
        self, image: Any, factor: float = 1.0, largest: float | None = None
    ) -> list[Spatial | Bilateral]:
        """Return the kernels of an image, (*spatial) or (*spatial, channels).

        Parameters
        ----------
        image : array_like
            The image, colours from 0 to 255.
        factor : float
            What the standard deviations of positions are multiplied by.
        largest : float, optional
            The largest absolute value of an image that is known to be finite.
        """
        spatial = Spatial(_times(self.sigma, factor), self.weight)
        sigma_xy = _times(self.sigma_xy, factor)
        try:
            appearance = Bilateral(
                image, sigma_xy, self.sigma_color, self.bilateral_weight, largest=largest
            )
            return [spatial, appearance]
        except ArgumentError as error:
            raise error.renamed(weight="bilateral_weight") from error


def _times(sigma: Any, factor: float) -> Any:
    return sigma if factor == 1 else np.multiply(sigma, factor)


#: All presets by name.
PRESETS: dict[str, Preset] = {
    "default": Preset(about="what most people start from"),
    "pydensecrf": Preset(3, 3, 80, 13, 10, about="the example of pydensecrf's documentation"),
    "deeplab": Preset(1, 3, 67, 3, 4, about="DeepLab, for network outputs"),
    "afa": Preset(3, 3, 64, 5, 4, about="AFA, weakly supervised segmentation"),
    "cam": Preset(3, 3, 50, 5, 10, about="class activation maps to pseudo-labels"),
    "tuned": Preset(
        4.33,
        3.0,
        55.1,
        7.89,
        5.71,
        pixels=213 * 320,
        about="ours, tuned for lp on network outputs (MSRC)",
    ),
}


def get_preset(preset: str | Preset, **changed: Any) -> Preset:
    """Return a preset by its name, or the given one, with those numbers changed that are given."""
    if not isinstance(preset, Preset):
        preset = PRESETS[check_choice("preset", preset, tuple(PRESETS))]
    given = {name: value for name, value in changed.items() if value is not None}
    return replace(preset, **given) if given else preset


def write_preset(path: str | os.PathLike[str], preset: Preset, **remarks: Any) -> None:
    """Write parameters as a JSON file that `read_preset` and ``--params`` read.

    Parameters
    ----------
    path : path-like
        The file, which appears whole or not at all.
    preset : Preset
        The parameters.
    **remarks
        What else to keep in the file: how they were found, how good they are.
    """
    write_json(path, {"parameters": asdict(preset), **remarks})


def read_preset(path: str | os.PathLike[str]) -> Preset:
    """Read a file of parameters.

    It holds one JSON object with the numbers ``sigma``, ``weight``, ``sigma_xy``, ``sigma_color``
    and ``bilateral_weight``, or has that object under ``parameters``.

    Raises
    ------
    FileFormatError
        A ValueError that names the file and what is wrong with it.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.json"
    >>> write_preset(file, Preset(sigma_xy=40))
    >>> read_preset(file).sigma_xy
    40
    """
    try:
        raw = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"is not JSON ({error})") from error
    values = raw.get("parameters", raw) if isinstance(raw, dict) else None
    if not isinstance(values, dict):
        raise FileFormatError(path, "must hold one JSON object of parameters")
    known = {field.name for field in fields(Preset)}
    if missing := [name for name in NUMBERS if name not in values]:
        raise FileFormatError(path, f"lacks the parameters {', '.join(missing)}")
    if unknown := [name for name in values if name not in known]:
        raise FileFormatError(path, f"has unknown parameters: {', '.join(map(str, unknown))}")
    for name in NUMBERS:
        value = values[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (
            not number
            or not math.isfinite(value)
            or value < 0
            or (value == 0 and name.startswith("sigma"))
        ):
            raise FileFormatError(path, f"{name} is {value!r}; it must be a positive number")
    return Preset(**values)
