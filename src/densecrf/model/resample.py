"""Bilinear resampling of score maps to the size of their image, in plain NumPy."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import ArgumentError

_BLOCK_BYTES = 16 * 2**20  # approximate limit on temporaries, for any size of the map


def resize_bilinear(array: Any, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Return a map (labels, *spatial) resampled bilinearly, with half-pixel centres.

    Sample i of N sits at (i + 0.5) / N of the extent, so a map computed at a stride covers the same
    area as its image; positions beyond the outermost centres take the outermost value. PyTorch
    calls this ``align_corners=False``. Shrinking samples without smoothing.

    Parameters
    ----------
    array : array_like
        Values (labels, *spatial); float64 stays float64, everything else becomes float32.
    shape : sequence of int
        The wanted spatial shape.

    Examples
    --------
    >>> resize_bilinear([[[0.0, 1.0]]], (1, 4))
    array([[[0.  , 0.25, 0.75, 1.  ]]])
    """
    source = np.asarray(array)
    target = tuple(int(extent) for extent in shape)
    if source.ndim != len(target) + 1 or min(target, default=0) < 1 or source.size == 0:
        remedy = f"cannot resize {source.shape}; give one positive extent per axis behind the first"
        raise ArgumentError("shape", target, remedy)
    whole = tuple(slice(0, extent) for extent in target)
    every = (slice(None),)
    return resize_window(lambda box: source[every + box], source.shape[1:], target, whole)


def resize_window(
    read: Callable[[tuple[slice, ...]], npt.NDArray[Any]],
    old: Sequence[int],
    shape: Sequence[int],
    box: tuple[slice, ...],
) -> npt.NDArray[Any]:
    """Return a window of what `resize_bilinear` returns for a map that is read by windows.

    Parameters
    ----------
    read : callable
        Gives a window of the map, all labels of it.
    old, shape : sequence of int
        The spatial shapes of the map and of the result.
    box : tuple of slice
        The window of the result.

    Examples
    --------
    >>> source = np.arange(6.0).reshape(1, 2, 3)
    >>> box = (slice(1, 3), slice(2, 5))
    >>> window = resize_window(lambda b: source[(slice(None), *b)], (2, 3), (4, 6), box)
    >>> bool((window == resize_bilinear(source, (4, 6))[:, 1:3, 2:5]).all())
    True
    """
    taps = [
        [each[part] for each in _taps(a, b)] for a, b, part in zip(old, shape, box, strict=True)
    ]
    source = read(tuple(slice(int(low[0]), int(high[-1]) + 1) for low, high, _ in taps))
    dtype = np.float64 if source.dtype == np.float64 else np.float32
    target = [len(share) for _, _, share in taps]
    out = np.empty((source.shape[0], *target), dtype)
    row_bytes = max(math.prod(target[1:]), math.prod(source.shape[2:])) * out.itemsize
    block = max(1, _BLOCK_BYTES // row_bytes)
    (lower, upper, weight), *others = [
        (low - low[0], high - low[0], share.astype(dtype)) for low, high, share in taps
    ]
    for plane, result in zip(source, out, strict=True):  # some rows at a time
        for start in range(0, target[0], block):
            rows = slice(start, start + block)
            values = _mix(plane[lower[rows]], plane[upper[rows]], weight[rows], axis=0)
            for axis, (low, high, share) in enumerate(others, start=1):
                values = _mix(values.take(low, axis), values.take(high, axis), share, axis)
            result[rows] = values
    return out


def _taps(old: int, new: int) -> tuple[npt.NDArray[Any], ...]:
    """Return the two source indices of every target sample and the weight of the second."""
    position = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    lower = np.floor(position).astype(np.intp)
    return lower, np.minimum(lower + 1, old - 1), position - lower


def _mix(first: Any, second: Any, weight: Any, axis: int) -> Any:
    """Interpolate along one axis in the weights' precision; equal ends give exactly that value."""
    start = first.astype(weight.dtype, copy=False)
    across = weight.reshape(-1, *[1] * (first.ndim - 1 - axis))
    return start + across * (second.astype(weight.dtype, copy=False) - start)
