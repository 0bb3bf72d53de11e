r"""The steps that solvers take: all of them that are the same on NumPy arrays and torch tensors.

Solvers are written once, over label-major arrays (labels, n), plain arithmetic and the operations
of `densecrf.problem_base.ProblemBase`, whose first half this is. `densecrf.problem.Problem` (NumPy
and the compiled core) and `densecrf.torch.problem.TorchProblem` add the filters and their fused
steps. Each operation that filters is counted.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from densecrf.cached import cached_property
from densecrf.compatibility import LabelTree
from densecrf.filters.base import Levels, ordered_by_ramps
from densecrf.projections import compressed

__all__ = ["Calls", "Moves", "ProblemSteps"]


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


class ProblemSteps(ABC):
    """The relaxations of a model's energy: filters, steps and arrays.

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

    def dual_point(
        self, y: Any, levels: int = 10, order: str = "soft", rescale: bool = True
    ) -> Any:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(y_{ai}, y_{bi})`.

        Half the ordered filter's output: a subgradient of the LP's pairwise term (Eq. 13 of the
        paper: :math:`A s = -r`), exact or smoothed by the levels, and in any case dual feasible:
        see `densecrf.certificates`.
        """
        nodes = self.nodes(y)
        extents = self._extents(nodes, None)
        hard = order == "hard"
        scale = Levels(levels, 0.0, float(levels - 1), hard)
        if rescale:
            scale = Levels.spanning(extents, levels, hard=hard)
        return self._ordered(nodes, None, extents, scale, order)

    def relaxed_energy(self, y: Any) -> float:
        r"""Return the LP's objective at `y`, :math:`\langle\phi + r, y\rangle` with exact order."""
        return self.inner(self.unary + self.dual_point(y, order="adaptive"), y)

    def flow(self, y: Any, z: Any, cells: float) -> Any:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + z.

        Like `dual_point`, but of potentials, any numbers (one per node; None: zeros), with `cells`
        levels for each unit: two pixels whose potentials differ by 1 / `cells` or more are fully
        apart, within a cell the flow between them is linear in the difference.
        """
        nodes = self.nodes(y)
        extents = self._extents(nodes, z)
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

    # --- among some pixels -------------------------------------------------------------------

    _pixels: Any = None
    _parent: Any = None

    def on_pixels(self, pixels: Any) -> Any:
        """Return the problem of some pixels, for steps and `apply_inside`, `ordered_inside`."""
        part = copy.copy(self)
        part._parent, part._pixels = self, pixels
        part.n = len(pixels)
        part.unary = self.contiguous(self.unary[:, pixels])
        return part

    def _among_all(self, y: Any) -> Any:
        """Return zeros at all other pixels."""
        out = self._parent.zeros_like(y, len(y))
        out[:, self._pixels] = y
        return out

    def apply_inside(self, y: Any) -> Any:
        """Return the sums over b in the set of K_ab y_b, for a in the set."""
        return self._parent.apply(self._among_all(y))[:, self._pixels]

    def ordered_inside(self, nodes: Any, levels: Levels, order: str) -> Any:  # noqa: ARG002
        """Return the sums over b in the set of K_ab s(u_a, u_b), for a in the set."""
        self.calls.ordered += 1
        ones = self.floats(self.xp.ones((1, self.n), **self._where))
        u = levels.of(nodes, self.xp)
        whole = Levels(levels.count, 0.0, 1.0, levels.hard)
        return ordered_by_ramps(self.xp, self.apply_inside, self.apply_inside(ones)[0], u, whole)

    # --- steps --------------------------------------------------------------------------------

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
        mass = self.xp.clip(self.mass, max(1e-12, 1e-6 * float(self.mass.max())), None)
        return 0.5 * spectrum * mass

    def update_multipliers(self, z: Any, y: Any, span: float, edge: float) -> Any:
        """Return the potentials z + `y`, compressed into `span`: the multiplier update.

        Each node's least potential becomes 0. Monotone; its two ends of width `edge` are kept:
        pixels at different ends stay fully apart, those at the same end keep their differences.
        `z` is None at first, and is not changed.
        """
        u = self.nodes(y) if z is None else z + self.nodes(y)
        u = u - self.xp.amin(u, 1)[:, None]
        return compressed(self.xp, u, self.xp.amax(u, 1)[:, None], span, edge)

    @abstractmethod
    def project(self, z: Any) -> Any:
        """Return the nearest point in the product of simplices."""

    @abstractmethod
    def descend(
        self, v: Any, r: Any, step: Any, previous: Any, *, in_place: bool = False
    ) -> tuple[Any, float, float, float]:
        r"""Take a projected gradient step :math:`y = P_\Delta(v - \text{step}\,(\phi + r))`.

        Returns y, an estimate of the bound that r proves, :math:`\langle\phi + r, v\rangle`, and
        :math:`\langle s(v - y), y - \text{previous}\rangle` with the Lipschitz constants s, which
        is positive where the last move points uphill. With `in_place`, y may take the memory of r.
        """

    @abstractmethod
    def unary_marginals(self) -> Any:
        """Return softmax(-unary), the marginals without pairwise terms."""

    @abstractmethod
    def response(self, y: Any, *, self_term: bool = False) -> Any:
        r"""Return mean field's update of `y`, :math:`\propto \exp(-\phi - \text{messages})`.

        With `self_term`, messages include the pixel's own. For the Potts model they are, up to a
        number that all labels share, what the other pixels send to the label itself.
        """

    @abstractmethod
    def icm_moves(self, labels: Any) -> Moves:
        r"""Return the ICM move of every pixel, with one filter call.

        It is :math:`\arg\min_i \phi_a(i) + \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`.
        """

    @abstractmethod
    def apply_moves(self, labels: Any, moves: Moves, most: int) -> Any:
        """Return `labels` after the `most` moves that gain most."""

    @abstractmethod
    def lower_bound(self, r: Any) -> float:
        r"""Return an estimate of :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`."""

    @abstractmethod
    def inner(self, u: Any, v: Any) -> float:
        """Return the inner product, summed in double."""

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

    def difference(self, u: Any, v: Any) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""
        distance = abs(u - v)
        return float(distance.sum()), float(distance.max())

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

    def lmo(self, linear: Any, received: Any, diagonal: Any, y: Any) -> tuple[Any, float, float]:
        r"""Linear minimisation oracle: the vertex that minimises the gradient of a quadratic.

        For :math:`F(y) = \langle\ell, y\rangle + \tfrac12\langle y, (H + \text{diag}(c)) y\rangle`
        with :math:`Hy` = `received`: its labels, the Frank-Wolfe gap, and F(y).
        """
        product = received + diagonal * y
        gradient = linear + product
        least = self.xp.amin(gradient, 0).sum(dtype=self.xp.float64)
        gap = self.inner(gradient, y) - float(least)
        objective = self.inner(linear, y) + 0.5 * self.inner(product, y)
        return gradient.argmin(0), gap, objective

    def step_to_vertex(self, labels: Any, y: Any, step: float) -> Any:
        """Return `y` moved by `step` of the way to a vertex."""
        return y + step * (self.indicator(labels) - y)

    # --- arrays -------------------------------------------------------------------------------

    @abstractmethod
    def floats(self, array: Any) -> Any:
        """Return an array as one of the problem's floating dtype."""

    @abstractmethod
    def double(self, array: Any) -> Any:
        """Return an array in double precision."""

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """Return the array, row after row in memory."""

    @abstractmethod
    def copy(self, array: Any) -> Any:
        """Return a copy."""

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
