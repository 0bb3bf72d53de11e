"""When a run is to stop, and which filter calls may follow."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from densecrf.deadline import now
from densecrf.validation import check_gap, check_integer, check_non_negative

if TYPE_CHECKING:
    from densecrf.solvers.loop import Outcome

__all__ = ["Calls", "Limits"]


@dataclass
class Limits:
    """When to stop, and what to call after each iteration."""

    gap: float | None = None
    time_limit: float | None = None
    max_iterations: int | None = None
    callback: Callable[["Outcome"], Any] | None = None
    started: float = field(default_factory=now)

    @classmethod
    def checked(
        cls,
        gap: Any,
        time_limit: Any,
        max_iterations: Any,
        callback: Callable[["Outcome"], Any] | None = None,
    ) -> "Limits":
        """Return what a user asks for; what makes no sense is refused."""
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
    """The filter calls of the evaluation at the end: while there is time, and one past the limit.

    Parameters
    ----------
    deadline : float, optional
        When the time is up; None: never.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline, self._made = deadline, False

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self._deadline is not None and now() >= self._deadline

    def another(self) -> bool:
        """Return whether a filter call may be made; what returns True is taken for one."""
        allowed = not self._made or not self.late
        self._made = True
        return allowed
