r"""PROX-LP: proximal minimisation of the linear program (Algorithm 1 of the paper).

``PROX-LP_ℓ`` keeps the labels that matter, ``PROX-LP_acc`` also the pixels in doubt (Section 5.1).

Each proximal step minimises :math:`\tilde E(y) + \tfrac1{2\lambda}\lVert y - y^k\rVert^2` (Eq. 5)
over the product of simplices through its dual (Eq. 8), with blocks α (by Frank-Wolfe) and β, γ
(exactly). Line by line:

    Algorithm 1                                  here
    1  for k ← 0 … K                             _proximal_steps: for k in range(K)
    2    Aα⁰ ← 0                                 alpha = Alpha(0 * centre), Aα = -q
    3    for t ← 0 … T                           frank_wolfe: for _ in range(T)
    4      (β, γ) ← argmin g(α, β, γ)            y = block(alpha.q), which finds both
    5      ỹ ← λ(Aα + Bβ + γ - φ) + yᵏ
    6      As ← conditional gradient at ỹ        r = part.conditional_gradient(y), As = -r
    7      δ ← optimal step size                 step = min(1, gap / length)
    8      Aα ← (1 - δ) Aα + δ As                alpha = Alpha(q + step * (r - q))
    9    yᵏ⁺¹ ← P_M(ỹ)                           y = project(iterate.y)

The paper sums over ordered pairs of pixels, this package over unordered ones with weights twice
as large: the energies are the same numbers, so λ means the same. Its conditional gradient, Eq. 13,

.. math:: (As)_{ai} = -\sum_b K^{paper}_{ab} ([\tilde y_{ai} \ge \tilde y_{bi}] -
          [\tilde y_{ai} \le \tilde y_{bi}])
          = -\tfrac12 \sum_b K_{ab} \operatorname{sign}(\tilde y_{ai} - \tilde y_{bi}),

is minus `Problem.dual_point`, which is called r throughout the package: As is written ``-r``
below, and :math:`A\alpha`, a convex combination of such, ``-q``. Every r and q proves a bound.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeAlias

import numpy as np

from densecrf.backend import Array
from densecrf.operators.levels import MOST_LEVELS
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.multiplicative import MultiplicativeBlock
from densecrf.solvers.subproblems import (
    Known,
    Part,
    PixelPart,
    Shares,
    relevant_labels,
    uncertain_pixels,
)
from densecrf.validation import (
    ArgumentError,
    check_choice,
    check_integer,
    check_non_negative,
    check_positive,
    check_share,
)

__all__ = [
    "Alpha",
    "FrankWolfeIterate",
    "Proximal",
    "ProximalPixels",
    "frank_wolfe",
    "prox_lp",
    "prox_lp_acc",
]

LARGE = 1e6  # λ that may take single precision beyond its range
LARGEST_LAM = 1e20


@dataclass(frozen=True)
class Proximal:
    r"""The settings of Algorithm 1.

    Parameters
    ----------
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
        Centre the proximal term at :math:`y^k + \tfrac{k}{k+3} (y^k - y^{k-1})`, as the authors'
        program does. Not in the paper; but without it the energy of its image 2_14_s (DC
        parameters, unnormalised) is 42 % higher after as many iterations.
    warm : bool
        Keep α from one proximal step to the next, not reset it. Not in the paper.
    label_threshold : float
        Before each proximal step, labels with :math:`y_{ai}` below this at all pixels are removed
        for good (``PROX-LP_ℓ``, Section 5.1): by default 0.01 in ``prox-lp-l`` and
        ``prox-lp-acc``; in ``prox-lp`` 0, and all stay.
    """

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
    label_threshold: float = 0.0

    def __post_init__(self) -> None:
        _check_lam("lam", self.lam)
        check_integer("K", self.K, at_least=1)
        check_integer("T", self.T, at_least=1)
        check_integer("levels", self.levels, at_least=2, at_most=MOST_LEVELS)
        check_choice("order", self.order, ("hard", "soft", "adaptive", "literal"))
        check_choice("inner", self.inner, ("projection", "multiplicative"))
        if self.inner_steps is not None:
            check_integer("inner_steps", self.inner_steps, at_least=1)
        check_non_negative("tolerance", self.tolerance)
        check_share("label_threshold", self.label_threshold)


@dataclass(frozen=True)
class ProximalPixels(Proximal):
    """The settings of ``prox-lp-acc``: those of ``prox-lp-l``, and more.

    Parameters
    ----------
    confidence : float
        Pixels with a score of this or more are frozen.
    max_share : float
        Largest share of pixels to optimise.
    first_steps : int
        Proximal steps on all pixels before any is frozen; part of the `K`.
    restricted_lam : float
        The proximal constant λ of the other steps.
    """

    label_threshold: float = 0.01
    confidence: float = 0.95
    max_share: float = 0.1
    first_steps: int = 5
    restricted_lam: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        # What frozen pixels do is stored by level: no adaptive order.
        check_choice("order", self.order, ("hard", "soft", "literal"))
        _check_lam("restricted_lam", self.restricted_lam)
        check_share("confidence", self.confidence)
        check_share("max_share", self.max_share)
        check_integer("first_steps", self.first_steps, at_least=0)


def _check_lam(name: str, lam: float) -> None:
    """Refuse a proximal constant that is no positive number, or too large."""
    if check_positive(name, lam) > LARGEST_LAM:
        remedy = f"λ times an energy leaves the range of float32; use at most {LARGEST_LAM:g}"
        raise ArgumentError(name, lam, remedy)


@dataclass(frozen=True)
class Alpha(Generic[Array]):
    r"""The dual variables α, as far as they are needed.

    Attributes
    ----------
    q : array
        :math:`-A\alpha`.
    constant : float
        What α adds to the dual besides, for frozen pixels (else 0).
    parts : tuple
        The conditional gradients whose combination it is, for the certificate.
    """

    q: Array
    constant: float = 0.0
    parts: Shares[Array] = ()


@dataclass(frozen=True)
class FrankWolfeIterate(Generic[Array]):
    """A Frank-Wolfe iteration.

    Attributes
    ----------
    y : array
        The primal solution of the new α.
    alpha : Alpha
        The new α.
    r : array
        The dual point -As of the iteration.
    gap : float
        The Frank-Wolfe dual gap before the iteration.
    relaxed : float
        The LP's objective before the iteration, as the levels see it.
    step : float
        The step size δ.
    """

    y: Array
    alpha: Alpha[Array]
    r: Array
    gap: float
    relaxed: float
    step: float


#: ``restrict(k, y, known)`` returns the part of proximal step k and its λ; None ends the method.
#: `known` is the last dual point of the whole, if there is one.
Restrict: TypeAlias = Callable[[int, Array, Known[Array] | None], tuple[Part[Array] | None, float]]


def prox_lp(problem: Problem[Array], y: Array, settings: Proximal) -> Iterator[Step[Array]]:
    r"""Minimise the linear program by Algorithm 1; one step yielded per Frank-Wolfe iteration.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals :math:`y^0`.
    settings : Proximal
        The settings.

    Yields
    ------
    Step
        Its ``relaxed`` is the objective where the iteration began. The result's `info` has the
        ``dual_gaps`` and ``step_sizes`` of all iterations, and the ``labels_kept`` where there is a
        threshold.
    """
    return _proximal_steps(y, settings, _label_restriction(problem, settings))


def _label_restriction(problem: Problem[Array], settings: Proximal) -> "Restrict[Array]":
    """Return the choice of labels before each proximal step."""
    last: Part[Array] | None = None

    def restrict(_k: int, y: Array, known: "Known[Array] | None") -> tuple[Part[Array], float]:
        nonlocal last
        keep, threshold = None, settings.label_threshold
        if threshold:
            keep = relevant_labels(problem, y, threshold)
        if last is None or (keep is not None and len(keep) < last.problem.n_labels):
            last = Part(problem, keep, known)
        return last, settings.lam

    return restrict


def prox_lp_acc(
    problem: Problem[Array], y: Array, settings: ProximalPixels
) -> Iterator[Step[Array]]:
    r"""Minimise as ``prox-lp-l`` at first, then only over the pixels that are in doubt.

    A pixel is in doubt while :math:`\max_i y_{ai}` is below the confidence. The others are frozen:
    what they do to those in doubt is filtered once for each choice of pixels. While more pixels
    are in doubt than `max_share` allows, each proximal step takes the least certain ones.

    The bound comes from the first steps and from one dual point of all pixels at the end. The
    result's `info` has the ``labels_kept`` and the ``pixels_kept``.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    settings : ProximalPixels
        The settings.
    """
    by_label = _label_restriction(problem, settings)
    last: PixelPart[Array] | None = None

    def restrict(
        k: int, y: Array, known: "Known[Array] | None"
    ) -> tuple[Part[Array] | None, float]:
        nonlocal last
        if k < settings.first_steps:
            return by_label(k, y, known)
        pixels = uncertain_pixels(problem, y, settings.confidence, settings.max_share)
        if not len(pixels):
            return None, settings.restricted_lam
        if last is None or not np.isin(pixels, last.pixels).all():
            keep = relevant_labels(problem, y, settings.label_threshold)
            last = PixelPart(problem, keep, y, pixels)
        return last, settings.restricted_lam

    return _then_certified(problem, _proximal_steps(y, settings, restrict), settings)


def _then_certified(
    problem: Problem[Array], steps: Iterator[Step[Array]], settings: ProximalPixels
) -> Iterator[Step[Array]]:
    """Yield the steps, and a last one with the bound that a dual point at their end proves."""
    step: Step[Array] | None = None
    for step in steps:
        yield step
    if step is not None and "pixels_kept" in step.info:
        part, y = Part(problem, step.rows), step.y
        r, _, point = part.conditional_gradient(y, settings.levels, settings.order)
        relaxed = problem.steps.inner(part.problem.unary + r, y)
        duals = part.duals(((1.0, point),))
        yield replace(step, relaxed=relaxed, bound=part.bound(r), duals=duals)


def _proximal_steps(
    y: Array, settings: Proximal, restrict: "Restrict[Array]"
) -> Iterator[Step[Array]]:
    """Run the proximal steps on the part of the problem that `restrict` chooses for each."""
    previous = y
    known: Known[Array] | None = None
    last: tuple[Part[Array], Alpha[Array]] | None = None
    history: dict[str, list[float]] = {"dual_gaps": [], "step_sizes": []}
    for k in range(settings.K):  # line 1
        part, lam = restrict(k, y, known)
        if part is None:
            return
        project = part.problem.steps.project
        centre = project(part.take(y))
        if settings.momentum:
            centre = centre + k / (k + 3) * (centre - project(part.take(previous)))
        alpha = Alpha(0 * centre)  # line 2
        if settings.warm and last is not None and last[0] is part:
            alpha = last[1]
        elif settings.warm and known is not None and part.complete:
            r, mixture = known
            parts = mixture.of_labels(part.keep) if mixture and part.keep is not None else ()
            alpha = Alpha(part.take(r), 0.0, parts)
        for iterate in frank_wolfe(part, centre, alpha, lam, settings):
            history["dual_gaps"].append(iterate.gap)
            history["step_sizes"].append(iterate.step)
            yield _step(part, iterate, history)
        last = (part, iterate.alpha)
        extended = part.extended(iterate.alpha.q)
        duals = part.duals(iterate.alpha.parts)
        known = None if extended is None else (extended, duals[0] if duals else None)
        previous, y = y, part.full(project(iterate.y))  # line 9


def frank_wolfe(
    part: Part[Array], centre: Array, alpha: Alpha[Array], lam: float, settings: Proximal
) -> Iterator[FrankWolfeIterate[Array]]:
    r"""Solve the proximal problem at `centre`, :math:`y^k`, from `alpha`, in one iteration or more.

    After T updates of α the block (β, γ) is solved once more, so that the last conditional
    gradient is not lost.
    """
    problem = part.problem
    block = _block(problem, centre, lam, settings)
    y = block(alpha.q)  # lines 4 and 5 (Eqs. 9 to 11)
    square = problem.steps.inner(alpha.q, alpha.q)
    for _ in range(settings.T):  # line 3
        # Line 6 (Eq. 13).
        r, c, found = part.conditional_gradient(y, settings.levels, settings.order)
        along = problem.steps.inner(r, y)
        gap = along - problem.steps.inner(alpha.q, y)  # along Aα - As = r - q
        gap -= alpha.constant + c
        relaxed = problem.steps.inner(problem.unary, y) + along - c
        if gap <= settings.tolerance * abs(relaxed):
            yield FrankWolfeIterate(y, alpha, r, gap, relaxed, 0.0)
            return
        across, there = problem.steps.inner(r, alpha.q), problem.steps.inner(r, r)
        length = lam * (there - 2 * across + square)
        step = min(1.0, gap / length) if length > 0 else 0.0  # line 7, δ (Eq. 14)
        parts = [(share * (1 - step), each) for share, each in alpha.parts if step < 1]
        parts.append((step, found))
        square = (1 - step) ** 2 * square + 2 * step * (1 - step) * across + step**2 * there
        alpha = Alpha(  # line 8 (Eq. 12)
            problem.steps.extrapolate(alpha.q, r, -step),
            alpha.constant - step * (alpha.constant + c),
            tuple(parts),
        )
        y = block(alpha.q)  # lines 4 and 5 of the next iteration
        yield FrankWolfeIterate(y, alpha, r, gap, relaxed, step)


def _block(
    problem: Problem[Array], centre: Array, lam: float, settings: Proximal
) -> Callable[[Array], Array]:
    r"""Return the map from :math:`-A\alpha` to :math:`\tilde y` (Eq. 9) for the best β and γ.

    They are the multipliers of the constraints of the simplex, so :math:`\tilde y` is the
    projection of :math:`\lambda(A\alpha - \phi) + y^k`.
    """
    steps, xp = problem.steps, problem.steps.xp
    if settings.inner == "multiplicative":
        block = MultiplicativeBlock(steps.to_numpy(centre), lam, settings.inner_steps)
        # The projection of what solves it within a tolerance.
        return lambda q: steps.project(steps.from_numpy(block(steps.to_numpy(-q - problem.unary))))

    def cut_off(q: Array) -> Array:
        """Cut λv off where single precision would overflow: beyond 2 differences are alike."""
        v = -q - problem.unary
        return steps.project(xp.clip(lam * (v - xp.amax(v, 0)), -8.0, 0.0) + centre)

    return cut_off if lam > LARGE else lambda q: problem.projected_step(centre, q, lam)


def _step(
    part: Part[Array], iterate: FrankWolfeIterate[Array], history: dict[str, list[float]]
) -> Step[Array]:
    labels, estimate = part.rounded(iterate.y)
    alpha = iterate.alpha
    bounds = [b for b in (part.bound(iterate.r), part.bound(alpha.q)) if b is not None]
    combinations: Iterator[Shares[Array]] = iter([alpha.parts])
    if alpha.parts and bounds and bounds[0] == max(bounds):
        combinations = iter([((1.0, alpha.parts[-1][1]),), alpha.parts])
    return Step(
        part.everywhere(iterate.y),
        rows=part.keep,
        relaxed=iterate.relaxed if part.complete else None,
        bound=max(bounds, default=None),
        duals=tuple(chain.from_iterable(map(part.duals, combinations))),
        labels=labels,
        estimate=estimate,
        info={**history, **part.info()},
    )
