r"""The certified linear program: primal-dual steps and multipliers in potentials.

The pairwise term of the LP relaxation (Eq. 4) is a maximum over flows,

.. math:: \sum_{a<b} K_{ab} \tfrac12 \sum_i |y_{ai} - y_{bi}|
          = \max_{|\sigma| \le 1} \tfrac12 \sum_{a<b} K_{ab} \sum_i \sigma_{abi}(y_{ai} - y_{bi}),

with one antisymmetric number for each pair and label: too many to store. But a flow that derives
from potentials, :math:`\sigma_{abi} = s(u_{ai} - u_{bi})` with s a sign rounded off over one
*cell*, needs only u, and one ordered filter call computes :math:`r_{ai} = \tfrac12\sum_b K_{ab}
\sigma_{abi}`. Whatever u is, :math:`\sum_a \min_i(\phi_{ai} + r_{ai})` is a lower bound.

Two ways to find potentials alternate, each until its progress is slow.

`primal_dual`, the primal-dual hybrid gradient method (Chambolle and Pock 2011), is the faster one
where flows saturate. It approaches the saddle point of :math:`\langle\phi, y\rangle + \tfrac12
\sum_{a<b} K_{ab} \sum_i \sigma_{abi}(y_{ai} - y_{bi})` over simplices and :math:`|\sigma| \le 1` by

.. math:: \sigma_{abi} &\leftarrow \operatorname{clip}(\sigma_{abi} + \bar y_{ai} - \bar y_{bi}),
          \qquad \bar y = 2y - y^\text{previous} \\
          y &\leftarrow P_\Delta(y - \tau(\phi + r)),
          \qquad r_{ai} = \tfrac12\sum_b K_{ab}\sigma_{abi} .

If sums are clipped when they are used, instead of each time, they derive from potentials,
:math:`z \leftarrow z + \bar y`. What exceeds the clip is discarded by compressing z into a bounded
range. After 12 iterations the dual step is halved and the primal one doubled, which damps the
circles that iterates make around the saddle point.

`multipliers`, the method of multipliers, is the faster one where they do not. For fixed z, minimise
over y the LP smoothed with :math:`u = y + z` (projected gradients, Nesterov's momentum,
restarts), then update the multipliers, :math:`z \leftarrow z + y`. The cells stay wide, so every
inner problem is well conditioned, and yet their width leaves no bias: the multipliers build up the
potential differences between neighbours that the flow needs to saturate. Where pairwise weights
dominate, as they do without normalisation, hardly any flow saturates, and the inner problem is
close to a linear system on the graph of the kernel, for which momentum is what counts: there this
method is used alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from math import sqrt
from typing import Any, Generic

import numpy as np

from densecrf.backend import Array
from densecrf.problem.certificate import Potentials
from densecrf.problem.problem import Problem
from densecrf.problem.rounding import FIRST, SELDOM, SWEEPS, Incumbent, Pace, icm
from densecrf.solvers.loop import Step
from densecrf.solvers.mean_field import mean_field
from densecrf.solvers.pricing import OtherLabels, active_labels, pays
from densecrf.validation import (
    ArgumentError,
    as_float32,
    as_real_array,
    check_integer,
    check_non_negative,
    check_positive,
)

__all__ = ["Workspace", "lp", "lp_finish", "lp_start", "multipliers", "primal_dual", "resumed"]

CELLS, MOST_CELLS = 4.0, 1000.0  # a unit of potential
DOMINANT = 200.0  # pairwise mass for each unit of energy that the unaries can gain over a constant
SPAN, EDGE = 48.0, 16.0  # levels of the potentials, and of each end that is kept exactly
STEP = 1.3  # times 1 / L; below 4/3 (He, Ma, Li and Yuan 2022)
SLOW, DAMPED = 12, 0.5  # iterations after which the dual step is shortened, and to what


def lp_start(problem: Problem[Array]) -> Step[Array]:
    """Start where mean field is after some iterations, unless a constant labelling beats it.

    Where one does, mean field is stuck among strong pairwise terms, and the unary marginals, which
    are less certain, are the better start.
    """
    y = problem.unary_marginals()
    if not problem.potts:
        return Step(y)
    part, active, iterations = problem, None, 5
    if pays(problem):
        y, iterations = problem.response(y), 2
        active = active_labels(problem, y)
    if active is not None:
        part, y = problem.on_labels(active), _normalised(y[active])
    for step in mean_field(part, y, iterations=iterations, tolerance=0.0):
        y = step.y
    labels = problem.steps.argmax(y)
    if active is not None:
        y, labels = problem.embed_labels(y, active), problem.steps.from_numpy(active)[labels]
    energy = problem.energy(labels)
    if problem.best_constant[1] < energy:
        y = problem.unary_marginals()
    return Step(y, labels=labels, energy=energy)


def _normalised(y: Array) -> Array:
    """Return marginals that add up to 1, uniform ones where all are 0."""
    y = y + 1e-6
    return y / y.sum(0)  # type: ignore[no-any-return]


def lp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 500,
    cells: float = CELLS,
    accuracy: float = 0.8,
    least_inner: int = 6,
    round_every: int = 2,
    polish: int = 1,
    settle_every: int = 20,
    potentials: Any = None,
) -> Iterator[Step[Array]]:
    r"""Minimise the LP relaxation with a certificate; one iteration is one ordered filter call.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Maximum number of iterations.
    cells : float
        Of the method of multipliers: cells a unit of potential, how finely the order of the scores
        is taken.
    accuracy : float
        Of the method of multipliers: they are updated when the inner problem is solved to this
        share of the gap between the best energy and the best bound.
    least_inner : int
        Of the method of multipliers: least iterations between two updates.
    round_every : int
        Iterations between two roundings once the bound hardly rises; half as many up to the 16th.
    polish : int
        Sweeps of iterated conditional modes after each rounding.
    settle_every : int
        Iterations after which the incumbent gets more sweeps, as it does at the end. Long runs end
        sooner by it.
    potentials : array_like, (nodes, n), optional
        Potentials to begin with, in levels, such as those of a similar problem.
    """
    check_integer("iterations", iterations, at_least=0)
    check_integer("least_inner", least_inner, at_least=0)
    check_integer("round_every", round_every, at_least=1)
    check_integer("polish", polish, at_least=0)
    check_integer("settle_every", settle_every, at_least=1)
    check_positive("cells", cells)
    if cells > MOST_CELLS:
        raise ArgumentError("cells", cells, f"at most {MOST_CELLS:g}; every cell is a level")
    check_non_negative("accuracy", accuracy)
    w = Workspace(problem, y, None if potentials is None else _levels(problem, y, potentials))
    active, first = active_labels(problem, y), FIRST
    if active is not None:
        w = Workspace(problem.on_labels(active), _normalised(y[active]))
        w.others = OtherLabels(problem, active, STEP / problem.lipschitz)
        first = SELDOM  # prices need no energy
    incumbent = Incumbent(w.problem, round_every, polish, settle_every, first)
    inner = partial(multipliers, w, incumbent, cells, accuracy, least_inner)
    steps = _alternate(w, incumbent, inner)
    return islice(steps if w.others is None else _of_all_labels(w.others, steps), iterations)


def _levels(problem: Problem[Array], y: Array, potentials: Any) -> Array:
    """Return a user's potentials on the problem's arrays, or refuse them."""
    array = as_float32("potentials", as_real_array("potentials", potentials))
    if array.shape != tuple(problem.costs.nodes(y).shape):
        remedy = f"shape {array.shape}; give {tuple(problem.costs.nodes(y).shape)}"
        raise ArgumentError("potentials", ..., remedy)
    largest = float(np.abs(array).max(initial=0))
    if not largest <= MOST_CELLS:
        raise ArgumentError("potentials", largest, f"at most {MOST_CELLS:g} levels; divide them")
    return problem.steps.from_numpy(np.ascontiguousarray(array))


def resumed(problem: Problem[Array], y: Array, levels: Array) -> Iterator[Step[Array]]:
    """Yield iterations of `lp` from marginals and potentials in levels, those of another run.

    For a part of a problem that was solved before to some gap.
    """
    w, incumbent = Workspace(problem, y, levels), Incumbent(problem)
    return _alternate(w, incumbent, partial(multipliers, w, incumbent, CELLS, 0.8, 6))


@dataclass
class Workspace(Generic[Array]):
    """The arrays of a run, each replaced where it is updated.

    At most four arrays of the size of the unaries are alive at a time: the marginals, the
    potentials, what the filter returns (which becomes the next marginals), and the potentials of
    the best bound.

    Attributes
    ----------
    problem : Problem
        The problem.
    y : array, (labels, n)
        The marginals.
    z : array, (nodes, n), or None
        The potentials or multipliers, of which None is 0; between two methods in levels.
    previous : array, (labels, n), or None
        The marginals before the last step.
    v : array, (labels, n), or None
        The point where the next gradient is taken, where that is not `y`.
    others : OtherLabels or None
        The labels that `problem` leaves out, if any.
    """

    problem: Problem[Array]
    y: Array
    z: Array | None = None
    previous: Array | None = None
    v: Array | None = None
    others: OtherLabels[Array] | None = None

    def descend(self, r: Array, step: Array, energy: float) -> tuple[float, float, float]:
        """Take a projected gradient step from v (or y), which takes the memory of r."""
        self.previous = self.y
        v = self.y if self.v is None else self.v
        every = None
        if self.others is not None:
            every = self.others.bound(*self.problem.least_costs(r), energy)
        self.y, *numbers = self.problem.descend(v, r, step, self.previous, in_place=True)
        bound, value, uphill = numbers
        return bound if every is None else every, value, uphill

    def admit(self, incumbent: Incumbent[Array], cells: float) -> None:
        """Let the labels that are wanted become active."""
        others = self.others
        if others is None or not others.wanted:
            return
        former = others.active
        y, z = others.admit()
        places = np.searchsorted(others.active, former)
        rest = np.setdiff1d(np.arange(len(others.active)), places)
        xp = self.problem.steps.xp
        order = np.argsort(np.concatenate([places, rest]))

        def grown(rows: Array, new: Array) -> Array:
            return xp.concatenate([rows, new])[order]  # type: ignore[no-any-return]

        self.y = _normalised(grown(self.y, y))
        self.z = None if self.z is None else grown(self.z, z / cells)
        self.v = None if self.v is None else grown(self.v, y)
        self.problem = others.problem.on_labels(others.active)
        incumbent.relabel(self.problem, places)

    def add_extrapolated(self) -> None:
        """Add 2 `y` - `previous` to the potentials."""
        assert self.z is not None
        assert self.previous is not None
        self.problem.add_extrapolated(self.z, self.y, self.previous)
        self.previous = None

    def extrapolate(self, share: float) -> None:
        """Move the point of the next gradient to `y` + share · (`y` - `previous`)."""
        assert self.previous is not None
        self.v, self.previous = self.previous, None
        self.v = self.problem.steps.extrapolate(self.y, self.v, share)

    def restart(self) -> None:
        """Let the next gradient be taken at `y`."""
        self.v = self.previous = None


def _alternate(
    w: Workspace[Array], incumbent: Incumbent[Array], inner: Callable[..., Iterator[Step[Array]]]
) -> Iterator[Step[Array]]:
    if _dominant(w.problem):
        yield from inner(to_the_end=True)
    yield from primal_dual(w, incumbent)
    while True:
        yield from inner()
        yield from primal_dual(w, incumbent, cells=DAMPED)


def _of_all_labels(
    others: OtherLabels[Array], steps: Iterator[Step[Array]]
) -> Iterator[Step[Array]]:
    """Yield the iterations of active labels as those of all labels."""
    for step in steps:
        step.rows = others.active
        step.labels = others.problem.steps.from_numpy(others.active)[step.labels]
        step.duals = others.duals(step.duals)
        yield step


def _dominant(problem: Problem[Array]) -> bool:
    """Whether pairwise weights dominate the unaries of more than two labels."""
    if problem.n_labels == 2:
        return False
    least = problem.steps.xp.amin(problem.unary, 0).sum(dtype=problem.steps.xp.float64)
    gain = problem.best_constant[1] - float(least)
    return problem.total_mass_double > DOMINANT * gain


def lp_finish(problem: Problem[Array], labels: Array) -> tuple[Array, float]:
    """Return the labelling after some sweeps of iterated conditional modes, and its energy."""
    return icm(problem, labels, SWEEPS)


def primal_dual(
    w: Workspace[Array],
    incumbent: Incumbent[Array],
    *,
    cells: float = 1.0,
    to_the_end: bool = False,
) -> Iterator[Step[Array]]:
    """Yield iterations of the primal-dual hybrid gradient method until they are slow, or for ever.

    From the marginals and the potentials, in levels, of `w`, with `cells` levels per unit of
    potential. Each iteration updates the incumbent.
    """
    pace = Pace()
    step = STEP / (cells * w.problem.lipschitz)
    w.z = w.problem.potentials(w.y, w.z, cells)
    for iteration in count(1):
        w.admit(incumbent, cells)
        problem = w.problem
        bound, _, _ = w.descend(problem.flow(None, w.z, cells), step, incumbent.energy)
        incumbent.update(w.y, bound)
        made = Step(w.y, bound=bound, labels=incumbent.labels, energy=incumbent.energy)
        made.duals = (Potentials(w.z, cells=cells, of_nodes=True),)
        yield made
        ends = (SPAN / cells, EDGE / cells)
        w.z = problem.update_multipliers(w.z, None, *ends, in_place=not made.kept)
        if not to_the_end and pace.slow(incumbent.energy, bound):
            w.z *= cells
            w.restart()
            return
        if iteration == SLOW and cells > DAMPED:  # the same flow, in longer potentials
            cells, step = DAMPED, step / DAMPED
            w.z /= DAMPED
        w.add_extrapolated()


def multipliers(
    w: Workspace[Array],
    incumbent: Incumbent[Array],
    cells: float,
    accuracy: float,
    least_inner: int,
    *,
    to_the_end: bool = False,
) -> Iterator[Step[Array]]:
    """Yield iterations of the method of multipliers until they are slow, or for ever.

    From the marginals and the multipliers, in levels, of `w`, with the parameters of `lp`. Each
    iteration updates the incumbent.
    """
    pace = Pace()
    step = 1 / (cells * w.problem.lipschitz)
    w.z = None if w.z is None else w.z / cells
    momentum, inner, bound = 1.0, 0, -float("inf")
    while True:
        w.admit(incumbent, cells)
        problem = w.problem
        v = w.y if w.v is None else w.v
        estimate, value, uphill = w.descend(problem.flow(v, w.z, cells), step, incumbent.energy)
        duals = (Potentials(w.y, w.z, cells), Potentials(v, w.z, cells))
        bound = max(bound, estimate)
        left = value - estimate  # duality gap of the inner problem
        if uphill > 0:
            momentum = 1.0  # it points uphill: restart (O'Donoghue and Candès 2015)
        following, inner = (1 + sqrt(1 + 4 * momentum**2)) / 2, inner + 1
        incumbent.update(w.y, estimate)
        made = Step(w.y, bound=estimate, labels=incumbent.labels, energy=incumbent.energy)
        made.duals = duals
        del v, duals  # the loop decides whether they are kept
        yield made
        slow = pace.slow(incumbent.energy, estimate) and not to_the_end
        if slow or (inner >= least_inner and left <= accuracy * (incumbent.energy - bound)):
            w.restart()
            w.z = z = problem.update_multipliers(w.z, w.y, SPAN / cells, EDGE / cells)
            if slow:
                z *= cells
                return
            momentum, inner = 1.0, 0
        else:
            w.extrapolate((momentum - 1) / following)
            momentum = following
