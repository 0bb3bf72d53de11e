"""Filtering again and again with the same lattices, at little cost on the host.

A filtering makes some sixteen launches; preparing their arguments takes longer than the kernels do.
A plan keeps the prepared launches of one filtering, and its scratch memory, for the next ones of
the same kind, which differ in a few arguments only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.torch.launch import Launch, recorded, repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

_MOST_BYTES = 1 << 30  # of what a plan's launches read and write
_SPREAD = slice(4, 6)  # of the arguments of the kernel `to_rows`, the first of a filtering


class Plan(NamedTuple):
    """Launches, and the places of the result's address among their arguments."""

    launches: list[Launch]
    results: list[tuple[list[Any], int]]


class Plans:
    """The plans of one sum of lattices."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan | None] = {}

    def run(
        self,
        key: Hashable,
        values: Tensor,
        spread: tuple[float, float],
        filtering: Callable[[], Tensor],
    ) -> Tensor:
        """Return ``filtering()``, by its plan from the second time on.

        Parameters
        ----------
        key : hashable
            The kind of filtering: all that it depends on but `values` and `spread`.
        values : Tensor
            What is filtered.
        spread : (float, float)
            The lowest level's score, and levels a unit of score.
        filtering : callable
            Filters `values` by Triton's kernels.
        """
        if not values.is_cuda or not values.is_contiguous() or values.data_ptr() % 16:
            return filtering()
        key = (key, values.shape, values.dtype)
        if key not in self._plans:
            with recorded() as launches:
                out = filtering()
            self._plans[key] = _plan(launches, values, out)
            return out
        plan = self._plans[key]
        if plan is None:
            return filtering()
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
        first = plan.launches[0].arguments
        first[0] = values.data_ptr()
        first[_SPREAD] = spread
        for arguments, place in plan.results:
            arguments[place] = out.data_ptr()
        repeat(plan.launches, values.device.index)
        return out


def _plan(launches: list[Launch], values: Tensor, out: Tensor) -> Plan | None:
    """Return the plan of a filtering, or None where labels went in blocks or it keeps too much."""
    given, result = values.data_ptr(), out.data_ptr()
    reading = [each for each in launches if given in each.arguments[:1]]
    own = [
        each._replace(tensors=[t for t in each.tensors if t.data_ptr() not in (given, result)])
        for each in launches
    ]
    kept = {t.data_ptr(): t.nbytes for each in own for t in each.tensors}
    if len(reading) != 1 or launches[0] is not reading[0] or sum(kept.values()) > _MOST_BYTES:
        return None
    results = [
        (each.arguments, place)
        for each in own
        for place, argument in enumerate(each.arguments)
        if argument == result and isinstance(argument, int)
    ]
    return Plan(own, results)
