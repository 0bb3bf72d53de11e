r"""What solvers ask of a problem: beside `densecrf.problem_energy`, steps of the other relaxations.

These are the subgradients of the paper's linear program, the steps of the quadratic relaxations and
of mean field, the moves of iterated conditional modes, and the problems of some pixels.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from densecrf.certificates import gamma
from densecrf.filters.base import Levels, ordered_by_ramps
from densecrf.problem_energy import Calls, ProblemEnergy
from densecrf.projections import compressed

__all__ = ["Calls", "Moves", "ProblemBase", "QuadraticStep"]


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


class ProblemBase(ProblemEnergy):
    """A model's energy and its relaxations; see `ProblemEnergy` for its attributes."""

    # --- the paper's linear program ---------------------------------------------------------

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

    @abstractmethod
    def project(self, z: Any) -> Any:
        """Return the nearest point in the product of simplices."""

    def projected_step(self, centre: Any, r: Any, step: float) -> Any:
        r"""Return :math:`P_\Delta(\text{centre} - \text{step}\,(\phi + r))`."""
        return self.project(centre - step * (self.unary + r))

    def update_multipliers(
        self,
        z: Any,
        y: Any,
        span: float,
        edge: float,
        *,
        in_place: bool = False,  # noqa: ARG002
    ) -> Any:
        """Return the potentials z + `y`, compressed into `span`: the multiplier update.

        Each node's least potential becomes 0. Monotone; its two ends of width `edge` are kept:
        pixels at different ends stay fully apart, those at the same end keep their differences.
        One of `z` and `y` may be None, for zeros. They are not changed, unless with `in_place`,
        where the result may take the memory of z.
        """
        u = z if y is None else self.nodes(y) if z is None else z + self.nodes(y)
        u = u - self.xp.amin(u, 1)[:, None]
        return compressed(self.xp, u, self.xp.amax(u, 1)[:, None], span, edge)

    @abstractmethod
    def descend(
        self, v: Any, r: Any, step: Any, previous: Any, *, in_place: bool = False
    ) -> tuple[Any, float, float, float]:
        r"""Take a projected gradient step :math:`y = P_\Delta(v - \text{step}\,(\phi + r))`.

        Returns y, an estimate of the bound that r proves, :math:`\langle\phi + r, v\rangle`, and
        :math:`\langle s(v - y), y - \text{previous}\rangle` with the Lipschitz constants s, which
        is positive where the last move points uphill. With `in_place`, y may take the memory of r.
        """

    # --- quadratic relaxations and mean field -----------------------------------------------

    @abstractmethod
    def unary_marginals(self) -> Any:
        """Return softmax(-unary), the marginals without pairwise terms."""

    @abstractmethod
    def response(self, y: Any, *, self_term: bool = False) -> Any:
        r"""Return mean field's update of `y`, :math:`\propto \exp(-\phi - \text{messages})`.

        With `self_term`, messages include the pixel's own. For the Potts model they are, up to a
        number that all labels share, what the other pixels send to the label itself.
        """

    def responses(self, y: Any, count: int, *, self_term: bool = False) -> Iterator[Any]:
        """Yield mean field's updates of `y`, `count` of them, each of the one before."""
        for _ in range(count):
            y = self.response(y, self_term=self_term)
            yield y

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

    @abstractmethod
    def inner(self, u: Any, v: Any) -> float:
        """Return the inner product, summed in double."""

    def difference(self, u: Any, v: Any) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""
        distance = abs(u - v)
        return float(distance.sum()), float(distance.max())

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

    @abstractmethod
    def apply_double(self, y: Any) -> Any:
        """Return Ky in double precision, for the symmetrised K."""

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

    # --- iterated conditional modes ---------------------------------------------------------

    @abstractmethod
    def icm_moves(self, labels: Any) -> Moves:
        r"""Return the ICM move of every pixel, with one filter call.

        It is :math:`\arg\min_i \phi_a(i) + \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`.
        """

    @abstractmethod
    def apply_moves(self, labels: Any, moves: Moves, most: int) -> Any:
        """Return `labels` after the `most` moves that gain most."""

    # --- among some pixels ------------------------------------------------------------------

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

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """Return the array, row after row in memory."""

    @abstractmethod
    def copy(self, array: Any) -> Any:
        """Return a copy."""
