"""Arguments as the original reads them: unary terms, images, standard deviations.

The original accepts standard deviations that `densecrf` refuses: too many numbers (the last are
ignored), too few (the last features are not divided), negative and infinite ones. Here they give
the same results, with a warning.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.model.kernels import check_extent
from densecrf.validation import (
    SMALLEST_SIGMA,
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_integer,
    warn,
)

__all__ = [
    "ConstUnary",
    "LogisticUnary",
    "Unary",
    "as_whole",
    "checked_energies",
    "checked_image",
    "divided",
    "scales",
    "single_scales",
    "usual",
]


WIDTH_FIRST = "DenseCRF2D(width, height, labels) takes the width first"


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
    remedy = ""
    if shape == (n, labels):
        remedy = ": transpose it (u.T)"
    elif shape == (*grid, labels):
        remedy = ": bring the labels to the front (u.transpose(2, 0, 1).reshape(L, -1))"
    elif len(grid) == 2 and shape == (labels, *grid[::-1]):
        remedy = f": the model is {grid[1]} wide and {grid[0]} high; {WIDTH_FIRST}"
    elif len(shape) == 2 and shape[1] == n:
        remedy = f": it has {shape[0]} labels, the model was made for {labels}"
    return f"shape {shape}; this model needs {(labels, n)}, labels first{remedy}"


def checked_image(rgbim: Any, height: int, width: int) -> npt.NDArray[Any]:
    """Return a copy of a user's image as (height, width, channels), or refuse it."""
    image = np.array(as_real_array("rgbim", rgbim))
    if image.ndim not in (2, 3) or image.shape[:2] != (height, width):
        message = f"shape {image.shape}; this model needs ({height}, {width}, channels)"
        if image.shape[:2] == (width, height):
            message += f": {WIDTH_FIRST}"
        raise ArgumentError("rgbim", ..., message)
    return image.reshape(height, width, -1)


def scales(name: str, value: Any, count: int, of_what: str, *, also: str = "") -> list[Any]:
    """Return `count` divisors of features in the caller's type; missing ones are 1.

    `of_what` names the features; `also` is "fewer" or "more" if the original accepts that many.
    """
    array = as_real_array(name, value)
    given = [value] * count if array.ndim == 0 else list(value) if array.ndim == 1 else []
    wrong = "fewer" if len(given) < count else "more" if len(given) > count else also
    if not given or wrong != also:
        raise ArgumentError(
            name, value, f"give one number, or one for each of the {count} {of_what}"
        )
    numbers = np.broadcast_to(array, len(given)).astype(np.float64)
    for i, sigma in enumerate(numbers[:count]):
        if not abs(sigma) >= SMALLEST_SIGMA:
            raise ArgumentError(
                name if array.ndim == 0 else f"{name}[{i}]",
                float(sigma),
                f"must be a number other than 0 (a standard deviation of at least "
                f"{SMALLEST_SIGMA:g})",
            )
    remarks = {
        f"only the first {count} are used": len(given) > count,
        f"only the first {len(given)} of the {count} {of_what} are divided": len(given) < count,
        "a negative number mirrors the features": (numbers < 0).any(),
        "an infinite number removes the features": np.isinf(numbers).any(),
    }
    if any(remarks.values()):
        told = ", ".join(remark for remark, holds in remarks.items() if holds)
        warn(name, f"{value!r}: {told}, as in pydensecrf; check that this is intended")
    # By NumPy's promotion, the type decides the precision of the division, as in the original.
    own = [each if isinstance(each, (int, float, np.number)) else float(each) for each in given]
    return [*own, *[1] * count][:count]


def single_scales(name: str, value: Any, count: int, of_what: str) -> FloatArray:
    """Return `scales` in single precision; the original ignores further numbers."""
    return np.array(scales(name, value, count, of_what, also="more"), np.float32)


def divided(name: str, values: npt.NDArray[Any], sigma: np.float32) -> FloatArray:
    """Return values over a standard deviation in single precision; refuse one that is too small."""
    single = np.asarray(values, np.float32)
    check_extent(name, float(f"{sigma:.6g}"), float(np.abs(single).max(initial=0.0)))
    return np.asarray(single / sigma, np.float32)


def as_whole(name: str, value: Any, at_least: int = 1) -> int:
    """Return an integer, also from a whole float; the original truncates any float."""
    if isinstance(value, (float, np.floating)):
        if not float(value).is_integer():
            remedy = "must be a whole number (pydensecrf would truncate it)"
            raise ArgumentError(name, value, remedy)
        value = int(value)
    return check_integer(name, value, at_least=at_least)


def usual(sigma: FloatArray) -> bool:
    """Return whether `densecrf.Spatial` and `densecrf.Bilateral` accept these numbers."""
    return bool((np.isfinite(sigma) & (sigma > 0)).all())
