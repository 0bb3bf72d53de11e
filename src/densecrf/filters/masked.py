"""A filter among some pixels, computed by the filter among all of them."""

import numpy as np

from densecrf.filters.base import Doubles, Filter, Levels, PixelArray
from densecrf.validation import FloatArray

__all__ = ["MaskedFilter"]


class MaskedFilter(Filter):
    r"""The submatrix :math:`k_{ab}` of the pixels in a set, for filters that know no better way.

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

    def _spread(self, planes: FloatArray) -> FloatArray:
        out = np.zeros((len(planes), self._masked.n), np.float32)
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
        spread = [None if w is None else self._spread(w[None])[0] for w in (columns, rows)]
        return MaskedFilter(self._masked.weighted(*spread), self._pixels)

    def restricted(self, pixels: PixelArray) -> "MaskedFilter":
        """Return the filter among some of these pixels."""
        return MaskedFilter(self._masked, self._pixels[pixels])

    def apply_planes(
        self,
        planes: FloatArray,
        out: FloatArray,
        *,
        factor: float = 1.0,
        accumulate: bool = False,
        threads: int = 0,
    ) -> None:
        """Filter zeros outside the set."""
        spread = self._spread(planes)
        filtered = np.empty_like(spread)
        self._masked.apply_planes(spread, filtered, factor=factor, threads=threads)
        _store(filtered[:, self._pixels], out, accumulate)

    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        """Filter zeros outside the set, in double precision."""
        out = np.zeros((len(planes), self._masked.n))
        out[:, self._pixels] = planes
        return self._masked.apply_double(out, threads)[:, self._pixels]

    def ordered_planes(
        self,
        scores: FloatArray,
        out: FloatArray,
        levels: Levels,
        *,
        extents: FloatArray | None = None,
        factor: float = 1.0,
        accumulate: bool = False,
        threads: int = 0,
    ) -> None:
        """Filter weights of zero outside the set."""
        spread = self._spread(scores)
        filtered = np.empty_like(spread)
        self._masked.ordered_planes(spread, filtered, levels, factor=factor, threads=threads)
        _store(filtered[:, self._pixels], out, accumulate)

    def ordered_exactly(
        self, scores: FloatArray, out: FloatArray, order: str, levels: int, *, threads: int = 0
    ) -> None:
        """Filter weights of zero outside the set."""
        spread = self._spread(scores)
        filtered = np.empty_like(spread)
        self._masked.ordered_exactly(spread, filtered, order, levels, threads=threads)
        _store(filtered[:, self._pixels], out, accumulate=False)


def _store(values: FloatArray, out: FloatArray, accumulate: bool) -> None:
    if accumulate:
        out += values
    else:
        out[...] = values
