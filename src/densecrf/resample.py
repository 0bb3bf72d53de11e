"""Bilinear resampling of score maps to the size of their image, in plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Temporaries stay below about this many bytes, whatever the size of the map.
_BLOCK_BYTES = 16 * 2**20


def resize_bilinear(array: Any, shape: Sequence[int]) -> NDArray[Any]:
    """Resample a label-first map to a spatial shape, bilinearly with half-pixel centres.

    Sample ``i`` of ``N`` sits at ``(i + 0.5) / N`` of the extent, so a map computed at a
    stride covers the same area as its image. Positions beyond the outermost centres take the
    outermost value. This is what networks call ``align_corners=False``; shrinking samples
    without smoothing first.

    Parameters
    ----------
    array
        Values ``(L, *spatial)``, usually ``(L, h, w)``.
    shape
        The wanted spatial shape, as many positive integers as ``array`` has spatial axes.

    Returns
    -------
    ndarray
        ``(L, *shape)``, float64 for float64 input and float32 for everything else.

    Examples
    --------
    >>> resize_bilinear([[[0.0, 1.0]]], (1, 4))
    array([[[0.  , 0.25, 0.75, 1.  ]]])
    """
    source = np.asarray(array)
    target = tuple(int(extent) for extent in shape)
    if source.ndim < 2 or source.ndim != len(target) + 1:
        raise ValueError(
            f"array of shape {source.shape} cannot be resized to shape {target}: "
            "array must be (L, *spatial) with one extent in shape for each spatial axis"
        )
    if min(target) < 1 or 0 in source.shape:
        raise ValueError(
            f"array of shape {source.shape} cannot be resized to shape {target}: "
            "every extent must be at least 1"
        )
    dtype = np.float64 if source.dtype == np.float64 else np.float32
    out = np.empty((source.shape[0], *target), dtype)
    taps = [_taps(old, new, dtype) for old, new in zip(source.shape[1:], target, strict=True)]

    row_bytes = max(int(np.prod(target[1:])), int(np.prod(source.shape[2:]))) * out.itemsize
    block = max(1, _BLOCK_BYTES // row_bytes)
    lower, upper, weight = taps[0]
    for plane, result in zip(source, out, strict=True):
        for start in range(0, target[0], block):
            rows = slice(start, start + block)
            values = _mix(plane[lower[rows]], plane[upper[rows]], weight[rows], axis=0)
            for axis in range(1, len(taps)):
                low, high, share = taps[axis]
                values = _mix(values.take(low, axis), values.take(high, axis), share, axis)
            result[rows] = values
    return out


def _taps(
    old: int, new: int, dtype: type[np.floating[Any]]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[Any]]:
    """Give the two source indices of every target sample and the weight of the second."""
    position = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    lower = np.floor(position).astype(np.intp)
    return lower, np.minimum(lower + 1, old - 1), (position - lower).astype(dtype)


def _mix(first: NDArray[Any], second: NDArray[Any], weight: NDArray[Any], axis: int) -> Any:
    """Interpolate along one axis in the weights' precision; equal ends give exactly that value."""
    shape = [1] * first.ndim
    shape[axis] = -1
    start = first.astype(weight.dtype, copy=False)
    return start + weight.reshape(shape) * (second.astype(weight.dtype, copy=False) - start)
