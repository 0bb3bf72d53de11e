"""Unary energies from what people have: probabilities, logits, labels."""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.resample import resize_bilinear
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_float32,
    as_real_array,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    check_pixels,
    mention,
)

__all__ = ["from_labels", "from_logits", "from_probabilities"]

SUM_TOLERANCE = 0.02


def from_probabilities(probabilities: Any, *, axis: int = 0, clip: float = 1e-5) -> FloatArray:
    """Return -log max(p, clip), label axis first.

    Examples
    --------
    >>> from_probabilities([[0.5, 1.0], [0.5, 0.0]]).round(3)
    array([[ 0.693, -0.   ],
           [ 0.693, 11.513]], dtype=float32)
    """
    p = _labels_first("probabilities", probabilities, axis)
    check_fraction("clip", clip)
    low, high = float(p.min()), float(p.max())
    if low < 0 or high > 1 + SUM_TOLERANCE:
        raise ArgumentError(
            "probabilities",
            ...,
            f"values from {low:g} to {high:g} are not probabilities; for logits "
            "use from_logits, for energies the constructor",
        )
    total = p.sum(0, dtype=np.float64)
    worst = float(np.abs(total - 1).max())
    if worst > SUM_TOLERANCE:
        raise ArgumentError(
            "probabilities",
            ...,
            f"they add up to {float(total.min()):g} … {float(total.max()):g} over "
            f"axis {axis}, not to 1; name the label axis by {mention('axis')}, or normalise them",
        )
    return np.asarray(-np.log(np.maximum(p, clip)), np.float32)


def from_logits(logits: Any, *, axis: int = 0, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return -log softmax, label axis first, upsampled to `shape` where that differs."""
    z = as_float32("logits", _labels_first("logits", logits, axis))
    if shape is not None:
        grid = tuple(check_integer("shape", s, at_least=1) for s in np.atleast_1d(shape))
        if z.ndim != len(grid) + 1:
            raise ArgumentError(
                "logits",
                ...,
                f"{z.ndim - 1} axes of pixels for a grid of {grid}; give (labels, *spatial)",
            )
        if z.shape[1:] != grid:
            check_fits("shape", (z.shape[0], *grid))
            z = resize_bilinear(z, grid)
    z = z - z.max(0)
    return np.asarray(np.log(np.exp(z).sum(0)) - z, np.float32)


def from_labels(
    labels: Any, n_labels: int, *, confidence: float = 0.7, void: int | None = 255
) -> FloatArray:
    """Return energies of hard labels held right with probability `confidence`.

    Examples
    --------
    >>> from_labels([0, 1, 255], 2, confidence=0.9).round(3)
    array([[0.105, 2.303, 0.   ],
           [2.303, 0.105, 0.   ]], dtype=float32)
    """
    count = check_integer("n_labels", n_labels, at_least=2)
    array = as_real_array("labels", labels)
    if array.size == 0:
        raise ArgumentError("labels", ..., f"shape {array.shape} holds no pixels")
    check_fraction("confidence", confidence)
    if void is not None:
        check_integer("void", void, at_least=-(2**62))
    check_fits("n_labels", (count, *array.shape))
    check_finite("labels", array)
    with np.errstate(invalid="ignore"):
        x = array.astype(np.int64)
    if (x != array).any():
        raise ArgumentError("labels", ..., "not whole numbers; give one label index a pixel")
    empty: npt.NDArray[np.bool_] = np.zeros(x.shape, bool) if void is None else x == void
    wrong = ~empty & ((x < 0) | (x >= count))
    if wrong.any():
        raise ArgumentError(
            "labels",
            ...,
            f"value {int(x[wrong][0])} is neither a label 0 … {count - 1} nor "
            + mention("void", void),
        )
    unary = np.full((count, *x.shape), -np.log((1 - confidence) / (count - 1)), np.float32)
    np.put_along_axis(unary, np.where(empty, 0, x)[None], np.float32(-np.log(confidence)), 0)
    unary[:, empty] = 0
    return unary


def _labels_first(name: str, value: Any, axis: int) -> npt.NDArray[Any]:
    """Return a checked array with the label axis moved to the front."""
    array = as_real_array(name, value)
    if array.ndim < 2:
        raise ArgumentError(name, ..., f"shape {array.shape}; a label axis and pixels are needed")
    if array.size == 0:
        raise ArgumentError(name, ..., f"shape {array.shape} holds no values")
    check_integer("axis", axis, at_least=-array.ndim, at_most=array.ndim - 1)
    check_pixels(name, max(array.shape[axis], array.size // array.shape[axis]))
    check_fits(name, array.shape)
    check_finite(name, array)
    return np.moveaxis(array, axis, 0)
