"""From a few strokes to an energy: a colour model of each label, learnt from its strokes."""

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

__all__ = ["for_strokes", "scribble_crf", "scribble_unary"]

BINS = 32  # levels of each channel in the histograms
BLUR = 1.5  # standard deviation in bins by which strokes stand for similar colours


def scribble_unary(
    image: Any,
    scribbles: Any,
    n_labels: int | None = None,
    *,
    void: Any = (-1, 255),
    certainty: float = 0.9,
    image_range: tuple[float, float] | None = None,
) -> FloatArray:
    r"""Return unary energies (labels, *spatial) learnt from strokes.

    Each label's strokes give a smoothed colour histogram; by Bayes, with equal priors, a pixel's
    colour :math:`c` gives :math:`p(i \mid c) \propto p(c \mid i)`, mixed with the uniform
    distribution. Pixels under a stroke keep its label.

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
    bins = _bins(color_range(picture, image_range)[0])
    present = np.unique(index[~free])
    channels, drawn = picture.shape[-1], np.where(free, -1, index)
    histograms = [_histogram(bins[drawn == label], channels) for label in present]
    some = np.stack(histograms) + 1e-12  # colours under no stroke are uninformative
    costs = -np.log(certainty * some / some.sum(0) + (1 - certainty) / len(present))
    unary = np.full((count, *free.shape), FORBIDDEN, np.float32)
    unary[present] = costs.astype(np.float32).take(bins, axis=1)
    unary[:, ~free] = FORBIDDEN
    fixed = (index[~free], *np.nonzero(~free))
    unary[fixed] = 0
    return unary


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


def _bins(image: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the histogram bin of each pixel, (*spatial)."""
    if image.dtype == np.uint8:
        levels = (np.arange(256) * BINS // 256)[image]
    else:
        levels = np.clip(np.asarray(image, np.float64) * (BINS / 256), 0, BINS - 1).astype(np.int64)
    flat: npt.NDArray[np.int64] = levels[..., 0]
    for channel in range(1, image.shape[-1]):
        flat = flat * BINS + levels[..., channel]
    return flat


def _histogram(bins: npt.NDArray[np.int64], channels: int) -> npt.NDArray[np.float64]:
    """Return the smoothed distribution over all bins of some pixels' bins."""
    counts = np.bincount(bins, minlength=BINS**channels)
    histogram = counts.reshape((BINS,) * channels) / counts.sum()
    line = np.arange(BINS)
    blur = np.exp(-0.5 * ((line[:, None] - line[None, :]) / BLUR) ** 2)
    blur /= blur.sum(0)
    for axis in range(channels):  # products of small matrices: no threads of BLAS are woken
        histogram = np.moveaxis(np.moveaxis(histogram, axis, -1) @ blur.T, -1, axis)
    return np.asarray(histogram).ravel()
