r"""The difference-of-convex relaxation for negative semi-definite compatibilities.

``DC_neg`` of Desmaison et al. (2016), the baseline and the starting point of the paper's linear
programs.
"""

from collections.abc import Iterator

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.quadratic import extrapolation, proximal_strength
from densecrf.validation import check_integer, check_non_negative

__all__ = ["dc_neg"]

ROUNDING = 1e-6
DOUBLINGS = 20  # of g, after which what rises is rounding


def dc_neg(
    problem: Problem[Array], y: Array, *, iterations: int = 100, tolerance: float = 1e-5
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

    The tangent is taken at an extrapolated point, :math:`y^k + \beta_k(y^k - y^{k-1})`, where F is
    no larger there than at the one before (Phan, Le and Le Thi 2018), and otherwise at :math:`y^k`:
    boundaries of segments move further per iteration.

    Fast filters are not exactly positive semidefinite. Where F rises on that account, the step is
    taken back and g doubled. F never rises from one tangent point to the next; `Step.relaxed` is
    its value there.

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
    last, before, momentum, share, value = y, None, 1.0, 0.0, float("inf")
    noise, doubled = ROUNDING * float(problem.pairwise.mass.max()), 0
    for _ in range(iterations):
        step = problem.quadratic_step(y, strength, before=before, share=share)
        if step.objective > value + ROUNDING * abs(value) + noise:
            if share > 0:
                before, momentum, share = None, 1.0, 0.0
                continue
            y, strength, doubled = last, 2 * strength, doubled + 1
            if doubled > DOUBLINGS:
                return
            continue
        value = step.objective
        momentum, share = extrapolation(momentum, step.uphill)
        last, y = y, step.y
        before = last if share > 0 else None
        yield Step(y, relaxed=value)
        if 0.5 * step.moved <= tolerance * problem.n:
            return
