r"""The quadratic relaxation, by `qp`, `qp-cccp` and `dc-neg` (Desmaison et al. 2016).

.. math:: F(y) = \langle\phi, y\rangle + \tfrac12\langle y, Hy\rangle, \qquad
          (Hy)_{ai} = \sum_{b \ne a} K_{ab} \sum_j \mu_{ij}\, y_{bj}

is the energy at the vertices of the product of simplices, and in between the expected energy when
every pixel draws its label independently. It is not convex. On differences of points of the
simplex, whose entries add up to 0, what counts of :math:`-\mu` are its eigenvalues on that space:
all 1 for the Potts model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Generic

import numpy as np

from densecrf.backend import Array, QuadraticStep
from densecrf.problem.certificate import Tangent
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.validation import IntArray, check_integer, check_non_negative

__all__ = [
    "Iterates",
    "QuadraticIterate",
    "convex_start",
    "convexifier",
    "dc_neg",
    "expected_energy",
    "frank_wolfe",
    "proximal_strength",
    "qp",
    "qp_cccp",
]

START_STEPS, START_TOLERANCE = 24, 1e-3  # most steps; fraction of the marginals that one moves
STRIDE, COARSE_STEPS, LAST_STEPS = 4, 80, 4  # of the start's grid; steps on it, then elsewhere
LEAST_GRID = 1024  # pixels
GRID_MASS, GRID_PIXELS = 0.75, 0.9  # share of the weights that so many of its pixels have to keep
SMALLEST_STRENGTH = 1e-12  # of a pixel without neighbours: its step then ends at its best label
ROUNDING = 1e-6
FEW = 0.75  # share of the labels up to which the others are left out
DOUBLINGS = 20  # of g, after which what rises is rounding


def qp(
    problem: Problem[Array], y: Array, *, iterations: int = 50, tolerance: float = 1e-2
) -> Iterator[Step[Array]]:
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
        Maximum number of iterations.
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


def qp_cccp(
    problem: Problem[Array],
    y: Array,
    *,
    iterations: int = 50,
    inner_iterations: int = 10,
    tolerance: float = 1e-4,
) -> Iterator[Step[Array]]:
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


def dc_neg(
    problem: Problem[Array], y: Array, *, iterations: int = 100, tolerance: float = 1e-5
) -> Iterator[Step[Array]]:
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
        Maximum number of iterations.
    tolerance : float
        Converged when an iteration moves no more than this fraction of the marginals.
    """
    check_integer("iterations", iterations, at_least=0)
    check_non_negative("tolerance", tolerance)
    strength, iterates = proximal_strength(problem), Iterates(problem, y)
    momentum, share, value = 1.0, 0.0, float("inf")
    noise, doubled = ROUNDING * float(problem.pairwise.mass.max()), 0
    for number in range(1, iterations + 1):
        step = iterates.step(strength, None, share)
        if step.objective > value + ROUNDING * abs(value) + noise:
            if share > 0:
                momentum, share = 1.0, 0.0
                continue
            iterates.y, strength, doubled = iterates.last, 2 * strength, doubled + 1
            if doubled > DOUBLINGS:
                return
            continue
        value = step.objective
        momentum, share = extrapolation(momentum, step.uphill)
        iterates.move(step)
        doubling = number & (number - 1) == 0
        yield Step(iterates.y, relaxed=value, rows=iterates.rows, scored=doubling)
        if 0.5 * step.moved <= tolerance * problem.n:
            return


class Iterates(Generic[Array]):
    """The last two points of a descent, of the labels that carry anything.

    The others rarely gain mass. They are left out, but for their least unary energies, which tell
    when one of them would: then a step is taken with all labels.

    Parameters
    ----------
    problem : Problem
        The problem.
    y : array, (labels, n)
        The first point.

    Attributes
    ----------
    y, last : array, (rows, n)
        The point, and the one before.
    rows : ndarray of int or None
        The labels that they have rows of; None: all.
    """

    problem: Problem[Array]
    y: Array
    last: Array
    _part: Problem[Array]
    _rest: Array | None

    def __init__(self, problem: Problem[Array], y: Array) -> None:
        self.problem, self.y, self.last = problem, y, y
        self._use(None)

    def _use(self, rows: IntArray | None) -> None:
        problem = self.problem
        self.rows, self._part, self._rest = rows, problem, None
        if rows is not None:
            others = np.setdiff1d(np.arange(problem.n_labels), rows)
            self._part = problem.on_labels(rows)
            self._rest = reduce(problem.steps.xp.minimum, (problem.unary[i] for i in others))

    def step(self, strength: Array, c: Array | None, share: float) -> QuadraticStep[Array]:
        """Return the step of `Problem.quadratic_step` from `y`, extrapolated by a share."""
        before = self.last if share > 0 else None
        made = self._part.quadratic_step(self.y, strength, c, before, share, self._rest)
        if self.rows is None or not made.gained:
            return made
        self.y, self.last = self.full(self.y), self.full(self.last)
        self._use(None)
        return self.step(strength, c, share)

    def move(self, made: QuadraticStep[Array]) -> None:
        """Go to where a step leads."""
        self.last, self.y = self.y, made.y
        present = None if made.gained else made.present
        if present is not None and len(present) <= FEW * len(self.y):
            self.y, self.last = self.y[present], self.last[present]
            rows = np.arange(self.problem.n_labels) if self.rows is None else self.rows
            self._use(rows[present])

    def full(self, y: Array) -> Array:
        """Return a point with rows of all labels."""
        return y if self.rows is None else self.problem.embed_labels(y, self.rows)


@dataclass(frozen=True)
class QuadraticIterate(Generic[Array]):
    """A point of the Frank-Wolfe algorithm; `received` is Hy, `gap` bounds what is left to gain."""

    y: Array
    received: Array
    objective: float
    gap: float


def convexifier(problem: Problem[Array]) -> Array:
    r"""Return a diagonal :math:`c_a` (n,) with which H + diag(c) is positive semidefinite.

    :math:`c_a = \rho \sum_{b \ne a} K_{ab}`, where :math:`\rho` is the largest absolute value of
    `LabelCosts.eigenvalues`: the diagonal of Ravikumar and Lafferty (2006), who add up absolute
    values of whole rows of H, but no larger than the simplex needs.
    """
    largest = max(map(abs, problem.costs.eigenvalues))
    c: Array = largest * (problem.pairwise.mass - problem.pairwise.diagonal)
    return c


def expected_energy(problem: Problem[Array], y: Array, received: Array) -> float:
    """Return F(y), where `received` is Hy."""
    return problem.steps.inner(problem.unary, y) + 0.5 * problem.steps.inner(received, y)


def proximal_strength(problem: Problem[Array]) -> Array:
    r"""Return :math:`g_a` (n,), with which :math:`\text{diag}(g) - H` is positive semidefinite."""
    low, high = problem.costs.eigenvalues
    strength: Array = max(high, 0.0) * problem.pairwise.diagonal + SMALLEST_STRENGTH
    if low < 0:
        strength = strength - low * (problem.pairwise.mass - problem.pairwise.diagonal)
    return strength


def convex_start(problem: Problem[Array]) -> Step[Array]:
    r"""Return a point near the minimum of the convex quadratic program that ``qp`` solves.

    With strong kernels it is far from the unary marginals, and steps are short. On every fourth
    pixel of every fourth row they take a fraction of the time: where kernels are wide enough, most
    are taken there, and the last on all pixels.
    """
    coarse = _coarse_start(problem)
    if coarse is None:
        y = _convex_descent(problem, problem.unary_marginals(), START_STEPS)
    else:
        y = _convex_descent(problem, coarse, LAST_STEPS)
    return Step(y, info={"init": "qp"})


def _coarse_start(problem: Problem[Array]) -> Array | None:
    """Return the start of a grid of pixels, each of which stands for those around it.

    None where filtering few pixels is no faster, or where kernels are too narrow for the grid.
    """
    shape = () if problem.crf is None else problem.crf.shape
    if len(shape) < 2 or not problem.pairwise.restricts_pixels:
        return None
    every = np.arange(problem.n).reshape(shape)
    grid = every[..., STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE]
    if grid.size < LEAST_GRID:
        return None
    pixels, share = grid.ravel(), grid.size / problem.n
    part = problem.on_pixels(pixels)
    whole = (problem.pairwise.mass - problem.pairwise.diagonal)[pixels]
    kept = part.pairwise.mass - part.pairwise.diagonal >= GRID_MASS * share * whole
    if int(kept.sum()) < GRID_PIXELS * grid.size:
        return None
    # The weights of the grid add up to that share of a pixel's, so its unaries count as much.
    light = Problem(share * part.unary, part.pairwise, part.steps, part.costs, calls=part.calls)
    y = _convex_descent(light, part.unary_marginals(), COARSE_STEPS)
    rows, columns = (
        np.minimum(np.arange(size) // STRIDE, count - 1)
        for size, count in zip(shape[-2:], grid.shape[-2:], strict=True)
    )
    nearest = np.arange(grid.size).reshape(grid.shape)[..., rows[:, None], columns]
    return problem.steps.contiguous(y[:, nearest.ravel()])


def _convex_descent(problem: Problem[Array], y: Array, most: int) -> Array:
    r"""Minimise the convex quadratic program from `y` on, in so many steps at most.

    Accelerated projected gradient steps (Beck and Teboulle 2009), restarted where the momentum
    points uphill (O'Donoghue and Candès 2015). The Hessian :math:`H + \text{diag}(c)` is at most
    :math:`\text{diag}(g + c)`. (The linear term's :math:`-\tfrac12 c` is the same for all labels
    of a pixel, and leaves projections as they are.)
    """
    c = convexifier(problem)
    strength = proximal_strength(problem) + c
    iterates, momentum, share = Iterates(problem, y), 1.0, 0.0
    for _ in range(most):
        step = iterates.step(strength, c, share)
        momentum, share = extrapolation(momentum, step.uphill)
        iterates.move(step)
        if 0.5 * step.moved <= START_TOLERANCE * problem.n:
            break
    return iterates.full(iterates.y)


def extrapolation(momentum: float, uphill: float) -> tuple[float, float]:
    """Return Nesterov's next momentum, and the share of the last move to extrapolate by.

    The momentum begins, and begins anew where the last move went uphill, at 1.
    """
    momentum = 1.0 if uphill > 0 else momentum
    following = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
    return following, (momentum - 1) / following


def frank_wolfe(
    problem: Problem[Array], linear: Array, diagonal: Array, y: Array, received: Array
) -> Iterator[QuadraticIterate[Array]]:
    r"""Minimise :math:`\langle\ell, y\rangle + \tfrac12\langle y, (H + \text{diag}(c)) y\rangle`.

    Frank and Wolfe (1956) with exact line search, from `y` and its `received` = Hy on, which is
    yielded first; one filter call per iteration. Ends only when no direction leads down.
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
