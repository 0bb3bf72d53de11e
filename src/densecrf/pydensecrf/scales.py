"""Standard deviations as the original takes them, divided by in single precision as it does.

The original accepts what `densecrf` refuses: too many numbers (the first count), too few for some
features (the rest stay as they are), negative and infinite ones. The numbers are the same here,
with a warning each, since such a call is rarely meant.
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

__all__ = ["as_whole", "divided", "scales", "usual"]


def scales(name: str, value: Any, count: int, of_what: str, *, also: str = "") -> FloatArray:
    """Return `count` divisors in single precision; missing ones are 1.

    Parameters
    ----------
    name, value
        The argument, one number or a sequence.
    count : int
        How many are needed.
    of_what : str
        Of what, for messages.
    also : {"", "fewer", "more"}
        Which wrong number of them the original takes here.
    """
    array = as_real_array(name, value).astype(np.float64)
    if array.ndim == 0:
        array = np.full(count, array[()])
    wrong = "fewer" if array.size < count else "more" if array.size > count else also
    if array.ndim != 1 or array.size == 0 or wrong != also:
        raise ArgumentError(
            name, value, f"give one number, or one for each of the {count} {of_what}"
        )
    for i, sigma in enumerate(array[:count]):
        if not abs(sigma) >= SMALLEST_SIGMA:
            raise ArgumentError(
                name if np.ndim(value) == 0 else f"{name}[{i}]",
                float(sigma),
                f"must be a number other than 0 (a standard deviation of at least "
                f"{SMALLEST_SIGMA:g})",
            )
    _warn_of_unusual(name, value, array, count, of_what)
    out = np.ones(count, np.float32)
    out[: len(array)] = array[:count]
    return out


def _warn_of_unusual(
    name: str, value: Any, array: npt.NDArray[np.float64], count: int, of_what: str
) -> None:
    remarks = []
    if len(array) > count:
        remarks.append(f"the first {count} count")
    if len(array) < count:
        remarks.append(f"only the first {len(array)} of the {count} {of_what} are divided")
    if (array < 0).any():
        remarks.append("a negative number mirrors the features")
    if np.isinf(array).any():
        remarks.append("an infinite one removes them")
    if remarks:
        warn(name, f"{value!r}: {', '.join(remarks)}, as in pydensecrf; is it meant?")


def divided(name: str, values: npt.NDArray[Any], sigma: np.float32) -> FloatArray:
    """Return the values over a standard deviation, both single, or refuse too small a one."""
    single = np.asarray(values, np.float32)
    largest = float(np.abs(single).max(initial=0.0))
    if not largest <= LARGEST_FEATURE * abs(float(sigma)):
        raise ArgumentError(
            name,
            float(f"{sigma:.6g}"),
            f"values up to {largest:g} are then more than {LARGEST_FEATURE:g} standard deviations "
            "from zero, further than can be filtered; give "
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
    """Return whether all are standard deviations that the model's own kernels take."""
    return bool((np.isfinite(sigma) & (sigma > 0)).all())
