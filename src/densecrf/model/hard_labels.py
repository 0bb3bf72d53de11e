"""Unary energies of hard labels: annotations, void pixels, seeds."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_choice,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    mention,
)

__all__ = [
    "FORBIDDEN",
    "MARGIN",
    "VOID",
    "forget",
    "from_labels",
    "from_marked_labels",
    "plant",
    "read_void",
    "whole_numbers",
]

Array = npt.NDArray[Any]

MOST_VOID = 1000  # values that mean that nothing is known
VOID = 255  # of pixels without a label, where no other value is named
MARGIN = 3.0  # nats by which a hard label is better than others, where no probability is given
FORBIDDEN = 1000.0  # energy of a label that is ruled out: more than all other pixels can outweigh


def read_void(
    labels: npt.NDArray[np.int64], n_labels: int | None, void: Any
) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the labels, and those values of them that mean "could be anything".

    Parameters
    ----------
    labels : ndarray of int
        The labels.
    n_labels : int or None
        Their number, where it is known.
    void : int, sequence of int, None or "auto"
        The values; None for no value, ``"auto"`` for 255, unless there are more labels than that.
        With ``"auto"``, labels that are 0 and 255 alone are a binary mask as drawing programs write
        it, 255 becoming 1, unless there are more than two labels.

    Examples
    --------
    >>> mask, labels = np.array([0, 255, 0]), np.array([0, 1, 255])
    >>> read_void(mask, None, "auto"), read_void(labels, 2, "auto")
    ((array([0, 1, 0]), []), (array([  0,   1, 255]), [255]))
    """
    if void is None:
        return labels, []
    if isinstance(void, str):
        check_choice("void", void, ("auto",))
        if (n_labels or labels.max(initial=0)) > VOID:
            return labels, []
        white = labels == VOID
        if n_labels in (None, 2) and white.any() and not white.all() and not labels[~white].any():
            return white.astype(np.int64), []
        return labels, [VOID]
    values = np.atleast_1d(as_real_array("void", void))
    if values.ndim > 1 or values.size > MOST_VOID:
        raise ArgumentError(
            "void", ..., f"shape {values.shape}; give one value, or a few in a list"
        )
    return labels, [check_integer("void", value, at_least=-(2**62)) for value in values]


def from_labels(
    labels: Any, n_labels: int, *, confidence: float | None = 0.7, void: Any = "auto"
) -> FloatArray:
    """Return energies of hard labels held right with probability `confidence`.

    Without one, other labels cost `MARGIN` more, however many there are. `void` is as for
    `read_void`.

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
    check_fits("n_labels", (count, *array.shape))  # before anything of that size is scanned
    check_finite("labels", array)
    x, empty = read_void(whole_numbers("labels", array), count, void)
    return _energies("labels", x, empty, count, confidence)


def from_marked_labels(
    values: Array, n_labels: int | None, void: Any, confidence: Any
) -> FloatArray:
    """Return the energies of labels of which some values mean "could be anything".

    No pixel has such a value in the end, where it is a label. The parameters are those of `refine`.
    """
    labels, empty = read_void(whole_numbers("probabilities", values), n_labels, void)
    known = labels[~np.isin(labels, empty)]
    if known.size == 0:
        remedy = f"every pixel is void ({empty}); nothing is known"
        raise ArgumentError("probabilities", ..., remedy)
    largest = int(known.max())
    count = check_integer("n_labels", n_labels or largest + 1, at_least=1)
    if count < 2:
        remedy = f"only label {largest} occurs; give {mention('n_labels')}, the number of labels"
        raise ArgumentError("probabilities", ..., remedy)
    unary = _energies("probabilities", labels, empty, count, confidence)
    unary[[value for value in empty if 0 <= value < count]] = FORBIDDEN
    return unary


def _energies(
    name: str, labels: npt.NDArray[np.int64], void: list[int], count: int, confidence: Any
) -> FloatArray:
    if confidence is None:
        confidence = 1 / (1 + (count - 1) * math.exp(-MARGIN))
    check_fraction("confidence", confidence)
    check_fits("n_labels", (count, *labels.shape))
    empty = np.isin(labels, void)
    wrong = ~empty & ((labels < 0) | (labels >= count))
    if wrong.any():
        value = int(labels[wrong][0])
        remedy = f"value {value} is neither a label 0 … {count - 1} nor void ({void}); where it "
        remedy += f"means that nothing is known, say {mention('void', value)}"
        raise ArgumentError(name, ..., remedy)
    unary = np.full((count, *labels.shape), -np.log((1 - confidence) / (count - 1)), np.float32)
    np.put_along_axis(unary, np.where(empty, 0, labels)[None], np.float32(-np.log(confidence)), 0)
    unary[:, empty] = 0
    return unary


def whole_numbers(name: str, array: Array) -> npt.NDArray[np.int64]:
    """Return finite labels as integers, or refuse fractions."""
    with np.errstate(invalid="ignore"):
        x = array.astype(np.int64)
    if (x != array).any():
        raise ArgumentError(name, ..., "not whole numbers; give one label index per pixel")
    return x


def forget(unary: FloatArray, ignore: Any) -> None:
    """Remove, in place, what is said of the pixels of a mask."""
    mask = as_real_array("ignore", ignore)
    if mask.shape != unary.shape[1:]:
        remedy = f"shape {mask.shape} for a grid of {unary.shape[1:]} pixels"
        raise ArgumentError("ignore", ..., remedy)
    unary[:, mask.astype(bool)] = 0


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
