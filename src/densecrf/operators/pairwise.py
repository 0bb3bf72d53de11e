r"""The matrix K of pairwise weights, never formed: :math:`K = \sum_c w_c \tilde k_c`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.backend import Moves, QuadraticStep
from densecrf.cached import cached_property
from densecrf.model.kernels import Kernel, Spatial
from densecrf.native import core
from densecrf.operators import ExactFilter, Filter, GridFilter, LatticeFilter
from densecrf.operators.levels import Doubles, Levels, PixelArray, ordered_by_ramps
from densecrf.steps.native import moves, single
from densecrf.validation import ArgumentError, FloatArray, IntArray

__all__ = ["Pairwise", "PairwiseOnThreads", "build_filter"]

AT_ONCE, ENTRIES = 24, 2**21  # labels, and numbers, evaluated together in double precision
NARROW = 16  # mean number of entries per row up to which a kernel's matrix is formed


def build_filter(
    kernel: Kernel, shape: tuple[int, ...], engine: str, blur: str, threads: int
) -> Filter:
    """Return the filter of one kernel on a grid of this shape."""
    if engine == "grid":
        if not isinstance(kernel, Spatial):
            raise ArgumentError(
                "filter",
                "grid",
                f'works only for Spatial kernels, not {type(kernel).__name__}; use "lattice" or '
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

    If all kernels are lattices, the compiled core sums them. If the lattices are small compared
    with the planes, it holds their values for all labels at once and consumes the sum pixel by
    pixel, without storing it.

    Parameters
    ----------
    filters : sequence of (float, Filter)
        The weights and the filters.
    n : int
        Number of pixels.
    normalization : {"symmetric", "none"}
        Whether to normalise the filters.
    diagonal_double : ndarray, (n,), optional
        The self terms, if known.
    """

    def __init__(
        self,
        filters: Sequence[tuple[float, Filter]],
        n: int,
        normalization: str,
        diagonal_double: Doubles | None = None,
    ) -> None:
        self.n = n
        self._known_diagonal = diagonal_double
        normalized = normalization == "symmetric"
        self.parts = [(w, base.normalized() if normalized else base) for w, base in filters]
        self.lattice_sum: Any = None  # the core's, if all parts are lattices of one kind
        lattices = [part for _, part in self.parts if isinstance(part, LatticeFilter)]
        if len(lattices) == len(self.parts) and len({part.symmetric for part in lattices}) == 1:
            self._symmetric = lattices[0].symmetric
            self.lattice_sum = core().LatticeSum(*_native(self.parts), self._symmetric)

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
        """The sum of all of K: both orders of each pair, and the self terms."""
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
        r"""Yield `count` mean-field updates of `y` in the Potts model.

        Each is softmax(K y - own · y - phi) of the previous one, which must not change meanwhile.
        With `own` None, self terms count. All are written to `out`, which may be `y`; without
        `out`, each is a new array.
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

        `levels` are for the orders soft and hard. `offsets` are added to y first. `extents`,
        (labels, 2), are the smallest and largest sum of each label, if known; labels whose extents
        are equal have no order and are skipped.
        """
        out = np.zeros(y.shape, np.float32)
        by_levels = order in ("soft", "hard")
        if by_levels and extents is not None and self.lattice_sum is not None:
            split = self.split
            for weight, part in self._symmetric_parts if split is None else split.wide:
                part.add_ordered(out, weight, y, offsets, extents, levels, threads)
            if split is not None:
                split.entries.ordered(
                    y, out, levels, offsets=offsets, extents=extents, threads=threads
                )
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
        """The parts, symmetrised where needed: bounds require symmetry."""
        return [
            (weight, part.symmetrised())
            if isinstance(part, LatticeFilter) and not part.symmetric
            else (weight, part)
            for weight, part in self.parts
        ]

    @cached_property
    def split(self) -> "Split | None":
        """The same matrix with its narrow kernels by their entries; None where none is narrow."""
        if self.lattice_sum is None or not self._symmetric:
            return None
        narrow = [core().few_entries(part.native, NARROW) for _, part in self._symmetric_parts]
        return Split(self._symmetric_parts, narrow) if any(narrow) else None

    def give_back_free_memory(self) -> None:
        """Return the memory that filters and the C library cache to the system."""
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
        if self._known_diagonal is not None:
            return self._known_diagonal
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
            u = np.clip(u, extents[:, :1], extents[:, 1:])  # rounded extents, as in lattices
            return np.asarray(ordered_by_ramps(np, self.apply_double, self.mass_double, u, levels))
        out = np.empty(y.shape)
        total, mass = self.lattice_sum, None
        if self.split is not None:
            total, mass = self.split.lattice_sum, self.split.wide_mass_double
        mass = self.mass_double if mass is None else mass
        total.ordered_double(
            y, out, levels, offsets=offsets, extents=extents, mass=mass, threads=threads
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


class Split:
    """A sum of lattices, the narrow ones by the entries of their matrix.

    On a lattice of a narrow kernel most vertices belong to one pixel, and the ordered filter fills
    rows of levels for all of them. Few pairs of pixels have an entry: they are visited instead.

    Parameters
    ----------
    parts : sequence of (float, LatticeFilter)
        The weights and the lattices.
    narrow : sequence of bool
        Which of them are narrow.

    Attributes
    ----------
    wide : list of (float, LatticeFilter)
        The other lattices.
    entries
        The narrow kernels' weighted sum.
    lattice_sum
        Both together.
    """

    def __init__(self, parts: Sequence[tuple[float, Any]], narrow: Sequence[bool]) -> None:
        self.wide = [part for part, few in zip(parts, narrow, strict=True) if not few]
        few = [part for part, few in zip(parts, narrow, strict=True) if few]
        self._n = few[0][1].n
        self.entries: Any = core().Entries(*_native(few), 0)
        self.lattice_sum: Any = core().LatticeSum(*_native(self.wide), True, self.entries)

    @cached_property
    def wide_mass_double(self) -> Doubles:
        """Row sums of the other lattices, (n,)."""
        out = np.zeros(self._n)
        if self.wide:
            core().LatticeSum(*_native(self.wide), True).mass_double(out, 0)
        return out

    @cached_property
    def mass(self) -> FloatArray:
        """Row sums with the bits of `lattice_sum`, (n,)."""
        out = np.empty(self._n, np.float32)
        self.lattice_sum.mass(out, 0)
        return out

    def pairs(self, labels: IntArray, count: int, threads: int) -> float:
        """Return the sum of all entries between pixels of different labels."""
        wide = self.lattice_sum.pairs_double(labels, count, None, threads)
        return float(wide + self.entries.pairs(labels, threads))


def _native(parts: Sequence[tuple[float, Any]]) -> tuple[tuple[Any, ...], list[float]]:
    """Return the core's lattices and their weights."""
    return tuple(part.native for _, part in parts), [float(weight) for weight, _ in parts]


Plain = npt.NDArray[Any]


class PairwiseOnThreads:
    """The matrix K as an operator of problems, with a number of threads (0: all).

    See `densecrf.backend.Operator`. `build` is called whenever the matrix is used; it constructs
    the matrix unless `is_built`.
    """

    def __init__(
        self,
        build: Callable[[], Pairwise],
        n: int,
        threads: int = 0,
        is_built: Callable[[], bool] = lambda: True,
    ) -> None:
        self._build, self._is_built, self.n, self.threads = build, is_built, n, threads
        self.labels_at_once = max(2, min(AT_ONCE, ENTRIES // n))

    @property
    def pairwise(self) -> Pairwise:
        """The matrix."""
        return self._build()

    @property
    def built(self) -> bool:
        """Whether the filters are built."""
        return self._is_built()

    @property
    def exact_estimates(self) -> bool:
        """Whether energies are estimated by themselves."""
        return self.pairwise.split is None

    @property
    def restricts_pixels(self) -> bool:
        """Whether filtering some of the pixels takes less time than filtering all."""
        return self.pairwise.lattice_sum is not None

    @property
    def mass(self) -> Plain:
        """Row sums, (n,)."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> Plain:
        """Self terms, (n,)."""
        return self.pairwise.diagonal

    @property
    def mass_double(self) -> Plain:
        """Row sums in double precision, (n,)."""
        return self.pairwise.mass_double

    @property
    def diagonal_double(self) -> Plain:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double

    @property
    def total_double(self) -> float:
        """The sum of all of K, summed in double precision."""
        return float(self.mass_double.sum())

    def apply(self, y: Plain) -> Plain:
        """Return K y."""
        used = y.any(1)
        if used.all():
            return self.pairwise.apply(np.ascontiguousarray(y), self.threads)
        out = np.zeros_like(y)  # labels without mass are skipped
        if used.any():
            out[used] = self.pairwise.apply(y[used], self.threads)
        return out

    def ordered(self, nodes: Plain, levels: Levels, order: str) -> Plain:
        """Return the ordered sums of each row of potentials."""
        return self.pairwise.ordered(single(nodes), levels, order, self.threads)

    def half_ordered(
        self, nodes: Plain, offsets: Plain | None, extents: FloatArray, levels: Levels, order: str
    ) -> Plain:
        """Return half the ordered sums, balanced."""
        pairwise = self.pairwise
        r = pairwise.ordered(single(nodes), levels, order, self.threads, extents, offsets)
        # Halve it, and remove the rounding errors: rows sum to 0.
        core().balance(r, pairwise.mass, pairwise.total_mass, 0.5, self.threads)
        return r

    def apply_double(self, y: Plain) -> Plain:
        """Return K y in double precision."""
        return self.pairwise.apply_double(np.ascontiguousarray(y, np.float64), self.threads)

    def ordered_double(
        self, nodes: Plain, offsets: Plain | None, extents: FloatArray, levels: Levels
    ) -> Plain:
        """Return the ordered sums in double precision."""
        return self.pairwise.ordered_double(single(nodes), offsets, extents, levels, self.threads)

    def pairs_double(self, labels: Plain, count: int, costs: Doubles | None) -> float:
        """Return the cost of all ordered pairs, self pairs included."""
        return self.pairwise.pairs_double(labels, count, costs, self.threads)

    def restricted(self, pixels: IntArray) -> "PairwiseOnThreads":
        """Return the submatrix of some pixels."""
        part = self.pairwise.restricted(pixels)
        return PairwiseOnThreads(lambda: part, part.n, self.threads)

    def give_back_free_memory(self) -> None:
        """Return the memory that filters and the C library cache to the system."""
        if self.built:
            self.pairwise.give_back_free_memory()

    def potts_moves(self, phi: Plain, labels: Plain) -> Moves[Plain]:
        """Return the ICM move of every pixel in the Potts model."""
        pairwise = self.pairwise
        if pairwise.lattice_sum is None:
            present = np.flatnonzero(np.bincount(labels, minlength=len(phi)))
            y = np.asarray(present[:, None] == labels[None, :], np.float32)
            filtered = pairwise.apply(y, self.threads)
            core().potts_messages(filtered, y, pairwise.diagonal, filtered, self.threads)
            others = pairwise.mass - pairwise.diagonal  # the message to a label that no pixel has
            return moves(phi, filtered, present, others, labels, self.threads)
        best, gain = np.empty(self.n, np.int64), np.empty(self.n, np.float32)
        split = pairwise.split
        unary, pairs, movers = (split or pairwise).lattice_sum.potts_icm_moves(
            phi,
            labels,
            mass=(split or pairwise).mass,
            own=pairwise.diagonal,
            best=best,
            gain=gain,
            threads=self.threads,
        )
        return Moves(best, gain, int(movers), unary + 0.5 * pairs)

    def potts_energies(
        self, phi: Plain, labellings: Sequence[Plain], *, double: bool
    ) -> list[float] | None:
        """Return estimates where some kernels are narrow; None: evaluate energies one by one."""
        split = None if double else self.pairwise.split
        if split is None:
            return None
        return [
            float(core().sum_at(phi, labels, None, self.threads))
            + 0.5 * split.pairs(labels, len(phi), self.threads)
            for labels in labellings
        ]

    def potts_responses(
        self, phi: Plain, y: Plain, own: Plain | None, count: int
    ) -> Iterator[Plain]:
        """Yield `count` mean-field updates of `y` in the Potts model."""
        return self.pairwise.responses(phi, single(y), own, count, self.threads)

    def potts_quadratic_step(
        self,
        phi: Plain,
        y: Plain,
        strength: Plain,
        c: Plain | None,
        before: Plain | None,
        share: float,
        rest: Plain | None,
    ) -> QuadraticStep[Plain] | None:
        """Take a projected gradient step of the Potts model's quadratic relaxation."""
        pairwise = self.pairwise
        if pairwise.lattice_sum is None:
            return None
        out = np.empty_like(phi)
        sums = pairwise.lattice_sum.quadratic_step(
            phi,
            single(y),
            own=pairwise.diagonal,
            before=before,
            share=share,
            c=None if c is None else single(c),
            strength=single(strength),
            rest=rest,
            out=out,
            threads=self.threads,
        )
        return QuadraticStep(out, *sums)
