"""Read an image and the scores or labels of its pixels, in any layout.

All layouts of labels and channels that fit the shapes and values are found. If there is more than
one, the input is refused with a list of them. Each array is scanned once, by `check_finite`, which
also returns its range.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from densecrf.model.resample import resize_bilinear
from densecrf.validation import (
    ArgumentError,
    as_image,
    as_real_array,
    check_choice,
    check_finite,
    mention,
)

__all__ = [
    "KINDS",
    "SUM_TOLERANCE",
    "Content",
    "Kind",
    "Layout",
    "Reading",
    "enlargement",
    "layout_of",
    "picked",
    "read",
    "sums_to_one",
]

Kind: TypeAlias = Literal["probabilities", "logits", "energies", "labels"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Array: TypeAlias = npt.NDArray[Any]
Content: TypeAlias = Literal["scores", "labels", "map"]
Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[int, ...]

SUM_TOLERANCE = 0.02  # half floats and steps of 0.001 miss a sum of one by half a step per label
COLOR_CHANNELS = (1, 3, 4)  # of an image whose channels come first


@dataclass(frozen=True)
class Reading:
    """An image and the scores or labels of its pixels.

    Attributes
    ----------
    content : {"scores", "labels", "map"}
        A score for each label, one label, or one label's score (foreground) for each pixel.
    values : ndarray
        Scores (labels, *grid), or (*grid) for labels and maps.
    span : (float, float)
        The smallest and largest value; for a part, those of the whole.
    pixels : ndarray, optional
        The image, (*grid) or (*grid, channels).
    grid : tuple of int
        The grid of pixels.
    enlarged : float
        The factor by which scores were enlarged to the image; infinite if unknown.
    """

    content: Content
    values: Array
    span: tuple[float, float]
    pixels: Any = None
    grid: Shape = ()
    enlarged: float = math.inf

    @staticmethod
    def of(content: Content, values: Array) -> "Reading":
        """Return the reading of finite values alone."""
        return Reading(content, values, check_finite("probabilities", values))

    def kind(self, named: str | None) -> str:
        """Return the kind of the values: as named, or as their values show.

        Probabilities add up to 1, energies are -log p of such, and scores below zero are logits.
        Ambiguous values are refused.
        """
        if named is not None:
            return named
        values, (low, high) = self.values, self.span
        span = f"values from {low:g} to {high:g}"
        if self.content == "labels":
            return "labels"
        if self.content == "map":
            if low >= 0 and high <= 1:
                return "probabilities"
            remedy = (
                f"one map with {span} can be read in 2 ways: logits of the foreground "
                f"({mention('kind', 'logits')}); or labels with fractions, which would be a "
                "mistake. Say which"
            )
        elif sums_to_one(values):
            return "probabilities"
        elif scaled := _in_parts(lambda total: sums_to_one(values, total=total)):
            remedy = scaled
        elif values.dtype.kind in "bui":
            remedy = (
                f"whole numbers from {low:g} to {high:g} for each of {len(values)} labels can be "
                f"read in 2 ways: probabilities in steps (give probabilities / {high:g}); or an "
                "image, the arguments being swapped (the image comes first). Say which, or name "
                "the kind"
            )
        elif low < 0:
            return "logits"
        elif sums_to_one(np.exp(-values.astype(np.float64))):
            return "energies"
        elif high <= 1:
            remedy = (
                f"{span} can be read in 2 ways: probabilities that do not add up to 1 over the "
                "labels, such as several sigmoids or activation maps (divide them by their sum "
                f"over the labels); or logits ({mention('kind', 'logits')}). Say which"
            )
        else:
            remedy = (
                f"{span} can be read in 2 ways: logits, higher is more probable "
                f"({mention('kind', 'logits')}); or energies, lower is more probable "
                f"({mention('kind', 'energies')}). Say which"
            )
        raise ArgumentError("probabilities", ..., remedy)


class Picture(NamedTuple):
    """One way to read an image: the axes of its grid, and behind them its channels' if any."""

    axes: Axes
    grid: Shape
    words: str
    usual: bool  # the channels are where images have them


class Layout(NamedTuple):
    """One way to read an image and the scores or labels of its pixels, by their shapes."""

    picture: Picture
    content: Content  # as for `Reading`
    axes: Axes  # of what is known: the labels' of scores, and those of the grid
    words: str  # with the arguments that choose it
    resized: bool = False  # the scores are of a lower resolution


def read(
    image: Any, given: Any, *, kind: str | None, axis: int | None, channel_axis: int | None
) -> Reading:
    """Return the only reading that fits, or refuse; the parameters are those of `refine`."""
    picture = as_image("image", image.cpu() if hasattr(image, "cpu") else image)
    array = as_real_array("probabilities", given.cpu() if hasattr(given, "cpu") else given)
    span = check_finite("probabilities", array)
    layout = layout_of(
        picture.shape,
        array.shape,
        array.dtype,
        kind=kind,
        axis=axis,
        channel_axis=channel_axis,
        adds_up=lambda axes, total: sums_to_one(picked(array, axes), total=total),
        fractions=lambda: bool((array != np.rint(array)).any()),
    )
    values, grid, enlarged = picked(array, layout.axes), layout.picture.grid, math.inf
    if layout.resized:
        enlarged = enlargement(values.shape[1:], grid)
        values = resize_bilinear(values, grid)
    return Reading(
        layout.content, values, span, picked(picture, layout.picture.axes), grid, enlarged
    )


def enlargement(scores: Shape, grid: Shape) -> float:
    """Return the factor by which scores are enlarged; infinite where they are not."""
    factor = math.sqrt(math.prod(grid) / math.prod(scores))
    return factor if factor > 1 else math.inf


def picked(array: Array, axes: Axes) -> Array:
    """Return an array with these axes, without the others, which are of one."""
    others = tuple(axis for axis in range(array.ndim) if axis not in axes)
    moved: Array = array.transpose(*others, *axes)
    return moved.reshape([array.shape[axis] for axis in axes])


def layout_of(
    image: Shape,
    shape: Shape,
    dtype: np.dtype[Any],
    *,
    kind: str | None,
    axis: int | None,
    channel_axis: int | None,
    adds_up: Callable[[Axes, float], bool],
    fractions: Callable[[], bool],
) -> Layout:
    """Return the only layout that fits, or refuse.

    Parameters
    ----------
    image, shape : tuple of int
        The shapes of the image, and of what is known of its pixels.
    dtype : dtype
        Of what is known.
    kind, axis, channel_axis
        As for `refine`.
    adds_up : callable
        Whether the values add up to a number over the first of these axes: asked where several
        layouts fit.
    fractions : callable
        Whether some value is no whole number: asked where there is one per pixel.
    """
    for name, what, sides, which in (
        ("axis", "probabilities", shape, axis),
        ("channel_axis", "image", image, channel_axis),
    ):
        if 0 in sides:
            raise ArgumentError(what, ..., f"shape {sides} holds no values")
        if which is not None and not -len(sides) <= which < len(sides):
            raise ArgumentError(name, which, f"the array of shape {sides} has no such axis")
    if kind is not None:
        check_choice("kind", kind, KINDS)
    if _is_batch_of_one(image, shape):
        first = int(len(shape) == 4)
        found = layout_of(
            image[1:],
            shape[first:],
            dtype,
            kind=kind,
            axis=None if axis is None else axis % len(shape) - first,
            channel_axis=None if channel_axis is None else channel_axis % len(image) - 1,
            adds_up=lambda axes, total: adds_up(tuple(each + first for each in axes), total),
            fractions=fractions,
        )
        moved = found.picture._replace(axes=tuple(each + 1 for each in found.picture.axes))
        return found._replace(picture=moved, axes=tuple(each + first for each in found.axes))
    pictures = list(_pictures(image, channel_axis))
    layouts = [
        layout
        for picture in pictures
        for layout in _layouts(picture, shape, dtype, kind, axis, fractions)
    ]
    if len(layouts) > 1:
        summed = [each for each in layouts if each.content == "scores" and adds_up(each.axes, 1.0)]
        layouts = summed or layouts
    if len(layouts) > 1 and dtype.kind == "f":
        layouts = [layout for layout in layouts if layout.picture.usual] or layouts
    if not layouts and kind != "labels":
        layouts = list(_resized(pictures, shape, axis, adds_up))
    if not layouts:
        raise ArgumentError("probabilities", ..., _no_reading(shape, image, dtype, kind))
    if len(layouts) == 1:
        return layouts[0]
    for layout in layouts:
        if layout.content == "scores" and (remedy := _in_parts(partial(adds_up, layout.axes))):
            raise ArgumentError("probabilities", ..., remedy)
    ways = "; or ".join(layout.words for layout in layouts)
    raise ArgumentError(
        "probabilities",
        ...,
        f"shape {shape} with an image of shape {image} can be read in {len(layouts)} ways: {ways}. "
        "Say which by the arguments named",
    )


def _is_batch_of_one(image: Shape, shape: Shape) -> bool:
    """Whether an image of 4 axes is PyTorch's (1, channels, H, W), or both are batches of one."""
    if len(image) != 4 or image[0] != 1:
        return False
    if len(shape) == 4:
        return shape[0] == 1
    return image[1] in COLOR_CHANNELS and shape[-2:] == image[2:]


def _pictures(image: Shape, channel_axis: int | None) -> Iterator[Picture]:
    """Yield the readings of the image: grey, channels last, channels first."""
    axes = tuple(range(len(image)))
    if channel_axis is not None:
        which = channel_axis % len(image)
        grid = tuple(axis for axis in axes if axis != which)
        sides = tuple(image[axis] for axis in grid)
        yield Picture((*grid, which), sides, mention("channel_axis", channel_axis), True)
        return
    first, last = image[0] in COLOR_CHANNELS, image[-1] in COLOR_CHANNELS
    colored = len(image) >= 3 and (first or last)
    yield Picture(axes, image, "an image without channels", not colored)
    if len(image) >= 3:
        words = f"an image with channels last ({mention('channel_axis', len(image) - 1)})"
        yield Picture(axes, image[:-1], words, last)
    if len(image) >= 3 and first:
        words = f"an image with channels first ({mention('channel_axis', 0)})"
        yield Picture((*axes[1:], 0), image[1:], words, True)


def _layouts(
    picture: Picture,
    shape: Shape,
    dtype: np.dtype[Any],
    kind: str | None,
    axis: int | None,
    fractions: Callable[[], bool],
) -> Iterator[Layout]:
    """Yield the layouts of the other array for one reading of the image."""
    if kind != "labels":
        yield from _scores(picture, shape, axis)
    axes = _without_singletons(shape, picture.grid)
    if axes is None or axis is not None:
        return
    labels, certain = mention("kind", "labels"), mention("kind", "probabilities")
    ways: list[tuple[Content, str]] = [
        ("labels", f"whole numbers as labels ({labels})"),
        ("map", f"certain foreground ({certain})"),
    ]
    if kind == "labels" or (kind is None and dtype.kind in "bui"):
        ways = [("labels", f"one label ({labels}) per pixel")]
    elif kind is not None or fractions():
        ways = [("map", "probabilities of the foreground (stack [1 - p, p] to say so)")]
    for content, words in ways:
        over = f"{picture.grid} pixels, {picture.words}"
        yield Layout(picture, content, axes, f"{words} over {over}")


def _scores(picture: Picture, shape: Shape, axis: int | None) -> Iterator[Layout]:
    """Yield the layouts as scores: labels first, last, or behind a batch axis of one."""
    candidates = {axis % len(shape)} if axis is not None else {0, len(shape) - 1}
    if axis is None and len(shape) > 2 and shape[0] == 1:
        candidates.add(1)
    for where in sorted(candidates):
        axes = _labels_first(shape, where)
        labels, *sides = (shape[each] for each in axes)
        if tuple(sides) == picture.grid and labels > 1:
            words = f"{labels} labels on {mention('axis', where)} over {picture.grid} pixels"
            yield Layout(picture, "scores", axes, f"{words}, {picture.words}")


def _resized(
    pictures: list[Picture],
    shape: Shape,
    axis: int | None,
    adds_up: Callable[[Axes, float], bool],
) -> Iterator[Layout]:
    """Yield the layout of scores that are to be brought to the size of a plane image.

    Their label axis is the named one, or the only one that leaves pixels in the proportion of the
    image.
    """
    plane = [picture for picture in pictures if len(picture.grid) == 2]
    if len(plane) != 1:
        return
    (picture,) = plane
    candidates = _reduced_axes(shape, picture.grid) if axis is None else [axis % len(shape)]
    if axis is None:
        summed = [where for where in candidates if adds_up(_labels_first(shape, where), 1.0)]
        candidates = summed or candidates
    if len(candidates) != 1:
        return
    axes = _labels_first(shape, candidates[0])
    labels, *sides = (shape[each] for each in axes)
    if len(sides) == 2 and labels > 1 and tuple(sides[::-1]) != picture.grid:  # sides swapped
        yield Layout(picture, "scores", axes, "resized", resized=True)


def _reduced_axes(shape: Shape, grid: Shape) -> list[int]:
    """Return the axes that leave the pixels of an image reduced by one whole factor.

    An axis as long as a side of the image is taken for pixels.
    """
    found = []
    for where in {0, len(shape) - 1} | ({1} if len(shape) == 4 and shape[0] == 1 else set()):
        labels, *sides = (shape[each] for each in _labels_first(shape, where))
        if len(sides) != 2 or len(grid) != 2 or labels < 2 or labels in grid:
            continue
        height, width = sides
        if any(
            height in (grid[0] // step, -(-grid[0] // step))
            and width in (grid[1] // step, -(-grid[1] // step))
            for step in range(2, min(grid) + 1)
        ):
            found.append(where)
    return sorted(found)


def _labels_first(shape: Shape, axis: int) -> Axes:
    """Return the axes with the labels' in front, without a batch axis of one."""
    others = [each for each in range(len(shape)) if each != axis]
    if len(shape) > 2 and shape[0] == 1 and shape[others[0]] == 1:
        del others[0]
    return (axis, *others)


def _without_singletons(shape: Shape, grid: Shape) -> Axes | None:
    """Return the axes of the grid, where the others are a batch or channel axis of one."""
    for before, after in ((0, 0), (1, 0), (0, 1), (2, 0)):
        if shape == (*[1] * before, *grid, *[1] * after):
            return tuple(range(before, before + len(grid)))
    return None


def _no_reading(shape: Shape, image: Shape, dtype: np.dtype[Any], kind: str | None) -> str:
    message = f"shape {shape} does not fit an image of shape {image}; give "
    message += "" if kind == "labels" else "(labels, *pixels), (*pixels, labels), or "
    message += "one label per pixel, of the image's shape"
    if any(next(_scores(some, image, None), None) for some in _pictures(shape, None)):
        return message + ": the arguments look swapped, the image comes first"
    if len(image) == len(shape) == 4 and image[0] == shape[0] > 1:
        inside = [
            next(_layouts(some, shape[1:], dtype, kind, None, lambda: True), None)
            for some in _pictures(image[1:], None)
        ]
        if any(inside):
            return f"{message}. {image[0]} images at once are for densecrf.refine_many"
    sizes = {image[:2], image[-2:]}  # of channels last and first
    if not sizes.isdisjoint({shape[:-3:-1], shape[1::-1]}):
        return message + ": height and width look swapped (numpy.swapaxes)"
    if kind != "labels" and len(shape) >= 3:
        grids = {some.grid for some in _pictures(image, None) if some.usual}
        fitting = sorted({where for grid in grids for where in _reduced_axes(shape, grid)})
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


def _in_parts(adds_up: Callable[[float], bool]) -> str | None:
    """Return what to do with probabilities in per cent or in 8 bits; None where it is neither."""
    for total, what in ((100, "percentages"), (255, "probabilities in 8 bits")):
        if adds_up(total):
            return f"values that add up to {total} over the labels: {what}; divide by {total}"
    return None
