"""The object in a box that was drawn around it: pixels that become a stroke."""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.model.boxes import from_box

__all__ = ["object_in"]

GAP = 1e-2  # its border is solved for again, together with all strokes
BORDER = 2  # pixels inside its border that are left to that

Mask = npt.NDArray[np.bool_]


def object_in(image: npt.NDArray[Any], box: tuple[float, ...]) -> Mask:
    """Return the pixels (H, W) of the object in a box, x0, y0, x1, y1, but for its border.

    Thin objects keep their border. ValueError says why there is none.
    """
    found: Mask = np.equal(from_box(image, box, gap=GAP).labels, 1)
    if not found.any():
        raise ValueError("no object stands out in this box; draw on it instead")
    inside = found
    for _ in range(BORDER):
        inside = _shrunk(inside)
    return inside if 2 * inside.sum() >= found.sum() else found


def _shrunk(mask: Mask) -> Mask:
    """Return the pixels whose neighbours are in the mask as well, or outside the image."""
    wide = np.pad(mask, 1, constant_values=True)
    beside = wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.asarray(mask & beside & wide[:-2, 1:-1] & wide[2:, 1:-1])
