"""Class activation maps as scores: a background is added, which they do not have."""

from typing import Any

import numpy as np

from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_fraction,
    check_positive,
    mention,
)

__all__ = ["with_background"]

LEAST = 1e-5  # score of any label, so that the sum over labels is above 0


def with_background(
    maps: Any, *, threshold: float | None = None, power: float | None = None, axis: int = 0
) -> FloatArray:
    """Return activation maps as probabilities (1 + classes, *spatial); label 0 is the background.

    Parameters
    ----------
    maps : array_like
        Scores of the classes, from 0 to 1: sigmoids, or activations divided by their largest.
        Classes that the image does not have are 0. The class of map i becomes label i + 1.
    threshold : float, optional
        The background's score everywhere: it is the argmax where all maps are below.
    power : float, optional
        The background's score is (1 - the largest map) to this power: the larger, the smaller
        the background.
    axis : int
        The axis of the classes.

    Examples
    --------
    >>> cam = np.array([[[0.8, 0.2, 0.0]]])
    >>> with_background(cam, threshold=0.2).round(2).tolist()
    [[[0.20000000298023224, 0.5, 1.0]], [[0.800000011920929, 0.5, 0.0]]]
    >>> with_background(cam, power=2)[0].round(2).tolist()
    [[0.05000000074505806, 0.7599999904632568, 1.0]]
    """
    ways = [mention("threshold", 0.3), mention("power", 4)]
    if (threshold is None) == (power is None):
        raise ArgumentError("threshold", threshold, f"give either {ways[0]} or {ways[1]}")
    given = as_real_array("maps", maps)
    if given.ndim < 2 or 0 in given.shape or not -given.ndim <= axis < given.ndim:
        remedy = f"axis {axis} of shape {given.shape}: give (classes, *spatial), and the axis"
        raise ArgumentError("maps", ..., remedy)
    low, high = check_finite("maps", given)
    if low < 0 or high > 1:
        remedy = f"values from {low:g} to {high:g}: give numbers from 0 to 1 (sigmoids of logits, "
        raise ArgumentError("maps", ..., remedy + "or activations divided by their largest)")
    scores = np.moveaxis(given, axis, 0).astype(np.float32)
    largest = scores.max(0)
    if threshold is not None:
        background = np.full_like(largest, check_fraction("threshold", threshold))
    else:
        background = (1 - largest) ** np.float32(check_positive("power", power))
    stack = np.maximum(np.concatenate([background[None], scores]), np.float32(LEAST))
    return np.asarray(stack / stack.sum(0))
