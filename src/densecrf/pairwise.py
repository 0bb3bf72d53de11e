r"""The matrix K of pairwise weights, never formed: :math:`K = \sum_c w_c \tilde k_c`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from densecrf.cached import cached_property
from densecrf.filters import ExactFilter, Filter, GridFilter, LatticeFilter
from densecrf.filters.base import Doubles, Levels, PixelArray, ordered_by_ramps
from densecrf.kernels import Kernel, Spatial
from densecrf.native import core
from densecrf.validation import ArgumentError, FloatArray, IntArray

__all__ = ["Pairwise", "build_filter"]


def build_filter(
    kernel: Kernel, shape: tuple[int, ...], engine: str, blur: str, threads: int
) -> Filter:
    """Return the filter of one kernel on a grid of this shape."""
    if engine == "grid":
        if not isinstance(kernel, Spatial):
            raise ArgumentError(
                "filter",
                "grid",
                f'works for Spatial kernels alone, not {type(kernel).__name__}; use "lattice" or '
                '"exact"',
            )
        return GridFilter(shape, kernel.axis_sigmas(shape))
    features = kernel.features(shape)
    if engine == "exact":
        return ExactFilter(features)
    lattice = LatticeFilter(
        features, "forward" if blur == "forward" else "symmetric", threads or None
    )
    lattice.release_features(partial(kernel.features, shape))
    return lattice


class Pairwise:
    r"""The sum of weighted, normalised kernels over label-major arrays (labels, n).

    Normalised kernels are :math:`k_{ab} / \sqrt{m_a m_b}` with :math:`m_a = \sum_b k_{ab}`.

    Where all kernels are lattices, the compiled core sums them: if they are small beside the
    planes, their values for all labels are held at once (in no more memory than the planes take),
    and what is done with the sum is done pixel by pixel, without writing it down.

    Attributes
    ----------
    parts : list of (float, Filter)
        The weights and the normalised filters.
    lattice_sum : object or None
        The core's sum of the lattices, where all parts are lattices of one kind.
    """

    def __init__(self, filters: list[tuple[float, Filter]], n: int, normalization: str) -> None:
        self.n = n
        self.parts: list[tuple[float, Filter]] = []
        for weight, base in filters:
            part = base.normalized() if normalization == "symmetric" else base
            self.parts.append((weight, part))
        self.lattice_sum: Any = None
        lattices = [part for _, part in self.parts if isinstance(part, LatticeFilter)]
        if len(lattices) == len(self.parts) and len({part.symmetric for part in lattices}) == 1:
            natives = tuple(part.native for part in lattices)
            weights = [float(weight) for weight, _ in self.parts]
            self._symmetric = lattices[0].symmetric
            self.lattice_sum = core().LatticeSum(natives, weights, self._symmetric)

    def restricted(self, pixels: PixelArray) -> "Pairwise":
        """Return the submatrix of some pixels (ascending, distinct indices)."""
        parts = [(weight, part.restricted(pixels)) for weight, part in self.parts]
        return Pairwise(parts, len(pixels), "none")

    @cached_property
    def mass(self) -> FloatArray:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        total = np.zeros(self.n, np.float32)
        if self.lattice_sum is not None:
            self.lattice_sum.mass(total, 0)
            return total
        for weight, part in self.parts:
            total += np.float32(weight) * part.mass
        return total

    @cached_property
    def total_mass(self) -> float:
        """The sum of all pairwise weights, both orders of a pair and the pixels' own."""
        return float(self.mass.sum(dtype=np.float64))

    @cached_property
    def diagonal(self) -> FloatArray:
        """The self terms :math:`K_{aa}`, (n,)."""
        kept = vars(self).get("diagonal_double")
        return (self._self_terms() if kept is None else kept).astype(np.float32)

    def apply(self, y: FloatArray, threads: int = 0) -> FloatArray:
        r"""Return :math:`\sum_b K_{ab} y_{bi}`."""
        if self.lattice_sum is not None:
            out = np.empty(y.shape, np.float32)
            self.lattice_sum.apply(y, out, threads)
            return out
        out = np.zeros(y.shape, np.float32)
        for weight, part in self.parts:
            out += np.float32(weight) * part.apply_planes(y, None, threads)
        return out

    def responses(
        self,
        phi: FloatArray,
        y: FloatArray,
        own: FloatArray | None,
        count: int,
        threads: int = 0,
        out: FloatArray | None = None,
    ) -> Iterator[FloatArray]:
        r"""Yield mean field's updates of `y` in the Potts model, `count` of them.

        Each is softmax(K y - own · y - phi) of the one before, which is not to be changed
        meanwhile. `own` is None where the pixel's own term counts, too. All are written to `out`,
        which may be `y` itself, or each to an array of its own.
        """
        steps = None if self.lattice_sum is None else core().MeanField(self.lattice_sum, phi, own)
        for left in reversed(range(count)):
            answer = np.empty_like(phi) if out is None else out
            if steps is not None:
                steps.step(y, answer, left > 0, threads)
            else:
                kept = None if own is None else y
                core().mean_field_update(phi, self.apply(y, threads), kept, own, answer, threads)
            y = answer
            yield y

    def quadratic_step(
        self, phi: FloatArray, y: FloatArray, **given: Any
    ) -> tuple[float, float, float]:
        """Take a projected gradient step of the Potts model's quadratic relaxation, by lattices.

        Returns what `ProblemBase.quadratic_step` does beside the point.
        """
        objective, uphill, moved = self.lattice_sum.quadratic_step(
            phi, y, own=self.diagonal, **given
        )
        return objective, uphill, moved

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

        `levels` matter for soft and hard. `offsets` are added to y first. `extents`, (labels, 2),
        are the least and the largest sum of each label, where they are known; labels whose
        extents are equal have no order, and are skipped.
        """
        out = np.zeros(y.shape, np.float32)
        by_levels = order in ("soft", "hard")
        if by_levels and extents is not None and self.lattice_sum is not None:
            for weight, part in self._symmetric_parts:
                part.add_ordered(out, weight, y, offsets, extents, levels, threads)
            return out
        y = y if offsets is None else y + offsets
        moving = slice(None) if extents is None else extents[:, 0] < extents[:, 1]
        for weight, part in self._symmetric_parts:
            if by_levels:
                one = part.ordered_planes(y[moving], levels, None, threads)
            else:
                one = part.ordered_exactly(y[moving], order, levels.count, threads)
            out[moving] += np.float32(weight) * one
        return out

    @cached_property
    def _symmetric_parts(self) -> list[tuple[float, Any]]:
        """The parts, symmetrised where they are not symmetric: bounds need it."""
        return [
            (weight, part.symmetrised())
            if isinstance(part, LatticeFilter) and not part.symmetric
            else (weight, part)
            for weight, part in self.parts
        ]

    def give_back_free_memory(self) -> None:
        """Let the system have what filters and the C library keep of released memory."""
        if self.lattice_sum is not None:
            self.lattice_sum.free_workspaces()
        core().give_back_free_memory()

    # --- double precision: the symmetrised K, whose stored numbers are exact ------------------

    @cached_property
    def mass_double(self) -> Doubles:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        if self.lattice_sum is None or not self._symmetric:
            return np.asarray(self.apply_double(np.ones((1, self.n)))[0])
        out = np.empty(self.n)
        self.lattice_sum.mass_double(out, 0)
        return out

    @cached_property
    def diagonal_double(self) -> Doubles:
        """The self terms :math:`K_{aa}`, (n,)."""
        return self._self_terms()

    def _self_terms(self) -> Doubles:
        total = np.zeros(self.n)
        for weight, part in self.parts:
            total += weight * part.diagonal()
        return total

    def apply_double(self, y: Doubles, threads: int = 0) -> Doubles:
        r"""Return :math:`\sum_b K_{ab} y_{bi}`."""
        out = np.zeros_like(y)
        if self.lattice_sum is not None:
            self.lattice_sum.apply_double(y, out, threads)
            return out
        for weight, part in self.parts:
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
        if self.lattice_sum is None:
            u = y.astype(np.float64) if offsets is None else y.astype(np.float64) + offsets
            u = np.clip(u, extents[:, :1], extents[:, 1:])  # which were rounded, as in lattices
            return np.asarray(ordered_by_ramps(np, self.apply_double, self.mass_double, u, levels))
        out = np.empty(y.shape)
        self.lattice_sum.ordered_double(
            y, out, levels, offsets=offsets, extents=extents, mass=self.mass_double, threads=threads
        )
        return out

    def pairs_double(
        self, labels: IntArray, count: int, costs: Doubles | None, threads: int = 0
    ) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too; `costs` None for Potts."""
        if self.lattice_sum is not None:
            return float(self.lattice_sum.pairs_double(labels, count, costs, threads))
        present = np.flatnonzero(np.bincount(labels, minlength=count))
        mu = 1.0 - np.eye(len(present))
        if costs is not None:
            mu = costs[np.ix_(present, present)]
        own = (present[:, None] == labels).astype(np.float64)
        return float((own * self.apply_double(mu @ own, threads)).sum())
