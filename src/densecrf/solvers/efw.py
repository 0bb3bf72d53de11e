r"""Euclidean Frank-Wolfe, the regularised Frank-Wolfe method of Lê-Huu and Alahari (2021).

On the quadratic relaxation F of `densecrf.solvers.quadratic`, the linear minimisation oracle gets
a strongly convex term :math:`\tfrac\lambda2\lVert p\rVert^2`, with which it is a projection:

.. math:: p^k &= \arg\min_{p \in \Delta^n} \langle\nabla F(y^k), p\rangle
               + \tfrac\lambda2\lVert p\rVert^2 = P_\Delta\bigl(-\nabla F(y^k) / \lambda\bigr), \\
          y^{k+1} &= y^k + \alpha_k (p^k - y^k).

These are conditional gradient steps on :math:`F + \tfrac\lambda2\lVert\cdot\rVert^2`, which differs
from the energy by a constant at all labellings. With :math:`\lambda \to 0` the oracle returns
vertices: the method of Frank and Wolfe. With the negative entropy in the place of the squared norm,
:math:`\lambda = 1` and :math:`\alpha_k = 1` it is parallel mean field.
"""

from collections.abc import Iterator

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.quadratic import expected_energy
from densecrf.validation import (
    ArgumentError,
    check_integer,
    check_non_negative,
    check_positive,
)

__all__ = ["REGULARIZATION", "STEP", "euclidean_frank_wolfe", "regularized_oracle"]

REGULARIZATION = 3.0  # half of the default model's weights, where few iterations lower F most
STEP = 0.5  # of the layer: constant, so that labels outside the oracle's support keep a gradient
VERTICES = 1e-6  # regularisation below which the oracle's answers are vertices


def euclidean_frank_wolfe(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 100,
    tolerance: float = 1e-3,
    regularization: float = REGULARIZATION,
    step: float | None = None,
) -> Iterator[Step[Array]]:
    r"""Iterate :math:`y \leftarrow y + \alpha\,(P_\Delta(-\nabla F(y) / \lambda) - y)`.

    One filter call per iteration.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most iterations.
    tolerance : float
        Converged when no marginal changes by more than this; 0 makes all iterations.
    regularization : float
        :math:`\lambda`; with 0 (below 1e-6) the steps go to vertices, as those of Frank and Wolfe.
    step : float, optional
        A constant :math:`\alpha` above 0, at most 1. By default the exact minimiser of
        :math:`F + \tfrac\lambda2\lVert\cdot\rVert^2` on the way to :math:`p^k`; `Step.relaxed` is
        then this function less its quadratic term's value at labellings, and never rises.
    """
    check_integer("iterations", iterations, at_least=0)
    check_non_negative("tolerance", tolerance)
    check_non_negative("regularization", regularization)
    if step is not None and check_positive("step", step) > 1:
        raise ArgumentError("step", step, "give at most 1, or None for a line search")
    if step is None:
        yield from _with_line_search(problem, y, iterations, tolerance, regularization)
        return
    for _ in range(iterations):
        target = regularized_oracle(problem, problem.messages(y), regularization)
        previous, y = y, towards(problem, y, target, step)
        yield Step(y)
        if tolerance > 0 and problem.steps.difference(y, previous)[1] <= tolerance:
            return


def _with_line_search(
    problem: Problem[Array], y: Array, iterations: int, tolerance: float, regularization: float
) -> Iterator[Step[Array]]:
    inner, received = problem.steps.inner, problem.messages(y)
    value = expected_energy(problem, y, received) + 0.5 * regularization * (inner(y, y) - problem.n)
    for _ in range(iterations):
        target = regularized_oracle(problem, received, regularization)
        sent, way = problem.messages(target), target - y
        slope = inner(problem.unary, way) + inner(received, way) + regularization * inner(y, way)
        curvature = inner(sent - received, way) + regularization * inner(way, way)
        if slope >= 0:  # the oracle's answer is y itself, up to rounding
            return
        step = min(1.0, -slope / curvature) if curvature > 0 else 1.0
        value += step * slope + 0.5 * step**2 * curvature
        previous, y = y, towards(problem, y, target, step)
        received = towards(problem, received, sent, step)  # H is linear
        yield Step(y, relaxed=value)
        if tolerance > 0 and problem.steps.difference(y, previous)[1] <= tolerance:
            return


def regularized_oracle(problem: Problem[Array], received: Array, regularization: float) -> Array:
    r"""Return :math:`\arg\min_p \langle\nabla F(y), p\rangle + \tfrac\lambda2\lVert p\rVert^2`.

    `received` is Hy, the gradient of the pairwise term.
    """
    gradient = problem.unary + received
    if regularization < VERTICES:
        return problem.indicator(problem.steps.argmax(-gradient))
    return problem.steps.project(-gradient / regularization)


def towards(problem: Problem[Array], here: Array, there: Array, share: float) -> Array:
    """Return the point at a share of the way from here to there."""
    return problem.steps.extrapolate(there, here, share - 1)
