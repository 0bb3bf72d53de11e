"""Runs of `lp` on a part of a problem, which continue where another run on more pixels ended."""

from functools import partial
from typing import TypeAlias

from densecrf.backend import Array
from densecrf.problem.certificate import Potentials
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Limits, Outcome, Step, drive
from densecrf.solvers.lp import lp, resumed

__all__ = ["Before", "iterate", "reduced"]

ROUND_EVERY = 8  # iterations between two roundings, which cost more than those of few pixels

#: Marginals and potentials, (labels, n), that a run ended with.
Before: TypeAlias = tuple[Array, Array]


def iterate(
    problem: Problem[Array],
    limits: Limits,
    before: Before[Array] | None,
    *,
    certified: bool = True,
) -> Outcome[Array]:
    """Solve a problem, from where another run ended if there was one; see `drive`."""
    if before is None:
        y, steps = problem.unary_marginals(), partial(lp, problem, round_every=ROUND_EVERY)
    else:
        y, steps = before[0], partial(resumed, problem, levels=before[1])
    return drive(problem, partial(Step, y), steps, limits, certified=certified)


def reduced(
    problem: Problem[Array], outcome: Outcome[Array], pixels: Array
) -> Before[Array] | None:
    """Return where a run on a problem ended, at some pixels; None where that is not known."""
    dual = outcome.dual
    if not isinstance(dual, Potentials) or dual.cells is None:
        return None
    potentials = dual.scores if dual.offsets is None else dual.scores + dual.offsets
    levels = problem.steps.floats(dual.cells * potentials[:, pixels])
    steps = problem.steps
    return steps.contiguous(outcome.y[:, pixels]), steps.contiguous(levels)
