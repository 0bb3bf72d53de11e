r"""The interface of filters, and how scores become levels.

`apply` returns :math:`\sum_b k_{ab} v_b`; `ordered` returns
:math:`\sum_b k_{ab} g_b\, s(y_a, y_b)`, where :math:`s` is the sign of :math:`y_a - y_b`
(the conditional gradient, Eq. 13 of the paper) or a bounded, antisymmetric approximation of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.cached import cached_property
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_float32,
    as_real_array,
    check_choice,
    check_fits,
    check_integer,
    check_threads,
)

__all__ = [
    "ORDERS",
    "Bands",
    "Doubles",
    "Filter",
    "Levels",
    "PixelArray",
    "as_planes",
    "ordered_by_ramps",
]

PixelArray = npt.NDArray[np.integer[Any]]
Doubles = npt.NDArray[np.float64]
#: Of each label: its scores' lowest level, and the ramps from there to their highest.
Bands: TypeAlias = tuple[tuple[int, int], ...]

MOST_LEVELS = 1 << 16
SMALLEST_MASS = 1e-20
CONSTANT = 1e-4  # cells within which potentials have no order

ORDERS = (
    "soft",
    "hard",
    "adaptive",
    "divide-and-conquer",
    "divide-and-conquer-fixed",
    "literal",
)


@dataclass(frozen=True)
class Levels:
    """How scores become levels: ``t = clip((y - low) * scale, 0, count - 1)``, floored if hard."""

    count: int
    low: float
    scale: float
    hard: bool

    @property
    def ramps(self) -> int:
        """One less than the levels: the steps between them."""
        return self.count - 1

    @staticmethod
    def spanning(scores: npt.NDArray[Any], count: int, *, hard: bool) -> "Levels":
        """Return `count` levels that span the range of all scores."""
        low, high = float(scores.min()), float(scores.max())
        span = high - low
        # If the range is too small to divide by in float32, one level holds all scores.
        tiny = span * float(np.finfo(np.float32).max) <= count - 1
        return Levels(count, low, 0.0 if tiny else (count - 1) / span, hard)

    @staticmethod
    def by_cells(extents: npt.NDArray[Any], cells: float) -> "Levels":
        """Return levels, `cells` for each unit of the potentials' range."""
        low, high = float(extents.min()), float(extents.max())
        count = max(2, ceil((high - low) * cells - 1e-3) + 1)
        return Levels(count, low, float(cells), hard=False)

    @staticmethod
    def merged(extents: npt.NDArray[Any], cells: float) -> npt.NDArray[Any]:
        """Return the extents of potentials, (nodes, 2), equal for nearly constant nodes.

        Nodes with equal extents have no order and need no filter call. After some iterations these
        are most of the labels.
        """
        low, high = extents[:, 0], extents[:, 1]
        return np.stack([low, np.where((high - low) * cells < CONSTANT, low, high)], 1)

    def bands(self, extents: npt.NDArray[Any], slack: float = 0.0) -> Bands:
        """Return the bands of levels that scores of these extents, (nodes, 2), are in.

        With `slack` for extents that are rounded, a fraction of a level.

        Examples
        --------
        >>> levels = Levels(9, low=-1.0, scale=2.0, hard=False)
        >>> levels.bands(np.array([[-1, 0.1], [0.2, 3], [1, 1]]))
        ((0, 3), (2, 6), (4, 1))
        """
        t = (extents.astype(np.float64) - self.low) * self.scale
        first = np.clip(np.floor(t[:, 0] - slack), 0, self.ramps - 1).astype(int)
        last = np.clip(np.ceil(t[:, 1] + slack), first + 1, self.ramps).astype(int)
        return tuple(zip(first.tolist(), (last - first).tolist(), strict=True))

    def of(self, scores: Any, xp: Any = np) -> Any:
        """Return the (fractional) level of each score; `xp` is numpy or torch."""
        t = xp.clip((scores - self.low) * self.scale, 0, self.ramps)
        return xp.floor(t) if self.hard else t


class Filter(ABC):
    r"""A symmetric, non-negative approximation of a Gaussian kernel matrix.

    Public methods take and return (n, channels). The `planes` methods of the solvers take
    label-major float32 arrays (channels, n) without checks.
    """

    n: int

    def apply(self, values: Any, *, threads: int | None = None) -> FloatArray:
        r"""Filter: :math:`\sum_b k_{ab} v_b` for each channel.

        Parameters
        ----------
        values : array_like, (n,) or (n, channels)
            Values to filter.
        threads : int, optional
            Maximum number of threads; see `solve`. The result does not depend on it.

        Returns
        -------
        ndarray
            Filtered values, float32, of the same shape.
        """
        planes, shape = as_planes("values", values, self.n)
        out = np.empty((self.n, planes.shape[0]), np.float32)
        self.apply_planes(planes, out.T, check_threads(threads))
        return out.reshape(shape)

    def ordered(
        self,
        scores: Any,
        weights: Any = None,
        *,
        levels: int = 10,
        order: str = "soft",
        rescale: bool = True,
        threads: int | None = None,
    ) -> FloatArray:
        r"""Filter in the order of the scores: :math:`\sum_b k_{ab} g_b\, s(y_a, y_b)`.

        Parameters
        ----------
        scores : array_like, (n,) or (n, channels)
            The scores y; each channel has an order of its own.
        weights : array_like, (n,), optional
            The weights g, 1 by default.
        levels : int
            Number of levels H for ``"soft"``, ``"hard"`` and ``"literal"``.
        order : {"soft", "hard", "adaptive", "divide-and-conquer", "literal", ...}
            ``hard``: scores are floored to levels, s is the sign of the levels' difference.
            ``soft``: a score belongs to its two nearest levels in linear proportion.
            ``adaptive``: the exact order, no levels (Appendix B.2.1).
            ``divide-and-conquer`` (Desmaison et al. 2016) and ``literal`` (Algorithm 3 as
            printed) are baselines. The former builds a new lattice for every half;
            ``divide-and-conquer-fixed`` uses this filter's own, for small problems.
        rescale : bool
            Whether the levels span the range of all scores; otherwise [0, 1].
        threads : int, optional
            Maximum number of threads; see `solve`.

        Returns
        -------
        ndarray
            float32, of the shape of `scores`.
        """
        check_choice("order", order, ORDERS)
        check_integer("levels", levels, at_least=2, at_most=MOST_LEVELS)
        workers = check_threads(threads)
        planes, shape = as_planes("scores", scores, self.n)
        planes = np.ascontiguousarray(planes)
        if order in ("soft", "hard", "literal"):
            needed = self.ordered_workspace(len(planes), levels, workers)
            check_fits(f"levels={levels}: the workspace", (needed // 4,))
        if not np.isfinite(planes.max() - planes.min()):
            raise ArgumentError(
                "scores", ..., "their range is beyond that of float32; scale them down"
            )
        target = self if weights is None else self.weighted(self._checked_weights(weights), None)
        scale = Levels.spanning(planes, levels, hard=order == "hard")
        if not rescale:
            scale = Levels(levels, 0.0, float(levels - 1), order == "hard")
        if order in ("soft", "hard"):
            out = target.ordered_planes(planes, scale, threads=workers)
        else:
            unit = scale.of(planes) / np.float32(levels - 1) if order == "literal" else planes
            out = target.ordered_exactly(unit, order, levels, threads=workers)
        return np.ascontiguousarray(out.T).reshape(shape)

    def _checked_weights(self, weights: Any) -> FloatArray:
        g = as_real_array("weights", weights, ndim=1)
        if g.shape[0] != self.n:
            raise ArgumentError("weights", ..., f"{g.shape[0]} of them for {self.n} pixels")
        return np.ascontiguousarray(as_float32("weights", g))

    @cached_property
    def mass(self) -> FloatArray:
        r"""The row sums :math:`\sum_b k_{ab}`, (n,)."""
        return np.asarray(self.apply_planes(np.ones((1, self.n), np.float32))[0])

    @abstractmethod
    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the largest workspace of `ordered` by levels, in bytes."""

    @abstractmethod
    def diagonal(self) -> Doubles:
        r"""Return :math:`k_{aa}`, (n,), in double precision."""

    @abstractmethod
    def weighted(self, columns: FloatArray | None, rows: FloatArray | None) -> "Filter":
        r"""Return the filter :math:`\text{rows}_a\, k_{ab}\, \text{columns}_b` (None: ones)."""

    def normalized(self) -> "Filter":
        r"""Return the filter :math:`k_{ab} / \sqrt{m_a m_b}`, with the mass m.

        It may reuse the memory of this one, which must not be used afterwards.
        """
        mass = self.row_sums().astype(np.float32)
        scale = 1 / np.sqrt(np.maximum(mass, np.float32(SMALLEST_MASS)))
        return self.rescaled(scale)

    def row_sums(self) -> Doubles:
        """Return the mass in double precision, for normalisation."""
        return np.asarray(self.apply_double(np.ones((1, self.n)))[0])

    def rescaled(self, scale: FloatArray) -> "Filter":
        """Return the filter with this scale on both sides; it may reuse this one's memory."""
        return self.weighted(scale, scale)

    def restricted(self, pixels: PixelArray) -> "Filter":
        """Return the submatrix of some pixels: ascending, distinct indices; trusted."""
        return MaskedFilter(self, pixels)

    @abstractmethod
    def apply_planes(
        self, planes: FloatArray, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Return the filtered `planes`, written to `out` if given."""

    @abstractmethod
    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        r"""Return :math:`\tfrac12(k + k^T)` times planes (channels, n), in double precision."""

    @abstractmethod
    def ordered_planes(
        self, scores: FloatArray, levels: Levels, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Return the sums over b of k_ab s(y_a, y_b) by levels, in `out` if given."""

    @abstractmethod
    def ordered_exactly(
        self, scores: FloatArray, order: str, levels: int, threads: int = 0
    ) -> FloatArray:
        """Return the same by the adaptive, divide-and-conquer or literal algorithm."""


class MaskedFilter(Filter):
    """The submatrix of some pixels, for filters without a faster way.

    Pixels outside the set have weight 0; a call costs as much as one of the whole filter.
    """

    def __init__(self, whole: Filter, pixels: PixelArray) -> None:
        self.n = len(pixels)
        self._pixels = pixels
        inside = np.zeros(whole.n, np.float32)
        inside[pixels] = 1
        self._masked = whole.weighted(inside, None)

    def _among_all(self, planes: Any) -> Any:
        """Return the planes of all pixels, with zeros outside the set."""
        out = np.zeros((len(planes), self._masked.n), planes.dtype)
        out[:, self._pixels] = planes
        return out

    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the bytes of the whole filter's workspace, scores and result."""
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


def as_planes(name: str, values: Any, n: int) -> tuple[FloatArray, tuple[int, ...]]:
    """Return user values (n,) or (n, channels) as a (channels, n) view, and their shape."""
    array = as_real_array(name, values)
    if array.ndim not in (1, 2) or array.shape[0] != n:
        raise ArgumentError(name, ..., f"shape {array.shape}; give ({n},) or ({n}, channels)")
    if array.size == 0:
        raise ArgumentError(name, ..., f"shape {array.shape} holds no channels")
    return as_float32(name, array).reshape(n, -1).T, array.shape


def ordered_by_ramps(
    xp: Any, apply: Callable[[Any], Any], mass: Any, u: Any, levels: Levels
) -> Any:
    r"""Return :math:`\sum_b K_{ab}\, s(u_{ai}, u_{bi})` from plain filter calls of the matrix K.

    With :math:`C_q` the filtered mass at or above level q and t = h + f the level of a pixel, it is
    :math:`C_0 - (1-f) C_h - C_{h+1} - f C_{h+2}`.

    Parameters
    ----------
    xp : module
        numpy or torch.
    apply : callable
        Multiplies planes (channels, n) by K.
    mass : array, (n,)
        The row sums of K, :math:`C_0`.
    u : array, (labels, n)
        The potentials.
    levels : Levels
        Their levels.
    """
    out = 0 * u
    for signed, row in zip(out, u, strict=True):
        t = levels.of(row, xp)
        lowest, highest = int(t.min()), ceil(float(t.max()))
        if float(t.min()) == float(t.max()):
            continue
        h, f = xp.floor(t), t - xp.floor(t)
        above = apply(xp.stack([xp.clip(t - q, 0, 1) for q in range(lowest, highest)]))
        signed += xp.where(h > lowest, mass, f * mass)
        for q, mass_above in enumerate(above, lowest + 1):
            signed -= ((h == q) * (1 - f) + (h + 1 == q) + (h + 2 == q) * f) * mass_above
    return out
