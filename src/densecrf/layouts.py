"""Understand arrays whose layout nobody named: all readings that fit, and one or none taken.

A reading says which axis holds the labels, which the colours, and what the values are. Where more
than one fits the shapes and the values, the input is refused and every reading is spelled out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from densecrf.resample import resize_bilinear
from densecrf.validation import ArgumentError, as_real_array, check_choice, check_finite, mention

__all__ = ["KINDS", "Kind", "Reading", "read", "settle_kind"]

Kind = Literal["probabilities", "logits", "energies", "labels"]
KINDS = ("probabilities", "logits", "energies", "labels")

SUM_TOLERANCE = 0.02
COLOR_CHANNELS = (1, 3, 4)  # of an image whose channels come first


@dataclass(frozen=True)
class Reading:
    """One way to understand an image and what is known of its pixels.

    Attributes
    ----------
    content : {"scores", "labels", "map"}
        A score for each label, one label, or one label's score (foreground) for each pixel.
    values : ndarray
        Scores (labels, *grid), or (*grid) for labels and maps.
    grid : tuple of int
        Shape of the pixels.
    image : ndarray
        (*grid) or (*grid, channels).
    words : str
        The reading in words, with the arguments that choose it.
    usual : bool
        Whether images look like this: one, three or four channels, or none.
    """

    content: Literal["scores", "labels", "map"]
    values: npt.NDArray[Any]
    grid: tuple[int, ...]
    image: npt.NDArray[Any]
    words: str
    usual: bool = True


def read(
    image: Any,
    given: Any,
    *,
    kind: str | None = None,
    axis: int | None = None,
    channel_axis: int | None = None,
    name: str = "probabilities",
) -> Reading:
    """Return the only reading that fits, or refuse.

    Parameters
    ----------
    image : array_like
        The image, channels last, first, or none.
    given : array_like
        Scores with the label axis first or last, a labelling, or a map of the foreground. A batch
        axis of one in front is dropped.
    kind : str, optional
        One of `KINDS`, where the caller knows.
    axis, channel_axis : int, optional
        The label axis of `given` and the channel axis of `image`, where the caller knows. With
        `axis`, scores of a lower resolution are brought to the size of the image.
    name : str
        What messages call `given`.
    """
    picture, array = as_real_array("image", image), as_real_array(name, given)
    for what, some in (("image", picture), (name, array)):
        if some.size == 0:
            raise ArgumentError(what, ..., f"shape {some.shape} holds no values")
    check_finite("image", picture)
    check_finite(name, array)
    if kind is not None:
        check_choice("kind", kind, KINDS)
    _check_axis("axis", axis, array)
    _check_axis("channel_axis", channel_axis, picture)
    images = list(_images(picture, channel_axis))
    readings = [reading for some in images for reading in _readings(some, array, kind, axis, name)]
    if len(readings) > 1:
        readings = _by_sums(readings)
    if len(readings) > 1 and array.dtype.kind == "f":
        readings = [reading for reading in readings if reading.usual] or readings
    if not readings and axis is not None and kind != "labels":
        readings = list(_resized(images, array, axis))
    if not readings:
        swapped = any(next(_scores(some, picture, None), None) for some in _images(array, None))
        raise ArgumentError(name, ..., _no_reading(array, picture, kind, swapped))
    if len(readings) > 1:
        ways = "; or ".join(reading.words for reading in readings)
        raise ArgumentError(
            name,
            ...,
            f"shape {array.shape} with an image of shape {picture.shape} can be read in "
            f"{len(readings)} ways: {ways}. Say which by the arguments named",
        )
    return readings[0]


@dataclass(frozen=True)
class _Image:
    pixels: npt.NDArray[Any]
    grid: tuple[int, ...]
    words: str
    usual: bool


def _images(image: npt.NDArray[Any], channel_axis: int | None) -> Iterator[_Image]:
    """Yield the readings of the image: grey, channels last, channels first."""
    if channel_axis is not None:
        moved = np.moveaxis(image, channel_axis, -1)
        yield _Image(moved, moved.shape[:-1], f"channel_axis={channel_axis}", True)
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


def _readings(
    image: _Image, array: npt.NDArray[Any], kind: str | None, axis: int | None, name: str
) -> Iterator[Reading]:
    """Yield the readings of the other array for one reading of the image."""
    whole = array.dtype.kind in "bui"
    if kind != "labels":
        yield from _scores(image, array, axis)
    if axis is not None:
        return
    flat = _without_singletons(array, image.grid)
    if flat is None:
        return
    if kind == "labels" or (kind is None and whole):
        words = f"one label ({mention('kind', 'labels')}) for each of {image.grid} pixels, "
        words += image.words
        yield Reading("labels", flat, image.grid, image.pixels, words, image.usual)
    elif kind is not None or not _is_whole(flat):
        words = (
            f"{name} of the foreground (stack [1 - p, p] to say so) over {image.grid} pixels, "
            f"{image.words}"
        )
        yield Reading("map", flat, image.grid, image.pixels, words, image.usual)
    else:
        words = f"whole numbers as labels ({mention('kind', 'labels')}) over {image.grid} pixels"
        yield Reading("labels", flat, image.grid, image.pixels, words, image.usual)
        words = f"certain foreground ({mention('kind', 'probabilities')}) over {image.grid} pixels"
        yield Reading("map", flat, image.grid, image.pixels, words, image.usual)


def _scores(image: _Image, array: npt.NDArray[Any], axis: int | None) -> Iterator[Reading]:
    """Yield the readings as scores: labels first, last, or behind a batch axis of one."""
    candidates = {axis % array.ndim} if axis is not None else {0, array.ndim - 1}
    if axis is None and array.ndim > 2 and array.shape[0] == 1:
        candidates.add(1)
    for where in sorted(candidates):
        moved = _labels_first(array, where)
        if moved.shape[1:] == image.grid and moved.shape[0] > 1:
            words = (
                f"{moved.shape[0]} labels on {mention('axis', where)} over {image.grid} pixels, "
            )
            yield Reading(
                "scores", moved, image.grid, image.pixels, words + image.words, image.usual
            )


def _resized(images: list[_Image], array: npt.NDArray[Any], axis: int) -> Iterator[Reading]:
    """Yield scores brought to the size of a plane image."""
    moved = _labels_first(array, axis)
    plane = [image for image in images if len(image.grid) == 2]
    if moved.ndim == 3 and moved.shape[0] > 1 and len(plane) == 1:
        grid = plane[0].grid
        yield Reading("scores", resize_bilinear(moved, grid), grid, plane[0].pixels, "resized")


def _labels_first(array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """Return the array with its label axis in front, without a batch axis of one."""
    moved = np.moveaxis(array, axis, 0)
    return moved[:, 0] if moved.ndim > 2 and array.shape[0] == 1 and moved.shape[1] == 1 else moved


def _without_singletons(array: npt.NDArray[Any], grid: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """Return the array on the grid, without a batch or channel axis of one; None if it is not."""
    for shape in (grid, (1, *grid), (*grid, 1), (1, 1, *grid)):
        if array.shape == shape:
            return array.reshape(grid)
    return None


def _by_sums(readings: list[Reading]) -> list[Reading]:
    """Keep the readings as probabilities that add up to one, where there are any."""
    summing = [r for r in readings if r.content == "scores" and _sums_to_one(r.values)]
    return summing or readings


def _sums_to_one(scores: npt.NDArray[Any]) -> bool:
    if scores.min() < -SUM_TOLERANCE or scores.max() > 1 + SUM_TOLERANCE:
        return False
    return bool(np.abs(scores.sum(0, dtype=np.float64) - 1).max() <= SUM_TOLERANCE)


def _is_whole(array: npt.NDArray[Any]) -> bool:
    return bool((array == np.rint(array)).all())


def _check_axis(name: str, axis: int | None, array: npt.NDArray[Any]) -> None:
    if axis is not None and not -array.ndim <= axis < array.ndim:
        raise ArgumentError(name, axis, f"the array of shape {array.shape} has no such axis")


def _no_reading(
    array: npt.NDArray[Any], image: npt.NDArray[Any], kind: str | None, swapped: bool
) -> str:
    message = f"shape {array.shape} does not fit an image of shape {image.shape}; give "
    message += "one label a pixel, " if kind == "labels" else "(labels, *pixels), "
    message += "" if kind == "labels" else "(*pixels, labels), or one label a pixel, "
    if swapped:
        return message + "of the image's shape: the arguments look swapped, the image comes first"
    if array.shape[-2:] == image.shape[1::-1] or array.shape[:2] == image.shape[1::-1]:
        return message + "of the image's shape: height and width look swapped (numpy.swapaxes)"
    if kind != "labels" and array.ndim >= 3:
        return message + (
            "of the image's shape. A network's output of lower resolution is resized when you "
            f"name its label axis, for example {mention('axis', 0)}"
        )
    return message + "of the image's shape"


def settle_kind(reading: Reading, kind: str | None, name: str = "probabilities") -> Kind:
    """Return what the values are: as named, or as they show beyond doubt.

    Probabilities add up to 1; energies of such are -log p; scores below zero are logits. Anything
    else could be two things, and is refused.
    """
    if kind in KINDS:
        return kind  # type: ignore[return-value]
    if reading.content == "labels":
        return "labels"
    values = reading.values
    low, high = float(values.min()), float(values.max())
    if reading.content == "map":
        if low >= 0 and high <= 1:
            return "probabilities"
        raise ArgumentError(
            name,
            ...,
            f"one map with values from {low:g} to {high:g} can be read in 2 ways: logits "
            f"of the foreground ({mention('kind', 'logits')}); or one label a pixel stored as "
            "numbers with fractions, which would be a mistake. Say which",
        )
    if _sums_to_one(values):
        return "probabilities"
    if values.dtype.kind in "bui":
        raise ArgumentError(
            name,
            ...,
            f"whole numbers from {low:g} to {high:g} for each of {len(values)} labels can "
            f"be read in 2 ways: probabilities in steps (give {name} / {high:g}); or an image, the "
            "arguments being swapped (the image comes first). Say which, or name the kind",
        )
    if low < 0:
        return "logits"
    if low >= 0 and _sums_to_one(np.exp(-values.astype(np.float64))):
        return "energies"
    readings = (
        f"logits, the higher the likelier ({mention('kind', 'logits')}); or energies, the lower "
        f"the likelier ({mention('kind', 'energies')})"
    )
    if high <= 1:
        readings = (
            "probabilities that do not add up to 1 over the labels, such as several sigmoids or "
            "activation maps (divide them by their sum over the labels); or logits "
            f"({mention('kind', 'logits')})"
        )
    raise ArgumentError(
        name, ..., f"values from {low:g} to {high:g} can be read in 2 ways: {readings}. Say which"
    )
