"""Which axis holds the labels, which the colours: all readings that fit, and one or none taken.

Where more than one reading fits the shapes and the values, the input is refused and all are spelled
out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.resample import resize_bilinear
from densecrf.unaries import KINDS, sums_to_one
from densecrf.validation import ArgumentError, as_real_array, check_choice, check_finite, mention

__all__ = ["Reading", "color_range", "read", "without_alpha"]

Array: TypeAlias = npt.NDArray[Any]

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
    picture = as_real_array("image", image.cpu() if hasattr(image, "cpu") else image)
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
    if not readings and axis is not None and kind != "labels":
        readings = list(_resized(images, array, axis))
    if not readings:
        raise ArgumentError("probabilities", ..., _no_reading(array, picture, kind))
    if len(readings) > 1:
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


def without_alpha(image: Array, grid: tuple[int, ...]) -> Array:
    """Return an image over the grid without its alpha channel, where that is opaque.

    Files are read without alpha, and a constant channel contributes nothing to a Gaussian kernel.
    """
    if image.shape != (*grid, 4):
        return image
    alpha = image[..., 3]
    if (alpha != alpha.flat[0]).any():
        raise ArgumentError(
            "image",
            ...,
            f"shape {image.shape} can be read in 2 ways: colours and an alpha channel that "
            "varies (leave it out: image[..., :3]); or four channels "
            f"({mention('channel_axis', -1)}). Say which",
        )
    return image[..., :3]


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


def _resized(images: list[_Image], array: Array, axis: int) -> Iterator[Reading]:
    """Yield scores brought to the size of a plane image."""
    moved = _labels_first(array, axis)
    plane = [image for image in images if len(image.grid) == 2]
    if moved.ndim != 3 or moved.shape[0] < 2 or len(plane) != 1:
        return
    grid = plane[0].grid
    if moved.shape[:0:-1] != grid:  # else height and width are swapped
        yield Reading("scores", resize_bilinear(moved, grid), plane[0], "resized")


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
    sizes = {image.shape[:2], image.shape[-2:]}  # of channels last and first
    if not sizes.isdisjoint({array.shape[:-3:-1], array.shape[1::-1]}):
        return message + ": height and width look swapped (numpy.swapaxes)"
    if kind != "labels" and array.ndim >= 3:
        message += ". A network's output of lower resolution is resized when you name its label "
        message += f"axis, for example {mention('axis', 0)}"
    return message


def color_range(image: Array, image_range: tuple[float, float] | None) -> tuple[Array, float]:
    """Return an image with black at 0 and white at 255, and its largest absolute value."""
    low, high = check_finite("image", image)
    if image_range is not None:
        black, white = image_range if np.shape(image_range) == (2,) else (0.0, 0.0)
        if not white > black:
            raise ArgumentError("image_range", image_range, "give (black, white), black lower")
    elif image.dtype == bool or (image.dtype.kind == "f" and low >= 0 and high <= 1):
        black, white = 0.0, 1.0
    elif low >= 0 and high <= 255:
        return image, high
    elif image.dtype == np.uint16 and high >= 2**15:
        black, white = 0.0, 65535.0
    else:
        remedy = (
            f"values from {low:g} to {high:g}; colour standard deviations are for 0 to 255. Say "
            "which values are black and white, for example "
        )
        if image.dtype == np.uint16:
            full = 2 ** int(high).bit_length() - 1
            remedy += (
                f"{mention('image_range', (0, full))}, or {mention('image_range', (0, 65535))} "
            )
            remedy += "for a dark image of 16 bits"
        else:
            remedy += f"{mention('image_range', (low, high))}, or undo a network's normalisation"
        raise ArgumentError("image", ..., remedy)
    scale = 255.0 / (white - black)
    pixels = np.asarray((image - np.float64(black)) * scale, np.float32)
    return pixels, max(abs(low - black), abs(high - black)) * scale
