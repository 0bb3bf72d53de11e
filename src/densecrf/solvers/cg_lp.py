r"""Conditional gradient (Frank-Wolfe) on the linear program's primal.

A baseline beside `sg-lp`, under the same restrictions: the direction is the subgradient's vertex
instead of the negative subgradient.
"""

from collections.abc import Iterator

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.primal import check_settings, line_search, without_idle_labels

__all__ = ["cg_lp"]

TRIALS = 10  # step sizes of the line search


def cg_lp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 5,
    label_threshold: float = 0.01,
    levels: int = 10,
    order: str = "soft",
) -> Iterator[Step]:
    r"""Iterate :math:`y \gets (1 - \eta) y + \eta\, s`, :math:`s_a = \arg\min_i (\phi + r)_{ai}`.

    The step :math:`\eta` is the one with the lowest energy after rounding, of 10 in (0, 1].

    Parameters
    ----------
    problem, y, iterations, label_threshold, levels, order
        As for `sg_lp`.
    """
    check_settings(iterations, label_threshold, levels, order)
    part = without_idle_labels(problem, y, label_threshold)
    y = problem.steps.project(part.take(y))
    for _ in range(iterations):
        r, _ = part.conditional_gradient(y, levels, order)
        duals = part.duals(((1.0, part.potentials(y, levels, order)),))
        vertex = part.problem.indicator(part.problem.steps.argmax(-(part.problem.unary + r)))
        trials = (y + (trial / TRIALS) * (vertex - y) for trial in range(TRIALS, 0, -1))
        y, labels, energy = line_search(problem, part, trials)
        yield Step(part.full(y), None, part.bound(r), duals, labels, energy, part.info())
