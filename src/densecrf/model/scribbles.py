r"""From a few strokes to an energy: how far away each label's strokes are, and their colours.

A label is likely where a short path leads to one of its strokes, along which the colour changes
little: with the geodesic distance d of a label,

.. math:: q_i \propto d_i^{-k}\; p(c \mid i)^a\; p'(c \mid i)^b

where p is a smoothed histogram of the colours under the label's strokes and p' one of all pixels
of which the first two factors are sure, as GrabCut estimates colours again. Histograms are mixed
with what all labels have in common, so that a colour that occurs on both sides says nothing.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import color_range, without_alpha
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.model.specification import Specification
from densecrf.model.unaries import FORBIDDEN, read_void, whole_numbers
from densecrf.native import core
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    as_image,
    as_real_array,
    check_finite,
    check_fraction,
    check_integer,
    mention,
)

__all__ = [
    "color_bins",
    "color_costs",
    "for_strokes",
    "geodesics",
    "histogram",
    "scribble_crf",
    "scribble_unary",
]

BINS = 32  # levels of each channel in the histograms
BLUR = 1.5  # standard deviation in bins by which strokes stand for similar colours
POWER = 2.0  # of the distance, k
NEAREST = 5.0  # colours: distances below it hardly differ
ACROSS = 480.0  # colours that the way across an image costs
ROUNDS = 3  # of sweeps over the image
SHARE = 0.3  # of the colours under strokes, a
AGAIN = 0.3  # of the colours estimated again, b
SURE = 0.8  # probability of the pixels from which colours are estimated again
ENOUGH = 60_000  # pixels that are looked at for that
SMALLEST = 1e-5  # probability


def scribble_unary(
    image: Any,
    scribbles: Any,
    n_labels: int | None = None,
    *,
    void: Any = (-1, 255),
    certainty: float = 0.9,
    image_range: tuple[float, float] | None = None,
) -> FloatArray:
    """Return unary energies (labels, *spatial) learnt from strokes.

    A label is likely near its strokes, along paths on which the colour changes little, and where
    the colour is that of its strokes and of the pixels that are sure to be like them; see
    `densecrf.model.scribbles`. Pixels under a stroke keep its label.

    Parameters
    ----------
    image : array_like, (*spatial) or (*spatial, channels)
        Grey or colour, up to three channels.
    scribbles : array_like of int, (*spatial)
        The label under each stroke, a `void` value elsewhere.
    n_labels : int, optional
        Number of labels; by default the largest that occurs, plus one. Labels without strokes
        are never answers.
    void : int or sequence of int
        Values that mean "no stroke"; 0 where strokes count from 1.
    certainty : float
        Weight of the colour model against the uniform distribution, between 0 and 1.
    image_range : (float, float), optional
        The values of `image` that mean black and white, where they are not 0 and 255 (or 1).

    Examples
    --------
    >>> image = np.array([[10, 12, 200, 210]])
    >>> scribble_unary(image, [[0, -1, -1, 1]]).argmin(0)
    array([[0, 0, 1, 1]])
    """
    strokes = as_real_array("scribbles", scribbles)
    picture = as_image("image", image)
    check_finite("scribbles", strokes)
    picture = without_alpha(picture, strokes.shape)
    if picture.shape == strokes.shape:
        picture = picture[..., None]
    if picture.shape[:-1] != strokes.shape:
        remedy = f"shape {strokes.shape} does not fit an image of shape {picture.shape}"
        raise ArgumentError("scribbles", ..., f"{remedy}; give one value per pixel")
    if picture.shape[-1] > 3:
        remedy = f"{picture.shape[-1]} channels are too many for colour histograms; give three "
        remedy += "of them, or unaries of your own to densecrf.DenseCRF"
        raise ArgumentError("image", ..., remedy)
    check_fraction("certainty", certainty)
    index, free, count = _strokes(strokes, n_labels, void)
    colors = color_range(picture, image_range)[0]
    present = np.unique(index[~free])
    costs = _costs(colors, np.where(free, -1, np.searchsorted(present, index)), certainty)
    unary = np.full((count, *free.shape), FORBIDDEN, np.float32)
    unary[present] = costs
    unary[:, ~free] = FORBIDDEN
    fixed = (index[~free], *np.nonzero(~free))
    unary[fixed] = 0
    return unary


def _costs(colors: npt.NDArray[Any], drawn: IntArray, certainty: float) -> FloatArray:
    """Return -log q of the labels 0, 1, ... of some strokes; -1 is no stroke."""
    count, channels = int(drawn.max()) + 1, colors.shape[-1]
    bins = color_bins(colors)
    costs = np.log(geodesics(colors, drawn, count) + np.float32(NEAREST))
    costs *= np.float32(POWER)
    under = [np.bincount(bins[drawn == i], minlength=BINS**channels) for i in range(count)]
    costs += np.float32(SHARE) * color_costs(under, channels, certainty).take(bins, axis=1)
    some = _some(drawn.shape)
    q = _softmax(-np.stack([each[some].ravel() for each in costs]))
    few = bins[some].ravel()
    sure = np.where(q >= SURE, q, 0)
    again = [np.bincount(few, sure[i], minlength=BINS**channels) + under[i] for i in range(count)]
    costs += np.float32(AGAIN) * color_costs(again, channels, certainty).take(bins, axis=1)
    costs -= costs.min(0)
    costs += np.log(np.exp(-costs).sum(0))
    return np.asarray(np.minimum(costs, np.float32(-np.log(SMALLEST))), np.float32)


def geodesics(colors: npt.NDArray[Any], drawn: IntArray, count: int) -> FloatArray:
    """Return the length of the shortest path from each pixel to each label's strokes.

    A step costs its length in space and in colour, as in `native/include/densecrf/geodesic.hpp`.

    Parameters
    ----------
    colors : ndarray, (*spatial, channels)
        From 0 to 255.
    drawn : ndarray of int, (*spatial)
        The labels of strokes; others, such as -1, are none.
    count : int
        Number of labels.

    Examples
    --------
    >>> geodesics(np.array([[[0], [0], [30]]]), np.array([[0, -1, -1]]), 1).round()
    array([[[  0., 277., 556.]]], dtype=float32)
    """
    shape = drawn.shape
    step = ACROSS / np.prod(shape, dtype=np.float64) ** (1 / len(shape))
    flat = drawn.reshape(1, -1)
    far = np.float32(1e9)
    out = np.where(flat == np.arange(count)[:, None], np.float32(0), far)
    planes = np.ascontiguousarray(colors.reshape(drawn.size, -1), np.float32)
    rows = int(np.prod(shape[-2:-1]))
    grid = (drawn.size // (rows * shape[-1]), rows, shape[-1])
    core().shorten_distances(out, colors=planes, shape=grid, step=step, rounds=ROUNDS, threads=0)
    return np.asarray(out.reshape(count, *shape), np.float32)


def color_costs(counts: list[npt.NDArray[Any]], channels: int, certainty: float) -> FloatArray:
    r"""Return :math:`-\log p(i \mid c)` of each colour, (labels, bins), by Bayes with equal priors.

    Parameters
    ----------
    counts : list of ndarray, (bins,)
        How many pixels of each label have each colour.
    channels : int
        Of the colours.
    certainty : float
        Weight against the uniform distribution.
    """
    some = np.stack([histogram(each, channels) for each in counts]) + 1e-12
    mixed = certainty * some / some.sum(0) + (1 - certainty) / len(counts)
    return np.asarray(-np.log(mixed), np.float32)


def _some(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return about `ENOUGH` pixels of a grid, in equal distances."""
    every = max(1, round((np.prod(shape, dtype=np.float64) / ENOUGH) ** (1 / len(shape))))
    return (slice(None, None, every),) * len(shape)


def _softmax(z: FloatArray) -> FloatArray:
    """Return softmax over the first axis."""
    p = np.exp(z - z.max(0))
    return np.asarray(p / p.sum(0))


def for_strokes(model: Parameters) -> Parameters:
    """Return the model, or "scribbles" for one that follows scores: strokes have no grain."""
    return model if model.grain is None else PRESETS["scribbles"]


def scribble_crf(asked: Specification, image: Any, scribbles: Any, void: Any) -> DenseCRF:
    """Return the energy of an image and of strokes alone."""
    unary = scribble_unary(
        image, scribbles, asked.n_labels, void=void, image_range=asked.image_range
    )
    model = for_strokes(asked.model)
    return replace(asked, model=model, kind="energies", axis=0, n_labels=None).crf(image, unary)


def _strokes(
    strokes: npt.NDArray[Any], n_labels: int | None, void: Any
) -> tuple[IntArray, npt.NDArray[np.bool_], int]:
    """Return the labels, where there is none, and the number of labels."""
    index, empty = read_void(whole_numbers("scribbles", strokes), n_labels, void)
    free = np.isin(index, empty)
    present, counts = np.unique(index[~free], return_counts=True)
    largest = int(present.max(initial=0))
    count = check_integer("n_labels", largest + 1 if n_labels is None else n_labels, at_least=1)
    remedy = ""
    if free.all():
        remedy = f"no strokes, every pixel is void ({void})"
    elif not free.any():
        most = counts.argmax()
        remedy = (
            f"every pixel carries a label, {counts[most] / index.size:.1%} of them "
            f"{present[most]}; say which value means 'no stroke', for example "
            f"{mention('void', present[most])}"
        )
    elif present[0] < 0:
        remedy = "must be whole numbers from 0, or void"
    elif largest >= count:
        remedy = f"value {largest} is outside 0 … {count - 1} (n_labels)"
    elif len(present) < 2:
        remedy = f"all strokes carry label {largest}; at least two are needed"
    if remedy:
        raise ArgumentError("scribbles", ..., remedy)
    return index, free, count


def color_bins(image: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the histogram bin of each pixel, (*spatial)."""
    if image.dtype == np.uint8:
        levels = (np.arange(256) * BINS // 256)[image]
    else:
        levels = np.clip(np.asarray(image, np.float64) * (BINS / 256), 0, BINS - 1).astype(np.int64)
    flat: npt.NDArray[np.int64] = levels[..., 0]
    for channel in range(1, image.shape[-1]):
        flat = flat * BINS + levels[..., channel]
    return flat


def histogram(
    counts: npt.NDArray[Any], channels: int, sigma: float = BLUR
) -> npt.NDArray[np.float64]:
    """Return the distribution over all bins of some pixels, counted by bins and smoothed."""
    found = counts.reshape((BINS,) * channels) / counts.sum()
    line = np.arange(BINS)
    blur = np.exp(-0.5 * ((line[:, None] - line[None, :]) / sigma) ** 2)
    blur /= blur.sum(0)
    for axis in range(channels):  # products of small matrices: no threads of BLAS are woken
        found = np.moveaxis(np.moveaxis(found, axis, -1) @ blur.T, -1, axis)
    return np.asarray(found).ravel()
