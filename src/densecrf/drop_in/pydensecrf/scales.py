"""Standard deviations as the original reads them.

The original accepts standard deviations that `densecrf` refuses: more numbers than are needed (the
last are ignored), fewer (the last features are not divided), negative and infinite ones. The same
calls give the same numbers here, with a warning.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import (
    LARGEST_FEATURE,
    SMALLEST_SIGMA,
    ArgumentError,
    FloatArray,
    as_real_array,
    warn,
)

__all__ = ["as_whole", "divided", "scales", "single_scales", "usual"]


def scales(name: str, value: Any, count: int, of_what: str, *, also: str = "") -> list[Any]:
    """Return `count` divisors, the caller's own numbers; missing ones are 1.

    Parameters
    ----------
    name, value
        The argument, one number or a sequence.
    count : int
        Number of divisors.
    of_what : str
        The features that are divided, for messages.
    also : {"", "fewer", "more"}
        Whether the original accepts fewer or more numbers than `count`.
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
    _warn_of_unusual(name, value, numbers, count, of_what)
    # The type decides the precision of the division (NumPy's own promotion), as in the original.
    own = [each if isinstance(each, (int, float, np.number)) else float(each) for each in given]
    return [*own, *[1] * count][:count]


def single_scales(name: str, value: Any, count: int, of_what: str) -> FloatArray:
    """Return `scales` in single precision; the original ignores further numbers."""
    return np.array(scales(name, value, count, of_what, also="more"), np.float32)


def _warn_of_unusual(
    name: str, value: Any, array: npt.NDArray[np.float64], count: int, of_what: str
) -> None:
    remarks = []
    if len(array) > count:
        remarks.append(f"only the first {count} are used")
    if len(array) < count:
        remarks.append(f"only the first {len(array)} of the {count} {of_what} are divided")
    if (array < 0).any():
        remarks.append("a negative number mirrors the features")
    if np.isinf(array).any():
        remarks.append("an infinite number removes the features")
    if remarks:
        warn(
            name, f"{value!r}: {', '.join(remarks)}, as in pydensecrf; check that this is intended"
        )


def divided(name: str, values: npt.NDArray[Any], sigma: np.float32) -> FloatArray:
    """Return values over a standard deviation in single precision; it must not be too small."""
    single = np.asarray(values, np.float32)
    largest = float(np.abs(single).max(initial=0.0))
    if not largest <= LARGEST_FEATURE * abs(float(sigma)):
        raise ArgumentError(
            name,
            float(f"{sigma:.6g}"),
            f"values up to {largest:g} are then more than {LARGEST_FEATURE:g} standard deviations "
            "from zero, outside the range of the lattice; give "
            f"{largest / LARGEST_FEATURE:.3g} or greater",
        )
    return np.asarray(single / sigma, np.float32)


def as_whole(name: str, value: Any) -> Any:
    """Return a float that is a whole number as an int; the original truncates any float."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    if isinstance(value, (float, np.floating)):
        raise ArgumentError(name, value, "must be a whole number (pydensecrf would truncate it)")
    return value


def usual(sigma: FloatArray) -> bool:
    """Return whether `densecrf.Spatial` and `densecrf.Bilateral` accept these numbers."""
    return bool((np.isfinite(sigma) & (sigma > 0)).all())
