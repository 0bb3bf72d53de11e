r"""The energy of a problem, its linear program in potentials and its bounds, on any arrays.

Solvers are written once, over label-major arrays (labels, n), plain arithmetic and the operations
of `densecrf.problem_base.ProblemBase`, whose first part this is: what `lp` and the loop of all
methods need. `densecrf.problem.Problem` (NumPy and the compiled core) and
`densecrf.torch.problem.TorchProblem` add the filters and their fused steps. Each operation that
filters is counted.

Energies and bounds are in double precision. The operator K is the real-arithmetic one over the
weights that the filters store; what float64 rounds is bounded in docs/mathematics.md and given away
by `densecrf.certificates.lower_bound`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from densecrf.cached import cached_property
from densecrf.certificates import Potentials, Sizes, gamma
from densecrf.compatibility import LabelTree
from densecrf.filters.base import Levels

__all__ = ["Calls", "ProblemEnergy"]


@dataclass
class Calls:
    """How often all labels were filtered."""

    plain: int = 0
    ordered: int = 0


class ProblemEnergy(ABC):
    """A model's energy: filters, steps of its linear program, bounds and arrays.

    Attributes
    ----------
    xp : module
        numpy or torch.
    unary : array, (labels, n)
        The energies φ.
    compatibility : array, (labels, labels), or None
        The costs of pairs of labels; None: Potts.
    crf : DenseCRF or None
        The model that declares the energy.
    calls : Calls
        The filter calls so far.
    """

    xp: Any
    unary: Any
    compatibility: Any
    crf: Any
    calls: Calls
    n_labels: int
    n: int
    #: Keywords of functions that make arrays where the problem's are.
    _where: Any
    _members: Any = None
    _lengths: Any = None

    def _use_tree(self, tree: LabelTree | None) -> None:
        if tree is not None:
            used = tree.lengths > 0
            self._members = self.from_numpy(tree.members[used])
            self._lengths = self.from_numpy(tree.lengths[used])

    @property
    def filters_built(self) -> bool:
        """Whether the filters are there already, so that the next call costs no construction."""
        return True

    @property
    @abstractmethod
    def mass(self) -> Any:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""

    @property
    @abstractmethod
    def diagonal(self) -> Any:
        """Self terms :math:`K_{aa}`, (n,)."""

    @property
    def potts(self) -> bool:
        """Whether every two different labels cost 1."""
        return self.compatibility is None

    @property
    def tree(self) -> bool:
        """Whether the costs of pairs of labels are a tree metric (or Potts)."""
        return self.potts or self._members is not None

    def nodes(self, y: Any) -> Any:
        """Return the scores that the LP orders: the labels', or their sums below tree nodes."""
        return y if self._members is None else self._members @ y

    def leaves(self, r: Any) -> Any:
        """Return the labels' r for the nodes' r."""
        if self._members is None:
            return r
        return self._members.T @ (self._lengths[:, None] * r)

    @cached_property
    def _tree_arrays(self) -> tuple[Any, Any]:
        """The nodes' members and lengths in double precision, NumPy's; for Potts the labels'."""
        if self._members is None:
            return np.eye(self.n_labels), np.ones(self.n_labels)
        arrays = (self.to_numpy(self._members), self.to_numpy(self._lengths))
        return arrays[0].astype(np.float64), arrays[1].astype(np.float64)

    @cached_property
    def costs_double(self) -> Any:
        r"""The costs of pairs of labels in double precision, NumPy's, or None for Potts.

        Of a tree they are :math:`\tfrac12 \sum_T \ell_T |[i \in T] - [j \in T]|` without rounding,
        since bounds are computed with the lengths.
        """
        if self.compatibility is None:
            return None
        if self._members is None:
            return self.to_numpy(self.compatibility).astype(np.float64)
        members, lengths = self._tree_arrays
        apart = abs(members[:, :, None] - members[:, None, :])
        return np.ascontiguousarray(0.5 * np.einsum("t,tij->ij", lengths, apart))

    @cached_property
    def reach(self) -> float:
        """The largest sum of the lengths of a label's nodes; 1 for Potts."""
        members, lengths = self._tree_arrays
        return float((members.T @ lengths).max())

    # --- filters ----------------------------------------------------------------------------

    @abstractmethod
    def apply(self, y: Any) -> Any:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""

    def costs(self, y: Any) -> Any:
        r"""Return :math:`\sum_j \mu_{ij} y_{aj}`: the expected cost of each label beside `y`."""
        return y.sum(0) - y if self.compatibility is None else self.compatibility @ y

    def messages(self, y: Any) -> Any:
        r"""Return :math:`\sum_{b \ne a} K_{ab} \sum_j \mu_{ij} y_{bj}`, the messages.

        They are the gradient of the quadratic relaxation's pairwise term.
        """
        return self.costs(self.apply(y) - self.diagonal * y)

    def flow(self, y: Any, z: Any, cells: float) -> Any:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + z.

        Like `dual_point`, but of potentials, any numbers (z: one per node), with `cells` levels for
        each unit: two pixels whose potentials differ by 1 / `cells` or more are fully apart, within
        a cell the flow between them is linear in the difference. One of y and z may be None, for
        zeros.
        """
        nodes, z = (z, None) if y is None else (self.nodes(y), z)
        extents = Levels.merged(self._extents(nodes, z), cells)
        return self._ordered(nodes, z, extents, Levels.by_cells(extents, cells), "soft")

    @abstractmethod
    def _extents(self, nodes: Any, offsets: Any) -> Any:
        """Return the least and the largest number of each node, (nodes, 2), on the host."""

    def _ordered(self, nodes: Any, offsets: Any, extents: Any, levels: Levels, order: str) -> Any:
        self.calls.ordered += 1
        if order == "soft" and self._mirrored(nodes):
            some = None if offsets is None else offsets[:1]
            r = self._half_ordered(nodes[:1], some, extents[:1], levels, order)
            return self.xp.concatenate([r, -r])
        return self.leaves(self._half_ordered(nodes, offsets, extents, levels, order))

    def _mirrored(self, nodes: Any) -> bool:
        """Whether there are two labels, whose r are opposite numbers."""
        return self.potts and self.n_labels == 2 == len(nodes)

    @abstractmethod
    def _half_ordered(
        self, nodes: Any, offsets: Any, extents: Any, levels: Levels, order: str
    ) -> Any:
        r"""Return :math:`\tfrac12 \sum_b K_{ab}\, s(u_a, u_b)` for each node."""

    # --- steps ------------------------------------------------------------------------------

    @cached_property
    def lipschitz(self) -> Any:
        r"""Lipschitz constants of the gradient of the LP's pairwise term, smoothed over one unit.

        For each pixel :math:`\tfrac12 m_a`, since the Gaussian K is positive semidefinite up to the
        filter's error; times the largest eigenvalue of the tree's incidence, which is 1 for Potts.
        """
        spectrum = 1.0
        if self._members is not None:
            members, lengths = self._tree_arrays
            gram = members.T @ (lengths[:, None] * members)
            spectrum = float(np.linalg.eigvalsh(gram)[-1])
        least = self.xp.clip(1e-6 * self.mass.max(), 1e-12, None)
        return 0.5 * spectrum * self.xp.maximum(self.mass, least)

    def potentials(self, y: Any, levels: Any, cells: float) -> Any:
        """Return the potentials of `y` and of `levels`, of which None is 0, `cells` to the unit."""
        return self.nodes(y) + (0 if levels is None else levels / cells)

    def add_extrapolated(self, u: Any, y: Any, previous: Any) -> None:
        """Add the scores of 2 `y` - `previous` to the potentials u, in place."""
        self.accumulate(u, self.nodes(self.extrapolate(y, previous, 1.0)))

    @abstractmethod
    def lower_bound(self, r: Any) -> float:
        r"""Return an estimate of :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`."""

    def sum_at(self, u: Any, labels: Any, weights: Any = 1.0) -> float:
        """Return the sum over pixels of `u` at their labels, in double, weighted."""
        own = self.double(u[labels, self.xp.arange(self.n, **self._where)])
        return float((weights * own).sum())

    def undecided(self, y: Any) -> Any:
        """Return the sum over pixels of y (1 - y) of each label, NumPy's."""
        return self.to_numpy((y * (1 - y)).sum(1))

    def accumulate(self, total: Any, y: Any) -> None:
        """Add `y` to `total`, in place."""
        total += y

    def extrapolate(self, y: Any, previous: Any, share: float) -> Any:
        """Return `y` + `share` · (`y` - `previous`)."""
        return y + share * (y - previous)

    def argmax(self, y: Any) -> Any:
        """Return the largest label of each pixel, (n,)."""
        return y.argmax(0)

    def raised_argmax(self, y: Any, label: int, bias: float) -> Any:
        """Return the largest label of each pixel after the values of one label were raised."""
        row = y[label] + 0
        y[label] += bias
        labels = self.argmax(y)
        y[label] = row
        return labels

    def indicator(self, labels: Any) -> Any:
        """Return the labelling as a vertex of the product of simplices."""
        names = self.xp.arange(self.n_labels, **self._where)[:, None]
        return self.floats(names == labels)

    # --- energies and bounds, in double precision -------------------------------------------

    @abstractmethod
    def _ordered_double(self, nodes: Any, offsets: Any, extents: Any, levels: Levels) -> Any:
        r"""Return :math:`\sum_b K_{ab}\, s(u_a, u_b)` in double precision, K symmetrised."""

    @abstractmethod
    def pairs_double(self, labels: Any) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too, in double precision."""

    @property
    @abstractmethod
    def mass_double(self) -> Any:
        """Row sums of the symmetrised K in double precision, (n,)."""

    @property
    @abstractmethod
    def diagonal_double(self) -> Any:
        """Self terms :math:`K_{aa}` in double precision, (n,)."""

    @cached_property
    def total_mass_double(self) -> float:
        """No less than the sum of all of K."""
        return float(self.mass_double.sum()) * (1 + gamma(self.n))

    def levels_of(self, nodes: Any, potentials: Potentials) -> tuple[Any, Levels]:
        """Return the extents of a dual point's potentials, and their levels."""
        extents = self._extents(nodes, potentials.offsets)
        if potentials.cells is not None:
            extents = Levels.merged(extents, potentials.cells)
            return extents, Levels.by_cells(extents, potentials.cells)
        return extents, Levels.spanning(extents, potentials.levels, hard=potentials.hard)

    def dual_point_double(self, potentials: Potentials) -> Any:
        """Return the dual point r of potentials, (labels, n), in double precision."""
        scores, offsets = potentials.scores, potentials.offsets
        summed = potentials.labels is not None or potentials.of_nodes
        nodes = scores if summed else self.nodes(scores)
        extents, levels = self.levels_of(nodes, potentials)
        if potentials.labels is None and not levels.hard and self._mirrored(nodes):
            some = None if offsets is None else offsets[:1]
            r = 0.5 * self._ordered_double(nodes[:1], some, extents[:1], levels)
            return self.xp.concatenate([r, -r])
        r = self._ordered_double(nodes, offsets, extents, levels)
        r *= 0.5
        if potentials.labels is not None:
            return self.embed_labels(r, potentials.labels)
        if self._members is None:
            return r
        members, lengths = (self.double_from_numpy(array) for array in self._tree_arrays)
        return members.T @ (lengths[:, None] * r)

    def dual_rows(self, potentials: Potentials) -> Iterator[Any]:
        """Yield `dual_point_double`, some labels after others, each in an array of its own."""
        yield self.dual_point_double(potentials)

    def embed_labels(self, rows: Any, labels: Any) -> Any:
        """Return rows of some labels among zeros for the others."""
        out = self.zeros_like(rows, self.n_labels)
        out[labels] = rows
        return out

    def energy(self, labels: Any) -> float:
        """Return the energy of a labelling (n,), in double precision."""
        self.calls.plain += 1
        energy = self.sum_at(self.unary, labels) + 0.5 * self.pairs_double(labels)
        if not self.tree:  # what K counts of a pixel with itself
            own = self.double(self.compatibility.diagonal()[labels]) * self.diagonal_double
            energy -= 0.5 * float(own.sum())
        return energy

    def same(self, labels: Any, others: Any) -> bool:
        """Whether two labellings are the same."""
        return bool((labels == others).all())

    def compare(self, y: Any, labels: Any, others: Any) -> tuple[Any, bool]:
        """Return `undecided` of `y`, and whether two labellings (the second may be None) agree."""
        return self.undecided(y), others is not None and self.same(labels, others)

    def estimates(self, labellings: Sequence[Any]) -> list[float]:
        """Return the `estimate` of each labelling."""
        return [self.estimate(labels) for labels in labellings]

    def estimate(self, labels: Any) -> float:
        """Return the energy, or what is cheaper and close to it: to tell candidates apart."""
        return self.energy(labels)

    def _own_unary(self, labels: Any) -> Any:
        return self.double(self.unary[labels, self.xp.arange(self.n, **self._where)])

    def energy_sizes(self, labels: Any) -> Sizes:
        """Return what the rounding errors of `energy` are proportional to."""
        costs = 1.0 if self.costs_double is None else 2 * float(abs(self.costs_double).max())
        unary = float(abs(self._own_unary(labels)).sum())
        return Sizes(self.n, unary, costs * self.total_mass_double)

    def constant_energies(self) -> Any:
        """Return the energy of each constant labelling, (labels,), NumPy's."""
        sums = self.to_numpy(self.unary.sum(1, dtype=self.xp.float64))
        own = None if self.tree else np.diag(self.costs_double)
        if own is None or not own.any():
            return sums
        return sums + 0.5 * own * (self.total_mass_double - float(self.diagonal_double.sum()))

    def best_constant(self) -> tuple[int, float]:
        """Return the best constant labelling's label and energy."""
        energies = self.constant_energies()
        best = int(energies.argmin())
        return best, float(energies[best])

    # --- arrays -----------------------------------------------------------------------------

    def give_back_free_memory(self) -> None:  # noqa: B027 - the others have nothing to give
        """Let the system have what is kept of released arrays, where they are large."""

    @abstractmethod
    def floats(self, array: Any) -> Any:
        """Return an array as one of the problem's floating dtype."""

    @abstractmethod
    def double(self, array: Any) -> Any:
        """Return an array in double precision."""

    @abstractmethod
    def zeros_like(self, array: Any, rows: int) -> Any:
        """Return zeros of the array's dtype, (rows, n)."""

    def constant(self, label: int) -> Any:
        """Return the labelling of one label everywhere."""
        return self.xp.full((self.n,), label, dtype=self.xp.int64, **self._where)

    @abstractmethod
    def to_numpy(self, array: Any) -> Any:
        """Return the array as NumPy's."""

    @abstractmethod
    def from_numpy(self, array: Any) -> Any:
        """Return NumPy's array as one of the problem's."""

    @abstractmethod
    def double_from_numpy(self, array: Any) -> Any:
        """Return NumPy's array as one of the problem's, in double precision."""
