r"""PROX-LP_ℓ: PROX-LP on the labels that matter (section 5.1 of the paper)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step
from densecrf.solvers.prox_lp import Known, Proximal, Restrict, proximal_steps
from densecrf.solvers.subproblems import SomeLabels, relevant_labels
from densecrf.validation import check_share

__all__ = ["ProximalLabels", "label_restriction", "prox_lp_l"]


@dataclass(frozen=True)
class ProximalLabels(Proximal):
    r"""The settings of ``prox-lp-l``: those of ``prox-lp``, and a threshold.

    Parameters
    ----------
    label_threshold : float
        Labels with :math:`y_{ai}` below this at all pixels are removed.
    """

    label_threshold: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("label_threshold", self.label_threshold)


def prox_lp_l(problem: Problem[Array], y: Array, settings: ProximalLabels) -> Iterator[Step]:
    r"""Minimise as ``prox-lp``, without labels whose scores are small everywhere.

    Before each proximal step a label is removed for good when its score is below the threshold
    everywhere. The result's `info` has the ``labels_kept``.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    settings : ProximalLabels
        The settings.
    """
    return proximal_steps(y, settings, label_restriction(problem, settings))


def label_restriction(problem: Problem[Array], settings: ProximalLabels) -> Restrict:
    """Return the choice of labels before each proximal step."""
    last: SomeLabels[Array] | None = None

    def restrict(_k: int, y: Any, known: Known | None) -> tuple[SomeLabels[Array], float]:
        nonlocal last
        keep = relevant_labels(problem, y, settings.label_threshold)
        if last is None or len(keep) < len(last.keep):
            last = SomeLabels(problem, keep, known)
        return last, settings.lam

    return restrict
