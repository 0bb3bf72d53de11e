"""The labels of a model: what both of SimpleCRF's functions end with."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.drop_in.pydensecrf.densecrf import DenseCRF
from densecrf.drop_in.pydensecrf.utils import unary_from_softmax

__all__ = ["Labels", "labels_of"]

Labels: TypeAlias = npt.NDArray[np.int8]

SMALLEST, LARGEST = 0.01, 0.99


def labels_of(crf: DenseCRF, p: npt.NDArray[Any], iterations: int) -> Labels:
    """Return the labels of probabilities (*grid, labels) after some mean-field iterations."""
    crf.setUnaryEnergy(unary_from_softmax(np.moveaxis(np.clip(p, SMALLEST, LARGEST), -1, 0)))
    return np.asarray(crf.inference(iterations).argmax(0).reshape(p.shape[:-1]), np.int8)
