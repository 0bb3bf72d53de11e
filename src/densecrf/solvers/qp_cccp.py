r"""The non-convex quadratic program by the concave-convex procedure (Desmaison et al. 2016)."""

from collections.abc import Iterator
from itertools import islice

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.quadratic import convexifier, expected_energy, frank_wolfe
from densecrf.validation import check_integer, check_non_negative

__all__ = ["qp_cccp"]


def qp_cccp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 50,
    inner_iterations: int = 10,
    tolerance: float = 1e-4,
) -> Iterator[Step]:
    r"""Minimise the quadratic relaxation F itself, to a stationary point.

    .. math:: F(y) = \bigl[\langle\phi, y\rangle + \tfrac12\langle y, (H + \text{diag}(c))
              y\rangle\bigr] - \tfrac12\langle y, \text{diag}(c)\, y\rangle

    is a difference of convex functions. Each iteration replaces the second by its tangent at
    :math:`y^k` (Yuille and Rangarajan 2003) and lowers what is left by Frank-Wolfe steps; F never
    rises.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most tangents.
    inner_iterations : int
        Most Frank-Wolfe steps for each.
    tolerance : float
        Converged when an iteration lowers F by no more than this fraction.
    """
    check_integer("iterations", iterations, at_least=0)
    check_integer("inner_iterations", inner_iterations, at_least=1)
    check_non_negative("tolerance", tolerance)
    c = convexifier(problem)
    received = problem.messages(y)
    value = expected_energy(problem, y, received)
    for _ in range(iterations):
        tangent = problem.unary - c * y
        iterates = frank_wolfe(problem, tangent, c, y, received)
        for now in islice(iterates, inner_iterations + 1):
            y, received = now.y, now.received
        previous, value = value, expected_energy(problem, y, received)
        yield Step(y, relaxed=value)
        if previous - value <= tolerance * abs(value):
            return
