"""Unary energies of hard labels: annotations, void pixels, seeds."""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    mention,
)

__all__ = ["FORBIDDEN", "from_labels", "from_marked_labels", "plant", "whole_numbers"]

Array = npt.NDArray[Any]

FORBIDDEN = 1000.0  # energy of a label that is ruled out: more than all other pixels can outweigh


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
    x = whole_numbers("labels", array)
    empty: npt.NDArray[np.bool_] = np.zeros(x.shape, bool) if void is None else x == void
    wrong = ~empty & ((x < 0) | (x >= count))
    if wrong.any():
        remedy = f"value {int(x[wrong][0])} is neither a label 0 … {count - 1} nor "
        raise ArgumentError("labels", ..., remedy + mention("void", void))
    unary = np.full((count, *x.shape), -np.log((1 - confidence) / (count - 1)), np.float32)
    np.put_along_axis(unary, np.where(empty, 0, x)[None], np.float32(-np.log(confidence)), 0)
    unary[:, empty] = 0
    return unary


def from_marked_labels(
    values: Array, n_labels: int | None, void: Any, confidence: Any
) -> FloatArray:
    """Return the energies of labels of which some values mean "could be anything"."""
    labels = whole_numbers("probabilities", values)
    empty = [] if void is None else [int(value) for value in np.atleast_1d(void)]
    unsure = np.isin(labels, empty)
    if unsure.all():
        raise ArgumentError(
            "probabilities", ..., f"every pixel is void ({empty}); nothing is known"
        )
    largest = int(labels[~unsure].max())
    count = check_integer("n_labels", n_labels or largest + 1, at_least=1)
    if count < 2:
        remedy = f"only label {largest} occurs; give {mention('n_labels')}, the number of labels"
        raise ArgumentError("probabilities", ..., remedy)
    wrong = ~unsure & ((labels < 0) | (labels >= count))
    if wrong.any():
        remedy = f"value {labels[wrong][0]} is neither a label 0 … {count - 1} nor "
        raise ArgumentError("probabilities", ..., remedy + mention("void", void))
    unary = from_labels(np.where(unsure, -1, labels), count, confidence=confidence, void=-1)
    unary[[value for value in empty if 0 <= value < count]] = FORBIDDEN
    return unary


def whole_numbers(name: str, array: Array) -> npt.NDArray[np.int64]:
    """Return finite labels as integers, or refuse fractions."""
    with np.errstate(invalid="ignore"):
        x = array.astype(np.int64)
    if (x != array).any():
        raise ArgumentError(name, ..., "not whole numbers; give one label index per pixel")
    return x


def plant(unary: FloatArray, seeds: Any) -> None:
    """Forbid, in place, every label but the seed's at the pixels that have one."""
    planted = as_real_array("seeds", seeds)
    if planted.shape != unary.shape[1:]:
        remedy = f"shape {planted.shape} for {unary.shape[1:]} pixels"
        raise ArgumentError("seeds", ..., remedy)
    labels = len(unary)
    if planted.dtype == bool:
        if labels != 2:
            raise ArgumentError(
                "seeds",
                ...,
                f"a mask says 'foreground', but there are {labels} labels; give the label of each "
                "seed, and -1 elsewhere",
            )
        planted = np.where(planted, 1, -1)
    check_finite("seeds", planted)
    index = whole_numbers("seeds", planted)
    free = (index == -1) | (index == 255)
    wrong = ~free & ((index < 0) | (index >= labels))
    if wrong.any():
        remedy = f"value {index[wrong][0]} is neither a label 0 … {labels - 1} nor -1 or 255"
        raise ArgumentError("seeds", ..., f"{remedy} (no seed)")
    other = np.arange(labels).reshape(-1, *([1] * index.ndim)) != index
    unary[other & ~free] = FORBIDDEN
