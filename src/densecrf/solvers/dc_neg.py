r"""The difference-of-convex relaxation for negative semi-definite compatibilities.

``DC_neg`` of Desmaison et al. (2016), the baseline and the starting point of the paper's linear
programs.
"""

from collections.abc import Iterator
from typing import Any

from densecrf.problem_base import ProblemBase
from densecrf.solvers.loop import Step
from densecrf.solvers.quadratic import expected_energy, label_eigenvalues
from densecrf.validation import check_integer, check_non_negative

__all__ = ["dc_neg", "proximal_strength"]

SMALLEST_STRENGTH = 1e-12  # of a pixel without neighbours: its step then ends at its best label
ROUNDING = 1e-6


def dc_neg(
    problem: ProblemBase, y: Any, *, iterations: int = 100, tolerance: float = 1e-5
) -> Iterator[Step]:
    r"""Minimise the quadratic relaxation by linearising its concave part.

    For the Potts model and up to a constant,

    .. math:: F(y) = \Bigl[\langle\phi, y\rangle
              + \sum_a \tfrac12 K_{aa} \lVert y_a\rVert^2\Bigr] - \tfrac12\langle y, Ky\rangle

    and K, a sum of Gaussians, is positive semidefinite: both parts are convex. Replacing the
    second by its tangent at :math:`y^k` leaves one simplex projection for each pixel,

    .. math:: y_a^{k+1} = P_\Delta\bigl(-(\phi_a - (Ky^k)_a) / K_{aa}\bigr)
              = P_\Delta\bigl(y_a^k - \nabla F(y^k)_a / K_{aa}\bigr).

    Other compatibilities take the second form with a strength :math:`g_a` in the place of
    :math:`K_{aa}` such that :math:`\text{diag}(g) - H` is positive semidefinite: along an
    eigenvector of :math:`-\mu` with eigenvalue :math:`\nu > 0` the matrix H is
    :math:`-\nu(K - \text{diag}(K_{aa}))`, for which :math:`g_a = \nu K_{aa}` will do; with
    :math:`\nu < 0` it takes :math:`|\nu| \sum_{b \ne a} K_{ab}`.

    Fast filters are not exactly positive semidefinite. Where F rises on that account, the step is
    taken back and g doubled; F never rises.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most iterations.
    tolerance : float
        Converged when an iteration moves no more than this fraction of the marginals.
    """
    check_integer("iterations", iterations, at_least=0)
    check_non_negative("tolerance", tolerance)
    strength = proximal_strength(problem)
    received = problem.messages(y)
    value = expected_energy(problem, y, received)
    for _ in range(iterations):
        moved, *_ = problem.descend(y, received, 1 / strength, y)
        received_there = problem.messages(moved)
        value_there = expected_energy(problem, moved, received_there)
        if value_there > value + ROUNDING * abs(value):
            strength = 2 * strength
            continue
        change = 0.5 * problem.difference(moved, y)[0] / problem.n
        y, received, value = moved, received_there, value_there
        yield Step(y, relaxed=value)
        if change <= tolerance:
            return


def proximal_strength(problem: ProblemBase) -> Any:
    r"""Return :math:`g_a` (n,), with which :math:`\text{diag}(g) - H` is positive semidefinite."""
    low, high = label_eigenvalues(problem)
    strength: Any = max(high, 0.0) * problem.diagonal + SMALLEST_STRENGTH
    if low < 0:
        strength = strength - low * (problem.mass - problem.diagonal)
    return strength
