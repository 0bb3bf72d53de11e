"""Who runs the tasks: this process, or the workers of a Dask cluster."""

import math
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from secrets import token_hex
from time import monotonic
from typing import Any, TypeVar

__all__ = ["run_tasks"]

RETRIES = 3  # of a task that raises an OSError: a network file system may recover
DEATHS = 8  # times that Dask gives a task up, after four workers, before it is held responsible

PATIENCE = 600  # seconds without any worker
CHECK = 5  # seconds without any answer before workers are counted

Answer = TypeVar("Answer")


def run_tasks(
    task: Callable[..., Answer], arguments: Iterable[tuple[Any, ...]], client: Any, name: str
) -> Iterator[tuple[int, Answer]]:
    """Run tasks; yield the number and the answer of each as it is done.

    Arguments are taken from the iterable as workers become free, a few tasks ahead.

    Parameters
    ----------
    task : callable
        What to run; it may run more than once.
    arguments : iterable of tuple
        Of each task; small.
    client : dask.distributed.Client or None
        Whose workers run them; None: this process, one after the other, each with all threads of
        the compiled core.
    name : str
        What the dashboard shows.
    """
    if client is None:
        for number, given in enumerate(arguments):
            yield number, task(*given)
        return
    try:
        yield from _Distributed(task, client, name).run(arguments)
    except GeneratorExit:
        raise
    except BaseException as error:
        if client.status == "running":
            raise
        raise ConnectionError(
            "the scheduler is gone; what is finished is kept: run again with another one to go on"
        ) from error


class _Distributed:
    """Tasks on their way through a cluster."""

    def __init__(self, task: Callable[..., Any], client: Any, name: str) -> None:
        self.task, self.client, self.name = task, client, name
        self.library: Any = import_module("distributed")
        library = self.library
        self.late = (TimeoutError, library.TimeoutError)
        self.failures = (OSError, *self.late, library.KilledWorker, library.CancelledError)
        self.given: dict[int, tuple[Any, ...]] = {}
        self.numbers: dict[str, int] = {}
        self.failed: dict[int, int] = {}
        self.patience, self.seen = PATIENCE, monotonic()  # when there were workers
        self.threads, self.counted = 0, -math.inf

    def run(self, arguments: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield answers, in the order in which they come."""
        left = iter(enumerate(arguments))
        running: set[Any] = set()
        while True:
            room = max(0, self.ahead() - len(running))
            running |= {self.submit(*each) for each in islice(left, room)}
            if not running:
                return
            for future in self.done(running):
                running.discard(future)
                number = self.numbers.pop(future.key)
                try:
                    answer = future.result(timeout=CHECK)
                except self.failures as error:
                    if isinstance(error, self.late) and future.status != "error":
                        # Its worker has died since: it is done again.
                        self.numbers[future.key] = number
                        running.add(future)
                    else:
                        self.count_failure(number, error)
                        running.add(self.submit(number, self.given[number]))
                    continue
                del self.given[number]
                yield number, answer

    def ahead(self) -> int:
        """Return how many tasks keep all workers busy; these come and go."""
        if monotonic() - self.counted > CHECK:
            self.counted = monotonic()
            found = self.count_threads()
            self.threads = self.threads if found is None else found
            self.reopen_workers()
        return max(2, 2 * self.threads)

    def count_threads(self) -> int | None:
        """Return the threads of all workers; None where the scheduler does not answer in time."""
        count = self.client.scheduler.ncores
        try:
            found = self.client.sync(count, workers=None, callback_timeout=CHECK)
        except self.late:
            return None
        return sum(map(int, found.values()))

    def done(self, running: set[Any]) -> list[Any]:
        """Wait for tasks that have ended; where no worker comes for long, raise."""
        try:
            self.library.wait(running, timeout=CHECK, return_when="FIRST_COMPLETED")
            self.seen = monotonic()
        except self.library.TimeoutError:
            self.check_workers()
        except self.library.CancelledError:
            if self.client.status != "running":
                raise
        return [future for future in running if future.done()]

    def check_workers(self) -> None:
        """Raise where there has been no worker for long."""
        if self.count_threads():
            self.seen = monotonic()
        elif monotonic() - self.seen > self.patience:
            raise ConnectionError(
                f"no workers for {self.patience} s; what is finished is kept: start some, and "
                "run again to go on"
            )

    def reopen_workers(self) -> None:
        """Ask the client's own cluster for workers that it has given up.

        It closes those that are absent some seconds after they were lost: killed twice, or slow to
        start.
        """
        cluster = self.client.cluster
        if (
            isinstance(cluster, self.library.SpecCluster)
            and cluster.status == self.library.Status.running
            and len(cluster.workers) < len(cluster.worker_spec)
        ):
            cluster.scale(len(cluster.plan))

    def submit(self, number: int, given: tuple[Any, ...]) -> Any:
        """Give a task to the scheduler."""
        key = f"{self.name}-{token_hex(4)}-{number}"
        self.given[number], self.numbers[key] = given, number
        return self.client.submit(self.task, *given, pure=False, key=key)

    def count_failure(self, number: int, error: BaseException) -> None:
        """Raise where a task has failed too often, or will fail for good."""
        if self.client.status != "running":
            raise error
        self.failed[number] = self.failed.get(number, 0) + 1
        if isinstance(error, OSError):
            if self.failed[number] > RETRIES:
                raise error
        elif self.failed[number] > DEATHS:
            raise RuntimeError(
                f"{self.name}, task {number}: one worker after the other died at it; give workers "
                "more memory, or smaller tiles. What is finished is kept: run again to go on"
            ) from error
