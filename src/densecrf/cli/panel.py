"""A picture of several labellings of one image, side by side."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io import atomic_writer, overlay

__all__ = ["write_panel"]

COLUMNS = 4
WIDTH = 3.4  # inches of one picture


def write_panel(
    path: Path,
    image: npt.NDArray[np.uint8],
    labellings: Sequence[tuple[str, Any]],
    image_title: str = "image",
) -> None:
    """Write a PNG with the image and each labelling over it, titled.

    Parameters
    ----------
    path : path-like
        The file to write, whole or not at all.
    image : ndarray, (H, W) or (H, W, 3) uint8
        The image.
    labellings : sequence of (str, ndarray)
        Titles and labels (H, W).
    image_title : str
        Title of the image.
    """
    from matplotlib.figure import Figure

    pictures = [(image_title, image)]
    pictures += [(title, overlay(image, labels)) for title, labels in labellings]
    columns = min(COLUMNS, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    height = WIDTH * image.shape[0] / image.shape[1] + 0.5
    figure = Figure(figsize=(WIDTH * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, picture) in zip(axes, pictures, strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axis.set_title(title, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    with atomic_writer(path) as file:
        file.write(buffer.getvalue())
