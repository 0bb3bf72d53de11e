"""A queue of problems on a device: those under way advance together, one that ends makes room.

Threads hand in their problems and wait. The queue's own thread runs each in a coroutine
(`densecrf.steps.lockstep`), where it enters a batch of problems alike, whose steps are made
together.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from importlib.util import find_spec
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch.dispatch import use_triton
from densecrf.operators.torch.lattice import on_device
from densecrf.solvers.minimisation import minimise
from densecrf.torch.batches import detached, room_on
from densecrf.torch.problem import by_triton, checked_device, joined, together

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextvars import Context

    from torch import Tensor

    from densecrf.problem.problem import Problem
    from densecrf.solvers.loop import Limits, Outcome
    from densecrf.steps.lockstep import Lockstep
    from densecrf.steps.triton import TritonBatch

__all__ = ["DeviceQueue", "advances_together"]

FULL = 0.75  # share of the problems under way below which others enter


def advances_together(device: Any) -> bool:
    """Return whether problems on a device can advance together."""
    on_it = torch.empty(0, device=checked_device(device))
    return find_spec("greenlet") is not None and use_triton(on_it)


class DeviceQueue:
    """What minimises the energies of several threads on a device, within a ``with`` statement.

    Parameters
    ----------
    device : str or torch.device
        The device.
    most : int
        Threads that share it.
    """

    def __init__(self, device: Any, most: int) -> None:
        from densecrf.steps.lockstep import Lockstep

        self._device, self._most = checked_device(device), most
        self._lockstep = Lockstep(room_on(self._device))
        self._given: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="densecrf-device", daemon=True)
        self._error: BaseException | None = None
        self._entering = True

    def __enter__(self) -> DeviceQueue:
        self._thread.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._given.put(None)
        self._thread.join()

    def shared_by(self, task: Callable[..., Any]) -> Callable[..., Any]:
        """Return a task that minimises here what it minimises on the device."""
        return partial(_sharing, self, task)

    def call(self, function: Callable[[Place], Any]) -> Any:
        """Return what a function of its place in the queue returns, in the queue's thread."""
        call = _Call(function, copy_context(), Future())
        self._given.put(call)
        if self._error is not None:
            raise self._error
        return call.answer.result()

    def _run(self) -> None:
        """Answer calls until None is given."""
        calls: list[_Call] = []
        try:
            # Of the whole thread: a coroutine that left one of its own would end it for others.
            unmixed = torch.autocast(self._device.type, enabled=False)
            with torch.no_grad(), unmixed, on_device(self._device):
                self._answer(calls)
        except BaseException as error:  # of the queue: those of functions are their answers
            self._error = error
            while not self._given.empty():
                calls += filter(None, [self._given.get()])
            for call in calls:
                if not call.answer.done():
                    call.answer.set_exception(error)

    def _answer(self, calls: list[_Call]) -> None:
        batches: dict[Hashable, TritonBatch] = {}
        for number in count():
            if (call := self._next()) is None:
                return
            calls[:] = [call, *(each for each in calls if not each.answer.done())]
            place = Place(number, self._lockstep, batches)
            self._lockstep.begin(number, partial(call.run, place), call.context)

    def _next(self) -> _Call | None:
        """Return the next call; until then, those under way advance.

        Several enter at once, which is cheaper: when a share of those that may be under way ended.
        """
        while len(self._lockstep):
            if self._given.empty():
                self._entering = False
            elif self._entering or len(self._lockstep) <= FULL * self._most:
                break
            self._lockstep.advance()
        self._entering = True
        return self._given.get()


def _sharing(queue: DeviceQueue, task: Callable[..., Any], *given: Any) -> Any:
    token = together.set(queue)
    try:
        return task(*given)
    finally:
        together.reset(token)


class _Call(NamedTuple):
    """A function to call, in which context, and where its answer goes."""

    function: Callable[[Place], Any]
    context: Context
    answer: Future[Any]

    def run(self, place: Place) -> None:
        """Call it, in a coroutine."""
        try:
            self.answer.set_result(self.function(place))
        except BaseException as error:
            self.answer.set_exception(error)


class Place:
    """A problem's place among those that advance together.

    Parameters
    ----------
    number : int
        Of its run.
    lockstep : Lockstep
        What the runs advance by.
    batches : dict
        Their batches, by what problems of a batch have in common.
    """

    def __init__(
        self, number: int, lockstep: Lockstep, batches: dict[Hashable, TritonBatch]
    ) -> None:
        self._number, self._lockstep, self._batches = number, lockstep, batches

    def make_room(self, size: int) -> None:
        """Wait until there is room for a problem of so many pixels times labels."""
        self._lockstep.make_room(size)

    def minimise(
        self, problem: Problem[Tensor], method: str, limits: Limits, *given: Any
    ) -> Outcome[Tensor]:
        """Run a method, its steps with those of others; see `densecrf.solvers.minimisation`."""
        if not by_triton(problem):
            return minimise(problem, method, limits, *given)
        batch = self._batch_of(problem)
        try:
            own = joined(batch, self._number, problem)
            return detached(minimise(own, method, limits, *given))
        finally:
            batch.leave(self._number)

    def _batch_of(self, problem: Any) -> TritonBatch:
        from densecrf.steps.triton import TritonBatch

        pairwise = problem.pairwise.pairwise
        features = [kernel.source.topology.dimension for kernel in pairwise.kernels]
        alike = (problem.n_labels, problem.unary.dtype, pairwise.merged.order, *features)
        if alike not in self._batches:
            self._batches[alike] = TritonBatch(lockstep=self._lockstep)
        return self._batches[alike]
