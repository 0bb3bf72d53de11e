"""A filter among some pixels, computed by the filter among all of them."""

from typing import Any

import numpy as np

from densecrf.operators.levels import Doubles, Filter, Levels, PixelArray
from densecrf.validation import FloatArray

__all__ = ["MaskedFilter"]


class MaskedFilter(Filter):
    r"""The submatrix :math:`k_{ab}` of the pixels in a set, for filters without a faster way.

    Pixels outside the set weigh nothing; the cost is that of the whole.

    Parameters
    ----------
    whole : Filter
        The filter among all pixels.
    pixels : ndarray of int, (count,)
        Ascending, distinct indices.
    """

    def __init__(self, whole: Filter, pixels: PixelArray) -> None:
        self.n = len(pixels)
        self._pixels = pixels
        inside = np.zeros(whole.n, np.float32)
        inside[pixels] = 1
        self._masked = whole.weighted(inside, None)

    def _among_all(self, planes: Any) -> Any:
        """Return zeros at all other pixels."""
        out = np.zeros((len(planes), self._masked.n), planes.dtype)
        out[:, self._pixels] = planes
        return out

    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the bytes that the whole filter takes, and its scores and result."""
        planes = 8 * channels * self._masked.n
        return self._masked.ordered_workspace(channels, levels, threads) + planes

    def diagonal(self) -> Doubles:
        """Return the whole filter's, at these pixels."""
        return self._masked.diagonal()[self._pixels]

    def weighted(self, columns: FloatArray | None, rows: FloatArray | None) -> "MaskedFilter":
        """Return this filter with weighted rows and columns."""
        given = [None if w is None else self._among_all(w[None])[0] for w in (columns, rows)]
        return MaskedFilter(self._masked.weighted(*given), self._pixels)

    def restricted(self, pixels: PixelArray) -> "MaskedFilter":
        """Return the filter among some of these pixels."""
        return MaskedFilter(self._masked, self._pixels[pixels])

    def apply_planes(
        self, planes: FloatArray, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Filter zeros outside the set."""
        return self._inside(self._masked.apply_planes(self._among_all(planes), None, threads), out)

    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        """Filter zeros outside the set, in double precision."""
        return self._masked.apply_double(self._among_all(planes), threads)[:, self._pixels]

    def ordered_planes(
        self, scores: FloatArray, levels: Levels, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Filter weights of zero outside the set."""
        filtered = self._masked.ordered_planes(self._among_all(scores), levels, None, threads)
        return self._inside(filtered, out)

    def ordered_exactly(
        self, scores: FloatArray, order: str, levels: int, threads: int = 0
    ) -> FloatArray:
        """Filter weights of zero outside the set."""
        filtered = self._masked.ordered_exactly(self._among_all(scores), order, levels, threads)
        return filtered[:, self._pixels]

    def _inside(self, filtered: FloatArray, out: FloatArray | None) -> FloatArray:
        return np.take(filtered, self._pixels, 1, out)
