"""The distance of each method's energy from the best bound, over the images of a table."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from densecrf.io.errors import FileFormatError
from experiments.figures import COLORS, new_figure

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["bound_gaps", "draw_bound_gaps"]

_LEAST = 1e-3  # per cent; energies are sums of float32 terms, and less than this is rounding


def bound_gaps(path: str | os.PathLike[str]) -> dict[str, NDArray[np.float64]]:
    """Read ``table-*-images.csv``: per cent above the best bound, one value per method and image.

    The best bound of an image is the largest that any method has proven; the distance is relative
    to the method's own energy. Images without a bound, or that some method has not done, are left
    out.

    Raises
    ------
    FileFormatError
        A ValueError that names the file, when it is no such table or has no bounds.
    """
    by_method: dict[str, dict[str, float]] = {}
    bounds: dict[str, float] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                image, bound = line["image"], line["lower_bound"]
                by_method.setdefault(line["method"], {})[image] = float(line["energy"])
                if bound:
                    bounds[image] = max(float(bound), bounds.get(image, -np.inf))
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"is no table of images ({error!r})") from error
    images = [i for i in bounds if all(i in energies for energies in by_method.values())]
    if not images:
        raise FileFormatError(path, "has no image with a bound that all methods have done")
    return {
        method: np.array([100 * (energies[i] - bounds[i]) / max(1.0, abs(energies[i]))
                          for i in images])
        for method, energies in by_method.items()
    }  # fmt: skip


def draw_bound_gaps(found: dict[str, NDArray[np.float64]]) -> Figure:
    """Draw, for each method, the share of images that end within so many per cent."""
    figure = new_figure(6.4, 3.8)
    axis = figure.subplots()
    for method, values in sorted(found.items(), key=lambda item: -np.median(item[1])):
        ordered = np.sort(np.maximum(values, _LEAST))
        share = 100 * np.arange(1, len(ordered) + 1) / len(ordered)
        label = f"{method} (median {np.median(values):.2g} %)"
        axis.step(ordered, share, where="post", color=COLORS[method], label=label)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_ylim(0, 101)
    axis.set_xlabel("energy above the best proven bound (%)")
    axis.set_ylabel("share of images within (%)")
    axis.set_title(f"{len(next(iter(found.values())))} images", fontsize="medium")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", loc="upper left")
    return figure
