"""Unary energies from what people have: scores or labels, in whatever layout.

Which axis holds the labels, which the colours: all readings that fit are found; where more than one
fits the shapes and the values, the input is refused and all are spelled out. Each array is scanned
once, by `check_finite`, which also gives its range.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from densecrf.hard_labels import from_marked_labels
from densecrf.resample import resize_bilinear
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_image,
    as_real_array,
    check_choice,
    check_finite,
    check_fits,
    check_fraction,
    check_integer,
    check_pixels,
    mention,
)

__all__ = ["COLOR_CHANNELS", "KINDS", "SUM_TOLERANCE", "Kind", "Reading", "check_shape"]
__all__ += ["energies", "from_logits", "from_probabilities", "looks_like_probabilities"]
__all__ += ["negative_log_softmax", "read", "settled", "sums_to_one"]

Kind: TypeAlias = Literal["probabilities", "logits", "energies", "labels"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Array: TypeAlias = npt.NDArray[Any]

SUM_TOLERANCE = 0.02  # half floats and steps of 0.001 miss a sum of one by half a step per label
COLOR_CHANNELS = (1, 3, 4)  # of an image whose channels come first


class _Image(NamedTuple):
    pixels: Array
    grid: tuple[int, ...]
    words: str
    usual: bool


@dataclass(frozen=True)
class Reading:
    """One way to read an image and what is known of its pixels.

    Attributes
    ----------
    content : {"scores", "labels", "map"}
        A score for each label, one label, or one label's score (foreground) for each pixel.
    values : ndarray
        Scores (labels, *grid), or (*grid) for labels and maps.
    image : _Image
        The image, (*grid) or (*grid, channels).
    words : str
        The reading in words, with the arguments that choose it.
    """

    content: Literal["scores", "labels", "map"]
    values: Array
    image: _Image
    words: str


def read(
    image: Any, given: Any, *, kind: str | None, axis: int | None, channel_axis: int | None
) -> tuple[Reading, float, float]:
    """Return the only reading that fits with the range of its values, or refuse.

    The parameters are those of `refine`.
    """
    picture = as_image("image", image.cpu() if hasattr(image, "cpu") else image)
    array = as_real_array("probabilities", given.cpu() if hasattr(given, "cpu") else given)
    for name, some, which in (("axis", array, axis), ("channel_axis", picture, channel_axis)):
        if some.size == 0:
            what = "image" if some is picture else "probabilities"
            raise ArgumentError(what, ..., f"shape {some.shape} holds no values")
        if which is not None and not -some.ndim <= which < some.ndim:
            raise ArgumentError(name, which, f"the array of shape {some.shape} has no such axis")
    if kind is not None:
        check_choice("kind", kind, KINDS)
    low, high = check_finite("probabilities", array)
    shapes = f"shape {array.shape} with an image of shape {picture.shape}"
    if _is_batch_of_one(picture, array):
        picture, channel_axis = _first_item(picture, channel_axis)
        if array.ndim == 4:
            array, axis = _first_item(array, axis)
    images = list(_images(picture, channel_axis))
    readings = [reading for some in images for reading in _readings(some, array, kind, axis)]
    if len(readings) > 1:
        readings = [r for r in readings if r.content == "scores" and sums_to_one(r.values)] or (
            readings
        )
    if len(readings) > 1 and array.dtype.kind == "f":
        readings = [reading for reading in readings if reading.image.usual] or readings
    if not readings and kind != "labels":
        readings = list(_resized(images, array, axis))
    if not readings:
        raise ArgumentError("probabilities", ..., _no_reading(array, picture, kind))
    if len(readings) > 1:
        if eight_bits := next(filter(None, (_total(reading) for reading in readings)), None):
            raise ArgumentError("probabilities", ..., eight_bits)
        ways = "; or ".join(reading.words for reading in readings)
        remedy = f"can be read in {len(readings)} ways: {ways}. Say which by the arguments named"
        raise ArgumentError("probabilities", ..., f"{shapes} {remedy}")
    return readings[0], low, high


def _is_batch_of_one(image: Array, array: Array) -> bool:
    """Whether an image of 4 axes is PyTorch's (1, channels, H, W), or both are batches of one."""
    if image.ndim != 4 or image.shape[0] != 1:
        return False
    if array.ndim == 4:
        return bool(array.shape[0] == 1)
    return image.shape[1] in COLOR_CHANNELS and array.shape[-2:] == image.shape[2:]


def _first_item(array: Array, axis: int | None) -> tuple[Array, int | None]:
    return array[0], None if axis is None else axis % array.ndim - 1


def _images(image: Array, channel_axis: int | None) -> Iterator[_Image]:
    """Yield the readings of the image: grey, channels last, channels first."""
    if channel_axis is not None:
        moved = np.moveaxis(image, channel_axis, -1)
        yield _Image(moved, moved.shape[:-1], mention("channel_axis", channel_axis), True)
        return
    first, last = image.shape[0] in COLOR_CHANNELS, image.shape[-1] in COLOR_CHANNELS
    colored = image.ndim >= 3 and (first or last)
    yield _Image(image, image.shape, "an image without channels", not colored)
    if image.ndim >= 3:
        words = f"an image with channels last ({mention('channel_axis', image.ndim - 1)})"
        yield _Image(image, image.shape[:-1], words, last)
    if image.ndim >= 3 and first:
        moved = np.moveaxis(image, 0, -1)
        words = f"an image with channels first ({mention('channel_axis', 0)})"
        yield _Image(moved, moved.shape[:-1], words, True)


def _readings(image: _Image, array: Array, kind: str | None, axis: int | None) -> Iterator[Reading]:
    """Yield the readings of the other array for one reading of the image."""
    if kind != "labels":
        yield from _scores(image, array, axis)
    flat = _without_singletons(array, image.grid)
    if flat is None or axis is not None:
        return
    over = f"{image.grid} pixels, {image.words}"
    if kind == "labels" or (kind is None and array.dtype.kind in "bui"):
        words = f"one label ({mention('kind', 'labels')}) for each of {over}"
        yield Reading("labels", flat, image, words)
    elif kind is not None or (flat != np.rint(flat)).any():
        words = f"probabilities of the foreground (stack [1 - p, p] to say so) over {over}"
        yield Reading("map", flat, image, words)
    else:
        words = f"whole numbers as labels ({mention('kind', 'labels')}) over {over}"
        yield Reading("labels", flat, image, words)
        words = f"certain foreground ({mention('kind', 'probabilities')}) over {over}"
        yield Reading("map", flat, image, words)


def _scores(image: _Image, array: Array, axis: int | None) -> Iterator[Reading]:
    """Yield the readings as scores: labels first, last, or behind a batch axis of one."""
    candidates = {axis % array.ndim} if axis is not None else {0, array.ndim - 1}
    if axis is None and array.ndim > 2 and array.shape[0] == 1:
        candidates.add(1)
    for where in sorted(candidates):
        moved = _labels_first(array, where)
        if moved.shape[1:] == image.grid and moved.shape[0] > 1:
            words = f"{moved.shape[0]} labels on {mention('axis', where)} over {image.grid} pixels"
            yield Reading("scores", moved, image, f"{words}, {image.words}")


def _resized(images: list[_Image], array: Array, axis: int | None) -> Iterator[Reading]:
    """Yield scores brought to the size of a plane image.

    Their label axis is the named one, or the only one that leaves pixels in the proportion of the
    image.
    """
    plane = [image for image in images if len(image.grid) == 2]
    if len(plane) != 1:
        return
    grid = plane[0].grid
    if axis is None:
        candidates = _reduced_axes(array, grid)
        summed = [where for where in candidates if sums_to_one(_labels_first(array, where))]
        candidates = summed or candidates
        axis = candidates[0] if len(candidates) == 1 else None
    if axis is None:
        return
    moved = _labels_first(array, axis)
    if moved.ndim != 3 or moved.shape[0] < 2 or moved.shape[:0:-1] == grid:  # sides swapped
        return
    yield Reading("scores", resize_bilinear(moved, grid), plane[0], "resized")


def _reduced_axes(array: Array, grid: tuple[int, ...]) -> list[int]:
    """Return the axes that leave the pixels of an image reduced by one whole factor.

    An axis as long as a side of the image is taken for pixels.
    """
    found = []
    for where in {0, array.ndim - 1} | ({1} if array.ndim == 4 and array.shape[0] == 1 else set()):
        moved = _labels_first(array, where)
        if moved.ndim != 3 or len(grid) != 2 or len(moved) < 2 or len(moved) in grid:
            continue
        height, width = moved.shape[1:]
        if any(
            height in (grid[0] // step, -(-grid[0] // step))
            and width in (grid[1] // step, -(-grid[1] // step))
            for step in range(2, min(grid) + 1)
        ):
            found.append(where)
    return sorted(found)


def _labels_first(array: Array, axis: int) -> Array:
    """Return the array with its label axis in front, without a batch axis of one."""
    moved = np.moveaxis(array, axis, 0)
    return moved[:, 0] if moved.ndim > 2 and array.shape[0] == 1 and moved.shape[1] == 1 else moved


def _without_singletons(array: Array, grid: tuple[int, ...]) -> Array | None:
    """Return the array on the grid, without a batch or channel axis of one; None if it is not."""
    shapes = (grid, (1, *grid), (*grid, 1), (1, 1, *grid))
    return array.reshape(grid) if array.shape in shapes else None


def _no_reading(array: Array, image: Array, kind: str | None) -> str:
    message = f"shape {array.shape} does not fit an image of shape {image.shape}; give "
    message += "" if kind == "labels" else "(labels, *pixels), (*pixels, labels), or "
    message += "one label per pixel, of the image's shape"
    if any(next(_scores(some, image, None), None) for some in _images(array, None)):
        return message + ": the arguments look swapped, the image comes first"
    if image.ndim == array.ndim == 4 and len(image) == len(array) > 1:
        inside = [
            next(_readings(some, array[0], kind, None), None) for some in _images(image[0], None)
        ]
        if any(inside):
            return f"{message}. {len(image)} images at once are for densecrf.refine_many"
    sizes = {image.shape[:2], image.shape[-2:]}  # of channels last and first
    if not sizes.isdisjoint({array.shape[:-3:-1], array.shape[1::-1]}):
        return message + ": height and width look swapped (numpy.swapaxes)"
    if kind != "labels" and array.ndim >= 3:
        grids = {some.grid for some in _images(image, None) if some.usual}
        fitting = sorted({where for grid in grids for where in _reduced_axes(array, grid)})
        message += ". A network's output of lower resolution is resized when you name its label "
        named = [mention("axis", where) for where in fitting] or [mention("axis")]
        message += f"axis by {' or '.join(named)}"
    return message


def sums_to_one(scores: Array, tolerance: float = SUM_TOLERANCE, total: float = 1.0) -> bool:
    """Whether values of at least 0 add up to `total` over the first axis."""
    if scores.min() < -tolerance * total or scores.max() > (1 + tolerance) * total:
        return False
    sums = scores.sum(0, dtype=np.float64)
    return bool(np.abs(sums - total).max() <= tolerance * total)


def _total(reading: Reading) -> str | None:
    """Return what to do with probabilities in per cent or in 8 bits; None where it is neither."""
    for total, what in ((100, "percentages"), (255, "probabilities in 8 bits")):
        if reading.content == "scores" and sums_to_one(reading.values, total=total):
            return f"values that add up to {total} over the labels: {what}; divide by {total}"
    return None


def settled(content: str, values: Array, kind: str | None) -> str:
    """Return what the values of a reading are, by all of them or by the extreme ones."""
    reading = Reading(content, values, None, "")  # type: ignore[arg-type]
    return _settled(reading, kind, *check_finite("probabilities", values))


def _settled(reading: Reading, kind: str | None, low: float, high: float) -> str:
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
    elif scaled := _total(reading):
        remedy = scaled
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
    reading: Reading,
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
        return from_marked_labels(values, n_labels, void, confidence)
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
    first = unary.reshape(len(unary), -1)[:, :1]  # nearly always enough to tell
    if not sums_to_one(first, 1e-3) or not 0 <= unary.min() < unary.max() <= 1:
        return False
    return bool(((unary > 0) & (unary < 1)).any()) and sums_to_one(unary, 1e-3)
