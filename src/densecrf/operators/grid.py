"""The exact separable Gaussian on a regular grid."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.deadline import check_deadline
from densecrf.native import core
from densecrf.operators.levels import Doubles, Filter, Levels
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_fits,
    check_fraction,
    check_integer,
    check_pixels,
    check_positive,
    sigmas,
)

__all__ = ["GridFilter"]


class GridFilter(Filter):
    r"""Gaussian of positions on a regular grid, computed axis after axis.

    The one-dimensional kernels are cut where they fall below `tolerance`: every entry of the
    matrix is within `tolerance` of :math:`\exp(-\tfrac12 \lVert f_a - f_b\rVert^2)`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the grid, one to three axes.
    sigma : float or sequence of float
        Standard deviation in pixels, one or one for each axis.
    tolerance : float
        Where to cut the kernel.

    Notes
    -----
    The workspace of `ordered` is four planes of n floats, that of `apply` two.

    Examples
    --------
    >>> GridFilter((3,), sigma=1.0).apply([1.0, 0.0, 0.0]).round(4)
    array([1.    , 0.6065, 0.1353], dtype=float32)
    """

    def __init__(self, shape: Any, sigma: Any, tolerance: float = 1e-4) -> None:
        axes = np.atleast_1d(as_real_array("shape", shape))
        if axes.ndim != 1 or not 1 <= len(axes) <= 3:
            raise ArgumentError("shape", shape, "give one to three axes")
        self.shape = tuple(check_integer("shape", s, at_least=1) for s in axes)
        self.n = math.prod(self.shape)
        check_pixels("shape", self.n)
        check_fits("shape", self.shape)
        scales = sigmas("sigma", sigma, len(self.shape), "axes")
        check_positive("tolerance", check_fraction("tolerance", tolerance))
        self._taps = [
            _half_kernel(s, length, tolerance) for s, length in zip(scales, self.shape, strict=True)
        ]
        self._columns: FloatArray = np.ones(self.n, np.float32)
        self._rows: FloatArray = self._columns

    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the bytes of four planes, whatever the levels."""
        return 4 * 4 * self.n

    def diagonal(self) -> Doubles:
        """Return the products of the weights."""
        return self._rows.astype(np.float64) * self._columns

    def weighted(self, columns: FloatArray | None, rows: FloatArray | None) -> "GridFilter":
        """Return this filter with weighted rows and columns."""
        out = object.__new__(GridFilter)
        out.shape, out.n, out._taps = self.shape, self.n, self._taps
        out._columns = self._columns if columns is None else self._columns * columns
        out._rows = self._rows if rows is None else self._rows * rows
        return out

    def apply_planes(
        self, planes: FloatArray, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Convolve along each axis."""
        planes = np.ascontiguousarray(planes, np.float32)
        target = out if out is not None and out.flags.c_contiguous else np.empty_like(planes)
        core().grid_apply(
            planes,
            target,
            shape=self.shape,
            taps=self._taps,
            columns=self._columns,
            rows=self._rows,
            threads=threads,
        )
        if out is None or target is out:
            return target
        out[...] = target
        return out

    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        """Convolve along each axis by shifted sums, in double precision."""
        check_deadline()
        values = (planes * self._columns).reshape(len(planes), *self.shape)
        for axis, taps in enumerate(self._taps, 1):
            values = np.moveaxis(values, axis, 0)
            out = taps[0] * values
            for shift, tap in enumerate(taps[1:], 1):
                out[shift:] += tap * values[:-shift]
                out[:-shift] += tap * values[shift:]
            values = np.moveaxis(out, 0, axis)
        return np.asarray(values.reshape(planes.shape) * self._rows)

    def ordered_planes(
        self, scores: FloatArray, levels: Levels, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Convolve one level at a time."""
        out = np.empty_like(scores) if out is None else out
        core().grid_ordered(
            scores,
            out,
            levels,
            shape=self.shape,
            taps=self._taps,
            columns=self._columns,
            rows=self._rows,
            mass=self.mass,
            threads=threads,
        )
        return out

    def ordered_exactly(
        self, scores: FloatArray, order: str, levels: int, threads: int = 0
    ) -> FloatArray:
        """Use one level for each distinct score, or the literal algorithm's two sets of bins."""
        out = np.empty_like(scores)
        for c in range(len(scores)):
            if order == "literal":
                t = scores[c : c + 1] * np.float32(levels - 1)
                bins = Levels(levels, 0.0, 1.0, True)
                # [y_a >= y_b] - [y_a <= y_b] with bins open above, then closed above: each is
                # half of (mass + signed mass) of its own bins, the masses cancel.
                parts = [
                    self.ordered_planes(t_in, bins, None, threads)[0]
                    for t_in in (np.floor(t), np.ceil(t))
                ]
                equal = self._equal_mass(np.floor(t[0])) - self._equal_mass(np.ceil(t[0]))
                out[c] = 0.5 * (parts[0] + parts[1] + equal)
            else:
                distinct, ranks = np.unique(scores[c], return_inverse=True)
                exact = Levels(max(2, len(distinct)), 0.0, 1.0, True)
                rank = ranks.reshape(1, -1).astype(np.float32)
                self.ordered_planes(rank, exact, out[c : c + 1], threads)
        return out

    def _equal_mass(self, bins: FloatArray) -> FloatArray:
        """Sum the kernel over pixels of the same bin."""
        members = (np.unique(bins)[:, None] == bins[None, :]).astype(np.float32)
        return np.asarray((members * self.apply_planes(members)).sum(0), np.float32)


def _half_kernel(sigma: float, length: int, tolerance: float) -> list[float]:
    """Return exp(-x²/2σ²) for x = 0, 1, … while it is above the tolerance."""
    radius = int(min(length - 1, np.ceil(sigma * np.sqrt(-2 * np.log(tolerance)))))
    x: npt.NDArray[np.float64] = np.arange(radius + 1) / sigma
    return [float(v) for v in np.exp(-0.5 * x**2)]
