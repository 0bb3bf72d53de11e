r"""PROX-LP_ℓ: PROX-LP on the labels that matter (section 5.1 of the paper)."""

from collections.abc import Iterator
from typing import Any

from densecrf.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.prox_lp import Proximal, Restrict, proximal_steps
from densecrf.solvers.subproblems import SomeLabels, relevant_labels
from densecrf.validation import check_share

__all__ = ["label_restriction", "prox_lp_l"]


def prox_lp_l(
    problem: Problem,
    y: Any,
    *,
    label_threshold: float = 0.01,
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
    r"""Minimise as ``prox-lp``, without labels whose scores are small everywhere.

    Before each proximal step a label is removed for good when its score is below
    `label_threshold` everywhere. The result's `info` has the ``labels_kept``.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    label_threshold : float
        Labels with :math:`y_{ai}` below this at all pixels are removed.
    lam, K, T, levels, order, inner, inner_steps, tolerance, momentum, warm
        As for ``prox-lp``.
    """
    settings = Proximal(lam, K, T, levels, order, inner, inner_steps, tolerance, momentum, warm)
    return proximal_steps(y, settings, label_restriction(problem, label_threshold, lam))


def label_restriction(problem: Problem, threshold: float, lam: float) -> Restrict:
    """Return the choice of labels before each proximal step."""
    check_share("label_threshold", threshold)
    last: SomeLabels | None = None

    def restrict(_k: int, y: Any, dual: Any) -> tuple[SomeLabels, float]:
        nonlocal last
        keep = relevant_labels(y, threshold)
        if last is None or len(keep) < len(last.keep):
            last = SomeLabels(problem, keep, dual)
        return last, lam

    return restrict
