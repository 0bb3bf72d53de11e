"""What the two primal methods on the linear program share: fewer labels, and a line search."""

from collections.abc import Iterable
from typing import Any

from densecrf.backend import Array
from densecrf.operators.levels import MOST_LEVELS, ORDERS
from densecrf.problem.problem import Problem
from densecrf.solvers.subproblems import Part, SomeLabels, Whole, relevant_labels
from densecrf.validation import check_choice, check_integer, check_share

__all__ = ["check_settings", "line_search", "without_idle_labels"]


def check_settings(iterations: int, label_threshold: float, levels: int, order: str) -> None:
    """Refuse settings that make no sense."""
    check_integer("iterations", iterations, at_least=0)
    check_share("label_threshold", label_threshold)
    check_integer("levels", levels, at_least=2, at_most=MOST_LEVELS)
    check_choice("order", order, ORDERS)


def without_idle_labels(problem: Problem[Array], y: Array, threshold: float) -> Part[Array]:
    """Return the problem without the labels whose score is below `threshold` everywhere.

    Section 5.1 of the paper. With a tree metric all labels stay: a part of them proves no bound.
    """
    if not problem.potts:
        return Whole(problem)
    return SomeLabels(problem, relevant_labels(problem, y, threshold))


def line_search(
    problem: Problem[Array], part: Part[Array], trials: Iterable[Array]
) -> tuple[Any, Any, float]:
    """Return the trial of the lowest energy after rounding, its labelling and that energy.

    Among equals the first wins.
    """
    rounded = ((y, part.rounded(y)[0]) for y in trials)
    scored = ((y, labels, problem.energy(labels)) for y, labels in rounded)
    return min(scored, key=lambda trial: trial[2])
