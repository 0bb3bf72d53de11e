"""The time limit of a solve, kept inside filter calls, inner loops and construction; and Ctrl-C.

`solve` sets the deadline of its thread. The compiled core checks it when a call begins and every
50 ms while one runs, and so do the filters and loops that it does not run; past it they raise
`OutOfTime`, which the loop of the methods turns into the best result so far.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import perf_counter
from typing import Any

__all__ = ["Interrupted", "OutOfTime", "check_deadline", "deadline", "now", "on_interrupt"]

_deadline: ContextVar[float] = ContextVar("deadline", default=inf)


def now() -> float:
    """Return the time on the clock that deadlines are of."""
    return perf_counter()


class OutOfTime(Exception):  # noqa: N818 - a limit, not an error
    """The deadline has passed."""


@contextmanager
def deadline(moment: float | None) -> Iterator[None]:
    """Set the deadline, on the clock of `time.perf_counter`; None: there is none.

    Examples
    --------
    >>> with deadline(perf_counter() - 1):
    ...     check_deadline()
    Traceback (most recent call last):
    densecrf.deadline.OutOfTime
    """
    token = _deadline.set(inf if moment is None else moment)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_deadline() -> None:
    """Raise `OutOfTime` where this thread's deadline has passed."""
    if perf_counter() >= _deadline.get():
        raise OutOfTime


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Work ends because the user pressed Ctrl-C."""


@contextmanager
def on_interrupt(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` at the first Ctrl-C; only a second one raises KeyboardInterrupt.

    Raised inside the locks of futures, it would leave them locked and their threads waiting. `note`
    runs between two instructions of the main thread and must not wait for a lock either.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # signals are for the main thread, and this one is left to the system or ignored
        return

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        note()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
