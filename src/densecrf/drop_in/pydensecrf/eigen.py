"""The module ``pydensecrf.eigen``: matrices are plain NumPy arrays here.

`DenseCRF.inference` returns an array, so no conversion is needed; these names are for programs that
call them.
"""

from typing import Any

import numpy as np

from densecrf.validation import ArgumentError, FloatArray

__all__ = ["MatrixXf", "VectorXf", "matrixXf", "vectorXf"]

MatrixXf = VectorXf = np.ndarray


def matrixXf(arr: Any) -> FloatArray:
    """Return a copy of a float32 matrix."""
    return _copied(arr, 2)


def vectorXf(arr: Any) -> FloatArray:
    """Return a copy of a float32 vector."""
    return _copied(arr, 1)


def _copied(arr: Any, axes: int) -> FloatArray:
    if not isinstance(arr, np.ndarray):  # as in the original, whose callers may catch it
        raise TypeError(f"arr: {type(arr).__name__}; give a NumPy array")
    if arr.dtype != np.float32 or arr.ndim != axes:
        remedy = f"{arr.dtype} of shape {arr.shape}; give float32 with {axes} axes"
        raise ArgumentError("arr", ..., remedy + ", for example arr.astype(numpy.float32)")
    return np.array(arr, order="C")
