"""The exact filter: every pair of pixels, in blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.deadline import check_deadline
from densecrf.operators.levels import Doubles, Filter, Levels, PixelArray
from densecrf.validation import FloatArray, as_features

__all__ = ["ExactFilter"]

BLOCK = 1 << 22  # pairs held at once


class ExactFilter(Filter):
    r"""Brute force: :math:`k_{ab} = \exp(-\tfrac12\lVert f_a - f_b\rVert^2)` for all pairs.

    O(n²) time, bounded memory: for small problems and tests.

    Parameters
    ----------
    features : array_like, (n, d)
        Features in standard deviations.

    Examples
    --------
    >>> ExactFilter([[0.0], [1.0]]).apply([1.0, 0.0]).round(4)
    array([1.    , 0.6065], dtype=float32)
    """

    def __init__(self, features: Any) -> None:
        self._features = as_features(features).astype(np.float64)
        self.n = self._features.shape[0]
        self._columns: npt.NDArray[np.float64] = np.ones(self.n)
        self._rows: npt.NDArray[np.float64] = np.ones(self.n)

    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the bytes of a block of pairs, whatever the levels."""
        return 8 * max(BLOCK, self.n)

    def diagonal(self) -> Doubles:
        """Return the products of the weights."""
        return self._rows * self._columns

    def weighted(self, columns: FloatArray | None, rows: FloatArray | None) -> "ExactFilter":
        """Return this filter with weighted rows and columns."""
        out = ExactFilter(self._features)
        out._columns = self._columns if columns is None else self._columns * columns
        out._rows = self._rows if rows is None else self._rows * rows
        return out

    def restricted(self, pixels: PixelArray) -> "ExactFilter":
        """Return the filter among some pixels."""
        out = ExactFilter(self._features[pixels])
        out._columns, out._rows = self._columns[pixels], self._rows[pixels]
        return out

    def _blocks(self) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
        step = max(1, BLOCK // self.n)
        for begin in range(0, self.n, step):
            check_deadline()
            some = slice(begin, min(self.n, begin + step))
            kernel = np.zeros((some.stop - begin, self.n))
            for column in self._features.T:  # differences, since products cancel far from zero
                kernel += np.square(column[some, None] - column[None, :])
            kernel *= -0.5
            np.exp(kernel, out=kernel)
            kernel *= self._rows[some, None] * self._columns[None, :]
            yield some, kernel

    def apply_planes(
        self, planes: FloatArray, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Multiply by the matrix, a block of rows at a time."""
        out = np.empty(planes.shape, np.float32) if out is None else out
        values = planes.astype(np.float64)
        for some, kernel in self._blocks():
            out[:, some] = values @ kernel.T
        return out

    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        """Multiply by the matrix, in double precision."""
        return np.concatenate([planes @ kernel.T for _, kernel in self._blocks()], axis=1)

    def ordered_planes(
        self, scores: FloatArray, levels: Levels, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Sum over pairs of levels with their linear weights."""
        out = np.empty_like(scores) if out is None else out
        t = levels.of(scores).astype(np.float64)
        for some, kernel in self._blocks():
            block = np.zeros((len(t), some.stop - some.start))
            for h in range(levels.count):
                own = np.maximum(0, 1 - np.abs(t[:, some] - h))
                below = np.clip(h - t, 0, 1)  # mass of levels < h
                above = np.clip(t - h, 0, 1)
                block += own * ((below - above) @ kernel.T)
            out[:, some] = block
        return out

    def ordered_exactly(
        self, scores: FloatArray, order: str, levels: int, threads: int = 0
    ) -> FloatArray:
        """Compare every pair of scores (or of the literal algorithm's two kinds of bins)."""
        out = np.empty_like(scores)
        up, down = scores, scores
        if order == "literal":
            t = scores * np.float32(levels - 1)
            up, down = np.floor(t), np.ceil(t)
        for some, kernel in self._blocks():
            for c in range(len(scores)):
                a, b = up[c, some, None], up[c, None, :]
                lower, upper = down[c, some, None], down[c, None, :]
                sign = (a >= b).astype(np.float64) - (lower <= upper)
                out[c, some] = (kernel * sign).sum(1)
        return out
