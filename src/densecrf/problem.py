r"""The problem on NumPy arrays, by the filters of a model and the compiled core."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf import projections
from densecrf.certificates import Potentials
from densecrf.filters.base import Levels
from densecrf.native import core
from densecrf.pairwise import Pairwise
from densecrf.problem_base import Calls, Moves, ProblemBase, QuadraticStep
from densecrf.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from densecrf.model import DenseCRF

__all__ = ["Calls", "Moves", "Problem"]

AT_ONCE, ENTRIES = 8, 2**21  # labels evaluated together in double precision, and their numbers
LARGE = 2**18  # pixels, or as many bytes of unaries as 16 labels of them have


class Problem(ProblemBase):
    """A model's energy and its relaxations; see `ProblemBase`.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    threads : int
        0 for all.
    """

    xp = np
    _inside: Pairwise
    _where: Any = {}  # noqa: RUF012 - never changed

    def __init__(self, crf: "DenseCRF", threads: int = 0) -> None:
        self.crf = crf
        self.threads = threads
        self.calls = Calls()
        self.unary: FloatArray = crf.unary
        self.n_labels, self.n = crf.n_labels, crf.n
        self.compatibility: FloatArray | None = crf.compatibility
        self._use_tree(crf.tree)

    @property
    def filters_built(self) -> bool:
        """Whether the filters are there already, so that the next call costs no construction."""
        return "pairwise" in vars(self.crf)

    @property
    def pairwise(self) -> Pairwise:
        """The matrix K."""
        return self.crf.pairwise  # type: ignore[no-any-return]

    @property
    def mass(self) -> FloatArray:
        r"""Row sums :math:`\sum_b K_{ab}`."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> FloatArray:
        """Self terms :math:`K_{aa}`."""
        return self.pairwise.diagonal

    # --- filters ----------------------------------------------------------------------------

    def apply(self, y: FloatArray) -> FloatArray:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""
        self.calls.plain += 1
        used = y.any(1)
        if used.all():
            return self.pairwise.apply(np.ascontiguousarray(y), self.threads)
        out = np.zeros_like(y)  # labels that no pixel carries cost nothing
        if used.any():
            out[used] = self.pairwise.apply(y[used], self.threads)
        return out

    def messages(self, y: FloatArray) -> FloatArray:
        """Return the messages; see `ProblemBase.messages`."""
        if not self.potts:
            return np.asarray(super().messages(y))
        filtered = self.apply(y)
        core().potts_messages(filtered, _floats(y), self.diagonal, filtered, self.threads)
        return filtered

    def nodes(self, y: FloatArray) -> FloatArray:
        """Return the scores that the LP orders; see `ProblemBase.nodes`."""
        return np.ascontiguousarray(super().nodes(y), np.float32)

    def leaves(self, r: FloatArray) -> FloatArray:
        """Return the labels' r for the nodes' r."""
        return np.asarray(super().leaves(r), np.float32)

    def _extents(self, nodes: FloatArray, offsets: FloatArray | None) -> FloatArray:
        out = np.empty((len(nodes), 2), np.float32)
        core().extents(_floats(nodes), offsets, out, self.threads)
        return out

    def _half_ordered(
        self, nodes: FloatArray, offsets: Any, extents: FloatArray, levels: Levels, order: str
    ) -> FloatArray:
        nodes = _floats(nodes)
        self.give_back_free_memory()
        r = self.pairwise.ordered(nodes, levels, order, self.threads, extents, offsets)
        # Halve it, and take out the rounding errors that keep it from adding up to 0.
        core().balance(r, self.mass, self.pairwise.total_mass, 0.5, self.threads)
        return r

    def on_pixels(self, pixels: Any) -> Any:
        """Return the problem of some pixels."""
        part = super().on_pixels(pixels)
        part._inside = self.pairwise.restricted(pixels)
        return part

    def apply_inside(self, y: FloatArray) -> FloatArray:
        """Return the sums over b in the set of K_ab y_b, for a in the set."""
        return self._inside.apply(_floats(y), self.threads)

    def ordered_inside(self, nodes: FloatArray, levels: Levels, order: str) -> FloatArray:
        """Return the sums over b in the set of K_ab s(u_a, u_b), for a in the set."""
        self.calls.ordered += 1
        return self._inside.ordered(_floats(nodes), levels, order, self.threads)

    # --- double precision -------------------------------------------------------------------

    @property
    def mass_double(self) -> Any:
        """Row sums of the symmetrised K in double precision, (n,)."""
        return self.pairwise.mass_double

    @property
    def diagonal_double(self) -> Any:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double

    def apply_double(self, y: Any) -> Any:
        """Return Ky in double precision, for the symmetrised K."""
        return self.pairwise.apply_double(np.ascontiguousarray(y, np.float64), self.threads)

    def _ordered_double(
        self, nodes: FloatArray, offsets: FloatArray | None, extents: FloatArray, levels: Levels
    ) -> Any:
        return self.pairwise.ordered_double(_floats(nodes), offsets, extents, levels, self.threads)

    def dual_rows(self, potentials: Potentials) -> Iterator[Any]:
        """Yield `dual_point_double`, some labels after others; see `ProblemBase`."""
        size = max(2, min(AT_ONCE, ENTRIES // self.n))
        if not self.potts or potentials.labels is not None or self.n_labels <= size:
            yield self.dual_point_double(potentials)
            return
        extents, levels = self.levels_of(potentials.scores, potentials)
        for first in range(0, self.n_labels, size):
            some = slice(first, first + size)
            offsets = None if potentials.offsets is None else potentials.offsets[some]
            r = self._ordered_double(potentials.scores[some], offsets, extents[some], levels)
            yield np.multiply(r, 0.5, out=r)
            del r  # large

    def pairs_double(self, labels: IntArray) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too, in double precision."""
        return self.pairwise.pairs_double(labels, self.n_labels, self.costs_double, self.threads)

    # --- steps --------------------------------------------------------------------------------

    def inner(self, u: FloatArray, v: FloatArray) -> float:
        """Return the inner product, summed in double."""
        return float(core().inner(_floats(u), _floats(v), self.threads))

    def sum_at(self, u: FloatArray, labels: IntArray, weights: Any = None) -> float:
        """Return the sum over pixels of `u` at their labels, in double, weighted."""
        return float(core().sum_at(_floats(u), labels, weights, self.threads))

    def undecided(self, y: FloatArray) -> Any:
        """Return the sum over pixels of y (1 - y) of each label, NumPy's."""
        out = np.empty(len(y))
        core().undecided(_floats(y), out, self.threads)
        return out

    def accumulate(self, total: FloatArray, y: FloatArray) -> None:
        """Add `y` to `total`, in place."""
        core().accumulate(_floats(y), total, self.threads)

    def difference(self, u: FloatArray, v: FloatArray) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""
        total, largest = core().difference(_floats(u), _floats(v), self.threads)
        return float(total), float(largest)

    def lower_bound(self, r: FloatArray) -> float:
        r"""Return an estimate of :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`."""
        return float(core().lower_bound(self.unary, _floats(r), 1.0, self.threads))

    def add_extrapolated(self, u: FloatArray, y: FloatArray, previous: FloatArray) -> None:
        """Add the scores of 2 `y` - `previous` to the potentials u, in place."""
        if self._members is not None:
            super().add_extrapolated(u, y, previous)
        else:
            core().add_extrapolated(_floats(y), _floats(previous), 1.0, u, self.threads)

    def update_multipliers(
        self, z: Any, y: Any, span: float, edge: float, *, in_place: bool = False
    ) -> FloatArray:
        """Return the potentials z + `y`, compressed; see `ProblemBase.update_multipliers`."""
        nodes, z = (_floats(z), None) if y is None else (_floats(self.nodes(y)), z)
        out = nodes if in_place and y is None else np.empty_like(nodes)
        extents = self._extents(nodes, z)
        core().compress_potentials(
            z, nodes, extents, span=span, edge=edge, out=out, threads=self.threads
        )
        return out

    def project(self, z: FloatArray) -> FloatArray:
        """Return the nearest point in the product of simplices."""
        return projections.simplex(z, threads=self.threads)

    def projected_step(self, centre: FloatArray, r: FloatArray, step: float) -> FloatArray:
        """Return the projection of a gradient step; see `ProblemBase.projected_step`."""
        out, steps = np.empty_like(self.unary), np.full(self.n, step, np.float32)
        given = (_floats(r), _floats(centre), steps, steps, _floats(centre))
        core().descend(self.unary, *given, out, self.threads)
        return out

    def descend(
        self, v: Any, r: Any, step: Any, previous: Any, *, in_place: bool = False
    ) -> tuple[FloatArray, float, float, float]:
        """Take a projected gradient step; see `ProblemBase.descend`."""
        r = _floats(r)
        y = r if in_place else np.empty_like(self.unary)
        given = (_floats(array) for array in (r, v, step, self.lipschitz, previous))
        bound, value, uphill = core().descend(self.unary, *given, y, self.threads)
        return y, bound, value, uphill

    def quadratic_step(
        self,
        y: FloatArray,
        strength: FloatArray,
        c: FloatArray | None = None,
        before: FloatArray | None = None,
        share: float = 0.0,
    ) -> QuadraticStep:
        """Take a projected gradient step of the quadratic relaxation; see `ProblemBase`."""
        if not self.potts or self.pairwise.lattice_sum is None:
            return super().quadratic_step(y, strength, c, before, share)
        self.calls.plain += 1
        out = np.empty_like(self.unary)
        sums = self.pairwise.quadratic_step(
            self.unary,
            _floats(y),
            before=before,
            share=share,
            c=None if c is None else _floats(c),
            strength=_floats(strength),
            out=out,
            threads=self.threads,
        )
        return QuadraticStep(out, *sums)

    def unary_marginals(self) -> FloatArray:
        """Return softmax(-unary), the marginals without pairwise terms."""
        return self._response(self.unary)

    def response(self, y: FloatArray, *, self_term: bool = False) -> FloatArray:
        """Return mean field's update of `y`; see `ProblemBase.response`."""
        if not self.potts:
            messages = self.costs(self.apply(y)) if self_term else self.messages(y)
            return self._response(_floats(self.unary + messages))
        return next(self.responses(y, 1, self_term=self_term))

    def responses(
        self, y: FloatArray, count: int, *, self_term: bool = False
    ) -> Iterator[FloatArray]:
        """Yield mean field's updates of `y`; see `ProblemBase.responses`."""
        if not self.potts:
            yield from super().responses(y, count, self_term=self_term)
            return
        own = None if self_term else self.diagonal
        updates = self.pairwise.responses(self.unary, _floats(y), own, count, self.threads)
        del y  # which the caller may no longer need
        for _ in range(count):
            self.calls.plain += 1
            yield next(updates)

    def _response(self, phi: FloatArray) -> FloatArray:
        out = np.empty_like(phi)
        core().mean_field_update(phi, None, None, None, out, self.threads)
        return out

    def extrapolate(self, y: FloatArray, previous: FloatArray, share: float) -> FloatArray:
        """Return `y` + `share` · (`y` - `previous`)."""
        out = np.empty(y.shape, np.float32)
        core().extrapolate(_floats(y), _floats(previous), share, out, self.threads)
        return out

    def argmax(self, y: FloatArray) -> IntArray:
        """Return the largest label of each pixel, (n,)."""
        out = np.empty(self.n, np.int64)
        core().argmax(_floats(y), out, self.threads)
        return out

    def lmo(
        self, linear: FloatArray, received: FloatArray, diagonal: FloatArray, y: FloatArray
    ) -> tuple[IntArray, float, float]:
        """Return the linear minimisation oracle's answer; see `ProblemBase.lmo`."""
        labels = np.empty(self.n, np.int64)
        given = (_floats(array) for array in (linear, received, diagonal, y))
        gap, objective = core().lmo(*given, labels, self.threads)
        return labels, gap, objective

    def step_to_vertex(self, labels: IntArray, y: FloatArray, step: float) -> FloatArray:
        """Return `y` moved by `step` of the way to a vertex."""
        out = np.empty_like(self.unary)
        core().step_to_vertex(labels, _floats(y), step, out, self.threads)
        return out

    def icm_moves(self, labels: IntArray) -> Moves:
        """Return the ICM move of every pixel; see `ProblemBase.icm_moves`."""
        best, gain = np.empty(self.n, np.int64), np.empty(self.n, np.float32)
        if self.potts and (lattice_sum := self.pairwise.lattice_sum) is not None:
            self.calls.plain += 1
            unary, pairs, movers = lattice_sum.potts_icm_moves(
                self.unary,
                labels,
                mass=self.mass,
                own=self.diagonal,
                best=best,
                gain=gain,
                threads=self.threads,
            )
            return Moves(best, gain, int(movers), unary + 0.5 * pairs)
        present, received = self._received(labels)
        others = self.mass - self.diagonal  # the message to a label that no pixel has
        unary, pairs, movers = core().icm_moves(
            self.unary, received, present, others, labels, best, gain, self.threads
        )
        return Moves(best, gain, int(movers), unary + 0.5 * pairs)

    def _received(self, labels: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the labels whose messages differ from those of all others, and these messages."""
        if not self.potts:
            return np.arange(self.n_labels), _floats(self.messages(self.indicator(labels)))
        self.calls.plain += 1
        present = np.flatnonzero(np.bincount(labels, minlength=self.n_labels))
        y = np.asarray(present[:, None] == labels[None, :], np.float32)
        filtered = self.pairwise.apply(y, self.threads)
        core().potts_messages(filtered, y, self.diagonal, filtered, self.threads)
        return present, filtered

    def apply_moves(self, labels: IntArray, moves: Moves, most: int) -> IntArray:
        """Return `labels` after the `most` moves that gain most."""
        movers = np.argsort(-moves.gain, kind="stable")[:most]
        out: IntArray = labels.copy()
        out[movers] = moves.labels[movers]
        return out

    # --- arrays -------------------------------------------------------------------------------

    def give_back_free_memory(self) -> None:
        """Let the system have what is kept of released arrays, where they are large."""
        if (self.n >= LARGE or self.unary.nbytes >= 64 * LARGE) and self.filters_built:
            self.pairwise.give_back_free_memory()

    def floats(self, array: Any) -> FloatArray:
        """Return an array in single precision."""
        return np.asarray(array, np.float32)

    def double(self, array: Any) -> Any:
        """Return an array in double precision."""
        return np.asarray(array, np.float64)

    def contiguous(self, array: Any) -> Any:
        """Return the array, row after row in memory."""
        return np.ascontiguousarray(array)

    def copy(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def zeros_like(self, array: Any, rows: int) -> Any:
        """Return zeros of the array's dtype, (rows, n)."""
        return np.zeros((rows, self.n), array.dtype)

    def to_numpy(self, array: Any) -> Any:
        """Return the array as NumPy's."""
        return np.asarray(array)

    def from_numpy(self, array: Any) -> Any:
        """Return NumPy's array as one of the problem's."""
        return array

    def double_from_numpy(self, array: Any) -> Any:
        """Return NumPy's array as one of the problem's, in double precision."""
        return array


def _floats(array: Any) -> FloatArray:
    """Return the array as the core takes it: contiguous, float32."""
    return np.ascontiguousarray(array, np.float32)
