"""Batches: the energies and features of their items, which are solved together, and results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from densecrf.model.parameters import check_label_count
from densecrf.operators.torch.features import bilateral, positions
from densecrf.solvers.minimisation import minimise
from densecrf.solvers.result import relative_gap
from densecrf.torch.problem import batch_of, checked_device, computed, problem_on, torch_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from densecrf.model.crf import DenseCRF
    from densecrf.model.label_prior import LabelPrior
    from densecrf.solvers.loop import Limits, Outcome
    from densecrf.validation import FloatArray

__all__ = [
    "BatchResult",
    "batched",
    "energies",
    "features_of",
    "minimise_all",
    "minimise_each_on",
    "working_dtype",
]

TOGETHER = 1 << 28  # labels times pixels of the items that are solved together, at most


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What `DenseCRF.solve` found, item by item.

    Attributes
    ----------
    labels : Tensor, or list of Tensor
        (N, *spatial) int64, the best labelling of each item; a list where a list was given.
    marginals : Tensor, or list of Tensor
        (N, C, *spatial), the relaxed solutions.
    energy : list of float
        Energies of the labellings.
    lower_bound : list of float or None
        No labelling whatsoever has an energy below this.
    converged : list of bool
        Whether a method ended by itself, within the asked gap.
    iterations : list of int
        Iterations made.
    margin : list of Tensor or None
        Per item (*spatial), as `densecrf.Result.margin`, on the CPU.
    """

    labels: Any
    marginals: Any
    energy: list[float]
    lower_bound: list[float | None]
    converged: list[bool]
    iterations: list[int]
    margin: list[Tensor | None] = field(default_factory=list)

    @property
    def gap(self) -> list[float | None]:
        """(energy - lower_bound) / max(1, abs(energy)) of each item."""
        return [relative_gap(e, b) for e, b in zip(self.energy, self.lower_bound, strict=True)]

    @staticmethod
    def of(
        outcomes: Sequence[Outcome[Tensor]], grids: Sequence[Sequence[int]], stack: bool
    ) -> BatchResult:
        """Return the outcomes of items of these grids, stacked or as lists."""
        pairs = list(zip(outcomes, grids, strict=True))
        labels = [torch.as_tensor(each.labels).view(*grid) for each, grid in pairs]
        marginals = [torch.as_tensor(each.y).reshape(-1, *grid) for each, grid in pairs]
        return BatchResult(
            labels=torch.stack(labels) if stack else labels,
            marginals=torch.stack(marginals) if stack else marginals,
            energy=[each.energy for each in outcomes],
            lower_bound=[each.lower_bound for each in outcomes],
            converged=[each.converged for each in outcomes],
            iterations=[each.iterations for each in outcomes],
            margin=[
                None if each.margin is None else torch.from_numpy(each.margin).view(*grid)
                for each, grid in pairs
            ],
        )


def working_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype that a batch is solved in."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def energies(logits: Tensor, dtype: torch.dtype, prior: LabelPrior | None = None) -> Tensor:
    """Return the unary energies of a batch, (C, N n).

    With a prior, each item's shares of the labels add theirs, as in `densecrf.model.label_prior`.
    """
    items, classes = logits.shape[:2]
    scores = logits.to(dtype).flatten(2).transpose(0, 1).reshape(classes, -1)
    unary = -torch.log_softmax(scores, 0)
    if prior is None:
        return unary
    check_label_count("prior", prior.frequencies, classes)
    by_item = unary.view(classes, items, -1)
    known = (by_item.amax(0) > by_item.amin(0)).to(dtype)
    seen = known.sum(1, keepdim=True).clamp(min=1)
    shares = torch.einsum("cia,ia->ic", (-by_item).exp(), known) / seen
    added: Tensor = prior.energies(shares, torch.log)
    return (by_item + added.T[:, :, None] * known).reshape(classes, -1)


def features_of(image: Tensor, sigma: Any, color: Any, dtype: torch.dtype) -> Tensor:
    """Return the features (N, n, d) of the appearance kernel; without a colour, of smoothness."""
    sigma = torch.as_tensor(sigma, dtype=torch.float64)
    if color is not None:
        return bilateral(image, sigma, torch.as_tensor(color, dtype=torch.float64)).to(dtype)
    grid = positions(image.shape[2:], sigma, image.device)
    return grid.to(dtype).expand(image.shape[0], -1, -1)


def batched(values: Tensor, logits: Tensor) -> Tensor:
    """Return label-major (C, N n) values in the shape and dtype of the logits."""
    items, classes = logits.shape[:2]
    by_item = values.view(classes, items, -1).transpose(0, 1)
    return by_item.reshape(logits.shape).to(logits.dtype).contiguous()


def minimise_all(
    problem_of: Callable[[int], Any], sizes: Sequence[int], solve: Callable[..., Outcome[Tensor]]
) -> list[Outcome[Tensor]]:
    """Solve the problems of all items: together by Triton's kernels, elsewhere one by one.

    Parameters
    ----------
    problem_of : callable
        Makes the problem of an item.
    sizes : sequence of int
        Labels times pixels of each item; 0 where it is solved by itself.
    solve : callable
        ``solve(problem, stopped=...)`` solves a problem; cuts it short where it is `stopped`.
    """
    outcomes: list[Outcome[Tensor]] = []
    for group in _groups(sizes):
        stopped = bool(outcomes) and outcomes[-1].interrupted
        problems = [problem_of(item) for item in group]
        joined = len(group) > 1 and find_spec("greenlet") is not None and batch_of(problems)
        batch, problems = joined or (None, problems)
        calls = [partial(solve, each, stopped=stopped) for each in problems]
        found = [call() for call in calls] if batch is None else batch.run(calls)
        for each in found:
            each.interrupted |= stopped
        outcomes += found
    return outcomes


def minimise_each_on(
    crf: DenseCRF, unaries: Sequence[FloatArray], device: Any, limits: Limits
) -> list[Outcome[Tensor]]:
    """Minimise by ``"lp"`` the energies of several unaries (labels, n) over a model's kernels.

    They are brought to a device, and solved together by Triton's kernels.
    """
    where = checked_device(device)

    def solve(problem: Any, stopped: bool) -> Outcome[Tensor]:
        most = 0 if stopped else limits.max_iterations
        return minimise(problem, "lp", replace(limits, max_iterations=most))

    def attempt(workspace: int | None) -> list[Outcome[Tensor]]:
        shared: Any = problem_on(crf, where, workspace).pairwise

        def problem_of(item: int) -> Any:
            return torch_problem(torch.from_numpy(unaries[item]).to(where), shared.pairwise)

        return minimise_all(problem_of, [unary.size for unary in unaries], solve)

    with torch.no_grad():
        return computed(attempt, where, len(unaries[0]), f"{len(unaries)} masks of {crf.n} pixels")


def _groups(sizes: Sequence[int]) -> list[list[int]]:
    """Return the items that are solved together.

    Examples
    --------
    >>> _groups([0, 0]), _groups([9, 9, TOGETHER, 9])
    ([[0], [1]], [[0, 1], [2], [3]])
    """
    groups: list[list[int]] = []
    total = TOGETHER
    for item, size in enumerate(sizes):
        total += size
        if size == 0 or total > TOGETHER:
            groups.append([])
            total = size
        groups[-1].append(item)
        total = TOGETHER if size == 0 else total
    return groups
