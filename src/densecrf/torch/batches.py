"""Batches: the energies and features of their items, which are solved together, and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from densecrf.model.parameters import check_label_count
from densecrf.operators.torch.features import bilateral, positions
from densecrf.solvers.result import relative_gap
from densecrf.torch.problem import by_triton, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from densecrf.model.label_prior import LabelPrior
    from densecrf.solvers.loop import Outcome

__all__ = [
    "BatchResult",
    "batched",
    "detached",
    "energies",
    "features_of",
    "minimise_all",
    "room_on",
    "working_dtype",
]

# Labels times pixels of the items that are solved together, at most, and the bytes of one.
TOGETHER, BYTES = 1 << 27, 320


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
    if len(sizes) > 1 and all(sizes) and find_spec("greenlet") is not None:
        first = [problem_of(0)]
        if by_triton(first[0]):
            device = first[0].unary.device
            return _minimise_together(
                lambda item: first.pop() if first else problem_of(item), sizes, solve, device
            )
    outcomes: list[Outcome[Tensor]] = []
    for item in range(len(sizes)):
        stopped = bool(outcomes) and outcomes[-1].interrupted
        outcomes.append(solve(problem_of(item), stopped=stopped))
        outcomes[-1].interrupted |= stopped
    return outcomes


def _minimise_together(
    problem_of: Callable[[int], Any],
    sizes: Sequence[int],
    solve: Callable[..., Outcome[Tensor]],
    device: torch.device,
) -> list[Outcome[Tensor]]:
    """Solve the problems of items that enter a batch in turn, and leave it when they are solved."""
    from densecrf.steps.lockstep import Lockstep
    from densecrf.steps.triton import TritonBatch

    lockstep = Lockstep(room_on(device))
    batch = TritonBatch(lockstep=lockstep)

    def run(item: int) -> Outcome[Tensor]:
        lockstep.make_room(sizes[item])
        stopped = lockstep.interrupted
        try:
            found = solve(joined(batch, item, problem_of(item)), stopped=stopped)
        finally:
            batch.leave(item)
        found.interrupted |= stopped
        found.dual = None
        return detached(found)

    runs = [partial(run, item) for item in range(len(sizes))]
    return lockstep.run(runs, attrgetter("interrupted"))


def room_on(device: torch.device) -> float:
    """Return the labels times pixels that are solved together on a device, at most."""
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else inf
    return min(TOGETHER, memory / BYTES)


def detached(found: Outcome[Tensor]) -> Outcome[Tensor]:
    """Return an outcome whose answers are no part of joint tensors, with which others go on."""
    found.y, found.labels = found.y.clone(), found.labels.clone()
    return found
