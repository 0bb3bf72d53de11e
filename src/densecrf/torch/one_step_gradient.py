"""The last step of a solved problem, which carries its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from densecrf.solvers.lp import CELLS
from densecrf.solvers.quadratic import proximal_strength

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.problem.problem import Problem

LEVELS = 10
SMOOTHING = 1e-4


def final_step(problem: Problem[Tensor], y: Tensor, method: str) -> Tensor:
    r"""Return `y`, with the gradient of one more projected step of the method from there.

    The step is :math:`P_\Delta(y - (\phi + r) / s)`: r is the gradient of the pairwise term
    (messages for dc-neg, the dual point of `y` for the linear programs), s the strength of the
    method's proximal term. The projection and r as a function of weights and features are
    differentiated; `y`, the order of its scores and s are held fixed.

    Parameters
    ----------
    problem : Problem
        The problem, attached to what needs gradients.
    y : Tensor
        (labels, n), its solution, detached.
    method : str
        The method that found it.
    """
    if not torch.is_grad_enabled():
        return y
    if method == "dc-neg":
        strength = proximal_strength(problem).detach()
        pull = problem.messages(y)
    else:
        strength = (CELLS * problem.lipschitz).detach()
        pull = problem.dual_point(y, LEVELS, rescale=False)
    step = problem.steps.project(y - (problem.unary + pull) / strength)
    return y + (step - step.detach())


def smoothed_log(y: Tensor) -> Tensor:
    """Return logarithms of probabilities that may be zero, mixed with a little of the uniform."""
    return ((1 - SMOOTHING) * y + SMOOTHING / y.shape[0]).log()
