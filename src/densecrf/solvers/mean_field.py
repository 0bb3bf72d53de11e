r"""The unaries alone, and mean field (Krähenbühl and Koltun 2011), the usual method."""

from collections.abc import Iterator

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step

__all__ = ["mean_field", "unary"]


def unary(problem: Problem[Array], y: Array) -> Iterator[Step[Array]]:
    r"""Return :math:`\arg\min_i \phi_a(i)` for every pixel."""
    yield Step(y, labels=problem.steps.argmax(-problem.unary))


def mean_field(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 100,
    tolerance: float = 1e-3,
    self_term: bool = False,
) -> Iterator[Step[Array]]:
    r"""Iterate :math:`Q_a \propto \exp(-\phi_a - \sum_{b\ne a} K_{ab}\, \mu Q_b)`.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Maximum number of iterations.
    tolerance : float
        Converged when no marginal changes by more than this; 0 makes all iterations.
    self_term : bool
        Keep the pixel's own term b = a, as other software does (an approximation that it makes
        for speed); for parity with it.
    """
    for answer in problem.responses(y, iterations, self_term=self_term):
        change = problem.steps.difference(answer, y)[1] if tolerance > 0 else 1.0
        y = answer
        yield Step(y)
        if change <= tolerance:
            return
