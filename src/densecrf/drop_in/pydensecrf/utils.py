"""The module ``pydensecrf.utils``: unaries and features in its layouts."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.drop_in.pydensecrf.inputs import scales
from densecrf.model.reading import SUM_TOLERANCE
from densecrf.model.unaries import whole_numbers
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_integer,
    check_positive,
    warn,
)

__all__ = [
    "compute_unary",
    "create_pairwise_bilateral",
    "create_pairwise_gaussian",
    "softmax_to_unary",
    "unary_from_labels",
    "unary_from_softmax",
]


def unary_from_labels(
    labels: Any, n_labels: int, gt_prob: float, zero_unsure: bool = True
) -> FloatArray:
    """Return the energies (n_labels, n) of an annotation that is right with probability `gt_prob`.

    Parameters
    ----------
    labels : array_like of int
        The annotation, any shape and dtype.
    n_labels : int
        Number of labels, without the 0 of `zero_unsure`.
    gt_prob : float
        Probability that the annotation is right, between 0 and 1.
    zero_unsure : bool
        Whether 0 means unknown and labels count from 1; otherwise they count from 0.

    Examples
    --------
    >>> np.exp(-unary_from_labels([0, 1, 2], 2, gt_prob=0.7)).round(2)
    array([[0.5, 0.7, 0.3],
           [0.5, 0.3, 0.7]], dtype=float32)
    """
    count = check_integer("n_labels", n_labels, at_least=1)
    if count == 1:
        warn("n_labels", "with one label all pixels have it; check that this is intended")
    if not 0 < gt_prob < 1:
        raise ArgumentError(
            "gt_prob",
            gt_prob,
            "must be greater than 0 and less than 1 (1 would be an infinite energy)",
        )
    x = as_real_array("labels", labels).ravel()
    check_finite("labels", x)
    given = whole_numbers("labels", x)
    index = given - 1 if zero_unsure else given
    wrong = (index < -count) | (index >= count)
    if wrong.any():
        raise ArgumentError("labels", ..., _outside(int(given[wrong][0]), count, bool(zero_unsure)))
    if (given < 0).any():
        warn(
            "labels",
            f"values down to {int(given.min())}: negative ones count from the last label, as in "
            "pydensecrf; check that this is intended",
        )
    out = np.full((count, len(index)), -np.log((1 - gt_prob) / max(count - 1, 1)), np.float32)
    out[index, np.arange(len(index))] = -np.log(gt_prob)
    if zero_unsure:
        out[:, given == 0] = np.log(count)
    return out


def _outside(value: int, count: int, zero_unsure: bool) -> str:
    valid = f"1 … {count} (0: unsure)" if zero_unsure else f"0 … {count - 1}"
    message = f"value {value} is not one of {valid} for n_labels={count}"
    if value == 255:
        return message + (
            "; if 255 marks void pixels, mark them as unsure: "
            + ("labels[labels == 255] = 0" if zero_unsure else "labels = (labels + 1) % 256")
            + ("" if zero_unsure else " on uint8 labels, with zero_unsure=True")
        )
    if zero_unsure and value == count + 1:
        return message + "; n_labels must not count the unsure label 0, or set zero_unsure=False"
    if not zero_unsure and value == count:
        return message + "; do labels count from 1? Then keep zero_unsure=True"
    return message


def unary_from_softmax(
    sm: Any, scale: float | None = None, clip: float | None = 1e-5
) -> FloatArray:
    """Return the energies (labels, n) of class probabilities: -log max(p, clip).

    Parameters
    ----------
    sm : array_like, (labels, …)
        Probabilities, labels first; the other axes are flattened.
    scale : float, optional
        Certainty of the probabilities, above 0 and at most 1: mixes them with the uniform
        distribution, ``scale * p + (1 - scale) / labels``.
    clip : float or None
        Smallest probability; with None, the energy of a zero is infinite.

    Examples
    --------
    >>> unary_from_softmax([[0.5, 0.0], [0.5, 1.0]]).round(2)
    array([[ 0.69, 11.51],
           [ 0.69, -0.  ]], dtype=float32)
    """
    p = as_real_array("sm", sm)
    if p.ndim < 1 or p.size == 0:
        raise ArgumentError("sm", ..., f"shape {p.shape}; give (labels, …)")
    check_finite("sm", p)
    _warn_of_logits(p)
    if scale is not None:
        if not 0 < scale <= 1:
            raise ArgumentError("scale", scale, "must be greater than 0 and at most 1")
        p = scale * p + (1 - scale) / p.shape[0]
    if clip is not None:
        if not np.isfinite(clip):
            raise ArgumentError("clip", clip, "must be a finite number, or None")
        p = np.clip(p, clip, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.ascontiguousarray(-np.log(p), np.float32).reshape(p.shape[0], -1)


def _warn_of_logits(p: npt.NDArray[Any]) -> None:
    low, high = float(p.min()), float(p.max())
    if low < -SUM_TOLERANCE or high > 1 + SUM_TOLERANCE:
        warn(
            "sm",
            f"values from {low:g} to {high:g} are not probabilities; apply the softmax first, or "
            "use densecrf.DenseCRF.from_logits",
        )


def create_pairwise_gaussian(sdims: Any, shape: Any) -> FloatArray:
    """Return the positions (axes, n) of a grid over standard deviations.

    Parameters
    ----------
    sdims : float or sequence of float
        Standard deviation for each axis, in the order of the axes (for images y first).
    shape : sequence of int
        Shape of the grid, any number of axes.

    Examples
    --------
    >>> create_pairwise_gaussian((1, 2), (2, 2))
    array([[0. , 0. , 1. , 1. ],
           [0. , 0.5, 0. , 0.5]], dtype=float32)
    """
    grid = tuple(check_integer("shape", extent, at_least=1) for extent in np.atleast_1d(shape))
    return _divided(
        np.indices(grid, np.float32), scales("sdims", sdims, len(grid), "axes of shape")
    )


def _divided(planes: npt.NDArray[Any], divisors: list[Any]) -> FloatArray:
    """Return the planes over their divisors as rows in single precision."""
    pairs = zip(planes, divisors, strict=True)
    return np.stack([np.asarray(plane / divisor, np.float32).ravel() for plane, divisor in pairs])


def create_pairwise_bilateral(sdims: Any, schan: Any, img: Any, chdim: int = -1) -> FloatArray:
    """Return positions and colours (axes + channels, n) over standard deviations.

    Parameters
    ----------
    sdims : float or sequence of float
        Standard deviation of the position for each axis, in the order of the axes.
    schan : float or sequence of float
        Standard deviation of the values, one or one for each channel.
    img : array_like
        The image or volume.
    chdim : int
        The axis of the channels; **-1 means no channels**, not the last axis.

    Examples
    --------
    >>> create_pairwise_bilateral((1, 1), 10, [[0, 20]])
    array([[0., 0.],
           [0., 1.],
           [0., 2.]], dtype=float32)
    """
    image = as_real_array("img", img)
    check_finite("img", image)
    if chdim == -1:
        channels = image[None]
    elif -image.ndim <= check_integer("chdim", chdim, at_least=-(2**31)) < image.ndim:
        channels = np.moveaxis(image, chdim, 0)
    else:
        raise ArgumentError(
            "chdim", chdim, f"img has axes 0 … {image.ndim - 1}; -1 for no channels"
        )
    spatial = channels.shape[1:]
    what = "channels of img (chdim names their axis)"
    color = scales("schan", schan, len(channels), what, also="fewer")
    axes = scales("sdims", sdims, len(spatial), "axes of img", also="fewer")
    positions = np.indices(spatial, np.float32)
    return np.concatenate([_divided(positions, axes), _divided(channels.astype(np.float32), color)])


def _create_pairwise_gaussian_2d(sx: float, sy: float, shape: Any) -> FloatArray:
    """Return `create_pairwise_gaussian` of two axes, under the original's name."""
    return create_pairwise_gaussian((sx, sy), shape)


def _create_pairwise_bilateral_2d(
    sx: float, sy: float, sr: float, sg: float, sb: float, img: Any
) -> FloatArray:
    """Return `create_pairwise_bilateral` of a colour image, under the original's name."""
    return create_pairwise_bilateral((sx, sy), (sr, sg, sb), img, chdim=2)


def compute_unary(labels: Any, M: int, GT_PROB: float = 0.5) -> FloatArray:
    """Return `unary_from_labels` with unsure zeros; deprecated in the original as well."""
    _deprecated("compute_unary", "unary_from_labels")
    return unary_from_labels(labels, M, GT_PROB)


def softmax_to_unary(sm: Any, GT_PROB: float = 1) -> FloatArray:
    """Return `unary_from_softmax` without clipping; deprecated in the original as well."""
    _deprecated("softmax_to_unary", "unary_from_softmax")
    check_positive("GT_PROB", GT_PROB)
    return unary_from_softmax(sm, None if GT_PROB == 1 else GT_PROB, clip=None)


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
