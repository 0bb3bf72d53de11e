r"""What solvers ask of a problem: the steps of the relaxations, energies, bounds.

Energies and bounds are in double precision. The operator K is the real-arithmetic one over the
weights that the filters store; what float64 rounds is bounded in docs/mathematics.md and given away
by `densecrf.certificates.lower_bound`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from densecrf.cached import cached_property
from densecrf.certificates import Potentials, gamma
from densecrf.filters.base import Levels
from densecrf.problem_steps import Calls, Moves, ProblemSteps

__all__ = ["Calls", "Moves", "ProblemBase", "QuadraticStep"]


class QuadraticStep(NamedTuple):
    """A projected gradient step of the quadratic relaxation.

    Attributes
    ----------
    y : array, (labels, n)
        Where it ends.
    objective : float
        The objective at the point where the gradient was taken.
    uphill : float
        Positive where the move from the last point goes against the step.
    moved : float
        The sum of the absolute differences from the last point.
    """

    y: Any
    objective: float
    uphill: float
    moved: float


class ProblemBase(ProblemSteps):
    """A model's energy and its relaxations; see `ProblemSteps` for its attributes."""

    #: Labels whose costs in double precision are made at once.
    labels_at_once = 4

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

    # --- steps made of others; back ends may fuse them ---------------------------------------

    def projected_step(self, centre: Any, r: Any, step: float) -> Any:
        r"""Return :math:`P_\Delta(\text{centre} - \text{step}\,(\phi + r))`."""
        return self.project(centre - step * (self.unary + r))

    def quadratic_step(
        self, y: Any, strength: Any, c: Any = None, before: Any = None, share: float = 0.0
    ) -> QuadraticStep:
        r"""Take a projected gradient step of :math:`F(y) + \tfrac12\langle y, cy\rangle`.

        F is that of `densecrf.solvers.quadratic`. The step is taken at the extrapolated point
        v = y + share · (y - before), brought back into the simplices by cutting off what is
        negative; its length at each pixel is 1 / `strength`; `c` (n,) is None for zeros.
        """
        v = y
        if before is not None:
            v = self.xp.clip(self.extrapolate(y, before, share), 0, None)
            v = v / v.sum(0)
        r = self.messages(v)
        if c is not None:
            r = r + c * v
        moved, _, along, uphill = self.descend(v, r, 1 / strength, y)
        objective = 0.5 * (self.inner(self.unary, v) + along)
        return QuadraticStep(moved, objective, uphill, self.difference(moved, y)[0])

    # --- energies and bounds, in double precision ---------------------------------------------

    @abstractmethod
    def apply_double(self, y: Any) -> Any:
        """Return Ky in double precision, for the symmetrised K."""

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

    def embed_labels(self, rows: Any, labels: Any) -> Any:
        """Return rows of some labels among zeros for the others."""
        out = self.zeros_like(rows, self.n_labels)
        out[labels] = rows
        return out

    def tangent(self, y: Any) -> tuple[Any, float, float]:
        r"""Return r and c with :math:`E(x) \ge \langle\phi + r, x\rangle + c` by convexity at `y`.

        For the Potts model E is :math:`\langle\phi, x\rangle + \tfrac12\langle x, Lx\rangle` with
        the Laplacian L of K, positive semidefinite: r = Ly and :math:`c = -\tfrac12\langle y,
        Ly\rangle`. For other costs a diagonal :math:`c_a` on the simplex takes its place; see
        `densecrf.solvers.quadratic.convexifier`. The third number times the unit of rounding is
        no less than the rounding errors of both.
        """
        from densecrf.solvers.quadratic import label_eigenvalues

        mass = self.mass_double
        y = self.double(y)
        if self.potts:
            r = mass * y - self.apply_double(y)
            largest = max(1.0, float(abs(y).max()))
            return r, -0.5 * float((y * r).sum()), 4 * largest**2 * self.total_mass_double
        y = y / y.sum(0)
        mu = self.double_from_numpy(self.costs_double)
        size = float(abs(self.costs_double).sum(1).max())
        low, high = label_eigenvalues(self)
        c = (max(abs(low), abs(high)) + 1e-9 * size) * (1 + 2 * gamma(self.n)) * mass
        product = mu @ self.apply_double(y) + c * y
        own = mu.diagonal()[:, None] * self.diagonal_double
        r = product - 0.5 * c - 0.5 * own
        constant = -0.5 * float((y * product).sum())
        return r, constant, 16 * size * self.total_mass_double

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

    def energy_rounding(self, labels: Any) -> float:
        """Return how far `energy` may be from its exact value."""
        costs = 1.0 if self.costs_double is None else 2 * float(abs(self.costs_double).max())
        size = float(abs(self._own_unary(labels)).sum()) + costs * self.total_mass_double
        return 2 * gamma(self.n) * size

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
