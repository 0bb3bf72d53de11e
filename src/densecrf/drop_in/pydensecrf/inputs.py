"""Unary terms and images: conversion and checks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import ArgumentError, FloatArray, as_real_array, check_finite

__all__ = ["ConstUnary", "LogisticUnary", "Unary", "checked_energies", "checked_image"]


class Unary:
    """A unary term for `DenseCRF.setUnary`."""

    def __init__(self, energies: Any = None) -> None:
        self.energies = energies


class ConstUnary(Unary):
    """Given energies.

    Parameters
    ----------
    u : array_like, (nlabels, nvar)
        Energies.
    """

    def __init__(self, u: Any) -> None:
        super().__init__(u)


class LogisticUnary(Unary):
    """Energies that are linear in features, ``L @ f``.

    Parameters
    ----------
    L : array_like, (nlabels, features)
        Weights.
    f : array_like, (features, nvar)
        Features of each pixel.
    """

    def __init__(self, L: Any, f: Any) -> None:
        weights, features = as_real_array("L", L, ndim=2), as_real_array("f", f, ndim=2)
        if weights.shape[1] != features.shape[0]:
            raise ArgumentError(
                "f",
                ...,
                f"shape {features.shape} for L of shape {weights.shape}; give "
                f"({weights.shape[1]}, nvar)",
            )
        super().__init__(weights.astype(np.float32) @ features.astype(np.float32))


def checked_energies(u: Any, labels: int, grid: tuple[int, ...]) -> FloatArray:
    """Return a user's energies as a float32 array (labels, n), or refuse them."""
    n = int(np.prod(grid))
    array = as_real_array("u", u)
    if array.shape not in ((labels, n), (labels, *grid)):
        raise ArgumentError("u", ..., _wrong_shape(array.shape, labels, grid))
    with np.errstate(over="ignore"):
        unary = np.array(array, np.float32, order="C").reshape(labels, n)
    least = float(unary.min())  # NaN where there is one
    if np.isnan(least) or least == -np.inf:
        check_finite("u", np.where(np.isposinf(unary), 0, unary))
    if unary.max() == np.inf and (forbidden := np.isposinf(unary).all(0)).any():
        raise ArgumentError(
            "u",
            ...,
            f"every label of pixel {int(forbidden.argmax())} costs infinity; clip the "
            "probabilities before the logarithm (unary_from_softmax does)",
        )
    return unary


def _wrong_shape(shape: tuple[int, ...], labels: int, grid: tuple[int, ...]) -> str:
    n = int(np.prod(grid))
    message = f"shape {shape}; this model needs {(labels, n)}, labels first"
    if shape == (n, labels):
        return message + ": transpose it (u.T)"
    if shape == (*grid, labels):
        return message + ": bring the labels to the front (u.transpose(2, 0, 1).reshape(L, -1))"
    if len(grid) == 2 and shape == (labels, *grid[::-1]):
        return (
            message
            + f": the model is {grid[1]} wide and {grid[0]} high; DenseCRF2D(width, "
            + ("height, labels) takes the width first")
        )
    if len(shape) == 2 and shape[1] == n:
        return message + f": it has {shape[0]} labels, the model was made for {labels}"
    return message


def checked_image(rgbim: Any, height: int, width: int) -> npt.NDArray[Any]:
    """Return a copy of a user's image as (height, width, channels), or refuse it."""
    image = np.array(as_real_array("rgbim", rgbim))
    if image.ndim not in (2, 3) or image.shape[:2] != (height, width):
        message = f"shape {image.shape}; this model needs ({height}, {width}, channels)"
        if image.shape[:2] == (width, height):
            message += ": DenseCRF2D(width, height, labels) takes the width first"
        raise ArgumentError("rgbim", ..., message)
    return image.reshape(height, width, -1)
