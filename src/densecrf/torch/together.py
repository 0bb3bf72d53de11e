"""All items of a batch solved: together by Triton's kernels, one after the other elsewhere."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from densecrf.torch.batches import BatchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from densecrf.solvers.loop import Outcome

__all__ = ["minimise_all", "packed"]

TOGETHER = 1 << 28  # labels times pixels of the items that are solved together, at most


def minimise_all(
    problem_of: Callable[[int], Any], sizes: Sequence[int], solve: Callable[..., Outcome]
) -> list[Outcome]:
    """Solve the problems of all items.

    Parameters
    ----------
    problem_of : callable
        Makes the problem of an item.
    sizes : sequence of int
        Labels times pixels of each item; 0 where it is solved by itself.
    solve : callable
        ``solve(problem, stopped=...)`` solves a problem; cuts it short where it is `stopped`.
    """
    outcomes: list[Outcome] = []
    for group in _groups(sizes):
        stopped = bool(outcomes) and outcomes[-1].interrupted
        problems = [problem_of(item) for item in group]
        found = _solved(problems, partial(solve, stopped=stopped))
        for each in found:
            each.interrupted |= stopped
        outcomes += found
    return outcomes


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


def _solved(problems: list[Any], solve: Callable[[Any], Outcome]) -> list[Outcome]:
    if len(problems) > 1 and find_spec("greenlet") is not None:
        from densecrf.torch.problem import batch_of, can_join

        if can_join(problems):
            batch, items = batch_of(problems)
            return batch.run([partial(solve, each) for each in items])
    return [solve(problem) for problem in problems]


def packed(outcomes: Sequence[Outcome], grids: Sequence[Sequence[int]], stack: bool) -> BatchResult:
    """Return what was found for items of these grids, stacked or as lists."""
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
    )
