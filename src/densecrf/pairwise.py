r"""The matrix K of pairwise weights, never formed: :math:`K = \sum_c w_c \tilde k_c`."""

from functools import partial

import numpy as np

from densecrf.cached import cached_property
from densecrf.filters import ExactFilter, Filter, GridFilter, LatticeFilter
from densecrf.filters.base import Levels, PixelArray
from densecrf.filters.lattice_sum import LatticeSum
from densecrf.kernels import Kernel, Spatial
from densecrf.native import core
from densecrf.validation import FloatArray

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
        total = np.zeros(self.n, np.float32)
        for weight, part in self._parts:
            total += np.float32(weight) * part.diagonal()
        return total

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
        r"""Return :math:`\sum_b K_{ab}\, s(y_{ai}, y_{bi})`.

        `levels` matter for soft and hard; `extents` as for `Filter.ordered_planes`. Labels whose
        extents are equal have no order, and are skipped. `offsets` are added to y first.
        """
        if self.lattices is not None and order in ("soft", "hard") and extents is not None:
            return self.lattices.ordered(y, offsets, extents, levels, threads)
        y = y if offsets is None else y + offsets
        out = np.zeros(y.shape, np.float32)
        if order not in ("soft", "hard"):
            moving = slice(None) if extents is None else extents[:, 0] < extents[:, 1]
            out[moving] = self._ordered_exactly(y[moving], order, levels.count, threads)
            return out
        for weight, part in self._parts:
            part.ordered_planes(
                y, out, levels, extents=extents, factor=weight, accumulate=True, threads=threads
            )
        return out

    def _ordered_exactly(self, y: FloatArray, order: str, levels: int, threads: int) -> FloatArray:
        total, exact = np.zeros(y.shape, np.float32), np.empty(y.shape, np.float32)
        for weight, part in self._parts:
            part.ordered_exactly(y, exact, order, levels, threads=threads)
            total += np.float32(weight) * exact
        return total
