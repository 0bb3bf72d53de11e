r"""The matrix K of pairwise weights, never formed: :math:`K = \sum_c w_c \tilde k_c`."""

from functools import partial

import numpy as np

from densecrf.cached import cached_property
from densecrf.filters import ExactFilter, Filter, GridFilter, LatticeFilter
from densecrf.filters.base import Doubles, Levels, PixelArray, ordered_by_ramps
from densecrf.filters.lattice_sum import LatticeSum
from densecrf.kernels import Kernel, Spatial
from densecrf.native import core
from densecrf.validation import FloatArray, IntArray

__all__ = ["Pairwise", "build_filter"]


def build_filter(
    kernel: Kernel, shape: tuple[int, ...], engine: str, blur: str, threads: int
) -> Filter:
    """Return the filter of one kernel on a grid of this shape."""
    if engine == "grid":
        if not isinstance(kernel, Spatial):
            raise ValueError(
                f'filter="grid" works for Spatial kernels alone, not {type(kernel).__name__}; use '
                '"lattice" or "exact"'
            )
        return GridFilter(shape, kernel.axis_sigmas(shape))
    features = kernel.features(shape)
    if engine == "exact":
        return ExactFilter(features)
    lattice = LatticeFilter(
        features, "forward" if blur == "forward" else "symmetric", threads or None
    )
    lattice.forget_features(partial(kernel.features, shape))
    return lattice


class Pairwise:
    r"""The sum of weighted, normalised kernels over label-major arrays (labels, n).

    Normalised kernels are :math:`k_{ab} / \sqrt{m_a m_b}` with :math:`m_a = \sum_b k_{ab}`.
    """

    def __init__(self, filters: list[tuple[float, Filter]], n: int, normalization: str) -> None:
        self.n = n
        self._parts: list[tuple[float, Filter]] = []
        for weight, base in filters:
            part = base.normalized() if normalization == "symmetric" else base
            self._parts.append((weight, part))
        #: All parts as one, where they are lattices.
        self.lattices = LatticeSum.of(self._parts)

    @property
    def parts(self) -> list[tuple[float, Filter]]:
        """The weights and the normalised filters."""
        return self._parts

    def restricted(self, pixels: PixelArray) -> "Pairwise":
        """Return the submatrix of some pixels (ascending, distinct indices)."""
        parts = [(weight, part.restricted(pixels)) for weight, part in self._parts]
        return Pairwise(parts, len(pixels), "none")

    @cached_property
    def mass(self) -> FloatArray:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        if self.lattices is not None:
            return self.lattices.mass(self.n)
        total = np.zeros(self.n, np.float32)
        for weight, part in self._parts:
            total += np.float32(weight) * part.mass
        return total

    @cached_property
    def diagonal(self) -> FloatArray:
        """The self terms :math:`K_{aa}`, (n,)."""
        return self.diagonal_double.astype(np.float32)

    def apply(self, y: FloatArray, threads: int = 0) -> FloatArray:
        r"""Return :math:`\sum_b K_{ab} y_{bi}`."""
        out = np.empty(y.shape, np.float32)
        if self.lattices is not None:
            self.lattices.apply(y, out, threads)
            return out
        out[...] = 0
        for weight, part in self._parts:
            part.apply_planes(y, out, factor=weight, accumulate=True, threads=threads)
        return out

    def respond(
        self, phi: FloatArray, y: FloatArray, own: FloatArray | None, threads: int = 0
    ) -> FloatArray:
        r"""Return softmax(K y - own · y - phi), mean field's answer to `y` in the Potts model."""
        out = np.empty_like(phi)
        if self.lattices is not None:
            self.lattices.respond(phi, y, own, out, threads)
        else:
            filtered = self.apply(y, threads)
            core().mean_field_update(phi, filtered, None if own is None else y, own, out, threads)
        return out

    def ordered(
        self,
        y: FloatArray,
        levels: Levels,
        order: str = "soft",
        threads: int = 0,
        extents: FloatArray | None = None,
        offsets: FloatArray | None = None,
    ) -> FloatArray:
        r"""Return :math:`\sum_b K_{ab}\, s(y_{ai}, y_{bi})`, for the symmetrised K.

        `levels` matter for soft and hard; `extents` as for `Filter.ordered_planes`. Labels whose
        extents are equal have no order, and are skipped. `offsets` are added to y first.
        """
        out = np.zeros(y.shape, np.float32)
        if order not in ("soft", "hard"):
            y = y if offsets is None else y + offsets
            moving = slice(None) if extents is None else extents[:, 0] < extents[:, 1]
            out[moving] = self._ordered_exactly(y[moving], order, levels.count, threads)
            return out
        if self.lattices is None and offsets is not None:
            y, offsets = y + offsets, None
        more = {} if offsets is None else {"offsets": offsets}
        for weight, part in self._symmetric_parts:
            part.ordered_planes(
                y,
                out,
                levels,
                extents=extents,
                factor=weight,
                accumulate=True,
                threads=threads,
                **more,
            )
        return out

    def _ordered_exactly(self, y: FloatArray, order: str, levels: int, threads: int) -> FloatArray:
        total, exact = np.zeros(y.shape, np.float32), np.empty(y.shape, np.float32)
        for weight, part in self._symmetric_parts:
            part.ordered_exactly(y, exact, order, levels, threads=threads)
            total += np.float32(weight) * exact
        return total

    @cached_property
    def _symmetric_parts(self) -> list[tuple[float, Filter]]:
        """The parts, symmetrised where they are not symmetric: bounds need it."""
        return [
            (weight, part.symmetrised())
            if isinstance(part, LatticeFilter) and not part.symmetric
            else (weight, part)
            for weight, part in self._parts
        ]

    @cached_property
    def total_mass(self) -> float:
        """The sum of all pairwise weights, both orders of a pair and the pixels' own."""
        return float(self.mass.sum(dtype=np.float64))

    # --- double precision: the symmetrised K, whose stored numbers are exact ------------------

    @cached_property
    def mass_double(self) -> Doubles:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        if self.lattices is not None:
            return self.lattices.mass_double(self.n)
        return np.asarray(self.apply_double(np.ones((1, self.n)))[0])

    @cached_property
    def diagonal_double(self) -> Doubles:
        """The self terms :math:`K_{aa}`, (n,)."""
        total = np.zeros(self.n)
        for weight, part in self._parts:
            total += weight * part.diagonal()
        return total

    def apply_double(self, y: Doubles, threads: int = 0) -> Doubles:
        r"""Return :math:`\sum_b K_{ab} y_{bi}`."""
        out = np.zeros_like(y)
        for weight, part in self._parts:
            out += weight * part.apply_double(y, threads)
        return out

    def ordered_double(
        self,
        y: FloatArray,
        offsets: FloatArray | None,
        extents: FloatArray,
        levels: Levels,
        threads: int = 0,
    ) -> Doubles:
        r"""Return :math:`\sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + offsets."""
        if self.lattices is not None:
            return self.lattices.ordered_double(
                self.mass_double, y, offsets, extents, levels, threads
            )
        u = y.astype(np.float64) if offsets is None else y.astype(np.float64) + offsets
        u = np.clip(u, extents[:, :1], extents[:, 1:])  # which were rounded, as the lattices do
        return np.asarray(ordered_by_ramps(np, self.apply_double, self.mass_double, u, levels))

    def pairs_double(
        self, labels: IntArray, count: int, costs: Doubles | None, threads: int = 0
    ) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too; `costs` None for Potts."""
        if self.lattices is not None:
            return self.lattices.pairs_double(labels, count, costs, threads)
        present = np.flatnonzero(np.bincount(labels, minlength=count))
        mu = 1.0 - np.eye(len(present))
        if costs is not None:
            mu = costs[np.ix_(present, present)]
        own = (present[:, None] == labels).astype(np.float64)
        return float((own * self.apply_double(mu @ own, threads)).sum())
