r"""The certified linear program: the method of multipliers in potentials.

The pairwise term of the LP relaxation (Eq. 4) is a maximum over flows,

.. math:: \sum_{a<b} K_{ab} \tfrac12 \sum_i |y_{ai} - y_{bi}|
          = \max_{|\sigma| \le 1} \tfrac12 \sum_{a<b} K_{ab} \sum_i \sigma_{abi}(y_{ai} - y_{bi}),

with one antisymmetric number for each pair and label: too many to store. But a flow that derives
from potentials, :math:`\sigma_{abi} = s(u_{ai} - u_{bi})` with s a sign rounded off over one
*cell*, needs only u, and one ordered filter call computes :math:`r_{ai} = \tfrac12\sum_b K_{ab}
\sigma_{abi}`. Whatever u is, :math:`\sum_a \min_i(\phi_{ai} + r_{ai})` is a lower bound.

Two ways to find potentials alternate, each until its progress is slow: the primal-dual hybrid
gradient method (`densecrf.solvers.primal_dual`), which is the faster one where flows saturate, and
the method of multipliers with accelerated inner iterations (`densecrf.solvers.multipliers`), where
they do not. Where pairwise weights dominate, as they do without normalisation, the latter is used
alone.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from densecrf.problem_base import ProblemBase
from densecrf.rounding import SWEEPS, Incumbent, icm
from densecrf.solvers.loop import Step
from densecrf.solvers.mean_field import mean_field
from densecrf.solvers.multipliers import multipliers
from densecrf.solvers.primal_dual import DAMPED, primal_dual
from densecrf.validation import ArgumentError, check_integer, check_non_negative, check_positive

__all__ = ["lp", "lp_finish", "lp_start"]

CELLS, MOST_CELLS = 4.0, 1000.0  # a unit of potential
DOMINANT = 200.0  # pairwise mass for each unit of energy that the unaries can gain over a constant


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
    if _dominant(problem):
        yield from multipliers(problem, y, None, incumbent, to_the_end=True, **options)
    y, levels = yield from primal_dual(problem, y, incumbent)
    while True:
        y, levels = yield from multipliers(problem, y, levels, incumbent, **options)
        y, levels = yield from primal_dual(problem, y, incumbent, levels / DAMPED, cells=DAMPED)


def _dominant(problem: ProblemBase) -> bool:
    """Whether pairwise weights dominate the unaries of more than two labels."""
    if problem.n_labels == 2:
        return False
    gain = problem.best_constant()[1] - problem.lower_bound(0 * problem.unary)
    return problem.total_mass_double > DOMINANT * gain


def lp_finish(problem: ProblemBase, labels: Any) -> tuple[Any, float]:
    """Return the labelling after some sweeps of iterated conditional modes, and its energy."""
    return icm(problem, labels, SWEEPS)
