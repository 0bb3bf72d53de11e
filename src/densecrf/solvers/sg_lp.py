r"""Projected subgradient descent on the linear program (Desmaison et al. 2016).

The baseline ``SG-LP_ℓ`` of the paper (Section 5.2): five iterations from the solution of DC_neg,
on the labels that it uses.
"""

from collections.abc import Iterator
from typing import Any

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.primal import check_settings, line_search, without_idle_labels

__all__ = ["sg_lp"]

LEAST_DEVIATION = 2.0**-100  # of a gradient: larger steps leave the range of float32
TRIALS = 10  # step sizes of the line search: 4, 1, 1/4, … times one that moves a typical pixel


def sg_lp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 5,
    label_threshold: float = 0.01,
    levels: int = 10,
    order: str = "soft",
) -> Iterator[Step]:
    r"""Iterate :math:`y \gets P_\Delta(y - \eta\, (\phi + r))`, :math:`r` the ordered filter of y.

    :math:`\phi + r` is a subgradient of the LP's objective (Eq. 20 of Desmaison et al.) where
    the order of the scores is exact. The step :math:`\eta` is the one with the lowest energy after
    rounding, of a geometric grid. Every r is also dual feasible: its bound needs no
    further filter call.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Number of iterations.
    label_threshold : float
        Labels whose score is below this at every pixel of the starting point are removed.
    levels, order
        Of the ordered filter; see `densecrf.operators.Filter.ordered`.
    """
    check_settings(iterations, label_threshold, levels, order)
    part = without_idle_labels(problem, y, label_threshold)
    y = problem.steps.project(part.take(y))
    for _ in range(iterations):
        r, _ = part.conditional_gradient(y, levels, order)
        duals = part.duals(((1.0, part.potentials(y, levels, order)),))
        gradient = part.problem.unary + r
        deviation = _deviation(gradient)
        steps = (4.0 ** (1 - trial) / deviation for trial in range(TRIALS))
        trials = (problem.steps.project(y - step * gradient) for step in steps)
        y, labels, energy = line_search(problem, part, trials)
        yield Step(part.full(y), None, part.bound(r), duals, labels, energy, part.info())


def _deviation(gradient: Any) -> float:
    """Return the typical difference between two labels of one pixel."""
    centred = gradient - gradient.mean(0)
    deviation = float(abs(centred).mean())
    return max(deviation, LEAST_DEVIATION) if deviation else 1.0
