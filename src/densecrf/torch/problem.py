r"""Problems on torch tensors, by Triton's kernels where they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from densecrf.operators.torch.operator import TorchOperator
from densecrf.problem.label_costs import LabelCosts
from densecrf.problem.problem import Problem
from densecrf.steps.torch import TorchSteps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.model.compatibility import LabelTree
    from densecrf.model.crf import DenseCRF
    from densecrf.operators.torch.pairwise import TensorPairwise
    from densecrf.steps.triton import TritonBatch

__all__ = ["batch_of", "can_join", "torch_problem"]


def torch_problem(
    unary: Tensor,
    pairwise: TensorPairwise,
    compatibility: Tensor | None = None,
    tree: LabelTree | None = None,
    crf: DenseCRF | None = None,
) -> Problem[Tensor]:
    """Return the problem of tensors, on their device.

    Parameters
    ----------
    unary : Tensor
        (labels, n) energies, float32 or float64.
    pairwise : TensorPairwise
        The matrix K over the same pixels.
    compatibility : Tensor, optional
        (labels, labels) costs; Potts by default.
    tree : LabelTree, optional
        The tree whose metric `compatibility` is.
    crf : DenseCRF, optional
        The model on NumPy arrays that this one came from.

    Examples
    --------
    >>> import torch
    >>> from densecrf.operators.torch.pairwise import TensorPairwise
    >>> unary = torch.tensor([[0.0, 0.6, 0.0], [1.0, 0.5, 1.0]])
    >>> features = torch.arange(3.0).reshape(3, 1)
    >>> problem = torch_problem(unary, TensorPairwise([features], [1.0], unary))
    >>> round(problem.energy(torch.tensor([0, 0, 0])), 3)
    0.6
    """
    steps = TorchSteps(unary)
    costs = LabelCosts.of(len(unary), steps, compatibility, tree)
    problem = Problem(unary, TorchOperator(pairwise), steps, costs, crf)
    return batch_of([problem])[1][0] if _by_triton(pairwise) else problem


def can_join(problems: Sequence[Problem[Tensor]]) -> bool:
    """Return whether Triton's kernels can work on these problems together."""
    kinds = set()
    for each in problems:
        kernels = each.pairwise.pairwise if isinstance(each.pairwise, TorchOperator) else None
        if kernels is None or not _by_triton(kernels):
            return False
        kinds.add((each.n_labels, len(kernels.kernels)))
    return len(problems) > 1 and len(kinds) == 1


def batch_of(problems: Sequence[Problem[Tensor]]) -> tuple[TritonBatch, list[Problem[Tensor]]]:
    """Return a batch of problems that Triton's kernels work on, and the problems as its items."""
    from densecrf.steps.triton import TritonBatch, TritonOperator, TritonSteps

    operators = [each.pairwise for each in problems if isinstance(each.pairwise, TorchOperator)]
    batch = TritonBatch([each.pairwise for each in operators])
    items = []
    for number, (given, operator) in enumerate(zip(problems, operators, strict=True)):
        own = TritonOperator(operator.pairwise, batch, number)
        steps = TritonSteps(given.unary, batch)
        items.append(Problem(given.unary, own, steps, given.costs, given.crf, given.calls))
    return batch, items


def _by_triton(pairwise: TensorPairwise) -> bool:
    return pairwise.merged is not None and pairwise.merged.triton
