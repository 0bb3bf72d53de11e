"""Where an answer is unsure: regions that an annotator should look at."""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.solvers.islands import regions

__all__ = ["unsure_regions"]

UNSURE = 0.8  # mean confidence of a window below which its middle is unsure
WINDOW = 1 / 30  # of the shorter side: borders between labels, unsure everywhere, are thinner
LEAST_SHARE = 5e-4  # of the image that is worth a look
MOST = 20  # regions that are told


def unsure_regions(confidence: npt.NDArray[Any]) -> list[dict[str, int]]:
    """Return the boxes of regions whose labels are unsure, the largest first.

    Each has x, y, width, height and slice. A pixel counts where the confidence is low on average
    in a window around it.
    """
    planes = confidence[None] if confidence.ndim == 2 else confidence
    found = []
    for at, plane in enumerate(planes):
        inside = _mean_around(plane, max(2, round(WINDOW * min(plane.shape) / 2))) < UNSURE
        if not inside.any():
            continue
        number, _ = regions(inside.astype(np.int64))
        counts = np.bincount(number.ravel(), inside.ravel())
        for region in np.flatnonzero(counts >= max(1, LEAST_SHARE * plane.size)):
            y, x = np.nonzero(number == region)
            (top, left), (bottom, right) = (y.min(), x.min()), (y.max() + 1, x.max() + 1)
            box = {"x": left, "y": top, "width": right - left, "height": bottom - top, "slice": at}
            found.append((counts[region], {name: int(value) for name, value in box.items()}))
    found.sort(key=lambda each: -each[0])
    return [box for _, box in found[:MOST]]


def _mean_around(values: npt.NDArray[Any], radius: int) -> npt.NDArray[np.float64]:
    """Return the mean of the values in a square window, cut off at the border."""
    means = values.astype(np.float64)
    for axis in (0, 1):
        length = means.shape[axis]
        sums = np.insert(means.cumsum(axis), 0, 0, axis)
        low = np.maximum(np.arange(length) - radius, 0)
        high = np.minimum(np.arange(length) + radius + 1, length)
        total = np.take(sums, high, axis) - np.take(sums, low, axis)
        means = total / np.expand_dims(high - low, 1 - axis)
    return means
