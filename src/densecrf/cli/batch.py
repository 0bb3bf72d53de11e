"""Many images: several at once, progress and time left, failures kept apart, Ctrl-C."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from densecrf.cli.reports import ERRORS, describe, progress_bar
from densecrf.deadline import Interrupted, on_interrupt
from densecrf.parallel import Finished, run, stop_here

__all__ = ["BatchOutcome", "Watch", "Work", "run_batch"]

Item = TypeVar("Item")


@dataclass(frozen=True)
class Watch:
    """How work is told to stop, and shows in a few words how far it is."""

    stop: threading.Event
    report: Callable[[str], None]


#: The work of one item.
Work = Callable[[Any, Watch], dict[str, Any]]


@dataclass
class BatchOutcome:
    """Results and failures of the items, by name."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def done(self) -> int:
        """The number of items that are done, or failed."""
        return len(self.results) + len(self.failures)

    def add(self, name: str, done: Finished) -> None:
        """Note the result or the failure of an item."""
        if done.error is None:
            self.results[name] = done.answer
        elif isinstance(done.error, ERRORS):
            self.failures[name] = describe(done.error)
        else:  # the others must be done and reported all the same
            self.failures[name] = f"internal error, please report it: {done.error!r}"


def run_batch(
    items: Sequence[Item],
    name: Callable[[Item], str],
    work: Work | Sequence[Work],
    *,
    jobs: int = 1,
    progress: bool = True,
    client: Any = None,
) -> BatchOutcome:
    """Do the work of every item, by its name; one that fails does not stop the others.

    Parameters
    ----------
    items, name
        The items, and the function that names one.
    work : callable or sequence of callable
        Called with an item and a `Watch`; of several, each is called in a process of its own: a
        solver on a GPU is a stream of short launches, for which threads of one process would
        contend for Python's lock.
    jobs : int
        Items at a time, where there is one `work`.
    progress : bool
        Show a bar with the time left.
    client : dask.distributed.Client, optional
        Whose workers do the work, some items in each task; `work` must be picklable.
    """
    batch, names = BatchOutcome(), [name(item) for item in items]
    stop = threading.Event()
    with progress_bar("images", progress) as advance, on_interrupt(stop.set):

        def report(text: str) -> None:
            advance(batch.done, len(items), text)

        task: Any
        if not callable(work):
            task = [partial(_elsewhere, each) for each in work]
        elif client is not None:
            task = partial(_elsewhere, work)
        else:
            task = partial(_here, work, Watch(stop, report))
        finished = run(
            task,
            [(item,) for item in items],
            workers=jobs,
            processes=not callable(work),
            client=client,
            stop=stop,
            name="images",
        )
        try:
            for done in finished:
                batch.add(names[done.number], done)
                report(f"{names[done.number]}: done")
        except Interrupted:
            batch.interrupted = batch.done < len(items)
    batch.results = {name: batch.results[name] for name in names if name in batch.results}
    batch.failures = {name: batch.failures[name] for name in names if name in batch.failures}
    return batch


def _here(work: Work, watch: Watch, item: Any) -> dict[str, Any]:
    return work(item, watch)


def _elsewhere(work: Work, item: Any) -> dict[str, Any]:
    """Do the work in another process, or on another machine."""
    return work(item, Watch(stop_here(), lambda _: None))
