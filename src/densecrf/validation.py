"""Checks at the public door.

Every message names the argument, its value and the remedy; behind the door arrays are trusted.
"""

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "FloatArray",
    "IntArray",
    "as_real_array",
    "check_choice",
    "check_finite",
    "check_integer",
    "check_non_negative",
    "check_positive",
    "check_share",
    "sigmas",
]

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SIGMA = 1e-30  # below, dividing by it leaves the range of float32


def as_real_array(name: str, value: Any, *, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return `value` as an array of real numbers, or say why it is none."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: not an array of numbers ({error})") from error
    if array.dtype.kind not in "buif":
        raise ValueError(
            f"{name}: dtype {array.dtype} holds no real numbers; convert it, for example with "
            f"{name}.astype(numpy.float32)"
        )
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name}: shape {array.shape} has {array.ndim} axes, not {ndim}")
    return array


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse NaN and infinities, naming the first."""
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        count = int(array.size - np.count_nonzero(finite))
        raise ValueError(
            f"{name}: {count} of {array.size} values are not finite, the first is "
            f"{array[index]} at {index}; clean them first (numpy.nan_to_num) or mask those pixels"
        )


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above zero."""
    number = _as_float(name, value)
    if not (np.isfinite(number) and number > SMALLEST_SIGMA):
        raise ValueError(f"{name}={value!r}: must be a finite number greater than 0")
    return number


def check_non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite float not below zero."""
    number = _as_float(name, value)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value!r}: must be a finite number, 0 or greater")
    return number


def check_share(name: str, value: Any) -> float:
    """Return `value` as a float within [0, 1]."""
    number = _as_float(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name}={value!r}: must be between 0 and 1")
    return number


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise ValueError(f"{name}={value!r}: must be a number, not text")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}={value!r}: must be one number") from error


def check_integer(name: str, value: Any, *, at_least: int) -> int:
    """Return `value` as an int not below `at_least`."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name}={value!r}: must be a whole number") from error
    if number < at_least:
        raise ValueError(f"{name}={value!r}: must be {at_least} or greater")
    return number


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise name the closest."""
    if isinstance(value, str) and value in choices:
        return value
    from difflib import get_close_matches

    close = get_close_matches(str(value), choices, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, choices))}.{hint}")


def sigmas(name: str, value: Any, count: int, of_what: str) -> npt.NDArray[np.float64]:
    """Return one positive standard deviation for each of `count` axes or channels."""
    array = as_real_array(name, value)
    if array.ndim == 0:
        return np.full(count, check_positive(name, array[()]))
    if array.shape != (count,):
        raise ValueError(
            f"{name}={value!r}: give one number, or one for each of the {count} {of_what}"
        )
    return np.array([check_positive(f"{name}[{i}]", s) for i, s in enumerate(array)])
