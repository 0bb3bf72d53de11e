"""Repeated operations on other tensors, at little cost on the host.

A filter call is some twelve launches; preparing their arguments takes longer than the kernels do.
A plan keeps the prepared launches of one operation, and its scratch memory, for the next ones of
the same kind, which differ in a few arguments only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.triton.launch import Launch, Record, handle, recorded, repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor


class Plan(NamedTuple):
    """Launches, the places of the varying tensors among their arguments, and what came of it.

    `kept` are the tensors that do not vary.
    """

    launches: list[Launch]
    places: list[list[tuple[list[Any], int]]]
    kept: list[Tensor]
    answer: Any


class Plans:
    """Plans of the operations that share some tensors, by name."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}

    def run(
        self,
        key: Hashable,
        tensors: Sequence[Tensor],
        work: Callable[[], Any],
        numbers: tuple[int, Sequence[float]] | None = None,
    ) -> Any:
        """Do ``work()``, by its plan from the second time on, and return its answer.

        Parameters
        ----------
        key : hashable
            The kind of work: all that it depends on but `tensors` and `numbers`.
        tensors : sequence of Tensor
            What it reads and writes that is not the same every time; contiguous.
        work : callable
            Works on `tensors` by launching kernels, and does nothing else. Its scratch memory is
            kept. It may return some of it, which the next work of this kind writes to again.
        numbers : (int, sequence of float), optional
            Arguments of the first launch that vary, and the place where they begin.
        """
        if any(t.data_ptr() % 16 for t in tensors):
            return work()
        key = (key, *[(t.shape, t.dtype) for t in tensors])
        plan = self._plans.get(key)
        if plan is None:
            with recorded() as record:
                answer = work()
            varying = {t.data_ptr(): i for i, t in enumerate(tensors)}
            if len(varying) == len(tensors):  # else an address is ambiguous
                self._plans[key] = _plan(record, varying, answer)
            return answer
        if numbers is not None:
            first, values = numbers
            plan.launches[0].arguments[first : first + len(values)] = values
        for tensor, places in zip(tensors, plan.places, strict=True):
            value = handle(tensor)
            for arguments, place in places:
                arguments[place] = value
        repeat(plan.launches, tensors[0].device)
        return plan.answer


def _plan(record: Record, varying: dict[int, int], answer: Any) -> Plan:
    """Return the plan of what was recorded; `varying` numbers those tensors' addresses."""
    places: list[list[tuple[list[Any], int]]] = [[] for _ in varying]
    for each in record.launches:
        for place, argument in enumerate(each.arguments):
            if argument.__class__ is not int and isinstance(argument, torch.Tensor):
                argument = argument.data_ptr()  # of a public launch
            if argument in varying:
                places[varying[argument]].append((each.arguments, place))
    # What varies is the caller's; it is not stored.
    kept = {id(t): t for t in record.tensors if t.data_ptr() not in varying}
    return Plan(record.launches, places, list(kept.values()), answer)
