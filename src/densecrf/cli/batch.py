"""Many images: several at once, progress and time left, failures kept apart, Ctrl-C."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from densecrf.cli.progress import progress_bar
from densecrf.cli.reports import describe
from densecrf.deadline import Interrupted, on_interrupt

__all__ = ["Batch", "Watch", "run_batch"]

Item = TypeVar("Item")
LARGEST_TASK = 64  # items in one task of a cluster: its scheduler is not to choke on small ones


@dataclass(frozen=True)
class Watch:
    """How work is told to stop, and reports how far it is.

    Attributes
    ----------
    stop : threading.Event
        Set when the user asks to stop.
    report : callable
        Shows a few words about how far the work is.
    """

    stop: threading.Event
    report: Callable[[str], None]


@dataclass
class Batch:
    """What became of the items, by name."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def ordered(self, names: Sequence[str]) -> "Batch":
        """Return the same in the order of the names, whichever item was done first."""
        return Batch(
            {name: self.results[name] for name in names if name in self.results},
            {name: self.failures[name] for name in names if name in self.failures},
            self.interrupted,
        )


def run_batch(
    items: Sequence[Item],
    name: Callable[[Item], str],
    work: Callable[[Item, "Watch"], dict[str, Any]],
    *,
    jobs: int = 1,
    progress: bool = True,
    client: Any = None,
) -> Batch:
    """Do the work of every item; one that fails does not stop the others.

    Parameters
    ----------
    items : sequence
        What to work on.
    name : callable
        Gives an item's name.
    work : callable
        Called with an item and a `Watch`.
    jobs : int
        Items at a time.
    progress : bool
        Show a bar with the time left.
    client : dask.distributed.Client, optional
        Whose workers do the work, some items in each task; `work` must be picklable.
    """
    if client is not None:
        return _on_cluster(items, name, work, progress, client)
    batch = Batch()
    with (
        progress_bar("images", progress) as advance,
        ThreadPoolExecutor(max_workers=jobs) as pool,
    ):

        def report(text: str) -> None:
            advance(len(batch.results) + len(batch.failures), len(items), text)

        watch = Watch(threading.Event(), report)
        finished: SimpleQueue[Future[dict[str, Any]] | None] = SimpleQueue()
        with on_interrupt(lambda: finished.put(None)):
            pending: dict[Future[dict[str, Any]], str] = {
                pool.submit(work, item, watch): name(item) for item in items
            }
            for future in list(pending):
                future.add_done_callback(finished.put)
            while pending and (done := _next(finished)) is not None:
                item_name = pending.pop(done)
                _collect(batch, item_name, done)
                report(f"{item_name}: done")
            if pending:
                watch.stop.set()
                batch.interrupted = True
                pool.shutdown(wait=True, cancel_futures=True)
        for future, item_name in pending.items():
            if not future.cancelled():
                _collect(batch, item_name, future)
    return batch.ordered([name(item) for item in items])


def _next(queue: "SimpleQueue[Item]") -> Item:
    while True:
        with suppress(Empty):
            return queue.get(timeout=0.2)  # a short wait keeps Ctrl-C prompt on every system


def _on_cluster(
    items: Sequence[Item],
    name: Callable[[Item], str],
    work: Callable[[Item, "Watch"], dict[str, Any]],
    progress: bool,
    client: Any,
) -> Batch:
    from densecrf.large.engines import run_tasks

    batch = Batch()
    threads = max(1, sum(client.nthreads().values()))
    size = max(1, min(LARGEST_TASK, len(items) // (4 * threads)))
    tasks = [(work, items[first : first + size]) for first in range(0, len(items), size)]
    with progress_bar("images", progress) as advance:
        try:
            for number, answers in run_tasks(_some, tasks, client, "images"):
                for item, (result, failure) in zip(tasks[number][1], answers, strict=True):
                    if failure is None:
                        batch.results[name(item)] = result
                    else:
                        batch.failures[name(item)] = failure
                advance(len(batch.results) + len(batch.failures), len(items), "")
        except KeyboardInterrupt:
            batch.interrupted = True
    return batch.ordered([name(item) for item in items])


def _some(
    work: Callable[[Item, "Watch"], dict[str, Any]], items: Sequence[Item]
) -> list[tuple[dict[str, Any], str | None]]:
    """Do the work of some items on a worker; give the result or the reason of each failure."""
    watch = Watch(threading.Event(), lambda _: None)
    answers = []
    for item in items:
        one: Batch = Batch()
        future: Future[dict[str, Any]] = Future()
        _settle(future, work, item, watch)
        _collect(one, "item", future)
        answers.append((one.results.get("item", {}), one.failures.get("item")))
    return answers


def _settle(
    future: Future[dict[str, Any]],
    work: Callable[[Item, "Watch"], dict[str, Any]],
    item: Item,
    watch: "Watch",
) -> None:
    try:
        future.set_result(work(item, watch))
    except Exception as error:
        future.set_exception(error)


def _collect(batch: Batch, name: str, future: Future[dict[str, Any]]) -> None:
    try:
        with suppress(Interrupted):
            batch.results[name] = future.result()
    except (OSError, ValueError, MemoryError, ImportError) as error:
        batch.failures[name] = describe(error)
    except Exception as error:  # the others must be done and reported all the same
        batch.failures[name] = f"internal error, please report it: {error!r}"
