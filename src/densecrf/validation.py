"""Checks at the public door.

Every message names the argument, its value and the remedy; behind the door arrays are trusted.
"""

import math
import operator
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "LARGEST_FEATURE",
    "FloatArray",
    "IntArray",
    "as_features",
    "as_float32",
    "as_real_array",
    "check_choice",
    "check_finite",
    "check_fits",
    "check_fraction",
    "check_integer",
    "check_non_negative",
    "check_pixels",
    "check_positive",
    "check_share",
    "check_threads",
    "sigmas",
]

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SIGMA = 1e-30  # below, dividing by it leaves the range of float32
LARGEST_WEIGHT = 1e20  # beyond, sums over pixels leave the range of float32
LARGEST_FEATURE = 1e6  # the lattice's integer keys hold this at any dimension
MOST_PIXELS = 2**31 - 1  # pixels are numbered in 32 bits
MOST_THREADS = 1024
_CPU, _PINNED = 1, 3  # DLPack's numbers of devices


def as_real_array(name: str, value: Any, *, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return `value` as an array of real numbers, or say why it is none."""
    try:
        array = _shared(name, value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name}: not an array of numbers ({error})") from error
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(
            f"{name}: a masked array, whose mask would be lost; fill it ({name}.filled(...)) and "
            "name void pixels by ignore= or void="
        )
    if array.dtype.kind not in "buif":
        raise ValueError(
            f"{name}: dtype {array.dtype} holds no real numbers; convert it, for example with "
            f"{name}.astype(numpy.float32)"
        )
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name}: shape {array.shape} has {array.ndim} axes, not {ndim}")
    return array


def _shared(name: str, value: Any) -> npt.NDArray[Any]:
    """Return another library's array (torch's, JAX's, …) in this memory as NumPy's."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    place = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if place not in (_CPU, _PINNED):
        raise ValueError(
            f"{name}: lies on a GPU or another device; bring it to this memory first, or use "
            "densecrf.torch, which works there"
        )
    if getattr(value, "requires_grad", False):
        value = value.detach()
    return np.from_dlpack(value)


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


def as_float32(name: str, array: npt.NDArray[Any]) -> FloatArray:
    """Return finite numbers as float32, refusing those beyond its range."""
    check_fits(name, array.shape)
    check_finite(name, array)
    with np.errstate(over="ignore"):
        out = np.asarray(array, np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        check_finite(f"{name} as float32", out)
    return out


def as_features(value: Any) -> npt.NDArray[np.floating[Any]]:
    """Return features (n, d) as contiguous float32 or float64, within what can be filtered."""
    array = as_real_array("features", value, ndim=2)
    if array.size == 0:
        raise ValueError(f"features: shape {array.shape} holds nothing to filter")
    check_pixels("features", array.shape[0])
    check_fits("features", array.shape)
    check_finite("features", array)
    largest = max(float(array.max()), -float(array.min()))
    if not largest <= LARGEST_FEATURE:
        raise ValueError(
            f"features: a value of {largest:g} standard deviations; the largest that can be "
            f"filtered is {LARGEST_FEATURE:g}. Divide by larger standard deviations, or subtract "
            "the mean"
        )
    kept = np.float32 if array.dtype == np.float32 else np.float64
    return np.ascontiguousarray(array, kept)


def check_pixels(name: str, count: int) -> None:
    """Refuse more pixels than 32-bit numbers can name."""
    if count > MOST_PIXELS:
        raise MemoryError(
            f"{name}: {count} pixels; at most {MOST_PIXELS} can be handled at once, split the "
            "problem into tiles"
        )


def check_fits(name: str, shape: Sequence[int]) -> None:
    """Refuse float32 arrays larger than the machine's memory, before anything is allocated.

    Systems that overcommit would let the allocation pass and kill the process later.
    """
    needed = 4 * math.prod(shape)
    memory = _memory()
    if memory is not None and needed > memory:
        raise MemoryError(
            f"{name}: {' × '.join(map(str, shape))} float32 numbers take {needed >> 30:,} "
            f"GiB, and this machine has {memory >> 30:,} GiB; use fewer, or split the problem"
        )


@cache
def _memory() -> int | None:
    """Return the bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above zero."""
    number = _as_float(name, value)
    if not (np.isfinite(number) and number > SMALLEST_SIGMA):
        shown = value.item() if isinstance(value, np.generic) else value  # no np.float64(…)
        raise ValueError(
            f"{name}={shown!r}: must be a finite number greater than 0 (than {SMALLEST_SIGMA:g})"
        )
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float between 0 and 1, both excluded."""
    number = _as_float(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name}={value!r}: must be between 0 and 1, both excluded")
    return number


def check_non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite float not below zero."""
    number = _as_float(name, value)
    if not 0 <= number <= LARGEST_WEIGHT:
        raise ValueError(
            f"{name}={value!r}: must be a finite number, 0 or greater (at most {LARGEST_WEIGHT:g})"
        )
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


def check_integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return `value` as an int within the given limits."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name}={value!r}: must be a whole number") from error
    if number < at_least:
        raise ValueError(f"{name}={value!r}: must be {at_least} or greater")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name}={value!r}: must be {at_most} or less")
    return number


def check_threads(value: Any) -> int:
    """Return a number of threads for the native core, where 0 stands for all."""
    if value is None:
        return 0
    return check_integer("threads", value, at_least=1, at_most=MOST_THREADS)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise name the closest."""
    if isinstance(value, str) and value in choices:
        return value
    from difflib import get_close_matches

    lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(str(value).lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean {lower[close[0]]!r}?" if close else ""
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
