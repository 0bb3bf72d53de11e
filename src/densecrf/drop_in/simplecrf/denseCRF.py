"""The module ``denseCRF`` of SimpleCRF: mean field on a colour image."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.drop_in.pydensecrf.densecrf import DenseCRF, DenseCRF2D
from densecrf.drop_in.pydensecrf.utils import unary_from_softmax
from densecrf.validation import ArgumentError, as_real_array

__all__ = ["densecrf"]

Labels: TypeAlias = npt.NDArray[np.int8]

SMALLEST, LARGEST = 0.01, 0.99


def densecrf(I: Any, P: Any, param: Sequence[float]) -> Labels:
    """Return the labels (height, width) after mean-field iterations.

    Parameters
    ----------
    I : array_like, (height, width, 3)
        Image, colours from 0 to 255.
    P : array_like, (height, width, labels)
        Probabilities, clipped to [0.01, 0.99] as SimpleCRF does.
    param : sequence of 6 numbers
        ``(w1, alpha, beta, w2, gamma, it)``: weight of the bilateral kernel and its standard
        deviations of position and colour; weight and standard deviation of the spatial kernel;
        number of iterations.

    Examples
    --------
    >>> image = np.zeros((4, 6, 3), np.uint8)
    >>> image[:, 3:] = 200
    >>> p = np.where(image[..., :2] < 100, (0.9, 0.1), (0.1, 0.9))
    >>> p[0, 1] = 0.3, 0.7  # a mistake
    >>> densecrf(image, p, (10.0, 80, 13, 3.0, 3, 5.0))[0]
    array([0, 0, 0, 1, 1, 1], dtype=int8)
    """
    image, p = as_real_array("I", I), as_real_array("P", P)
    if image.ndim not in (2, 3) or p.ndim != 3 or p.shape[:2] != image.shape[:2]:
        raise ArgumentError(
            "P",
            ...,
            f"shape {p.shape} for an image of shape {image.shape}; give (height, width, labels)",
        )
    if len(param) != 6:
        raise ArgumentError("param", param, "give (w1, alpha, beta, w2, gamma, it)")
    w1, alpha, beta, w2, gamma, iterations = param
    height, width, labels = p.shape
    crf = DenseCRF2D(width, height, labels)
    crf.addPairwiseGaussian(gamma, w2)
    crf.addPairwiseBilateral(alpha, beta, image, w1)
    return labels_of(crf, p, int(iterations))


def labels_of(crf: DenseCRF, p: npt.NDArray[Any], iterations: int) -> Labels:
    """Return the labels of probabilities (*grid, labels) after mean-field iterations."""
    crf.setUnaryEnergy(unary_from_softmax(np.moveaxis(np.clip(p, SMALLEST, LARGEST), -1, 0)))
    return np.asarray(crf.inference(iterations).argmax(0).reshape(p.shape[:-1]), np.int8)
