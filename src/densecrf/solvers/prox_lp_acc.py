r"""PROX-LP_acc: PROX-LP on the labels that matter and the pixels in doubt (section 5.1)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.prox_lp import Proximal, check_lam, label_restriction, proximal_steps
from densecrf.solvers.subproblems import (
    Known,
    Part,
    PixelPart,
    relevant_labels,
    uncertain_pixels,
)
from densecrf.validation import check_choice, check_integer, check_share

__all__ = ["ProximalPixels", "prox_lp_acc"]


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
        check_lam("restricted_lam", self.restricted_lam)
        check_share("confidence", self.confidence)
        check_share("max_share", self.max_share)
        check_integer("first_steps", self.first_steps, at_least=0)


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
    by_label = label_restriction(problem, settings)
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

    return _then_certified(problem, proximal_steps(y, settings, restrict), settings)


def _then_certified(
    problem: Problem[Array], steps: Iterator[Step[Array]], settings: ProximalPixels
) -> Iterator[Step[Array]]:
    """Yield the steps, and a last one with the bound that a dual point at their end proves."""
    step: Step[Array] | None = None
    for step in steps:
        yield step
    if step is not None and "pixels_kept" in step.info:
        part = Part(problem, step.info["labels_kept"])
        y = part.take(step.y)
        r, _, point = part.conditional_gradient(y, settings.levels, settings.order)
        relaxed = problem.steps.inner(part.problem.unary + r, y)
        duals = part.duals(((1.0, point),))
        yield Step(step.y, relaxed, part.bound(r), duals, step.labels, estimate=step.estimate)
