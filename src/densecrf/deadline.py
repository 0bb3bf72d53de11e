"""Limits of a run: the deadline inside filter calls and inner loops, and Ctrl-C.

`solve` sets the deadline of its thread. The compiled core checks it when a call begins and every
50 ms during a call; filters and loops in Python check it, too. After the deadline they raise
`OutOfTime`, and the loop of the methods returns the best result so far. Once the event of
`stopped_by` is set they raise `Interrupted`, which ends the work without a result.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

from densecrf.validation import check_gap, check_integer, check_non_negative

if TYPE_CHECKING:
    from densecrf.solvers.loop import Outcome

__all__ = [
    "Calls",
    "Interrupted",
    "Limits",
    "OutOfTime",
    "check_deadline",
    "deadline",
    "now",
    "on_interrupt",
    "stopped_by",
]

_deadline: ContextVar[float] = ContextVar("deadline", default=inf)
_stop: ContextVar[Any] = ContextVar("stop", default=None)


def now() -> float:
    """Return the time of the deadlines' clock."""
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


@contextmanager
def stopped_by(event: Any) -> Iterator[None]:
    """Let work of this thread raise `Interrupted` once an event is set."""
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


def check_deadline() -> None:
    """Raise `OutOfTime` if this thread's deadline has passed, `Interrupted` if it is to stop."""
    if perf_counter() >= _deadline.get():
        raise OutOfTime
    event = _stop.get()
    if event is not None and event.is_set():
        raise Interrupted


@dataclass
class Limits:
    """The limits of a run, and the callback after each iteration."""

    gap: float | None = None
    time_limit: float | None = None
    max_iterations: int | None = None
    callback: Callable[["Outcome[Any]"], Any] | None = None
    started: float = field(default_factory=now)

    @classmethod
    def checked(
        cls,
        gap: Any,
        time_limit: Any,
        max_iterations: Any,
        callback: Callable[["Outcome[Any]"], Any] | None = None,
    ) -> "Limits":
        """Return a user's limits, checked."""
        return cls(
            None if gap is None else check_gap(gap),
            None if time_limit is None else check_non_negative("time_limit", time_limit),
            None
            if max_iterations is None
            else check_integer("max_iterations", max_iterations, at_least=0),
            callback,
        )

    def seconds(self) -> float:
        """Return the time since the start."""
        return now() - self.started

    @property
    def deadline(self) -> float | None:
        """The moment at which the time is up."""
        return None if self.time_limit is None else self.started + self.time_limit

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and now() >= self.deadline

    @property
    def out_of_time(self) -> str:
        """The message of a result whose time was up."""
        return "" if self.time_limit is None else f"time limit of {self.time_limit:g} s reached"


class Calls:
    """The filter calls of the final evaluation: any within the time limit, one after it."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline, self._made = deadline, False

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self._deadline is not None and now() >= self._deadline

    def another(self) -> bool:
        """Return whether a filter call may be made, and count it."""
        allowed = not self._made or not self.late
        self._made = True
        return allowed


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Work ends because the user pressed Ctrl-C."""


@contextmanager
def on_interrupt(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` at the first Ctrl-C; only a second one raises KeyboardInterrupt.

    Raised inside the locks of futures, it would leave them locked. `note` runs between two
    instructions of the main thread and must not wait for a lock either.
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
