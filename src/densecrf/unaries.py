"""Unary energies from what people have: probabilities, logits, labels.

Each array is scanned once, by `check_finite`, which also gives its range.
"""

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from densecrf.resample import resize_bilinear
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    check_pixels,
    mention,
)

if TYPE_CHECKING:
    from densecrf.layouts import Reading

__all__ = ["FORBIDDEN", "KINDS", "Kind", "check_shape", "energies", "from_labels", "from_logits"]
__all__ += [
    "from_probabilities",
    "looks_like_probabilities",
    "negative_log_softmax",
    "plant",
    "sums_to_one",
    "whole_numbers",
]

Kind: TypeAlias = Literal["probabilities", "logits", "energies", "labels"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Array: TypeAlias = npt.NDArray[Any]

SUM_TOLERANCE = 0.02  # half floats and steps of 0.001 miss a sum of one by half a step per label
FORBIDDEN = 1000.0  # energy of a label that is ruled out: more than all other pixels can outweigh


def sums_to_one(scores: Array, tolerance: float = SUM_TOLERANCE, total: float = 1.0) -> bool:
    """Whether values of at least 0 add up to `total` over the first axis."""
    if scores.min() < -tolerance * total or scores.max() > (1 + tolerance) * total:
        return False
    sums = scores.sum(0, dtype=np.float64)
    return bool(np.abs(sums - total).max() <= tolerance * total)


def _settled(reading: "Reading", kind: str | None, low: float, high: float) -> str:
    """Return what the values are: as named, or as they show beyond doubt.

    Probabilities add up to 1; energies of such are -log p; scores below zero are logits. Anything
    else could be two things, and is refused.
    """
    if kind is not None:
        return kind
    if reading.content == "labels":
        return "labels"
    values = reading.values
    span = f"values from {low:g} to {high:g}"
    if reading.content == "map":
        if low >= 0 and high <= 1:
            return "probabilities"
        remedy = (
            f"one map with {span} can be read in 2 ways: logits of the foreground "
            f"({mention('kind', 'logits')}); or one label per pixel stored as numbers with "
            "fractions, which would be a mistake. Say which"
        )
    elif sums_to_one(values):
        return "probabilities"
    elif low >= 0 and high > 1 and sums_to_one(values, total=100):
        remedy = "values that add up to 100 over the labels: percentages; divide by 100"
    elif values.dtype.kind in "bui":
        remedy = (
            f"whole numbers from {low:g} to {high:g} for each of {len(values)} labels can be read "
            f"in 2 ways: probabilities in steps (give probabilities / {high:g}); or an image, the "
            "arguments being swapped (the image comes first). Say which, or name the kind"
        )
    elif low < 0:
        return "logits"
    elif sums_to_one(np.exp(-values.astype(np.float64))):
        return "energies"
    elif high <= 1:
        remedy = (
            f"{span} can be read in 2 ways: probabilities that do not add up to 1 over the labels, "
            "such as several sigmoids or activation maps (divide them by their sum over the "
            f"labels); or logits ({mention('kind', 'logits')}). Say which"
        )
    else:
        remedy = (
            f"{span} can be read in 2 ways: logits, the higher the likelier "
            f"({mention('kind', 'logits')}); or energies, the lower the likelier "
            f"({mention('kind', 'energies')}). Say which"
        )
    raise ArgumentError("probabilities", ..., remedy)


def energies(
    reading: "Reading",
    low: float,
    high: float,
    *,
    kind: str | None,
    n_labels: int | None,
    void: Any,
    confidence: Any,
    clip: Any,
) -> FloatArray:
    """Return the unary energies (labels, *grid) of a reading with values from `low` to `high`."""
    values = reading.values
    check_fits("probabilities", values.shape)
    kind = _settled(reading, kind, low, high)
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
        return _from_checked(values, low, high, clip)
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
    return _from_checked(p, low, high, clip)


def _from_checked(p: Array, low: float, high: float, clip: Any) -> FloatArray:
    """Return the energies of finite values from `low` to `high`, if they are probabilities."""
    check_fraction("clip", clip)
    if low < 0 or high > 1 + SUM_TOLERANCE:
        percent = low >= 0 and sums_to_one(p, total=100)
        remedy = "percentages: divide by 100" if percent else "for logits say kind='logits' or use "
        remedy += "" if percent else "from_logits, for energies the constructor"
        raise ArgumentError(
            "probabilities", ..., f"values from {low:g} to {high:g} are not probabilities; {remedy}"
        )
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


def _from_marked_labels(
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


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse energies that are not of two labels or more on some pixels."""
    if len(shape) < 2:
        remedy = f"shape {shape}; give (labels, *spatial), for example (21, 240, 320)"
        raise ArgumentError("unary", ..., remedy)
    if shape[0] < 2:
        raise ArgumentError(
            "unary",
            ...,
            f"shape {shape} has {shape[0]} label(s) on its first axis; at "
            "least 2 are needed (is the label axis elsewhere? numpy.moveaxis)",
        )
    if math.prod(shape) == 0:
        raise ArgumentError("unary", ..., f"shape {shape} holds no pixels")
    check_pixels("unary", max(math.prod(shape[1:]), shape[0]))


def looks_like_probabilities(unary: FloatArray) -> bool:
    """Whether energies lie in [0, 1] and add up to 1, neither all equal nor all 0 or 1."""
    if not 0 <= unary.min() < unary.max() <= 1:
        return False
    return bool(((unary > 0) & (unary < 1)).any()) and sums_to_one(unary, 1e-3)
