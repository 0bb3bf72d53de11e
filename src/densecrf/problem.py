r"""The problem as the solvers see it: a handful of operations on label-major arrays (labels, n).

Solvers are written once, over this interface and plain arithmetic; `densecrf.torch` implements
the same operations on tensors. Each operation that filters is counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from densecrf import projections
from densecrf.cached import cached_property
from densecrf.filters.base import Levels
from densecrf.native import core
from densecrf.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from densecrf.model import DenseCRF

__all__ = ["Calls", "Moves", "Problem"]


@dataclass
class Calls:
    """How often all labels were filtered."""

    plain: int = 0
    ordered: int = 0


class Moves(NamedTuple):
    """The moves of iterated conditional modes (ICM) from a labelling.

    Attributes
    ----------
    labels : array, (n,)
        Each pixel's best label given all others', or its own where that is no worse.
    gain : array, (n,)
        By how much this single move lowers the energy.
    movers : int
        How many pixels gain.
    energy : float
        The labelling's energy.
    """

    labels: Any
    gain: Any
    movers: int
    energy: float


class Problem:
    """A model's energy and its relaxations.

    Attributes
    ----------
    unary : ndarray, (labels, n)
        The energies φ.
    mass, diagonal : ndarray, (n,)
        Row sums and self terms of K.
    """

    def __init__(self, crf: "DenseCRF", threads: int = 0, calls: Calls | None = None) -> None:
        self.crf = crf
        self.threads = threads
        self.calls = Calls() if calls is None else calls
        self.unary: FloatArray = crf.unary
        self.n_labels, self.n = crf.n_labels, crf.n
        self.compatibility: FloatArray | None = crf.compatibility
        self._members: FloatArray | None = None
        self._lengths: FloatArray | None = None
        if crf.tree is not None:
            used = crf.tree.lengths > 0
            self._members = crf.tree.members[used]
            self._lengths = crf.tree.lengths[used]

    @property
    def filters_built(self) -> bool:
        """Whether the filters are there already, so that the next call costs no construction."""
        return "pairwise" in vars(self.crf)

    @property
    def mass(self) -> FloatArray:
        r"""Row sums :math:`\sum_b K_{ab}`."""
        return self.crf.pairwise.mass

    @property
    def diagonal(self) -> FloatArray:
        """Self terms :math:`K_{aa}`."""
        return self.crf.pairwise.diagonal

    @property
    def lattice_terms(self) -> tuple[Any, list[float]] | None:
        """The lattices of K and their weights, where it is a sum of symmetric ones."""
        lattices = self.crf.pairwise.lattices
        return None if lattices is None else lattices.symmetric_terms

    @property
    def potts(self) -> bool:
        """Whether every two different labels cost 1."""
        return self.compatibility is None

    @property
    def tree(self) -> bool:
        """Whether the costs of pairs of labels are a tree metric (or Potts)."""
        return self.potts or self._members is not None

    # --- filtering --------------------------------------------------------------------------

    def apply(self, y: FloatArray) -> FloatArray:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""
        self.calls.plain += 1
        used = y.any(1)
        if used.all():
            return self.crf.pairwise.apply(np.ascontiguousarray(y), self.threads)
        out = np.zeros_like(y)  # labels that no pixel carries cost nothing
        if used.any():
            out[used] = self.crf.pairwise.apply(y[used], self.threads)
        return out

    def costs(self, y: FloatArray) -> FloatArray:
        r"""Return :math:`\sum_j \mu_{ij} y_{aj}`: the expected cost of each label beside `y`."""
        if self.compatibility is None:
            return np.asarray(y.sum(0) - y)
        return np.asarray(self.compatibility @ y)

    def messages(self, y: FloatArray) -> FloatArray:
        r"""Return :math:`\sum_{b \ne a} K_{ab} \sum_j \mu_{ij} y_{bj}`, the messages.

        They are the gradient of the quadratic relaxation's pairwise term.
        """
        filtered = self.apply(y)
        if not self.potts:
            return self.costs(filtered - self.diagonal * y)
        core().potts_messages(filtered, _floats(y), self.diagonal, filtered, self.threads)
        return filtered

    def dual_point(
        self, y: FloatArray, levels: int = 10, order: str = "soft", rescale: bool = True
    ) -> FloatArray:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(y_{ai}, y_{bi})`.

        Half the ordered filter's output: a subgradient of the LP's pairwise term (Eq. 13 of the
        paper: :math:`A s = -r`), exact or smoothed by the levels, and in any case dual feasible:
        see `densecrf.certificates`.
        """
        nodes = self.nodes(y)
        extents = self._extents(nodes)
        hard = order == "hard"
        spread = Levels(levels, 0.0, float(levels - 1), hard)
        if rescale:
            spread = Levels.spanning(extents, levels, hard=hard)
        return self._ordered(nodes, extents, spread, order)

    def flow(self, y: FloatArray, z: FloatArray | None, cells: float) -> FloatArray:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + z.

        Like `dual_point`, but of potentials, any numbers (one a node; z none so far: zeros), with
        `cells` levels for each unit: two pixels whose potentials differ by 1 / `cells` or more are
        fully apart, within a cell the flow between them is linear in the difference.
        """
        nodes = self.nodes(y)
        extents = self._extents(nodes, z)
        low, high = float(extents.min()), float(extents.max())
        count = max(2, int(np.ceil((high - low) * cells - 1e-3)) + 1)
        return self._ordered(
            nodes, extents, Levels(count, low, float(cells), hard=False), "soft", z
        )

    def _extents(self, nodes: FloatArray, z: FloatArray | None = None) -> FloatArray:
        """Return the least and the largest number of each plane."""
        out = np.empty((len(nodes), 2), np.float32)
        core().extents(_floats(nodes), z, out, self.threads)
        return out

    def _ordered(
        self,
        nodes: FloatArray,
        extents: FloatArray,
        levels: Levels,
        order: str,
        offsets: FloatArray | None = None,
    ) -> FloatArray:
        self.calls.ordered += 1
        # Of two labels, one is the mirror image of the other.
        mirrored = order == "soft" and self.potts and self.n_labels == 2 == len(nodes)
        some = _floats(nodes[:1] if mirrored else nodes)
        offsets = None if offsets is None else offsets[: len(some)]
        extents = extents[: len(some)]
        r = self.crf.pairwise.ordered(some, levels, order, self.threads, extents, offsets)
        # Halve it, and take out the rounding errors that keep it from adding up to 0.
        core().balance(r, self.mass, self.total_mass, 0.5, self.threads)
        return np.concatenate([r, -r]) if mirrored else self.leaves(r)

    @cached_property
    def total_mass(self) -> float:
        """The sum of all pairwise weights, both orders of a pair and the pixels' own."""
        return float(self.mass.sum(dtype=np.float64))

    def nodes(self, y: FloatArray) -> FloatArray:
        """Return the scores that the LP orders: the labels', or their sums below tree nodes."""
        nodes = y if self._members is None else self._members @ y
        return np.ascontiguousarray(nodes, np.float32)

    def leaves(self, r: FloatArray) -> FloatArray:
        """Return what dual points of the nodes mean for the labels."""
        if self._members is None or self._lengths is None:
            return r
        return np.asarray(self._members.T @ (self._lengths[:, None] * r), r.dtype)

    # --- values -----------------------------------------------------------------------------

    def energy(self, labels: IntArray) -> float:
        """Return the energy of a labelling (n,)."""
        self.calls.plain += 1
        return self.crf._energy(labels, self.threads)

    def relaxed_energy(self, y: FloatArray) -> float:
        r"""Return the LP's objective at `y`, :math:`\langle\phi + r, y\rangle` with exact order."""
        r = self.dual_point(y, order="adaptive")
        return self.inner(self.unary + r, y)

    def lower_bound(self, r: FloatArray) -> float:
        r"""Return :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`, a bound on every energy."""
        bound: float = core().lower_bound(self.unary, r, 1.0, self.threads)
        return bound - self.rounding_allowance

    @cached_property
    def rounding_allowance(self) -> float:
        """What a bound gives away for the filters' rounding: half an ulp of all pairwise mass."""
        return 0.5 * float(np.finfo(np.float32).eps) * self.total_mass

    @cached_property
    def lipschitz(self) -> FloatArray:
        r"""Lipschitz constants of the gradient of the LP's pairwise term, smoothed over one unit.

        For each pixel :math:`\tfrac12 m_a`, since the Gaussian K is positive semidefinite up to the
        filter's error; times the largest eigenvalue of the tree's incidence, which is 1 for Potts.
        """
        spectrum = 1.0
        if self._members is not None and self._lengths is not None:
            gram = self._members.T @ (self._lengths[:, None] * self._members)
            spectrum = float(np.linalg.eigvalsh(gram.astype(np.float64))[-1])
        mass = np.maximum(self.mass, np.float32(1e-6) * self.mass.max(initial=0.0))
        return np.asarray(np.float32(0.5 * spectrum) * np.maximum(mass, np.float32(1e-12)))

    def inner(self, u: FloatArray, v: FloatArray) -> float:
        """Return the inner product, summed in double."""
        return float(core().inner(_floats(u), _floats(v), self.threads))

    def difference(self, u: FloatArray, v: FloatArray) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""
        total, largest = core().difference(_floats(u), _floats(v), self.threads)
        return float(total), float(largest)

    def update_multipliers(
        self, z: FloatArray | None, y: FloatArray, span: float, edge: float
    ) -> FloatArray:
        """Add `y` to the potentials z and compress them into `span`, in place.

        The multiplier update. Each label's least potential becomes 0. Monotone; its two ends of
        width `edge` are kept: pixels at different ends stay fully apart, those at the same end keep
        their differences. Labels that no pixel has keep zeros, which take no memory.
        """
        nodes = self.nodes(y)
        z = np.zeros(nodes.shape, np.float32) if z is None else z
        for row, more in zip(z, nodes, strict=True):
            if not more.any():
                continue
            row += more
            row -= row.min()
            top = float(row.max())
            if top > span:
                slope = np.float32((span - 2 * edge) / max(top - 2 * edge, 1e-6))
                middle = np.float32(edge) + (row - np.float32(edge)) * slope
                ends = np.where(row <= edge, row, row - np.float32(top - span))
                row[:] = np.where((row <= edge) | (row >= top - edge), ends, middle)
        return z

    # --- pixelwise --------------------------------------------------------------------------

    def project(self, z: FloatArray) -> FloatArray:
        """Return the nearest point in the product of simplices."""
        return projections.simplex(z, threads=self.threads)

    def descend(
        self,
        v: FloatArray,
        r: FloatArray,
        step: FloatArray,
        previous: FloatArray,
        *,
        in_place: bool = False,
    ) -> tuple[FloatArray, float, float, float]:
        r"""Take a projected gradient step :math:`y = P_\Delta(v - \text{step}\,(\phi + r))`.

        Returns y, the `lower_bound` of r, :math:`\langle\phi + r, v\rangle`, and
        :math:`\langle s(v - y), y - \text{previous}\rangle` with the Lipschitz constants s, which
        is positive where the last move points uphill. With `in_place`, y takes the memory of r.
        """
        r = _floats(r)
        y = r if in_place else np.empty_like(self.unary)
        given = (_floats(array) for array in (r, v, step, self.lipschitz, previous))
        bound, value, uphill = core().descend(self.unary, *given, y, self.threads)
        return y, bound - self.rounding_allowance, value, uphill

    def unary_marginals(self) -> FloatArray:
        """Return softmax(-unary), the marginals without pairwise terms."""
        return self._response(self.unary)

    def response(self, y: FloatArray, *, self_term: bool = False) -> FloatArray:
        r"""Return mean field's update of `y`, :math:`\propto \exp(-\phi - \text{messages})`.

        With `self_term`, messages include the pixel's own. For the Potts model they are, up to a
        number that all labels share, what the other pixels send to the label itself.
        """
        if not self.potts:
            messages = self.costs(self.apply(y)) if self_term else self.messages(y)
            return self._response(_floats(self.unary + messages))
        self.calls.plain += 1
        own = None if self_term else self.diagonal
        return self.crf.pairwise.respond(self.unary, _floats(y), own, self.threads)

    def _response(self, phi: FloatArray) -> FloatArray:
        out = np.empty_like(phi)
        core().mean_field_update(phi, None, None, None, out, self.threads)
        return out

    def extrapolate(self, y: FloatArray, previous: FloatArray, share: float) -> FloatArray:
        """Return `y` + `share` · (`y` - `previous`)."""
        out = np.empty_like(y)
        core().extrapolate(y, previous, share, out, self.threads)
        return out

    def argmax(self, y: FloatArray) -> IntArray:
        """Return the largest label of each pixel, (n,)."""
        out = np.empty(self.n, np.int64)
        core().argmax(_floats(y), out, self.threads)
        return out

    def indicator(self, labels: IntArray) -> FloatArray:
        """Return the labelling as a vertex of the product of simplices."""
        return np.asarray(np.arange(self.n_labels)[:, None] == labels[None, :], np.float32)

    def lmo(
        self, linear: FloatArray, received: FloatArray, diagonal: FloatArray, y: FloatArray
    ) -> tuple[IntArray, float, float]:
        r"""Linear minimisation oracle: the vertex that minimises the gradient of a quadratic.

        For :math:`F(y) = \langle\ell, y\rangle + \tfrac12\langle y, (H + \text{diag}(c)) y\rangle`
        with :math:`Hy` = `received`: its labels, the Frank-Wolfe gap, and F(y).
        """
        labels = np.empty(self.n, np.int64)
        given = (_floats(array) for array in (linear, received, diagonal, y))
        gap, objective = core().lmo(*given, labels, self.threads)
        return labels, gap, objective

    def curvature(
        self,
        labels: IntArray,
        y: FloatArray,
        target: FloatArray,
        received: FloatArray,
        diagonal: FloatArray,
    ) -> float:
        r"""Return :math:`\langle d, (H + \text{diag}(c)) d\rangle` for the direction d to a vertex.

        `target` and `received` are the products of H with the vertex and with `y`.
        """
        given = (_floats(array) for array in (y, target, received, diagonal))
        return float(core().curvature(labels, *given, self.threads))

    def step_to_vertex(self, labels: IntArray, y: FloatArray, step: float) -> FloatArray:
        """Return `y` moved by `step` of the way to a vertex."""
        out = np.empty_like(self.unary)
        core().step_to_vertex(labels, _floats(y), step, out, self.threads)
        return out

    def icm_moves(self, labels: IntArray) -> Moves:
        r"""Return the ICM move of every pixel, with one filter call.

        It is :math:`\arg\min_i \phi_a(i) + \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`.
        """
        best, gain = np.empty(self.n, np.int64), np.empty(self.n, np.float32)
        lattices = self.crf.pairwise.lattices
        if self.potts and lattices is not None:
            self.calls.plain += 1
            unary, pairs, movers = lattices.potts_alternatives(
                self.unary, labels, self.mass, self.diagonal, best, gain, self.threads
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
        filtered = self.crf.pairwise.apply(y, self.threads)
        core().potts_messages(filtered, y, self.diagonal, filtered, self.threads)
        return present, filtered

    def apply_moves(self, labels: IntArray, moves: Moves, most: int) -> IntArray:
        """Return `labels` after the `most` moves that gain most."""
        movers = np.argsort(-moves.gain, kind="stable")[:most]
        out: IntArray = labels.copy()
        out[movers] = moves.labels[movers]
        return out

    def best_constant(self) -> tuple[int, float]:
        """Return the best constant labelling's label and energy."""
        energies = self.crf.constant_energies()
        best = int(energies.argmin())
        return best, float(energies[best])

    def constant(self, label: int) -> IntArray:
        """Return the labelling of one label everywhere."""
        return np.full(self.n, label, np.int64)

    def to_numpy(self, array: Any) -> Any:
        """Return the array as NumPy's."""
        return np.asarray(array)

    def from_numpy(self, array: Any) -> Any:
        """Return NumPy's array as one of the problem's."""
        return array


def _floats(array: Any) -> FloatArray:
    """Return the array as the core wants it."""
    return np.ascontiguousarray(array, np.float32)
