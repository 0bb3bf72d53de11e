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
:math:`z \leftarrow z + \bar y`. What exceeds the clip is forgotten by compressing z into a bounded
range. After 20 iterations the dual step is halved and the primal one doubled, which damps the
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

from collections.abc import Generator, Iterator
from itertools import islice
from math import sqrt
from typing import Any

from densecrf.certificates import Potentials
from densecrf.problem_base import ProblemBase
from densecrf.rounding import SWEEPS, Incumbent, Pace, icm
from densecrf.solvers.loop import Step
from densecrf.solvers.mean_field import mean_field
from densecrf.validation import ArgumentError, check_integer, check_non_negative, check_positive

__all__ = ["lp", "lp_finish", "lp_start", "multipliers", "primal_dual"]

CELLS, MOST_CELLS = 4.0, 1000.0  # a unit of potential
DOMINANT = 200.0  # pairwise mass for each unit of energy that the unaries can gain over a constant
SPAN, EDGE = 48.0, 16.0  # levels of the potentials, and of each end that is kept exactly
STEP = 1.3  # times 1 / L; below 4/3 (He, Ma, Li and Yuan 2022)
SLOW, DAMPED = 20, 0.5  # iterations after which the dual step is shortened, and to what


def lp_start(problem: ProblemBase) -> Step:
    """Start where mean field is after five iterations, unless a constant labelling beats it.

    Where one does, mean field is stuck among strong pairwise terms, and the unary marginals, which
    are less certain, are the better start.
    """
    y = problem.unary_marginals()
    if not problem.potts:
        return Step(y)
    for step in mean_field(problem, y, iterations=5, tolerance=0.0):
        y = step.y
    labels = problem.argmax(y)
    energy = problem.energy(labels)
    if problem.best_constant()[1] < energy:
        y = problem.unary_marginals()
    return Step(y, labels=labels, energy=energy)


def lp(
    problem: ProblemBase,
    y: Any,
    *,
    iterations: int = 500,
    cells: float = CELLS,
    accuracy: float = 0.8,
    least_inner: int = 6,
    round_every: int = 2,
    polish: int = 1,
    settle_every: int = 20,
) -> Iterator[Step]:
    r"""Minimise the LP relaxation with a certificate; one iteration is one ordered filter call.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most iterations.
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
    incumbent = Incumbent(problem, round_every, polish, settle_every)
    options = {"cells": cells, "accuracy": accuracy, "least_inner": least_inner}
    return islice(_alternate(problem, y, incumbent, options), iterations)


def _alternate(
    problem: ProblemBase, y: Any, incumbent: Incumbent, options: dict[str, Any]
) -> Iterator[Step]:
    large = [y]  # handed over by `pop`, so that no array is alive for longer than it is of use
    del y
    if _dominant(problem):
        yield from multipliers(problem, incumbent, None, large.pop(), to_the_end=True, **options)
    large = yield from primal_dual(problem, incumbent, None, large.pop())
    while True:
        large = yield from multipliers(problem, incumbent, large.pop(), large.pop(), **options)
        large = yield from primal_dual(problem, incumbent, large.pop(), large.pop(), cells=DAMPED)


def _dominant(problem: ProblemBase) -> bool:
    """Whether pairwise weights dominate the unaries of more than two labels."""
    if problem.n_labels == 2:
        return False
    least = problem.xp.amin(problem.unary, 0).sum(dtype=problem.xp.float64)
    gain = problem.best_constant()[1] - float(least)
    return problem.total_mass_double > DOMINANT * gain


def lp_finish(problem: ProblemBase, labels: Any) -> tuple[Any, float]:
    """Return the labelling after some sweeps of iterated conditional modes, and its energy."""
    return icm(problem, labels, SWEEPS)


def primal_dual(
    problem: ProblemBase,
    incumbent: Incumbent,
    levels: Any,
    y: Any,
    *,
    cells: float = 1.0,
    to_the_end: bool = False,
) -> Generator[Step, None, list[Any]]:
    """Yield iterations of the primal-dual hybrid gradient method until they are slow, or for ever.

    At most four arrays of the size of the unaries are alive at a time: the marginals, the
    potentials, what the filter returns, and the potentials of the best bound.

    Parameters
    ----------
    problem
        The problem.
    incumbent : Incumbent
        The best labelling, updated by each iteration.
    levels : array, (nodes, n), or None
        Potentials to start from, in levels.
    y : array, (labels, n)
        The starting marginals.
    cells : float
        Levels per unit of potential.
    to_the_end : bool
        Whether to go on where progress is slow.

    Returns
    -------
    list of array
        The marginals, and the potentials in levels.
    """
    step: Any = STEP / (cells * problem.lipschitz)
    u, pace, iteration = problem.potentials(y, levels, cells), Pace(incumbent), 0
    levels = None  # large: let it go
    while True:
        iteration += 1
        r: Any = problem.flow(None, u, cells)
        previous = y
        y, bound, _, _ = problem.descend(y, r, step, y, in_place=True)
        r = None
        incumbent.update(y, bound)
        made: Any = Step(y, bound=bound, labels=incumbent.labels, energy=incumbent.energy)
        made.duals = (Potentials(u, cells=cells, of_nodes=True),)
        yield made
        ends = (SPAN / cells, EDGE / cells)
        u = problem.update_multipliers(u, None, *ends, in_place=not made.kept)
        made = None  # large
        if not to_the_end and pace.slow(bound):
            u *= cells
            return [y, u]
        if iteration == SLOW and cells > DAMPED:  # the same flow, in longer potentials
            cells, step = DAMPED, step / DAMPED
            u /= DAMPED
        problem.add_extrapolated(u, y, previous)
        previous = None


def multipliers(
    problem: ProblemBase,
    incumbent: Incumbent,
    levels: Any,
    y: Any,
    *,
    cells: float,
    accuracy: float,
    least_inner: int,
    to_the_end: bool = False,
) -> Generator[Step, None, list[Any]]:
    """Yield iterations of the method of multipliers until they are slow, or for ever.

    Parameters
    ----------
    problem
        The problem.
    incumbent : Incumbent
        The best labelling.
    levels : array, (nodes, n), or None
        Multipliers to start from, in levels.
    y : array, (labels, n)
        The starting marginals.
    cells, accuracy, least_inner
        The parameters of `lp`.
    to_the_end : bool
        Whether to go on where progress is slow.

    Returns
    -------
    list of array
        The marginals, and the potentials in levels.
    """
    step: Any = 1 / (cells * problem.lipschitz)
    z: Any = None if levels is None else levels / cells
    levels = None
    v, momentum, inner, bound, pace = y, 1.0, 0, -float("inf"), Pace(incumbent)
    while True:
        r: Any = problem.flow(v, z, cells)
        previous = y
        y, estimate, value, uphill = problem.descend(v, r, step, previous, in_place=True)
        duals: Any = (Potentials(y, z, cells), Potentials(v, z, cells))
        r = v = None  # large: let them go before the next ones are made
        bound = max(bound, estimate)
        left = value - estimate  # duality gap of the inner problem
        if uphill > 0:
            momentum = 1.0  # it points uphill: restart (O'Donoghue and Candès 2015)
        following, inner = (1 + sqrt(1 + 4 * momentum**2)) / 2, inner + 1
        incumbent.update(y, estimate)
        yield Step(y, bound=estimate, duals=duals, labels=incumbent.labels, energy=incumbent.energy)
        duals = None
        slow = pace.slow(estimate) and not to_the_end
        if slow or (inner >= least_inner and left <= accuracy * (incumbent.energy - bound)):
            previous = None
            z = problem.update_multipliers(z, y, SPAN / cells, EDGE / cells)
            v, momentum, inner = y, 1.0, 0
        else:
            v = problem.extrapolate(y, previous, (momentum - 1) / following)
            previous, momentum = None, following
        if slow:
            z *= cells
            return [y, z]
