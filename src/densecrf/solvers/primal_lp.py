r"""Primal methods on the linear program: projected subgradient and conditional gradient.

The baseline ``SG-LP_ℓ`` of the paper (Section 5.2; Desmaison et al. 2016), and Frank-Wolfe beside
it: five iterations from the solution of DC_neg, on the labels that it uses.
"""

from collections.abc import Callable, Iterable, Iterator

from densecrf.backend import Array
from densecrf.operators.levels import MOST_LEVELS, ORDERS
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.subproblems import Part, relevant_labels
from densecrf.validation import check_choice, check_integer, check_share

__all__ = ["cg_lp", "line_search", "sg_lp", "without_idle_labels"]

LEAST_DEVIATION = 2.0**-100  # of a gradient: larger steps leave the range of float32
TRIALS = 10  # step sizes of the line search


def sg_lp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 5,
    label_threshold: float = 0.01,
    levels: int = 10,
    order: str = "soft",
) -> Iterator[Step[Array]]:
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

    def trials(_: Problem[Array], y: Array, gradient: Array) -> Iterator[Array]:
        # 4, 1, 1/4, … times a step that moves a typical pixel.
        deviation = float(abs(gradient - gradient.mean(0)).mean())
        deviation = max(deviation, LEAST_DEVIATION) if deviation else 1.0
        for trial in range(TRIALS):
            yield problem.steps.project(y - 4.0 ** (1 - trial) / deviation * gradient)

    return _line_searches(problem, y, trials, iterations, label_threshold, levels, order)


def cg_lp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 5,
    label_threshold: float = 0.01,
    levels: int = 10,
    order: str = "soft",
) -> Iterator[Step[Array]]:
    r"""Iterate :math:`y \gets (1 - \eta) y + \eta\, s`, :math:`s_a = \arg\min_i (\phi + r)_{ai}`.

    The step :math:`\eta` is the one with the lowest energy after rounding, of 10 in (0, 1].

    Parameters
    ----------
    problem, y, iterations, label_threshold, levels, order
        As for `sg_lp`.
    """

    def trials(part: Problem[Array], y: Array, gradient: Array) -> Iterator[Array]:
        vertex = part.indicator(part.steps.argmax(-gradient))
        for trial in range(TRIALS, 0, -1):
            yield y + (trial / TRIALS) * (vertex - y)

    return _line_searches(problem, y, trials, iterations, label_threshold, levels, order)


def _line_searches(
    problem: Problem[Array],
    y: Array,
    trials: Callable[[Problem[Array], Array, Array], Iterable[Array]],
    iterations: int,
    label_threshold: float,
    levels: int,
    order: str,
) -> Iterator[Step[Array]]:
    """Iterate to the best of the trials that a method makes of y and the gradient φ + r."""
    check_integer("iterations", iterations, at_least=0)
    check_share("label_threshold", label_threshold)
    check_integer("levels", levels, at_least=2, at_most=MOST_LEVELS)
    check_choice("order", order, ORDERS)
    part = without_idle_labels(problem, y, label_threshold)
    y = problem.steps.project(part.take(y))
    for _ in range(iterations):
        r, _, point = part.conditional_gradient(y, levels, order)
        duals = part.duals(((1.0, point),))
        tried = trials(part.problem, y, part.problem.unary + r)
        y, labels, energy = line_search(problem, part, tried)
        yield Step(part.full(y), None, part.bound(r), duals, labels, energy, part.info())


def without_idle_labels(problem: Problem[Array], y: Array, threshold: float) -> Part[Array]:
    """Return the problem without the labels whose score is below `threshold` everywhere.

    Section 5.1 of the paper. With a tree metric all labels stay: a part of them proves no bound.
    """
    return Part(problem, relevant_labels(problem, y, threshold) if problem.potts else None)


def line_search(
    problem: Problem[Array], part: Part[Array], trials: Iterable[Array]
) -> tuple[Array, Array, float]:
    """Return the first trial of the lowest energy after rounding, its labelling and that energy."""
    rounded = ((y, part.rounded(y)[0]) for y in trials)
    scored = ((y, labels, problem.energy(labels)) for y, labels in rounded)
    return min(scored, key=lambda trial: trial[2])
