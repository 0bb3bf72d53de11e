"""Several devices: one process for each, and every image goes to one that is free.

A solver on a GPU is a stream of short launches. Threads of one process would contend for Python's
lock to make them.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, NamedTuple

from densecrf.cli.batch import Watch

__all__ = ["OnDevices", "listed"]

#: What is done to an item; picklable.
Work = Callable[[Any, Watch], dict[str, Any]]


def listed(device: str | None) -> list[str | None]:
    """Return the devices of an option that lists them.

    Examples
    --------
    >>> listed(None), listed("cuda:0, cuda:1")
    ([None], ['cuda:0', 'cuda:1'])
    """
    return [None] if device is None else [each.strip() for each in device.split(",")]


class _Worker(NamedTuple):
    work: Work
    process: ProcessPoolExecutor


class OnDevices(ExitStack):
    """Work that is done by other processes, each of which has its own.

    Parameters
    ----------
    works : sequence of callable
        The work of each process; as many items are worked on at a time.
    """

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__()
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._free: SimpleQueue[_Worker] = SimpleQueue()
        for work in works:
            self._free.put(self._worker(work))

    def __call__(self, item: Any, watch: Watch) -> dict[str, Any]:
        """Do the work of an item in a process that is free; called by threads."""
        worker = self._free.get()
        try:
            future = worker.process.submit(_do, worker.work, item)
            while not future.done():
                if watch.stop.wait(0.05):
                    self._stop.set()
            return future.result()
        except BrokenProcessPool as error:
            worker = self._worker(worker.work)
            raise OSError("its process ended before it was done (out of memory?)") from error
        finally:
            self._free.put(worker)

    def _worker(self, work: Work) -> _Worker:
        begin = (_begin, (self._stop,))
        process = ProcessPoolExecutor(1, self._context, *begin)
        self.callback(process.shutdown, cancel_futures=True)
        return _Worker(work, process)


_stop: Any = threading.Event()


def _begin(stop: Any) -> None:
    """Leave Ctrl-C to the process that the user sees."""
    global _stop  # noqa: PLW0603 - an initialiser has no other way
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stop = stop


def _do(work: Work, item: Any) -> dict[str, Any]:
    return work(item, Watch(_stop, lambda _: None))
