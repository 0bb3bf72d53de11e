"""Many tasks: one after another, or by threads, processes, or the workers of a Dask cluster.

`run` is the only scheduler of the package. It reads a bounded number of arguments ahead, yields the
outcome of each task, failures included, and stops between two tasks at Ctrl-C.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from queue import Empty, SimpleQueue
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from densecrf.deadline import Interrupted, on_interrupt

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Finished", "preload", "run", "stop_here"]

WAIT = 0.2  # seconds: a short wait keeps Ctrl-C prompt on every system
LARGEST_BATCH = 64  # tasks in one of a cluster's: many small ones would overload its scheduler
RETRIES = 3  # of a task on a cluster that raises an OSError: a network file system may recover
DEATHS = 8  # times that Dask gives a task up, after four workers, before it is held responsible
PATIENCE = 600  # seconds without any worker
CHECK = 5  # seconds between two counts of the workers

#: The arguments of one task.
Given = tuple[Any, ...]
Task = Callable[..., Any]


@dataclass(frozen=True)
class Finished:
    """The outcome of a task.

    Attributes
    ----------
    number : int
        Its index.
    answer : object
        Its return value.
    error : Exception, optional
        Its error.
    """

    number: int
    answer: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        """Return the answer, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.answer


def run(
    task: Task | Sequence[Task],
    arguments: Iterable[Given],
    *,
    workers: int | None = None,
    processes: bool = False,
    client: Any = None,
    batch: int | None = None,
    ordered: bool = False,
    stop: threading.Event | None = None,
    name: str = "tasks",
) -> Iterator[Finished]:
    """Run a task for each tuple of arguments; yield the outcomes.

    At the first Ctrl-C, or when `stop` is set, no further task begins; running ones finish, and
    are yielded unless they raise `Interrupted`. Then KeyboardInterrupt is raised, or `Interrupted`
    if the caller has set `stop`.

    Parameters
    ----------
    task : callable or sequence of callable
        The task. With processes, one for each worker may be given. On a cluster it may run more
        than once.
    arguments : iterable of tuple
        The arguments of each task, read by the calling thread, at most twice the number of workers
        ahead of the last yielded task.
    workers : int, optional
        Number of threads or processes; None runs one task after another in the calling thread.
    processes : bool
        Whether workers are spawned processes. If one dies, its task fails and another process
        replaces it. They ignore Ctrl-C.
    client : dask.distributed.Client, optional
        A client whose workers run the tasks instead of threads or processes.
    batch : int, optional
        With a client: tasks per batch. By default each thread gets four batches, of 64 tasks at
        most.
    ordered : bool
        Whether to yield in the order of the arguments, not as tasks end.
    stop : threading.Event, optional
        For callers that handle Ctrl-C themselves.
    name : str
        The name on the cluster's dashboard.

    Examples
    --------
    >>> for done in run(divmod, [(7, 2), (1, 0)], workers=2, ordered=True):
    ...     print(done.number, done.answer, repr(done.error))
    0 (3, 1) None
    1 None ZeroDivisionError('integer division or modulo by zero')
    """
    tasks = [task] * (workers or 1) if callable(task) else list(task)
    pool: _Pool
    if client is not None:
        pool = _Cluster(tasks[0], client, name)
        if batch is None:
            threads = max(1, pool.count_threads() or 0)
            count = len(arguments) if isinstance(arguments, Sized) else 0
            batch = max(1, min(LARGEST_BATCH, count // (4 * threads)))
    elif processes:
        pool, batch = _Processes(tasks), 1
    elif workers is not None:
        pool, batch = _Threads(tasks[0], workers), 1
    else:
        return _here(tasks[0], arguments, stop)
    return _drive(pool, enumerate(arguments), batch, ordered, stop)


def stop_here() -> Any:
    """Return the event that tells the tasks of this process to end.

    In a process of `run` it is set at Ctrl-C, and when the parent process is gone; elsewhere it is
    never set.
    """
    return _stop_here


def _here(
    task: Task, arguments: Iterable[Given], stop: threading.Event | None
) -> Iterator[Finished]:
    """Run one task after another."""
    for number, given in enumerate(arguments):
        if stop is not None and stop.is_set():
            raise Interrupted
        try:
            done = Finished(number, task(*given))
        except Exception as error:
            done = Finished(number, error=error)
        yield done


class _Pool(Protocol):
    """Who runs the tasks."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *raised: Any) -> None: ...

    def begin(self, stop: threading.Event) -> None:
        """Get ready; `stop` is set when tasks are to end."""

    def ahead(self) -> int:
        """Return how many batches keep all workers busy."""

    def submit(self, group: list[tuple[int, Given]]) -> None:
        """Have a batch of numbered tasks run."""

    def done(self) -> list[Finished]:
        """Wait a moment; return what has ended."""

    def end(self) -> list[Finished]:
        """Cancel what has not begun, wait for the rest, and return it."""


def _drive(
    pool: _Pool,
    numbered: Iterator[tuple[int, Given]],
    batch: int,
    ordered: bool,
    stop: threading.Event | None,
) -> Iterator[Finished]:
    """Keep a pool busy until all tasks have ended."""
    own = stop is None
    stop = threading.Event() if stop is None else stop

    def noting_interrupts() -> AbstractContextManager[None]:
        # Raised inside the locks of futures, KeyboardInterrupt would leave them locked.
        return on_interrupt(stop.set) if own else nullcontext()

    running, following = 0, 0
    early: dict[int, Finished] = {}  # of an ordered run: ended before one that comes first

    def ready(found: list[Finished]) -> Iterator[Finished]:
        nonlocal following
        for done in found:
            if isinstance(done.error, Interrupted) and stop.is_set():
                continue
            if not ordered:
                yield done
                continue
            early[done.number] = done
            while following in early:
                yield early.pop(following)
                following += 1

    with pool:
        try:
            pool.begin(stop)
            while not stop.is_set():
                with noting_interrupts():
                    most = pool.ahead() * batch
                while running + len(early) < most and (group := list(islice(numbered, batch))):
                    with noting_interrupts():
                        pool.submit(group)
                    running += len(group)
                if not running:
                    return
                with noting_interrupts():
                    found = pool.done()
                running -= len(found)
                yield from ready(found)
            with noting_interrupts():
                found = pool.end()
            yield from ready(found)
        finally:
            if own:
                stop.set()  # for tasks of a run that nobody reads to its end
    raise KeyboardInterrupt if own else Interrupted


def _attempt(task: Task, given: Given) -> tuple[Any, Exception | None]:
    """Return the task's answer, or its error."""
    try:
        return task(*given), None
    except Exception as error:
        return None, error
    except BaseException as error:  # such as SystemExit, which would end the worker
        return None, RuntimeError(f"the task was ended by {error!r}")


def _portable(error: Exception | None) -> Exception | None:
    """Return an error that another process can read."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _Threads:
    """Threads of this process."""

    def __init__(self, task: Task, workers: int) -> None:
        self.task, self.workers = task, workers
        self.pool = ThreadPoolExecutor(workers)
        self.finished: SimpleQueue[Finished] = SimpleQueue()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, stop: threading.Event) -> None:
        """Keep the event, after which no task begins."""
        self.stop = stop

    def ahead(self) -> int:
        """Return twice the number of workers: the next task is there when one ends."""
        return 2 * self.workers

    def submit(self, group: list[tuple[int, Given]]) -> None:
        """Have one task run; what ends comes through a queue, without the locks of futures."""
        ((number, given),) = group
        self.pool.submit(self.work, number, given)

    def work(self, number: int, given: Given) -> None:
        """Run the task, in a thread."""
        found = (None, Interrupted()) if self.stop.is_set() else self.attempt(given)
        self.finished.put(Finished(number, *found))

    def attempt(self, given: Given) -> tuple[Any, Exception | None]:
        """Return the task's answer, or its error."""
        return _attempt(self.task, given)

    def done(self) -> list[Finished]:
        """Wait a moment; return what has ended."""
        with suppress(Empty):
            return [self.finished.get(timeout=WAIT)]
        return []

    def end(self) -> list[Finished]:
        """Cancel what has not begun, wait for the rest, and return it."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        found = []
        while not self.finished.empty():
            found.append(self.finished.get())
        return found


class _Processes(_Threads):
    """Spawned processes, each of which a thread waits for."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(tasks[0], len(tasks))
        self.tasks = tasks
        self.all: list[_Process] = []
        self.free: SimpleQueue[_Process] = SimpleQueue()

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        except BaseException:  # a second Ctrl-C: tasks under way are given up
            for each in self.all:
                if each.process is not None:
                    each.process.terminate()
            raise
        for each in self.all:
            each.close()

    def begin(self, stop: threading.Event) -> None:
        """Get ready to start the processes."""
        super().begin(stop)
        for task in self.tasks:
            self.all.append(_Process(task, stop))
            self.free.put(self.all[-1])

    def attempt(self, given: Given) -> tuple[Any, Exception | None]:
        """Let a process that is free run its task."""
        process = self.free.get()
        try:
            return process.attempt(given)
        except Exception as error:  # arguments that cannot be pickled, or a process that has died
            return None, error
        finally:
            self.free.put(process)


# A fork of this process would copy the state of threads that are not there.
_context: Any = multiprocessing.get_context("spawn")


def preload(*modules: str) -> None:
    """Let the processes of `run` be forks of one that imports modules first, on Linux.

    Each would take longer to import them than to do a small task.
    """
    global _context  # noqa: PLW0603 - as the start method of `multiprocessing`
    if sys.platform != "linux":
        return
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which it inherits
    try:
        with suppress(OSError):  # as where it may not open a socket
            forkserver.ensure_running()
            _context = context
    finally:
        signal.signal(signal.SIGINT, before)


class _Process:
    """A process that runs one task after another; another takes its place where it dies.

    Parameters
    ----------
    task : callable
        What it runs.
    stop : threading.Event
        Set when tasks are to end, which the process is told.
    """

    def __init__(self, task: Task, stop: threading.Event) -> None:
        self.task, self.stop = task, stop
        self.pipe: Any = None
        self.process: Any = None

    def start(self) -> None:
        """Start it, for its first task."""
        self.pipe, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs, self.task), daemon=True)
        self.process.start()
        theirs.close()

    def attempt(self, given: Given) -> tuple[Any, Exception | None]:
        """Return the task's answer, or its error."""
        if self.pipe is None:
            self.start()
        try:
            self.pipe.send(given)
            while not self.pipe.poll(WAIT):
                if self.stop.is_set():
                    self.pipe.send(_STOP)
                    break
            found: tuple[Any, Exception | None] = self.pipe.recv()
        except (EOFError, OSError):
            reason = self.close()
            # Ctrl-C may have ended it before it began to leave that to others.
            return None, Interrupted() if self.stop.wait(WAIT) else OSError(reason)
        return found

    def close(self) -> str:
        """Let it end, now that nobody will send it a task; return how it ended."""
        if self.pipe is None:
            return "it was not started"
        self.pipe.close()
        self.pipe = None
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            known = -code in set(signal.Signals)
            by = signal.Signals(-code).name if known else f"signal {-code}"
            return f"its process was ended by {by} (out of memory?)"
        return f"its process ended with code {code}"


_STOP = "stop"
_stop_here: Any = threading.Event()


class _Asked:
    """Whether a process is asked to stop: while a task runs, no other message comes.

    It is also set when the process that would ask is gone.
    """

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def is_set(self) -> bool:
        """Return whether it is."""
        return bool(self.pipe.poll())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is, or for so many seconds; return whether it is."""
        return bool(self.pipe.poll(timeout))


def _serve(pipe: Any, task: Task) -> None:
    """Run tasks in a process until nobody sends any."""
    global _stop_here  # noqa: PLW0603 - tasks have no other way to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that the user sees decides
    _stop_here = _Asked(pipe)
    with suppress(EOFError, OSError):  # the other end is closed, or its process is gone
        while (given := pipe.recv()) != _STOP:
            answer, error = _attempt(task, given)
            try:
                pipe.send((answer, _portable(error)))
            except (pickle.PicklingError, TypeError, AttributeError, ValueError) as why:
                pipe.send((None, _portable(why)))


class _Cluster:
    """The workers of a Dask cluster, which may die and be replaced.

    Parameters
    ----------
    task, client, name
        As for `run`.
    """

    def __init__(self, task: Task, client: Any, name: str) -> None:
        self.task, self.client, self.name = task, client, name
        self.library: Any = import_module("distributed")
        self.late = (TimeoutError, self.library.TimeoutError)
        self.running: dict[Any, list[tuple[int, Given]]] = {}
        self.failed: dict[int, int] = {}
        self.patience, self.seen = PATIENCE, monotonic()  # when there were workers
        self.threads, self.counted = 0, -math.inf

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.running.clear()
        if error is None or isinstance(error, (GeneratorExit, KeyboardInterrupt)):
            return
        if self.client.status != "running":
            raise ConnectionError(
                "the scheduler is gone; finished work is kept: run again with another one to "
                "continue"
            ) from error

    def begin(self, stop: threading.Event) -> None:
        """Tasks under way are left to the cluster when `stop` is set."""

    def ahead(self) -> int:
        """Return how many batches keep all workers busy; these come and go."""
        if monotonic() - self.counted > CHECK:
            self.counted = monotonic()
            found = self.count_threads()
            if found:
                self.seen = self.counted
            elif self.counted - self.seen > self.patience:
                raise ConnectionError(
                    f"no workers for {self.patience} s; finished work is kept: start some, "
                    "and run again to continue"
                )
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

    def submit(self, group: list[tuple[int, Given]]) -> None:
        """Give a batch to the scheduler."""
        key = f"{self.name}-{token_hex(4)}-{group[0][0]}"
        given = [each for _, each in group]
        self.running[self.client.submit(_several, self.task, given, pure=False, key=key)] = group

    def done(self) -> list[Finished]:
        """Wait a moment; return what has ended for good."""
        try:
            self.library.wait(list(self.running), timeout=1, return_when="FIRST_COMPLETED")
        except self.library.TimeoutError:
            return []
        except self.library.CancelledError:
            if self.client.status != "running":
                raise
        ended = [future for future in self.running if future.done()]
        return [done for future in ended for done in self.collect(future)]

    def collect(self, future: Any) -> Iterator[Finished]:
        """Yield the answers of a batch, or have its tasks run again."""
        group = self.running.pop(future)
        try:
            answers = future.result(timeout=CHECK)
        except Exception as error:
            if self.client.status != "running":
                raise
            if isinstance(error, self.late) and future.status != "error":
                self.running[future] = group  # its worker has died since: it is done again
                return
            lost = (OSError, self.library.KilledWorker, self.library.CancelledError)
            for number, given in group:
                if isinstance(error, lost):
                    yield from self.again(number, given, error)
                else:
                    yield Finished(number, error=error)
            return
        for (number, given), (answer, raised) in zip(group, answers, strict=True):
            if isinstance(raised, OSError):
                yield from self.again(number, given, raised)
            else:
                yield Finished(number, answer, raised)

    def again(self, number: int, given: Given, error: Exception) -> Iterator[Finished]:
        """Run a task again, by itself, unless it has failed too often."""
        self.failed[number] = self.failed.get(number, 0) + 1
        if isinstance(error, OSError) and self.failed[number] > RETRIES:
            yield Finished(number, error=error)
        elif self.failed[number] > DEATHS:
            died = RuntimeError(
                f"{self.name}, task {number}: several workers died on it; give workers "
                "more memory, or smaller tiles. Finished work is kept: run again to continue"
            )
            died.__cause__ = error
            yield Finished(number, error=died)
        else:
            self.submit([(number, given)])

    def end(self) -> list[Finished]:
        """Leave everything to the cluster, whose tasks end by themselves."""
        self.client.cancel(list(self.running))
        return []


def _several(task: Task, given: list[Given]) -> list[tuple[Any, Exception | None]]:
    """Run a batch of tasks on a worker of a cluster."""
    found = (_attempt(task, each) for each in given)
    return [(answer, _portable(error)) for answer, error in found]
