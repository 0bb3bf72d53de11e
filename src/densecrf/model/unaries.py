"""Unary energies of scores and of hard labels: annotations, void pixels, seeds."""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.model.reading import SUM_TOLERANCE, Reading, sums_to_one
from densecrf.model.resample import resize_bilinear
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    as_real_array,
    check_choice,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    check_pixels,
    mention,
)

__all__ = [
    "FORBIDDEN",
    "MARGIN",
    "VOID",
    "check_shape",
    "checked_mask",
    "energies",
    "forget",
    "from_labels",
    "from_logits",
    "from_probabilities",
    "looks_like_probabilities",
    "negative_log_softmax",
    "plant",
    "read_void",
    "whole_numbers",
]

Array: TypeAlias = npt.NDArray[Any]

MOST_VOID = 1000  # values that mean void
VOID = 255  # of pixels without a label, where no other value is named
MARGIN = 3.0  # nats by which a hard label is better than others, where no probability is given
FORBIDDEN = 1000.0  # energy of a label that is ruled out: more than all other pixels can outweigh


def energies(
    reading: Reading,
    *,
    kind: str | None,
    n_labels: int | None,
    void: Any,
    confidence: Any,
    clip: Any,
) -> FloatArray:
    """Return the unary energies (labels, *grid) of a reading."""
    values = reading.values
    check_fits("probabilities", values.shape)
    kind = reading.kind(kind)
    if kind == "labels":
        return _from_marked_labels(values, n_labels, void, confidence)
    if reading.content == "map":
        if kind == "energies":
            raise ArgumentError("probabilities", ..., "energies need one map per label")
        zero = np.zeros_like(values, np.float64)
        values = np.stack([zero if kind == "logits" else 1.0 - values, values])
    if n_labels is not None and values.shape[0] != check_integer("n_labels", n_labels, at_least=2):
        raise ArgumentError("n_labels", n_labels, f"the array holds {values.shape[0]} labels")
    if kind == "probabilities":
        return _from_finite(values, *reading.span, clip)
    if kind == "logits":
        return negative_log_softmax(values)
    return np.array(values, np.float32, order="C")


def from_probabilities(probabilities: Any, *, axis: int = 0, clip: float = 1e-5) -> FloatArray:
    """Return -log max(p, clip), label axis first.

    Examples
    --------
    >>> from_probabilities([[0.5, 1.0], [0.5, 0.0]]).round(3)
    array([[ 0.693, -0.   ],
           [ 0.693, 11.513]], dtype=float32)
    """
    p, low, high = _checked_scores("probabilities", probabilities, axis)
    return _from_finite(p, low, high, clip)


def _from_finite(p: Array, low: float, high: float, clip: Any) -> FloatArray:
    """Return the energies of finite values from `low` to `high`, if they are probabilities."""
    check_fraction("clip", clip)
    if low < 0 or high > 1 + SUM_TOLERANCE:
        remedy = "for logits say kind='logits' or use from_logits, for energies the constructor"
        if low >= 0 and sums_to_one(p, total=100):
            remedy = "percentages: divide by 100"
        what = f"values from {low:g} to {high:g} are not probabilities; {remedy}"
        raise ArgumentError("probabilities", ..., what)
    total = p.sum(0, dtype=np.float64)
    if np.abs(total - 1).max() > SUM_TOLERANCE:
        raise ArgumentError(
            "probabilities",
            ...,
            f"they add up to {float(total.min()):g} … {float(total.max()):g} over the labels, not "
            f"to 1; name the label axis by {mention('axis')}, or normalise them",
        )
    return np.asarray(-np.log(np.maximum(p, clip)), np.float32)


def from_logits(logits: Any, *, axis: int = 0, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return -log softmax, label axis first, upsampled to `shape` where that differs."""
    z, _, _ = _checked_scores("logits", logits, axis)
    if shape is not None:
        grid = tuple(check_integer("shape", s, at_least=1) for s in np.atleast_1d(shape))
        if z.ndim != len(grid) + 1:
            remedy = f"{z.ndim - 1} axes of pixels for a grid of {grid}; give (labels, *spatial)"
            raise ArgumentError("logits", ..., remedy)
        if z.shape[1:] != grid:
            check_fits("shape", (z.shape[0], *grid))
            z = resize_bilinear(z, grid)
    return negative_log_softmax(z)


def negative_log_softmax(z: Array) -> FloatArray:
    """Return -log softmax over the first axis."""
    z = np.asarray(z, np.float32)
    z = z - z.max(0)
    return np.asarray(np.log(np.exp(z).sum(0)) - z, np.float32)


def _checked_scores(name: str, value: Any, axis: int) -> tuple[Array, float, float]:
    """Return a finite array with the label axis moved to the front, and its range."""
    array = as_real_array(name, value)
    if array.ndim < 2:
        raise ArgumentError(name, ..., f"shape {array.shape}; a label axis and pixels are needed")
    if array.size == 0:
        raise ArgumentError(name, ..., f"shape {array.shape} holds no values")
    check_integer("axis", axis, at_least=-array.ndim, at_most=array.ndim - 1)
    check_pixels(name, max(array.shape[axis], array.size // array.shape[axis]))
    check_fits(name, array.shape)
    return np.moveaxis(array, axis, 0), *check_finite(name, array)


def read_void(labels: IntArray, n_labels: int | None, void: Any) -> tuple[IntArray, list[int]]:
    """Return the labels, and the values among them that mean void.

    `void` has the values; None for no value, ``"auto"`` for 255, unless there are more labels. With
    ``"auto"``, labels of only 0 and 255 are a binary mask, and 255 becomes 1, unless more than two
    labels are known.

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
        remedy = f"shape {values.shape}; give one value, or a few in a list"
        raise ArgumentError("void", ..., remedy)
    return labels, [check_integer("void", value, at_least=-(2**62)) for value in values]


def from_labels(
    labels: Any, n_labels: int, *, confidence: float | None = 0.7, void: Any = "auto"
) -> FloatArray:
    """Return energies of hard labels that are right with probability `confidence`.

    Without it, other labels cost `MARGIN` more, for any number of labels. `void` is as for
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
    return _of_labels("labels", x, empty, count, confidence)


def _from_marked_labels(
    values: Array, n_labels: int | None, void: Any, confidence: Any
) -> FloatArray:
    """Return the energies of labels, some of whose values mean void.

    If a void value is also a label, that label is forbidden. The parameters are those of `refine`.
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
    unary = _of_labels("probabilities", labels, empty, count, confidence)
    unary[[value for value in empty if 0 <= value < count]] = FORBIDDEN
    return unary


def _of_labels(
    name: str, labels: IntArray, void: list[int], count: int, confidence: Any
) -> FloatArray:
    if confidence is None:
        confidence = 1 / (1 + (count - 1) * math.exp(-MARGIN))
    check_fraction("confidence", confidence)
    check_fits("n_labels", (count, *labels.shape))
    empty = np.isin(labels, void)
    wrong = ~empty & ((labels < 0) | (labels >= count))
    if wrong.any():
        value = int(labels[wrong][0])
        remedy = f"value {value} is neither a label 0 … {count - 1} nor void ({void}); if it means "
        remedy += f"void, give {mention('void', value)}"
        raise ArgumentError(name, ..., remedy)
    unary = np.full((count, *labels.shape), -np.log((1 - confidence) / (count - 1)), np.float32)
    np.put_along_axis(unary, np.where(empty, 0, labels)[None], np.float32(-np.log(confidence)), 0)
    unary[:, empty] = 0
    return unary


def whole_numbers(name: str, array: Array) -> IntArray:
    """Return finite labels as integers, or refuse fractions."""
    with np.errstate(invalid="ignore"):
        x = array.astype(np.int64)
    if (x != array).any():
        raise ArgumentError(name, ..., "not whole numbers; give one label index per pixel")
    return x


def forget(unary: FloatArray, ignore: Any) -> None:
    """Remove, in place, the unaries of the pixels of a mask."""
    unary[:, checked_mask(ignore, unary.shape[1:])] = 0


def checked_mask(ignore: Any, grid: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return the mask of the pixels that are to be ignored."""
    mask = as_real_array("ignore", ignore)
    if mask.shape != grid:
        raise ArgumentError("ignore", ..., f"shape {mask.shape} for a grid of {grid} pixels")
    return mask.astype(bool)


def plant(unary: FloatArray, seeds: Any) -> None:
    """Forbid, in place, every label but the seed's at the pixels that have one."""
    planted = as_real_array("seeds", seeds)
    if planted.shape != unary.shape[1:]:
        remedy = f"shape {planted.shape} for {unary.shape[1:]} pixels"
        raise ArgumentError("seeds", ..., remedy)
    labels = len(unary)
    if planted.dtype == bool:
        if labels != 2:
            remedy = f"a mask means foreground, but there are {labels} labels; give the label of "
            raise ArgumentError("seeds", ..., remedy + "each seed, and -1 elsewhere")
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


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse energies that are not of two labels or more on some pixels."""
    if len(shape) < 2:
        remedy = f"shape {shape}; give (labels, *spatial), for example (21, 240, 320)"
        raise ArgumentError("unary", ..., remedy)
    if shape[0] < 2:
        remedy = f"shape {shape} has {shape[0]} label(s) on its first axis; at least 2 are needed "
        raise ArgumentError("unary", ..., remedy + "(is the label axis elsewhere? numpy.moveaxis)")
    if math.prod(shape) == 0:
        raise ArgumentError("unary", ..., f"shape {shape} holds no pixels")
    check_pixels("unary", max(math.prod(shape[1:]), shape[0]))


def looks_like_probabilities(unary: FloatArray) -> bool:
    """Whether energies lie in [0, 1] and add up to 1, neither all equal nor all 0 or 1."""
    first = unary.reshape(len(unary), -1)[:, :1]  # nearly always enough to tell
    if not sums_to_one(first, 1e-3) or not 0 <= unary.min() < unary.max() <= 1:
        return False
    return bool(((unary > 0) & (unary < 1)).any()) and sums_to_one(unary, 1e-3)
