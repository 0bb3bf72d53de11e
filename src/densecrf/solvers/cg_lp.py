r"""Conditional gradient (Frank-Wolfe) on the linear program's primal.

A baseline beside `sg-lp`, under the same restrictions: the direction is the subgradient's vertex
instead of the negative subgradient.
"""

from collections.abc import Iterator
from typing import Any

from densecrf.problem import Problem
from densecrf.solvers.kept_labels import KeptLabels
from densecrf.solvers.loop import Step

__all__ = ["cg_lp"]

TRIALS = 10  # step sizes of the line search


def cg_lp(
    problem: Problem,
    y: Any,
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
    some = KeptLabels.above(problem, y, label_threshold)
    unary = some.restrict(problem.unary)
    y = problem.project(some.restrict(y))
    for _ in range(iterations):
        r, bound = some.dual_point(y, levels, order)
        vertex = some.vertex(problem.argmax(-(unary + r)))
        trials = (y + (trial / TRIALS) * (vertex - y) for trial in range(TRIALS, 0, -1))
        y, labels, energy = some.line_search(trials)
        info = {"kept_labels": some.kept}
        yield Step(some.extend(y), bound=bound, labels=labels, energy=energy, info=info)
