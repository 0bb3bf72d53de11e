"""Checks of public arguments.

Every error names the argument, its value and the remedy; checked values are trusted inside.
"""

import inspect
import math
import operator
import os
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "LARGEST_FEATURE",
    "ArgumentError",
    "ArgumentWarning",
    "FloatArray",
    "IntArray",
    "as_features",
    "as_float32",
    "as_image",
    "as_real_array",
    "check_choice",
    "check_finite",
    "check_fits",
    "check_fraction",
    "check_integer",
    "check_keywords",
    "check_non_negative",
    "check_pixels",
    "check_positive",
    "check_share",
    "check_threads",
    "mention",
    "near_name",
    "outside",
    "physical_memory",
    "sigmas",
    "warn",
    "with_keywords_of",
    "with_near_names",
]

P = ParamSpec("P")
T = TypeVar("T")
FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SIGMA = 1e-30  # below, dividing by it leaves the range of float32
LARGEST_WEIGHT = 1e20  # beyond, sums over pixels leave the range of float32
LARGEST_FEATURE = 1e6  # the lattice's integer keys hold this at any dimension
MOST_PIXELS = 2**31 - 1  # pixels are numbered in 32 bits
MOST_THREADS = 1024
LARGEST_FLOAT = float(np.finfo(np.float32).max)
_CPU, _PINNED = 1, 3  # DLPack's numbers of devices
_INSIDE = (__name__.split(".", maxsplit=1)[0], "torch")  # whose lines no warning names
_READERS = {"image": "densecrf.io.read_image", "probabilities": "numpy.load or densecrf.io"}
_MARK = "\0"  # around the mention of another argument in a remedy


def mention(name: str, value: Any = ...) -> str:
    """Return the mention of an argument for a remedy, as callers of other interfaces spell it.

    Examples
    --------
    >>> print(ArgumentError("labels", ..., f"only label 0 occurs; give {mention('n_labels')}"))
    labels: only label 0 occurs; give n_labels=
    """
    return f"{_MARK}{name}={'' if value is ... else _shown(value)}{_MARK}"


class ArgumentError(ValueError):
    """An argument that cannot be used.

    Attributes
    ----------
    name : str
        The argument.
    value : object
        The given value; ``...`` if the remedy describes it, as for arrays.
    remedy : str
        What is wrong and what to do.

    Examples
    --------
    >>> error = ArgumentError("gap", -1, "must be 0 or greater")
    >>> print(error)
    gap=-1: must be 0 or greater
    >>> error.spelled(lambda name, value: f"--{name} {value}")
    '--gap -1: must be 0 or greater'
    """

    def __init__(self, name: str, value: Any, remedy: str) -> None:
        super().__init__(name, value, remedy)
        self.name, self.value, self._remedy = name, value, remedy

    @property
    def remedy(self) -> str:
        """What is wrong and what to do."""
        return self._remedy.replace(_MARK, "")

    def renamed(self, **names: str) -> "ArgumentError":
        """Return the same error with the argument names of another interface."""

        def spell(name: str, value: str) -> str:
            return f"{_MARK}{names.get(name, name)}={value}{_MARK}"

        name = names.get(self.name, self.name)
        return type(self)(name, self.value, self._spelled(spell))

    def spelled(self, spell: Callable[[str, str], str]) -> str:
        """Return the message with each argument written by `spell`, for example as an option.

        `spell` takes an argument's name and its value as Python writes it, "" where there is none.
        """
        head = "" if self.value is ... else _shown(self.value)
        return f"{spell(self.name, head)}: {self._spelled(spell)}"

    def _spelled(self, spell: Callable[[str, str], str]) -> str:
        parts = self._remedy.split(_MARK)
        parts[1::2] = [spell(*part.split("=", 1)) for part in parts[1::2]]
        return "".join(parts)

    def __str__(self) -> str:
        """Return the message for a caller of the Python interface."""
        head = self.name if self.value is ... else f"{self.name}={_shown(self.value)}"
        return f"{head}: {self.remedy}"

    def __repr__(self) -> str:
        """Show the message as `str` does."""
        return f"{type(self).__name__}({str(self)!r})"


class ArgumentWarning(UserWarning):
    """An argument that is probably not what was meant.

    Attributes
    ----------
    error : ArgumentError
        The same as an error.
    """

    def __init__(self, name: str, value: Any, remedy: str) -> None:
        super().__init__(name, value, remedy)
        self.error = ArgumentError(name, value, remedy)

    def __str__(self) -> str:
        """Return the message for a caller of the Python interface."""
        return str(self.error)


def warn(name: str, remedy: str) -> None:
    """Warn of an argument, at the line outside this package that leads here."""
    warnings.warn(ArgumentWarning(name, ..., remedy), stacklevel=outside())


def outside() -> int:
    """Return the `stacklevel` with which a warning names the line outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].split(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    return level


def _shown(value: Any) -> str:
    whole = repr(value.item() if isinstance(value, np.generic) else value)  # no np.float64(…)
    return whole if len(whole) <= 80 else reprlib.repr(value)


def as_image(name: str, value: Any) -> npt.NDArray[Any]:
    """Return an image as an array of real numbers; a Pillow image of a palette by its colours."""
    if getattr(value, "mode", None) in ("P", "PA", "CMYK", "YCbCr", "HSV", "RGBX"):
        value = value.convert("RGB")  # whose own numbers are indices, or no colours of three
    return as_real_array(name, value)


def as_real_array(name: str, value: Any, *, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return `value` as an array of real numbers, or raise an error."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and name in _READERS):
        reader = _READERS.get(name, "numpy.load")
        remedy = f"a path instead of an array; read the file first, with {reader}"
        raise ArgumentError(name, value, remedy)
    try:
        array = _shared(name, value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise ArgumentError(name, ..., f"not an array of numbers ({error})") from error
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ArgumentError(
            name,
            ...,
            f"a masked array, whose mask would be lost; fill it ({name}.filled(...)) and mark "
            "void pixels with ignore= or void=",
        )
    if array.dtype.kind not in "buif":
        raise ArgumentError(
            name,
            ...,
            f"dtype {array.dtype} holds no real numbers; convert it, for example with "
            f"{name}.astype(numpy.float32)",
        )
    if ndim is not None and array.ndim != ndim:
        raise ArgumentError(name, ..., f"shape {array.shape} has {array.ndim} axes, not {ndim}")
    return array


def _shared(name: str, value: Any) -> npt.NDArray[Any]:
    """Return another library's array (torch's, JAX's, …) in this memory as NumPy's."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    place = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if place not in (_CPU, _PINNED):
        raise ArgumentError(
            name,
            ...,
            "is on a GPU or another device; copy it to the CPU first, or use densecrf.torch",
        )
    if hasattr(value, "detach"):  # torch's: without the record of its gradient
        value = value.detach()
        value = value.float() if "bfloat16" in str(value.dtype) else value  # NumPy has none
    return np.from_dlpack(value)


def check_finite(name: str, array: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the minimum and maximum; refuse values that float32 cannot hold, with their index."""
    if array.size == 0:
        return 0.0, 0.0
    low, high = float(array.min()), float(array.max())  # NaN where there is one
    if array.dtype.kind == "f" and not (-low <= LARGEST_FLOAT and high <= LARGEST_FLOAT):
        with np.errstate(invalid="ignore", over="ignore"):
            held = np.abs(array.astype(np.float64)) <= LARGEST_FLOAT  # which float16 cannot hold
        index = tuple(int(i) for i in np.argwhere(~held)[0])
        count = int(array.size - np.count_nonzero(held))
        what = "beyond the range of float32" if np.isfinite(array[index]) else "not finite"
        raise ArgumentError(
            name,
            ...,
            f"{count} of {array.size} values are {what}, the first is {array[index]} at {index}; "
            "clean them first (numpy.nan_to_num) or mask those pixels",
        )
    return low, high


def as_float32(name: str, array: npt.NDArray[Any]) -> FloatArray:
    """Return finite numbers as float32, refusing those beyond its range."""
    check_fits(name, array.shape)
    check_finite(name, array)
    return np.asarray(array, np.float32)


def as_features(value: Any) -> npt.NDArray[np.floating[Any]]:
    """Return features (n, d) as contiguous float32 or float64, within what can be filtered."""
    array = as_real_array("features", value, ndim=2)
    if array.size == 0:
        raise ArgumentError("features", ..., f"shape {array.shape} holds nothing to filter")
    check_pixels("features", array.shape[0])
    check_fits("features", array.shape)
    low, high = check_finite("features", array)
    if (largest := max(high, -low)) > LARGEST_FEATURE:
        raise ArgumentError(
            "features",
            ...,
            f"a value of {largest:g} standard deviations; the limit is {LARGEST_FEATURE:g}. Divide "
            "by larger standard deviations, or subtract the mean",
        )
    kept = np.float32 if array.dtype == np.float32 else np.float64
    return np.ascontiguousarray(array, kept)


def check_pixels(name: str, count: int) -> None:
    """Refuse more pixels than 32-bit numbers can name."""
    if count > MOST_PIXELS:
        raise MemoryError(
            f"{name}: {count} pixels, more than {MOST_PIXELS}; split the problem into tiles"
        )


def check_fits(name: str, shape: Sequence[int]) -> None:
    """Refuse float32 arrays of more than half of the machine's memory, before any is allocated.

    No solver could do with the rest, and systems that overcommit would let the allocation pass and
    kill the process later.
    """
    needed = 4 * math.prod(shape)
    memory = physical_memory()
    if memory is not None and needed > memory // 2:
        raise MemoryError(
            f"{name}: {' × '.join(map(str, shape))} float32 numbers need {needed >> 30:,} GiB, "
            f"over half of the {memory >> 30:,} GiB here; use fewer, or split the problem"
        )


@cache
def physical_memory() -> int | None:
    """Return the bytes of memory of this machine, where the system reports it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above zero."""
    number = _as_float(name, value)
    if not (np.isfinite(number) and number > SMALLEST_SIGMA):
        raise ArgumentError(
            name, value, f"must be a finite number greater than 0 (than {SMALLEST_SIGMA:g})"
        )
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float between 0 and 1, both excluded."""
    number = _as_float(name, value)
    if not 0 < number < 1:
        raise ArgumentError(name, value, "must be between 0 and 1, both excluded")
    return number


def check_gap(value: Any) -> float:
    """Return a relative gap: a fraction, 0 included."""
    number = _as_float("gap", value)
    if not 0 <= number < 1:
        raise ArgumentError("gap", value, "must be a fraction from 0 up to 1; 0.001 means 0.1 %")
    return number


def check_non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite float not below zero."""
    number = _as_float(name, value)
    if not 0 <= number <= LARGEST_WEIGHT:
        raise ArgumentError(
            name, value, f"must be a finite number, 0 or greater (at most {LARGEST_WEIGHT:g})"
        )
    return number


def check_share(name: str, value: Any) -> float:
    """Return `value` as a float within [0, 1]."""
    number = _as_float(name, value)
    if not 0 <= number <= 1:
        raise ArgumentError(name, value, "must be between 0 and 1")
    return number


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise ArgumentError(name, value, "must be a number, not text")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(name, value, "must be one number") from error


def check_integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return `value` as an int within the given limits."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ArgumentError(name, value, "must be a whole number") from error
    if number < at_least:
        raise ArgumentError(name, value, f"must be {at_least} or greater")
    if at_most is not None and number > at_most:
        raise ArgumentError(name, value, f"must be {at_most} or less")
    return number


def check_threads(value: Any) -> int:
    """Return a number of threads for the native core, where 0 stands for all."""
    if value is None:
        return 0
    return check_integer("threads", value, at_least=1, at_most=MOST_THREADS)


def near_name(given: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant, if there is one."""
    from difflib import get_close_matches

    lower = {name.lower(): name for name in names}
    close = get_close_matches(given.lower(), lower, n=1, cutoff=0.4)
    return lower[close[0]] if close else None


def with_near_names(function: Callable[P, T]) -> Callable[P, T]:
    """Let the TypeError for an unknown keyword name the nearest one."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        check_keywords(function, keywords)
        return function(*args, **keywords)

    return call


def with_keywords_of(shared: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Show another callable's parameters instead of ``**keywords``, and refuse other names."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = inspect.signature(shared).parameters.values()
        named += [each.replace(kind=each.KEYWORD_ONLY) for each in taken]
        function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        return with_near_names(function)

    return decorate


def check_keywords(function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Refuse unknown keywords with a TypeError that names the nearest one."""
    names = inspect.signature(function).parameters
    for given in keywords:
        if given not in names:
            near = near_name(given, names)
            hint = f". Did you mean {near!r}?" if near else ""
            what = f"{function.__name__}() got an unexpected keyword argument {given!r}{hint}"
            raise TypeError(what)


def check_choice(
    name: str, value: Any, choices: Sequence[str], elsewhere: Iterable[str] = ()
) -> str:
    """Return `value` if it is one of `choices`; otherwise name the closest, also of `elsewhere`."""
    if isinstance(value, str) and value in choices:
        return value
    near = near_name(str(value), (*choices, *elsewhere))
    hint = f" Did you mean {near!r}?" if near else ""
    raise ArgumentError(name, value, f"must be one of {', '.join(map(repr, choices))}.{hint}")


def sigmas(name: str, value: Any, count: int, of_what: str) -> npt.NDArray[np.float64]:
    """Return one positive standard deviation for each of `count` axes or channels."""
    array = as_real_array(name, value)
    if array.ndim == 0:
        return np.full(count, check_positive(name, array[()]))
    if array.shape != (count,) or count == 0:
        raise ArgumentError(
            name, value, f"give one number, or one for each of the {count} {of_what}"
        )
    return np.array([check_positive(f"{name}[{i}]", s) for i, s in enumerate(array)])
