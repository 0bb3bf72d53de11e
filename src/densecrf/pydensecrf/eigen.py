"""The module ``pydensecrf.eigen``: matrices are plain NumPy arrays here.

What `DenseCRF.inference` returns is an array already, so ``np.array(Q)`` copies and nothing else
needs converting; these names are for programs that call them.
"""

from typing import Any

import numpy as np

from densecrf.validation import FloatArray, as_real_array

__all__ = ["MatrixXf", "VectorXf", "matrixXf", "vectorXf"]

MatrixXf = VectorXf = np.ndarray


def matrixXf(arr: Any) -> FloatArray:
    """Return a float32 copy of a matrix."""
    return np.array(as_real_array("arr", arr, ndim=2), np.float32, order="C")


def vectorXf(arr: Any) -> FloatArray:
    """Return a float32 copy of a vector."""
    return np.array(as_real_array("arr", arr, ndim=1), np.float32)
