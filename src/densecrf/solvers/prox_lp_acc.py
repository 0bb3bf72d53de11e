r"""PROX-LP_acc: PROX-LP on the labels that matter and the pixels in doubt (section 5.1)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from densecrf.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.prox_lp import Proximal, Restrict, proximal_steps
from densecrf.solvers.prox_lp_l import label_restriction
from densecrf.solvers.subproblems import SomeLabels, SomePixels, relevant_labels, uncertain_pixels
from densecrf.validation import check_choice, check_integer, check_positive, check_share

__all__ = ["prox_lp_acc"]


def prox_lp_acc(
    problem: Problem,
    y: Any,
    *,
    label_threshold: float = 0.01,
    confidence: float = 0.95,
    max_share: float = 0.1,
    first_steps: int = 5,
    lam: float = 0.1,
    restricted_lam: float = 0.1,
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
    r"""Minimise as ``prox-lp-l`` at first, then only over the pixels that are in doubt.

    A pixel is in doubt while :math:`\max_i y_{ai}` is below `confidence`. The others are frozen:
    what they do to those in doubt is filtered once for each choice of pixels. While more pixels
    are in doubt than `max_share` allows, each proximal step takes the least certain ones.

    The bound comes from the first steps and from one dual point of all pixels at the end. The
    result's `info` has the ``labels_kept`` and the ``pixels_kept``.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    label_threshold : float
        Labels with :math:`y_{ai}` below this at all pixels are removed.
    confidence : float
        Pixels with a score of this or more are frozen.
    max_share : float
        Largest share of pixels to optimise.
    first_steps : int
        Proximal steps on all pixels before any is frozen; part of the `K`.
    lam, restricted_lam : float
        The proximal constant λ before and after.
    K, T, levels, order, inner, inner_steps, tolerance, momentum, warm
        As for ``prox-lp``; `order` is not "adaptive": what frozen pixels do is stored by level.
    """
    check_choice("order", order, ("hard", "soft", "literal"))
    check_positive("restricted_lam", restricted_lam)
    check_share("confidence", confidence)
    check_share("max_share", max_share)
    check_integer("first_steps", first_steps, at_least=0)
    settings = Proximal(lam, K, T, levels, order, inner, inner_steps, tolerance, momentum, warm)
    by_label = label_restriction(problem, label_threshold, lam)
    by_pixel = _pixel_restriction(problem, label_threshold, confidence, max_share, restricted_lam)

    def restrict(k: int, y: Any, dual: Any) -> Any:
        return by_label(k, y, dual) if k < first_steps else by_pixel(k, y, dual)

    return _then_certified(problem, proximal_steps(y, settings, restrict), settings)


def _pixel_restriction(
    problem: Problem, threshold: float, confidence: float, max_share: float, lam: float
) -> Restrict:
    """Return the choice of pixels before each restricted proximal step."""
    last: SomePixels | None = None

    def restrict(_k: int, y: Any, _dual: Any) -> tuple[SomePixels | None, float]:
        nonlocal last
        pixels = uncertain_pixels(y, confidence, max_share)
        if not len(pixels):
            return None, lam
        if last is None or not np.isin(pixels, last.pixels).all():
            last = SomePixels(SomeLabels(problem, relevant_labels(y, threshold)), y, pixels)
        return last, lam

    return restrict


def _then_certified(problem: Problem, steps: Iterator[Step], settings: Proximal) -> Iterator[Step]:
    """Yield the steps, and a last one with the bound that a dual point at their end proves."""
    step: Step | None = None
    for step in steps:
        yield step
    if step is not None and "pixels_kept" in step.info:
        part = SomeLabels(problem, step.info["labels_kept"])
        r = part.problem.dual_point(part.take(step.y), settings.levels, settings.order)
        relaxed = problem.inner(part.problem.unary + r, part.take(step.y))
        yield Step(step.y, relaxed, part.bound(r), step.labels, step.energy)
