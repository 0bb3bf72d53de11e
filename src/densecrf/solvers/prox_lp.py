r"""PROX-LP: proximal minimisation of the linear program (Algorithm 1 of the paper).

Each proximal step minimises :math:`\tilde E(y) + \tfrac1{2\lambda}\lVert y - y^k\rVert^2` over the
product of simplices through its dual (Eq. 8), with blocks α (by Frank-Wolfe) and β, γ (exactly).

The paper sums over ordered pairs of pixels, this package over unordered ones with weights twice
as large: the energies are the same numbers, so λ means the same. Its Eq. 13,

.. math:: (As)_{ai} = -\sum_b K^{paper}_{ab} ([\tilde y_{ai} \ge \tilde y_{bi}] -
          [\tilde y_{ai} \le \tilde y_{bi}])
          = -\tfrac12 \sum_b K_{ab} \operatorname{sign}(\tilde y_{ai} - \tilde y_{bi}),

is minus `Problem.dual_point`. So every As, and every convex combination of them, which Aα is,
proves a bound on the energy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from densecrf.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.multiplicative import MultiplicativeBlock
from densecrf.solvers.subproblems import Part, Whole
from densecrf.validation import check_choice, check_integer, check_non_negative, check_positive

__all__ = ["Iterate", "Proximal", "frank_wolfe", "prox_lp", "proximal_steps"]

LARGEST_LAM = 1e20


@dataclass(frozen=True)
class Proximal:
    """The settings of Algorithm 1; see `prox_lp`."""

    lam: float = 0.1
    K: int = 10
    T: int = 5
    levels: int = 10
    order: str = "hard"
    inner: str = "projection"
    inner_steps: int | None = None
    tolerance: float = 0.0
    momentum: bool = True
    warm: bool = False

    def __post_init__(self) -> None:
        check_positive("lam", self.lam)
        if self.lam > LARGEST_LAM:
            raise ValueError(
                f"lam={self.lam!r}: λ times an energy leaves the range of float32; use at most "
                f"{LARGEST_LAM:g}"
            )
        check_integer("K", self.K, at_least=1)
        check_integer("T", self.T, at_least=1)
        check_integer("levels", self.levels, at_least=2)
        check_choice("order", self.order, ("hard", "soft", "adaptive", "literal"))
        check_choice("inner", self.inner, ("projection", "multiplicative"))
        if self.inner_steps is not None:
            check_integer("inner_steps", self.inner_steps, at_least=1)
        check_non_negative("tolerance", self.tolerance)


@dataclass(frozen=True)
class Iterate:
    """A Frank-Wolfe iteration.

    Attributes
    ----------
    y : array
        The primal solution of the new α.
    w : array
        The new Aα.
    constant : float
        What the new α adds to the dual besides; see `frank_wolfe`.
    r : array
        The dual point -As of the iteration.
    gap : float
        The Frank-Wolfe dual gap before the iteration.
    relaxed : float
        The LP's objective before the iteration, as the levels see it.
    step : float
        The step size δ.
    """

    y: Any
    w: Any
    constant: float
    r: Any
    gap: float
    relaxed: float
    step: float


def prox_lp(
    problem: Problem,
    y: Any,
    *,
    lam: float = 0.1,
    K: int = 10,  # noqa: N803 - the paper's names
    T: int = 5,  # noqa: N803
    levels: int = 10,
    order: str = "hard",
    inner: str = "projection",
    inner_steps: int | None = None,
    tolerance: float = 0.0,
    momentum: bool = True,
    warm: bool = False,
) -> Iterator[Step]:
    r"""Minimise the linear program by Algorithm 1; one step yielded per Frank-Wolfe iteration.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals :math:`y^0`.
    lam : float
        The proximal constant λ, in units of 1 / energy.
    K, T : int
        Proximal steps, and Frank-Wolfe iterations of each.
    levels : int
        Number of levels H of the ordered filter.
    order : {"hard", "soft", "adaptive", "literal"}
        How scores are compared: the paper's bins, bins with linear weights, exactly, or the
        paper's bins by its Algorithm 3 as printed, which is slow.
    inner : {"projection", "multiplicative"}
        How β and γ are found: exactly, or by the paper's multiplicative updates.
    inner_steps : int, optional
        Number of multiplicative updates; by default as many as convergence takes.
    tolerance : float
        A proximal step ends early when its dual gap is below this fraction of the LP's objective.
    momentum : bool
        Centre the proximal term at :math:`y^k + \tfrac{k}{k+3} (y^k - y^{k-1})`.
    warm : bool
        Keep α from one proximal step to the next, not reset it.

    Notes
    -----
    Momentum is in the authors' program, not in the paper. Energies (and bounds) measured on MSRC
    image 2_14_s with the paper's DC parameters, 50 ordered filterings:

    =================================== =================== =================== ===================
    from                                neither             momentum            momentum, warm
    =================================== =================== =================== ===================
    symmetric, mf5 (161,483)            159,959 (157,402)   159,130 (157,212)   159,128 (158,524)
    symmetric, dc-neg (159,274)         159,104 (156,271)   159,103 (155,900)   159,104 (158,448)
    unnormalised, a labelling (6.137e6) 1,164,794 (155,602) 1,147,387 (154,457) 881,516 (155,163)
    =================================== =================== =================== ===================

    Yields
    ------
    Step
        Its ``relaxed`` is the objective where the iteration began. The result's `info` has the
        ``dual_gaps`` and ``step_sizes`` of all iterations.
    """
    settings = Proximal(
        lam, K, T, levels, order, inner, inner_steps, tolerance, momentum, warm
    )  # fmt: skip
    whole = Whole(problem)
    return proximal_steps(y, settings, lambda _k, _y, _dual: (whole, settings.lam))


Restrict = Callable[[int, Any, Any], "tuple[Part | None, float]"]


def proximal_steps(y: Any, settings: Proximal, restrict: Restrict) -> Iterator[Step]:
    """Run the proximal steps on the part of the problem that `restrict` chooses for each.

    Parameters
    ----------
    y : array, (labels, n)
        The starting marginals.
    settings : Proximal
        The settings.
    restrict : callable
        ``restrict(k, y, dual)`` returns the part of step k and its λ; None ends the method.
        `dual` is the last dual point of the whole, if there is one.
    """
    previous, dual = y, None
    last: tuple[Part, Iterate] | None = None
    history: dict[str, list[float]] = {"dual_gaps": [], "step_sizes": []}
    for k in range(settings.K):
        part, lam = restrict(k, y, dual)
        if part is None:
            return
        centre = part.problem.project(part.take(y))
        if settings.momentum:
            centre = centre + k / (k + 3) * (centre - part.problem.project(part.take(previous)))
        alpha = _initial_alpha(part, centre, dual, last) if settings.warm else (0 * centre, 0.0)
        for iterate in frank_wolfe(part, centre, alpha, lam, settings):
            history["dual_gaps"].append(iterate.gap)
            history["step_sizes"].append(iterate.step)
            yield _step(part, iterate, history)
        last = (part, iterate)
        dual = part.extended(-iterate.w)
        previous, y = y, part.full(part.problem.project(iterate.y))


def _initial_alpha(
    part: Part, centre: Any, dual: Any, last: tuple[Part, Iterate] | None
) -> tuple[Any, float]:
    """Return Aα and its constant as the last proximal step left them, where they still apply."""
    if last is not None and last[0] is part:
        return last[1].w, last[1].constant
    if dual is not None and part.complete:
        return -part.take(dual), 0.0
    return 0 * centre, 0.0


def frank_wolfe(
    part: Part, centre: Any, alpha: tuple[Any, float], lam: float, settings: Proximal
) -> Iterator[Iterate]:
    r"""Solve one proximal problem from `alpha`; at least one iteration is yielded.

    After T updates of α the block (β, γ) is solved once more, so that the last conditional
    gradient is not lost.

    Parameters
    ----------
    part : Part
        The problem.
    centre : array
        The centre of the proximal term.
    alpha : (array, float)
        :math:`A\alpha` and what α adds to the dual besides, for frozen pixels (else 0).
    lam : float
        The proximal constant λ.
    settings : Proximal
        The rest.
    """
    problem = part.problem
    block = _block(problem, centre, lam, settings)
    w, constant = alpha
    y = block(w)
    for _ in range(settings.T):
        r, c = part.conditional_gradient(y, settings.levels, settings.order)
        direction = w + r  # Aα - As
        gap = problem.inner(direction, y) - (constant + c)
        relaxed = problem.inner(problem.unary + r, y) - c
        if gap <= settings.tolerance * abs(relaxed):
            yield Iterate(y, w, constant, r, gap, relaxed, 0.0)
            return
        length = lam * problem.inner(direction, direction)
        step = min(1.0, gap / length) if length > 0 else 0.0  # Eq. 14
        w = w - step * direction
        constant -= step * (constant + c)
        y = block(w)
        yield Iterate(y, w, constant, r, gap, relaxed, step)


def _block(problem: Problem, centre: Any, lam: float, settings: Proximal) -> Callable[[Any], Any]:
    r"""Return the map from :math:`A\alpha` to :math:`\tilde y` (Eq. 9) for the best β and γ.

    They are the multipliers of the constraints of the simplex, so :math:`\tilde y` is the
    projection of :math:`\lambda(A\alpha - \phi) + y^k`.
    """
    if settings.inner == "multiplicative":
        if not isinstance(centre, np.ndarray):
            raise ValueError("inner='multiplicative': on NumPy arrays alone; use 'projection'")
        block = MultiplicativeBlock(centre, lam, settings.inner_steps)
        return lambda w: problem.project(block(w - problem.unary))  # within its tolerance
    return lambda w: problem.project(lam * (w - problem.unary) + centre)


def _step(part: Part, iterate: Iterate, history: dict[str, list[float]]) -> Step:
    labels, energy = part.rounded(iterate.y)
    bounds = [b for b in (part.bound(iterate.r), part.bound(-iterate.w)) if b is not None]
    return Step(
        part.full(iterate.y),
        relaxed=iterate.relaxed if part.complete else None,
        bound=max(bounds, default=None),
        labels=labels,
        energy=energy,
        info={**history, **part.info()},
    )
