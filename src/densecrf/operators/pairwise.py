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

AT_ONCE, ENTRIES = 8, 2**21  # labels evaluated together in double precision, and their numbers


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

    Parameters
    ----------
    filters : sequence of (float, Filter)
        The weights and the filters.
    n : int
        Number of pixels.
    normalization : {"symmetric", "none"}
        Whether the filters are to be normalised.
    diagonal_double : ndarray, (n,), optional
        The self terms, where they are known.
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
        self.lattice_sum: Any = None  # the core's, where all parts are lattices of one kind
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


Plain = npt.NDArray[Any]


class PairwiseOnThreads:
    """The matrix K as an operator of problems, by a number of threads (0: all).

    See `densecrf.backend.Operator`. `build` returns the matrix; it is called whenever the matrix is
    used, and constructs it unless `is_built`.
    """

    exact_estimates = True

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
        """Whether the filters are there already."""
        return self._is_built()

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
        out = np.zeros_like(y)  # labels that no pixel carries cost nothing
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
        # Halve it, and take out the rounding errors that keep it from adding up to 0.
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
        """Return the cost of all ordered pairs, a pixel with itself among them."""
        return self.pairwise.pairs_double(labels, count, costs, self.threads)

    def restricted(self, pixels: IntArray) -> "PairwiseOnThreads":
        """Return the submatrix of some pixels."""
        part = self.pairwise.restricted(pixels)
        return PairwiseOnThreads(lambda: part, part.n, self.threads)

    def give_back_free_memory(self) -> None:
        """Let the system have what filters and the C library keep of released memory."""
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
        unary, pairs, movers = pairwise.lattice_sum.potts_icm_moves(
            phi,
            labels,
            mass=pairwise.mass,
            own=pairwise.diagonal,
            best=best,
            gain=gain,
            threads=self.threads,
        )
        return Moves(best, gain, int(movers), unary + 0.5 * pairs)

    def potts_energies(
        self, phi: Plain, labellings: Sequence[Plain], *, double: bool
    ) -> list[float] | None:
        """Return None: energies are evaluated one by one."""
        del phi, labellings, double
        return None

    def potts_responses(
        self, phi: Plain, y: Plain, own: Plain | None, count: int
    ) -> Iterator[Plain]:
        """Yield mean field's updates of `y` in the Potts model, `count` of them."""
        return self.pairwise.responses(phi, single(y), own, count, self.threads)

    def potts_quadratic_step(
        self,
        phi: Plain,
        y: Plain,
        strength: Plain,
        c: Plain | None,
        before: Plain | None,
        share: float,
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
            out=out,
            threads=self.threads,
        )
        return QuadraticStep(out, *sums)
