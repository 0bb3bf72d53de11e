r"""The problem that solvers minimise: an energy, its relaxations, its bounds, on any arrays.

Solvers are written once, over label-major arrays (labels, n), plain arithmetic, the operations of
`Problem` and the steps of its back end. A problem is composed of the unary energies φ, the operator
K, the back end's steps (`densecrf.backend`) and the costs of pairs of labels. Each operation that
filters is counted.

Energies and bounds are in double precision. The operator K is then the real-arithmetic one over the
weights that the filters store; float64's rounding errors are bounded in docs/mathematics.md and
subtracted by `densecrf.problem.certificate.lower_bound`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt

from densecrf.backend import Array, Gradient, Moves, Operator, QuadraticStep, Steps
from densecrf.cached import cached_property
from densecrf.operators.levels import Levels
from densecrf.operators.pairwise import PairwiseOnThreads
from densecrf.problem.certificate import Potentials, Sizes, gamma
from densecrf.problem.label_costs import LabelCosts
from densecrf.steps.native import NativeSteps
from densecrf.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["FilterCalls", "Problem", "problem_of"]

LARGE = 2**18  # pixels, or a sixteenth of the numbers of unaries


@dataclass
class FilterCalls:
    """How often all labels were filtered."""

    plain: int = 0
    ordered: int = 0


class Problem(Generic[Array]):
    """An energy and its relaxations.

    Parameters
    ----------
    unary : array, (labels, n)
        The energies φ.
    pairwise : Operator
        The matrix K over the same pixels.
    steps : Steps
        The back end's passes over pixels.
    costs : LabelCosts, optional
        The costs of pairs of labels; Potts by default.
    crf : DenseCRF, optional
        The model that declares the energy.
    calls : FilterCalls, optional
        Counts the filter calls.
    """

    unary: Array
    pairwise: Operator[Array]
    steps: Steps[Array]
    costs: LabelCosts[Array]
    _last_moves: tuple[Array, Moves[Array]] | None

    def __init__(
        self,
        unary: Array,
        pairwise: Operator[Array],
        steps: Steps[Array],
        costs: LabelCosts[Array] | None = None,
        crf: "DenseCRF | None" = None,
        calls: FilterCalls | None = None,
    ) -> None:
        self.unary, self.pairwise, self.steps, self.crf = unary, pairwise, steps, crf
        self.n_labels, self.n = int(unary.shape[0]), int(unary.shape[1])
        self.costs = LabelCosts(self.n_labels, steps) if costs is None else costs
        self.calls = FilterCalls() if calls is None else calls
        self._last_moves = None

    @property
    def potts(self) -> bool:
        """Whether every two different labels cost 1."""
        return self.costs.potts

    # --- parts --------------------------------------------------------------------------------

    def on_labels(self, keep: IntArray) -> "Problem[Array]":
        """Return the problem of some labels, ascending."""
        unary = self.steps.contiguous(self.unary[keep])
        costs = self.costs.restricted(keep)
        return Problem(unary, self.pairwise, self.steps, costs, self.crf, self.calls)

    def on_pixels(self, pixels: IntArray) -> "Problem[Array]":
        """Return the problem of some pixels, ascending, without their pairs with others."""
        unary = self.steps.contiguous(self.unary[:, pixels])
        inside, steps = self.pairwise.restricted(pixels), self.steps.of_pixels(len(pixels))
        return Problem(unary, inside, steps, self.costs, self.crf, self.calls)

    # --- linear programs ----------------------------------------------------------------------

    def flow(self, y: Array | None, z: Array | None, cells: float) -> Array:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + z.

        Like `dual_point`, but of potentials, any numbers (z: one per node), with `cells` levels per
        unit: two pixels whose potentials differ by 1 / `cells` or more are fully apart, within a
        cell the flow between them is linear in the difference. One of y and z may be None, for
        zeros.
        """
        nodes, offsets = self._summands(y, z)
        extents = Levels.merged(self.steps.extents(nodes, offsets), cells)
        return self._ordered(nodes, offsets, extents, Levels.by_cells(extents, cells), "soft")

    def dual_point(
        self, y: Array, levels: int = 10, order: str = "soft", rescale: bool = True
    ) -> Array:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(y_{ai}, y_{bi})`.

        Half the ordered filter's output: a subgradient of the LP's pairwise term (Eq. 13 of the
        paper: :math:`A s = -r`), exact or smoothed by the levels, and in any case dual feasible:
        see `densecrf.problem.certificate`.
        """
        nodes = self.costs.nodes(y)
        extents = self.steps.extents(nodes, None)
        hard = order == "hard"
        scale = Levels(levels, 0.0, float(levels - 1), hard)
        if rescale:
            scale = Levels.spanning(extents, levels, hard=hard)
        return self._ordered(nodes, None, extents, scale, order)

    def _summands(self, y: Array | None, z: Array | None) -> tuple[Array, Array | None]:
        """Return the summands of potentials y + z, one of which may be None: nodes and offsets."""
        if y is not None:
            return self.costs.nodes(y), z
        assert z is not None
        return z, None

    def _ordered(
        self, nodes: Array, offsets: Array | None, extents: FloatArray, levels: Levels, order: str
    ) -> Array:
        self.calls.ordered += 1
        self.give_back_free_memory()
        if order == "soft" and self._mirrored(nodes):
            some = None if offsets is None else offsets[:1]
            r = self.pairwise.half_ordered(nodes[:1], some, extents[:1], levels, order)
            return self.steps.xp.concatenate([r, -r])  # type: ignore[no-any-return]
        r = self.pairwise.half_ordered(nodes, offsets, extents, levels, order)
        return self.costs.leaves(r)

    def _mirrored(self, nodes: Array) -> bool:
        """Whether there are two labels, whose r are opposite numbers."""
        return self.potts and self.n_labels == 2 == len(nodes)

    def relaxed_energy(self, y: Array) -> float:
        r"""Return the LP's objective at `y`, :math:`\langle\phi + r, y\rangle` with exact order."""
        return self.steps.inner(self.unary + self.dual_point(y, order="adaptive"), y)

    def least_costs(self, r: Array) -> tuple[Array, float]:
        r"""Return :math:`\min_i(\phi_{ai} + r_{ai})`, (n,), and an estimate of their sum."""
        return self.steps.least_costs(self.unary, r)

    def lower_bound(self, r: Array) -> float:
        r"""Return an estimate of :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`."""
        return self.steps.lower_bound(self.unary, r)

    @cached_property
    def lipschitz(self) -> Array:
        r"""Lipschitz constants of the gradient of the LP's pairwise term, smoothed over one unit.

        For each pixel :math:`\tfrac12 m_a`, since the Gaussian K is positive semidefinite up to the
        filter's error, or twice the mass of its pairs with others, :math:`m_a - K_{aa}`, where that
        is less, as with narrow kernels; times the largest eigenvalue of the tree's incidence, which
        is 1 for Potts.
        """
        xp, mass = self.steps.xp, self.pairwise.mass
        least = xp.clip(1e-6 * mass.max(), 1e-12, None)
        curvature = xp.minimum(mass, 2 * (mass - self.pairwise.diagonal))
        return 0.5 * self.costs.spectrum * xp.maximum(curvature, least)  # type: ignore[no-any-return]

    def descend(
        self, v: Array, r: Array, step: Array, previous: Array, *, in_place: bool = False
    ) -> tuple[Array, float, float, float]:
        r"""Take a projected gradient step :math:`y = P_\Delta(v - \text{step}\,(\phi + r))`.

        Returns y, an estimate of the bound that r proves, :math:`\langle\phi + r, v\rangle`, and
        :math:`\langle s(v - y), y - \text{previous}\rangle` with the Lipschitz constants s, which
        is positive where the last move points uphill. With `in_place`, y may take the memory of r.
        """
        at = Gradient(self.unary, v, r, step, self.lipschitz, previous)
        return self.steps.descend(at, in_place=in_place)

    def projected_step(self, centre: Array, r: Array, step: float) -> Array:
        r"""Return :math:`P_\Delta(\text{centre} - \text{step}\,(\phi + r))`."""
        return self.steps.projected_step(self.unary, centre, r, step)

    def potentials(self, y: Array, levels: Array | None, cells: float) -> Array:
        """Return the potentials of `y` and of `levels`, of which None is 0, `cells` per unit."""
        return self.costs.nodes(y) + (0 if levels is None else levels / cells)

    def update_multipliers(
        self,
        z: Array | None,
        y: Array | None,
        span: float,
        edge: float,
        *,
        in_place: bool = False,
    ) -> Array:
        """Return the potentials z + `y`, compressed into `span`: the multiplier update.

        Each node's least potential becomes 0. Monotone; its two ends of width `edge` are kept:
        pixels at different ends stay fully apart, those at the same end keep their differences.
        One of `z` and `y` may be None, for zeros. They are not changed, unless with `in_place`,
        where the result may take the memory of z.
        """
        nodes, offsets = self._summands(y, z)
        return self.steps.compress(nodes, offsets, span, edge, in_place=in_place and y is None)

    def add_extrapolated(self, u: Array, y: Array, previous: Array) -> None:
        """Add the scores of 2 `y` - `previous` to the potentials u, in place."""
        if self.costs.by_labels:
            self.steps.add_extrapolated(u, y, previous)
        else:
            self.steps.accumulate(u, self.costs.nodes(self.steps.extrapolate(y, previous, 1.0)))

    # --- quadratic relaxations and mean field -------------------------------------------------

    def apply(self, y: Array) -> Array:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""
        self.calls.plain += 1
        return self.pairwise.apply(y)

    def messages(self, y: Array) -> Array:
        r"""Return :math:`\sum_{b \ne a} K_{ab} \sum_j \mu_{ij} y_{bj}`, the messages.

        They are the gradient of the quadratic relaxation's pairwise term.
        """
        return self.steps.messages(self.apply(y), y, self.pairwise.diagonal, self.costs.matrix)

    def unary_marginals(self) -> Array:
        """Return softmax(-unary), the marginals without pairwise terms."""
        return self.steps.softmax(self.unary)

    def response(self, y: Array, *, self_term: bool = False) -> Array:
        r"""Return mean field's update of `y`, :math:`\propto \exp(-\phi - \text{messages})`.

        With `self_term`, messages include the pixel's own. For the Potts model they are, up to a
        number that all labels share, what the other pixels send to the label itself.
        """
        return next(self.responses(y, 1, self_term=self_term))

    def responses(self, y: Array, count: int, *, self_term: bool = False) -> Iterator[Array]:
        """Yield mean field's updates of `y`, `count` of them, each of the one before."""
        own = None if self_term else self.pairwise.diagonal
        updates = self.pairwise.potts_responses(self.unary, y, own, count) if self.potts else None
        if updates is not None:
            del y  # which the caller may no longer need
            for _ in range(count):
                self.calls.plain += 1
                yield next(updates)
            return
        for _ in range(count):
            if self.potts:  # the softmax does not see what all labels receive alike
                y = self.steps.mean_field_update(self.unary, self.apply(y), y, own)
            else:
                sent = self.costs.expected(self.apply(y)) if self_term else self.messages(y)
                y = self.steps.softmax(self.unary + sent)
            yield y

    def response_logits(self, y: Array) -> Array:
        """Return numbers whose softmax over labels is mean field's update of `y`."""
        own, costs = self.pairwise.diagonal, self.costs.matrix
        return self.steps.response_logits(self.unary, self.apply(y), y, own, costs)

    def quadratic_step(
        self,
        y: Array,
        strength: Array,
        c: Array | None = None,
        before: Array | None = None,
        share: float = 0.0,
        rest: Array | None = None,
    ) -> QuadraticStep[Array]:
        r"""Take a projected gradient step of :math:`F(y) + \tfrac12\langle y, cy\rangle`.

        F is that of `densecrf.solvers.quadratic`. The step is taken at the extrapolated point
        v = y + share · (y - before), brought back into the simplices by cutting off what is
        negative; its length at each pixel is 1 / `strength`; `c` (n,) is None for zeros. Of labels
        that were left out `rest`, (n,), has the least unary energies; only where
        `QuadraticStep.present` is known.
        """
        if self.potts:
            made = self.pairwise.potts_quadratic_step(
                self.unary, y, strength, c, before, share, rest
            )
            if made is not None:
                self.calls.plain += 1
                return made
        return self.composed_quadratic_step(y, strength, c, before, share)

    def composed_quadratic_step(
        self, y: Array, strength: Array, c: Array | None, before: Array | None, share: float
    ) -> QuadraticStep[Array]:
        """Take the step of `quadratic_step` without a fused pass."""
        v = y
        if before is not None:
            v = self.steps.xp.clip(self.steps.extrapolate(y, before, share), 0, None)
            v = v / v.sum(0)
        r = self.messages(v)
        if c is not None:
            r = r + c * v
        moved, _, along, uphill = self.descend(v, r, 1 / strength, y)
        objective = 0.5 * (self.steps.inner(self.unary, v) + along)
        return QuadraticStep(moved, objective, uphill, self.steps.difference(moved, y)[0])

    # --- labellings ---------------------------------------------------------------------------

    def indicator(self, labels: Array) -> Array:
        """Return the labelling as a vertex of the product of simplices."""
        return self.steps.indicator(labels, self.n_labels)

    def constant(self, label: int) -> Array:
        """Return the labelling of one label everywhere."""
        return self.steps.constant(label, self.n)

    def icm_moves(self, labels: Array) -> Moves[Array]:
        r"""Return the ICM move of every pixel, with one filter call.

        It is :math:`\arg\min_i \phi_a(i) + \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`. Those of the last
        labelling are kept: a descent may go on.
        """
        if self._last_moves is None or self._last_moves[0] is not labels:
            self._last_moves = None  # large
            self._last_moves = labels, self._icm_moves(labels)
        return self._last_moves[1]

    def _icm_moves(self, labels: Array) -> Moves[Array]:
        if self.potts:
            self.calls.plain += 1
            return self.pairwise.potts_moves(self.unary, labels)
        return self.steps.moves(self.unary, self.messages(self.indicator(labels)), labels)

    def energy(self, labels: Array) -> float:
        """Return the energy of a labelling (n,), in double precision."""
        self.calls.plain += 1
        if self.potts:
            found = self.pairwise.potts_energies(self.unary, [labels], double=True)
            if found is not None:
                return found[0]
        pairs = self.pairwise.pairs_double(labels, self.n_labels, self.costs.double)
        energy = self.steps.sum_at(self.unary, labels) + 0.5 * pairs
        if self.costs.matrix is not None and not self.costs.tree:  # pixels with themselves
            own = self.steps.double(self.costs.matrix.diagonal()[labels])
            energy -= 0.5 * float((own * self.pairwise.diagonal_double).sum())
        return energy

    def estimates(self, labellings: Sequence[Array]) -> list[float]:
        """Return the labellings' energies, or what is cheaper and close to them."""
        if self.pairwise.exact_estimates:
            return [self.energy(labels) for labels in labellings]
        if self.potts:
            found = self.pairwise.potts_energies(self.unary, labellings, double=False)
            if found is not None:
                self.calls.plain += len(labellings)
                return found
        return [self.icm_moves(labels).energy for labels in labellings]

    def constant_energies(self) -> npt.NDArray[Any]:
        """Return the energy of each constant labelling, (labels,)."""
        sums = self.steps.to_numpy(self.unary.sum(1, dtype=self.steps.xp.float64))
        own = None if self.costs.tree or self.costs.double is None else np.diag(self.costs.double)
        if own is None or not own.any():
            return sums
        others = self.total_mass_double - float(self.pairwise.diagonal_double.sum())
        return np.asarray(sums + 0.5 * own * others)

    @cached_property
    def best_constant(self) -> tuple[int, float]:
        """The best constant labelling's label and energy."""
        energies = self.constant_energies()
        best = int(energies.argmin())
        return best, float(energies[best])

    # --- bounds, in double precision ----------------------------------------------------------

    @cached_property
    def total_mass_double(self) -> float:
        """No less than the sum of all of K."""
        return self.pairwise.total_double * (1 + gamma(self.n))

    def energy_sizes(self, labels: Array) -> Sizes:
        """Return what the rounding errors of `energy` are proportional to."""
        double = self.costs.double
        costs = 1.0 if double is None else 2 * float(abs(double).max())
        unary = float(abs(self.steps.at(self.unary, labels)).sum())
        return Sizes(self.n, unary, costs * self.total_mass_double)

    def levels_of(self, nodes: Array, potentials: Potentials[Array]) -> tuple[FloatArray, Levels]:
        """Return the extents of a dual point's potentials, and their levels."""
        extents = self.steps.extents(nodes, potentials.offsets)
        if potentials.cells is not None:
            extents = Levels.merged(extents, potentials.cells)
            return extents, Levels.by_cells(extents, potentials.cells)
        return extents, Levels.spanning(extents, potentials.levels, hard=potentials.hard)

    def dual_point_double(self, potentials: Potentials[Array]) -> Array:
        """Return the dual point r of potentials, (labels, n), in double precision."""
        scores, offsets = potentials.scores, potentials.offsets
        summed = potentials.labels is not None or potentials.of_nodes
        nodes = scores if summed else self.costs.nodes(scores)
        extents, levels = self.levels_of(nodes, potentials)
        if potentials.labels is None and not levels.hard and self._mirrored(nodes):
            some = None if offsets is None else offsets[:1]
            r = 0.5 * self.pairwise.ordered_double(nodes[:1], some, extents[:1], levels)
            return self.steps.xp.concatenate([r, -r])  # type: ignore[no-any-return]
        r = self.pairwise.ordered_double(nodes, offsets, extents, levels)
        r *= 0.5
        if potentials.labels is not None:
            return self.embed_labels(r, potentials.labels)
        return self.costs.leaves_double(r)

    def dual_rows(self, parts: Sequence[Potentials[Array]]) -> Iterator[tuple[IntArray, Array]]:
        """Yield the dual point of potentials of different labels, some labels after others.

        Which labels, and their rows in an array of its own, in double precision; those of labels
        that are in no part are 0. More than one part only of the Potts model.
        """
        size, every = self.pairwise.labels_at_once, np.arange(self.n_labels)
        for part in parts:
            if part.labels is None and (not self.potts or self.n_labels <= size):
                yield every, self.dual_point_double(part)
                continue
            extents, levels = self.levels_of(part.scores, part)
            own = every if part.labels is None else part.labels
            for first in range(0, len(own), size):
                some = slice(first, first + size)
                offsets = None if part.offsets is None else part.offsets[some]
                r = self.pairwise.ordered_double(part.scores[some], offsets, extents[some], levels)
                r *= 0.5
                yield own[some], r
                del r  # large

    def embed_labels(self, rows: Array, labels: IntArray) -> Array:
        """Return rows of some labels among zeros for the others."""
        out = self.steps.zeros_like(rows, self.n_labels, self.n)
        out[labels] = rows
        return out

    def tangent(self, y: Array) -> tuple[Array, float, float]:
        r"""Return r and c with :math:`E(x) \ge \langle\phi + r, x\rangle + c` by convexity at `y`.

        For the Potts model E is :math:`\langle\phi, x\rangle + \tfrac12\langle x, Lx\rangle` with
        the Laplacian L of K, positive semidefinite: r = Ly and :math:`c = -\tfrac12\langle y,
        Ly\rangle`. For other costs a diagonal :math:`c_a` on the simplex takes its place; see
        `densecrf.solvers.quadratic.convexifier`. The third number times the unit of rounding is
        no less than the rounding errors of both.
        """
        pairwise, mass, costs = self.pairwise, self.pairwise.mass_double, self.costs.double
        y = self.steps.double(y)
        if costs is None:
            r = mass * y - pairwise.apply_double(y)
            largest = max(1.0, float(abs(y).max()))
            return r, -0.5 * float((y * r).sum()), 4 * largest**2 * self.total_mass_double
        y = y / y.sum(0)
        mu = self.steps.double_from_numpy(costs)
        size = float(abs(costs).sum(1).max())
        low, high = self.costs.eigenvalues
        c = (max(abs(low), abs(high)) + 1e-9 * size) * (1 + 2 * gamma(self.n)) * mass
        product = mu @ pairwise.apply_double(y) + c * y
        own = mu.diagonal()[:, None] * pairwise.diagonal_double
        r = product - 0.5 * c - 0.5 * own
        constant = -0.5 * float((y * product).sum())
        return r, constant, 16 * size * self.total_mass_double

    # --- memory -------------------------------------------------------------------------------

    def give_back_free_memory(self) -> None:
        """Let the system have what is kept of released arrays, where they are large."""
        if self.n >= LARGE or self.n * self.n_labels >= 16 * LARGE:
            self.pairwise.give_back_free_memory()


def problem_of(crf: "DenseCRF", threads: int = 0) -> Problem[npt.NDArray[Any]]:
    """Return a model's problem on NumPy arrays, by the compiled core on so many threads (0: all).

    The model's filters are built on first use.

    Examples
    --------
    >>> from densecrf import DenseCRF, Spatial
    >>> crf = DenseCRF(np.array([[[0.0, 0.6, 0.0]], [[1.0, 0.5, 1.0]]]), [Spatial(sigma=1.0)])
    >>> round(problem_of(crf).energy(np.array([0, 0, 0])), 3)
    0.6
    """
    steps = NativeSteps(threads)
    pairwise = PairwiseOnThreads(lambda: crf.pairwise, crf.n, threads, lambda: crf.filters_built)
    costs = LabelCosts.of(crf.n_labels, steps, crf.compatibility, crf.tree)
    return Problem(crf.unary, pairwise, steps, costs, crf)
