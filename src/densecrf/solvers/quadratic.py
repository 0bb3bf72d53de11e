r"""The quadratic relaxation, which `qp`, `qp-cccp` and `dc-neg` share.

.. math:: F(y) = \langle\phi, y\rangle + \tfrac12\langle y, Hy\rangle, \qquad
          (Hy)_{ai} = \sum_{b \ne a} K_{ab} \sum_j \mu_{ij}\, y_{bj}

is the energy at the vertices of the product of simplices, and in between the expected energy when
every pixel draws its label independently. It is not convex. On differences of points of the
simplex, whose entries add up to 0, what counts of :math:`-\mu` are its eigenvalues on that space:
all 1 for the Potts model.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step

__all__ = [
    "QuadraticIterate",
    "convex_start",
    "convexifier",
    "expected_energy",
    "extrapolation",
    "frank_wolfe",
    "proximal_strength",
]

START_STEPS, START_TOLERANCE = 24, 1e-3  # most steps; fraction of the marginals that one moves
SMALLEST_STRENGTH = 1e-12  # of a pixel without neighbours: its step then ends at its best label


class QuadraticIterate(NamedTuple):
    """A point of the Frank-Wolfe algorithm; `received` is Hy, `gap` bounds what is left to gain."""

    y: Any
    received: Any
    objective: float
    gap: float


def convexifier(problem: Problem[Array]) -> Any:
    r"""Return a diagonal :math:`c_a` (n,) with which H + diag(c) is positive semidefinite.

    :math:`c_a = \rho \sum_{b \ne a} K_{ab}`, where :math:`\rho` is the largest absolute value of
    `LabelCosts.eigenvalues`: the diagonal of Ravikumar and Lafferty (2006), who add up absolute
    values of whole rows of H, but no larger than the simplex needs.
    """
    low, high = problem.costs.eigenvalues
    return max(abs(low), abs(high)) * (problem.pairwise.mass - problem.pairwise.diagonal)


def expected_energy(problem: Problem[Array], y: Array, received: Any) -> float:
    """Return F(y), where `received` is Hy."""
    return problem.steps.inner(problem.unary, y) + 0.5 * problem.steps.inner(received, y)


def proximal_strength(problem: Problem[Array]) -> Any:
    r"""Return :math:`g_a` (n,), with which :math:`\text{diag}(g) - H` is positive semidefinite."""
    low, high = problem.costs.eigenvalues
    strength: Any = max(high, 0.0) * problem.pairwise.diagonal + SMALLEST_STRENGTH
    if low < 0:
        strength = strength - low * (problem.pairwise.mass - problem.pairwise.diagonal)
    return strength


def convex_start(problem: Problem[Array]) -> Step:
    r"""Return a point near the minimum of the convex quadratic program that ``qp`` solves.

    Accelerated projected gradient steps (Beck and Teboulle 2009), restarted where the momentum
    points uphill (O'Donoghue and Candès 2015), from the unary marginals. The Hessian
    :math:`H + \text{diag}(c)` is at most :math:`\text{diag}(g + c)`. (The linear term's
    :math:`-\tfrac12 c` is the same for all labels of a pixel, and leaves projections as they are.)
    """
    c = convexifier(problem)
    strength = proximal_strength(problem) + c
    y, before, momentum, share = problem.unary_marginals(), None, 1.0, 0.0
    for _ in range(START_STEPS):
        step = problem.quadratic_step(y, strength, c, before, share)
        momentum, share = extrapolation(momentum, step.uphill)
        y, before = step.y, y if share > 0 else None
        if 0.5 * step.moved <= START_TOLERANCE * problem.n:
            break
    return Step(y, info={"init": "qp"})


def extrapolation(momentum: float, uphill: float) -> tuple[float, float]:
    """Return Nesterov's next momentum, and the share of the last move to extrapolate by.

    The momentum begins, and begins anew where the last move went uphill, at 1.
    """
    momentum = 1.0 if uphill > 0 else momentum
    following = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
    return following, (momentum - 1) / following


def frank_wolfe(
    problem: Problem[Array], linear: Any, diagonal: Any, y: Any, received: Any
) -> Iterator[QuadraticIterate]:
    r"""Minimise :math:`\langle\ell, y\rangle + \tfrac12\langle y, (H + \text{diag}(c)) y\rangle`.

    Frank and Wolfe (1956) with exact line search, from `y` on; one filter call per iteration. Ends
    only when no direction leads down.

    Parameters
    ----------
    problem
        The problem.
    linear, diagonal : array, (labels, n) and (n,)
        The linear term ℓ, and c, which makes the quadratic convex.
    y, received : array, (labels, n)
        The starting point and its Hy.

    Yields
    ------
    QuadraticIterate
        The starting point first.
    """
    pairs, squares = problem.steps.inner(received, y), problem.steps.inner(diagonal * y, y)
    corners = float(diagonal.sum())
    while True:
        vertex, gap, objective = problem.steps.lmo(linear, received, diagonal, y)
        yield QuadraticIterate(y, received, objective, gap)
        if gap <= 0:
            return
        target = problem.messages(problem.indicator(vertex))
        # Along the direction to the vertex, by the products of its two ends; H is symmetric.
        there, across = problem.steps.sum_at(target, vertex), problem.steps.sum_at(received, vertex)
        shared = problem.steps.sum_at(y, vertex, diagonal)
        curvature = there - 2 * across + pairs + corners - 2 * shared + squares
        step = min(1.0, gap / curvature) if curvature > 0 else 1.0
        pairs = (1 - step) ** 2 * pairs + 2 * step * (1 - step) * across + step**2 * there
        squares = (1 - step) ** 2 * squares + 2 * step * (1 - step) * shared + step**2 * corners
        y = problem.steps.step_to_vertex(vertex, y, step)
        received = problem.steps.extrapolate(received, target, -step)
