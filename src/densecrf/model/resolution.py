r"""How fine scores are, and what that means for the default model.

A network computes its scores at a stride and enlarges them, so that one of them speaks for a whole
cell of pixels: the unaries count it once for each. The finer the scores, the less there is for a
CRF to do, and the more to lose. So the default model follows the **grain** of the scores, the side
of such a cell in pixels,

.. math:: g = \frac{\sum_a |\Delta z_a|}{\sum_a |\Delta^2 z_a|} ,

the sum of absolute first differences of neighbouring scores over that of second ones, along all
axes; z are the energies less their mean over the labels, or the probabilities, whichever gives
more. Scores enlarged bilinearly from a stride d have a grain of d where the network is smooth, and
of half of that where its scores are independent. Five rules:

1. The kernels reach as far as the scores are coarse: standard deviations of g/4 and 8g pixels.
2. The weights are 1 and 5 times the **strength**, 2000 over the number of cells in the image, at
   most 1: :math:`\min(1, 45 g / s)^2` for a side of s pixels (600 for larger images, which show
   more than one scene).
3. Colours differ by 1.5 times the median difference of neighbouring pixels, between 2.5 and 12.
4. Scores that change from pixel to pixel as noise does (g < 0.7), and hard labels, have no cells:
   g = 2 and strength 0.8 are taken.
5. Scores coarser than most networks' (g > 7.5: class activation maps) are smoothed as far as they
   are sure: the strength is multiplied by the cube of the share of sure pixels (a label above 0.9),
   or by 0.1 where that is more. The share is the mean of the labels' own, so that a sure background
   does not let a small unsure object vanish.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from densecrf.model import DenseCRF
    from densecrf.validation import FloatArray

__all__ = [
    "COARSEST",
    "REACH",
    "Measured",
    "best_labels",
    "derived",
    "excess",
    "measure",
    "measure_parts",
    "strength_of",
    "windows",
]

COARSEST = 6.0  # pixels; the grain that the preset's numbers are for
CELLS, WHOLE = 45, 600.0  # cells along a side up to which the strength is 1; pixels of a scene
ROUGH, ROUGH_GRAIN, ROUGH_STRENGTH = 0.7, 2.0, 0.8  # scores without cells
SOFT, SURE = 7.5, 0.9  # grain above which sure pixels are counted; a sure pixel's probability
OCCURS = 0.002  # share of the pixels that a label has at least, if its own sure ones are to count
LEAST_SURE = 0.1  # factor of the strength of soft maps, at least
REACH = 8  # of the bilateral kernel, in grains
TOTAL_WEIGHT = 6.0  # of the default model's kernels, at a strength of 1
ASIDE = 0.1  # strength below which a result is nearly the input
FEWEST_CELLS = 50  # along an image's side: of fewer the kernels do not reach further
COLOR_PER_NOISE, LEAST_COLOR, MOST_COLOR = 1.5, 2.5, 12.0
_LINES = 50_000  # pixels of the lines that are looked at, about
_WHOLE = (
    2**18
)  # pixels of an image up to which all of it is looked at, and of the windows of others


@dataclass(frozen=True)
class Measured:
    """What the default model takes from an image and its scores.

    Attributes
    ----------
    grain : float
        Side of a cell of pixels that share a score; 6, or a fiftieth of the image's, at most.
    strength : float
        What the model's weights are multiplied by.
    sigma_color : float
        Standard deviation of colours from 0 to 255.
    """

    grain: float
    strength: float
    sigma_color: float


def measure(unary: FloatArray, image: Any, enlarged: float = math.inf) -> Measured:
    """Measure an image and its scores.

    Parameters
    ----------
    unary : ndarray, (labels, *spatial)
        Energies.
    image : array_like, (*spatial) or (*spatial, channels)
        Colours from 0 to 255.
    enlarged : float
        The factor by which the scores were enlarged, where it is known: the grain is not larger.

    Examples
    --------
    Scores of six pixels' stride, and hard labels:

    >>> from densecrf.model.resample import resize_bilinear
    >>> waves = np.sin(np.arange(20.0))[:, None] * np.cos(np.arange(20.0))
    >>> scores, image = resize_bilinear([waves, -waves], (120, 120)), np.zeros((120, 120))
    >>> measure(scores, image)
    Measured(grain=5.7..., strength=1.0, sigma_color=2.5)
    >>> measure(3.0 * (scores > 0), image)
    Measured(grain=2.0, strength=0.8, sigma_color=2.5)
    """
    grid, colors = unary.shape[1:], np.asarray(image)
    every = (slice(None),)
    parts = ((unary[every + box], colors[box]) for box in windows(grid))
    return measure_parts(parts, grid, enlarged)


def windows(grid: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Return the parts of a grid that are measured: all of it, or some windows of a large one.

    Examples
    --------
    >>> windows((120, 160))
    [(slice(0, 120, None), slice(0, 160, None))]
    >>> len(windows((3000, 4000)))
    16
    """
    if math.prod(grid) <= _WHOLE:
        return [tuple(slice(0, length) for length in grid)]
    each = 4 if len(grid) < 3 else 2
    side = int(_WHOLE ** (1 / len(grid)) / each)
    axes = [
        [slice(0, length)]
        if length <= each * side
        else [slice(int(at), int(at) + side) for at in np.linspace(0, length - side, each)]
        for length in grid
    ]
    return list(itertools.product(*axes))


def measure_parts(
    parts: Iterable[tuple[FloatArray, Any]], grid: tuple[int, ...], enlarged: float = math.inf
) -> Measured:
    """Measure an image and its scores from the parts of both that `windows` names; see `measure`.

    Parameters
    ----------
    parts : iterable of (unary, image)
        Energies (labels, *spatial) and colours of each window.
    grid : tuple of int
        The whole grid.
    enlarged : float
        As for `measure`.
    """
    sums, pixels, colors = np.zeros((2, 2)), [], []
    side = math.prod(grid) ** (1 / len(grid))
    looked_at = sum(math.prod(s.stop - s.start for s in box) for box in windows(grid))
    step = max(1, round(looked_at / _LINES))
    for unary, image in parts:
        p = np.exp(unary.min(0) - unary)
        total = p.sum(0)
        pixels.append(_sure_pixels(unary, total))
        p /= total
        for row, values in zip(sums, (unary - unary.mean(0), p), strict=True):
            row += _differences(values, step)
        colors += _color_steps(np.asarray(image), unary.ndim - 1, step)
    ratios = [first / max(second, 1e-6 * first) for first, second in sums.tolist() if first > 0]
    found = min(max(ratios, default=0.0), enlarged)
    noise = np.mean([_median(each) for each in np.concatenate(colors, 1)]) if colors else 0.0
    color = float(np.clip(COLOR_PER_NOISE * noise, LEAST_COLOR, MOST_COLOR))
    if found < ROUGH:
        return Measured(ROUGH_GRAIN, ROUGH_STRENGTH, color)
    strength = strength_of(found, side)
    if found > SOFT:
        strength *= max(LEAST_SURE, _sure_share(np.sum(pixels, 0)) ** 3)
    return Measured(min(found, max(COARSEST, side / FEWEST_CELLS)), strength, color)


def strength_of(grain: float, side: float) -> float:
    """Return the strength for scores of some grain on an image of some side, in pixels.

    Examples
    --------
    >>> strength_of(6, 270), strength_of(2, 270) < 0.12
    (1.0, True)
    """
    return min(1.0, CELLS * grain / min(side, WHOLE)) ** 2


def excess(crf: DenseCRF) -> float | None:
    """Return how many times a model's weights are what the default model takes for such scores.

    None where the resolution of the scores was not measured.
    """
    if crf.measured is None or crf.normalization != "symmetric":
        return None
    costs = 1.0 if crf.tree is None else float(crf.tree.lengths[: crf.n_labels].mean())
    weights = costs * sum(float(kernel.weight) for kernel in crf.kernels)
    return weights / (TOTAL_WEIGHT * max(crf.measured.strength, 1e-3))


def derived(crf: DenseCRF) -> dict[str, Any]:
    """Return what was measured and the numbers of a model's kernels, ready for JSON.

    ``stands_aside`` is there, and true, where the weights are so small that the result is nearly
    the input.
    """
    numbers: dict[str, Any] = {}
    if crf.measured is not None:
        numbers |= {"grain": crf.measured.grain, "strength": crf.measured.strength}
    for kernel in crf.kernels:
        for name in ("sigma", "sigma_xy", "sigma_color"):
            if hasattr(kernel, name):
                numbers[name] = np.asarray(getattr(kernel, name)).tolist()
        which = "bilateral_weight" if hasattr(kernel, "sigma_xy") else "weight"
        numbers[which] = float(kernel.weight)
    weights = sum(float(kernel.weight) for kernel in crf.kernels)
    if crf.normalization == "symmetric" and weights < ASIDE * TOTAL_WEIGHT:
        numbers["stands_aside"] = True
    return numbers


def _differences(values: FloatArray, step: int) -> npt.NDArray[np.float64]:
    """Return sums of absolute first and second differences of planes, (2,)."""
    sums = np.zeros(2)
    for lines in _lines(values, step):
        for z in lines:  # a plane fits in the cache
            for order in (0, 1):
                z = z[:, 1:] - z[:, :-1]
                sums[order] += np.abs(z).sum()
    return sums


def _lines(values: npt.NDArray[Any], step: int) -> Iterator[npt.NDArray[Any]]:
    """Yield some lines of planes along each spatial axis, (planes, lines, length)."""
    for axis in range(1, values.ndim):
        if values.shape[axis] > 2:
            lines = np.moveaxis(values, axis, -1)
            yield lines.reshape(len(values), -1, values.shape[axis])[:, ::step]


def _color_steps(image: npt.NDArray[Any], axes: int, step: int) -> list[npt.NDArray[Any]]:
    """Return absolute differences of neighbouring pixels, (channels, pairs), along each axis."""
    planes = image[None] if image.ndim == axes else np.moveaxis(image, -1, 0)
    wide = np.int16 if image.dtype == np.uint8 else np.float32
    steps = [np.abs(np.diff(each.astype(wide), axis=-1)) for each in _lines(planes, step)]
    return [each.reshape(len(planes), -1) for each in steps]


def _median(values: npt.NDArray[Any]) -> float:
    """Return the median; of small whole numbers by counting, in a tenth of the time."""
    if values.dtype != np.int16:
        return float(np.median(values))
    ends = np.cumsum(np.bincount(values))
    return float(np.searchsorted(ends, [(values.size - 1) // 2, values.size // 2], "right").mean())


def best_labels(unary: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return each pixel's label of least energy, as argmin does in more than twice the time.

    Examples
    --------
    >>> best_labels(np.array([[0.0, 2.0, 1.0], [0.0, 1.0, 3.0]]))
    array([0, 1, 0])
    """
    least, labels = unary.min(0), np.zeros(unary.shape[1:], np.int64)
    for label in reversed(range(len(unary))):
        np.putmask(labels, unary[label] == least, label)
    return labels


def _sure_pixels(unary: FloatArray, total: FloatArray) -> npt.NDArray[np.int64]:
    """Return how many pixels each label has, and how many of them have it surely, (2, labels).

    `total` is one over the probability of each pixel's best label.
    """
    labels = best_labels(unary).ravel()
    sure = total.ravel() * SURE < 1
    return np.array([np.bincount(each, minlength=len(unary)) for each in (labels, labels[sure])])


def _sure_share(pixels: npt.NDArray[np.int64]) -> float:
    """Return the share of sure pixels, as the mean over the labels that occur.

    Examples
    --------
    A large sure background, a small unsure object, and a label with hardly a pixel:

    >>> _sure_share(np.array([[900, 99, 1], [900, 0, 1]]))
    0.5
    """
    enough = min(OCCURS * pixels[0].sum(), pixels[0].max())
    occur, sure = pixels[:, pixels[0] >= enough]
    return float(np.mean(sure / occur))
