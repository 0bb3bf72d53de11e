"""A queue of tasks on a device: those under way advance together, one that ends makes room.

Each task runs in a coroutine of one thread (`densecrf.steps.lockstep`). Where it minimises an
energy on the device, its problem enters a batch of problems alike, whose steps are made together.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import torch

from densecrf.operators.torch.dispatch import use_triton
from densecrf.operators.torch.lattice import on_device
from densecrf.parallel import Finished, Threads, attempt
from densecrf.solvers.minimisation import minimise
from densecrf.torch.batches import detached, room_on
from densecrf.torch.problem import by_triton, checked_device, joined, together

if TYPE_CHECKING:
    from collections.abc import Hashable
    from threading import Event

    from torch import Tensor

    from densecrf.parallel import Given, Task
    from densecrf.problem.problem import Problem
    from densecrf.solvers.loop import Limits, Outcome
    from densecrf.steps.lockstep import Lockstep
    from densecrf.steps.triton import TritonBatch

__all__ = ["TasksOnDevice", "advances_together"]


def advances_together(device: Any) -> bool:
    """Return whether problems on a device can advance together."""
    on_it = torch.empty(0, device=checked_device(device))
    return find_spec("greenlet") is not None and use_triton(on_it)


class TasksOnDevice(Threads):
    """Tasks of one thread that minimise on a device, some at a time; see `parallel.run`.

    Parameters
    ----------
    task : callable
        The task.
    workers : int
        Tasks at a time.
    device : str or torch.device
        Where they minimise.
    """

    def __init__(self, task: Task, workers: int, device: Any) -> None:
        super().__init__(task, 1)
        self.most, self.device = workers, checked_device(device)
        self.given: SimpleQueue[tuple[int, Given] | None] = SimpleQueue()

    def __exit__(self, *raised: Any) -> None:
        self.given.put(None)
        super().__exit__(*raised)

    def begin(self, stop: Event) -> None:
        """Start the thread."""
        super().begin(stop)
        self.thread = self.pool.submit(self.work_off)

    def ahead(self) -> int:
        """Return twice the number of tasks at a time: the next one is there when one ends."""
        return 2 * self.most

    def submit(self, group: list[tuple[int, Given]]) -> None:
        """Have one task run."""
        self.given.put(group[0])

    def done(self) -> list[Finished]:
        """Wait a moment; return what has ended."""
        if self.thread.done():
            self.thread.result()  # which is an error: nobody has told it to end
        return super().done()

    def end(self) -> list[Finished]:
        """Wait for what runs, and return it."""
        self.given.put(None)
        return super().end()

    def work_off(self) -> None:
        """Run tasks until nobody submits any."""
        from densecrf.steps.lockstep import Lockstep

        lockstep, more = Lockstep(room_on(self.device)), True
        batches: dict[Hashable, TritonBatch] = {}
        # Of the whole thread: a coroutine that left one of its own would end it for the others.
        unmixed = torch.autocast(self.device.type, enabled=False)
        with torch.no_grad(), unmixed, on_device(self.device):
            while more or lockstep:
                while more and len(lockstep) < self.most:
                    try:
                        given = self.given.get(block=not lockstep)
                    except Empty:
                        break
                    if given is None or self.stop.is_set():
                        more = False
                        break
                    run = partial(self.run_one, given[1], Place(given[0], lockstep, batches))
                    lockstep.begin(given[0], run)
                for number, found in lockstep.advance().items():
                    self.finished.put(Finished(number, *found))

    def run_one(self, given: Given, place: Place) -> tuple[Any, Exception | None]:
        """Return the answer or the error of a task, in its coroutine."""
        together.set(place)
        return attempt(self.task, given)


class Place:
    """A task's place among those that advance together.

    Parameters
    ----------
    number : int
        Of the task.
    lockstep : Lockstep
        What they advance by.
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
