r"""The convex quadratic program of Ravikumar and Lafferty (2006).

Desmaison et al. (2016) brought it to dense CRFs.
"""

from collections.abc import Iterator
from itertools import islice

from densecrf.backend import Array
from densecrf.problem.certificate import Tangent
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.quadratic import convexifier, frank_wolfe
from densecrf.validation import check_integer, check_non_negative

__all__ = ["qp"]


def qp(
    problem: Problem[Array], y: Array, *, iterations: int = 50, tolerance: float = 1e-2
) -> Iterator[Step]:
    r"""Minimise a convex function that equals the energy at every labelling.

    A vertex of the simplex has :math:`y_{ai}^2 = y_{ai}`, so a diagonal may be added to the
    quadratic term and half of it taken off the linear one:

    .. math:: \min_y \langle\phi - \tfrac12 c, y\rangle
              + \tfrac12\langle y, (H + \text{diag}(c)) y\rangle

    The gap of the Frank-Wolfe algorithm makes it a certificate: the convex minimum, and so every
    labelling's energy, is at least the objective less the gap. For the Potts model the pairwise
    term is :math:`\sum_{a<b} K_{ab} \tfrac12\lVert y_a - y_b\rVert^2`, never above that of the
    linear program: the bound is weaker.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most iterations.
    tolerance : float
        Converged when the gap is within this fraction of the objective.
    """
    check_integer("iterations", iterations, at_least=0)
    check_non_negative("tolerance", tolerance)
    c = convexifier(problem)
    iterates = frank_wolfe(problem, problem.unary - 0.5 * c, c, y, problem.messages(y))
    for now in islice(iterates, 1, iterations + 1):
        bound = now.objective - now.gap
        yield Step(now.y, relaxed=now.objective, bound=bound, duals=(Tangent(now.y),))
        if now.gap <= tolerance * abs(now.objective):
            return
