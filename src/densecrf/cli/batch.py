"""Batches of images: parallel work, progress, failures, Ctrl-C."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from densecrf.cli.reports import ERRORS, collecting_warnings, describe, progress_bar
from densecrf.deadline import Interrupted, on_interrupt, stopped_by
from densecrf.native import core
from densecrf.parallel import Finished, preload, run, stop_here

__all__ = ["BatchOutcome", "Watch", "Work", "in_processes", "run_batch"]

# Jobs from which on threads contend for Python's lock, and items per job that pay for starting a
# process.
MANY_JOBS, PER_PROCESS = 6, 3

Item = TypeVar("Item")


@dataclass(frozen=True)
class Watch:
    """How work learns that it must stop, and reports its progress."""

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
        """The number of finished or failed items."""
        return len(self.results) + len(self.failures)

    def add(self, name: str, done: Finished) -> None:
        """Note the result or the failure of an item."""
        if done.error is None:
            self.results[name] = done.answer
        elif isinstance(done.error, ERRORS):
            self.failures[name] = describe(done.error)
        else:  # a bug; the other items still run and are reported
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
    """Do the work of every item; a failure does not stop the others.

    Parameters
    ----------
    items, name
        The items, and the function that names one.
    work : callable or sequence of callable
        Called with an item and a `Watch`. Each of several runs in its own process: a solver on a
        GPU makes many short launches, for which threads would contend for Python's lock, as many
        threads that read and write small images do.
    jobs : int
        Items at a time, if there is one `work`.
    progress : bool
        Show a bar with the time left.
    client : dask.distributed.Client, optional
        Its workers do the work, some items per task; `work` must be picklable.
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


def in_processes(work: Work, jobs: int, items: int, threads: int | None) -> list[Work] | None:
    """Return the work of each of `jobs` processes with so many threads; None if threads do."""
    if MANY_JOBS <= jobs <= items // PER_PROCESS:
        preload("densecrf.cli.segment", "densecrf._native", "PIL.Image")
        return [partial(_alone, work, threads or 1)] * jobs
    return None


def _alone(work: Work, threads: int, item: Any, watch: Watch) -> dict[str, Any]:
    """Do the work in a process that does nothing else."""
    core().set_default_threads(threads)
    with collecting_warnings():
        return work(item, watch)


def _here(work: Work, watch: Watch, item: Any) -> dict[str, Any]:
    with stopped_by(watch.stop):
        return work(item, watch)


def _elsewhere(work: Work, item: Any) -> dict[str, Any]:
    """Do the work in another process, or on another machine."""
    return _here(work, Watch(stop_here(), lambda _: None), item)
