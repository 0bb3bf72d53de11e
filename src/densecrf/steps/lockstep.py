"""Several solver runs that advance together: each asks for steps, which are made for all at once.

A run is an ordinary call of a solver, in a coroutine of its own (greenlet). Where it asks for a
step (`Lockstep.ask`), it is suspended until all others ask for something or have ended; then the
step that most of them ask for is made for these, in one. So each run keeps its own numbers, limits
and turns, a run that ends makes room for one that waits, and every algorithm is written once, for
one problem.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from math import inf
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

__all__ = ["Lockstep"]

FULL = 0.75  # share of the room below which runs that wait enter: several at once, which is cheaper

#: What makes a step for some runs: their numbers and arguments to their answers.
Together = Callable[[Sequence[int], Sequence[Any]], Sequence[Any]]


class _Asked(NamedTuple):
    kind: Hashable
    together: Together
    arguments: Any
    late: bool


class Lockstep:
    """The runs and what they ask for.

    Parameters
    ----------
    room : float
        The largest sum of the runs' sizes; see `make_room`.

    Examples
    --------
    >>> steps = Lockstep()
    >>> calls = []
    >>> def double(runs, numbers):
    ...     calls.append(list(runs))
    ...     return [2 * number for number in numbers]
    >>> def run(number):
    ...     while number < 10:
    ...         number = steps.ask("double", double, number)
    ...     return number
    >>> steps.run([lambda: run(1), lambda: run(4)])
    [16, 16]
    >>> calls
    [[0, 1], [0, 1], [0], [0]]
    """

    def __init__(self, room: float = inf) -> None:
        self._room = room
        self._main: Any = None
        self._alive: dict[int, Any] = {}
        self._asked: dict[int, _Asked] = {}
        self._waiting: dict[int, float] = {}  # sizes of runs that wait for room
        self._sizes: dict[int, float] = {}  # of those that have it
        self._ended: dict[int, Any] = {}
        #: Whether a run, or a step, was interrupted.
        self.interrupted = False

    def __len__(self) -> int:
        """Return how many runs have begun and not ended."""
        return len(self._alive)

    # --- what runs call -----------------------------------------------------------------------

    def ask(self, kind: Hashable, together: Together, arguments: Any, *, late: bool = False) -> Any:
        """Return this run's answer of `together`, made for all runs that ask for the same kind.

        With `late`, only when no run asks for anything else: it brings the runs in step again. An
        error of `together` is raised in each of these runs.
        """
        return self._main.switch(_Asked(kind, together, arguments, late))

    def make_room(self, size: float) -> None:
        """Wait until there is room for a run of this size; one run always has it."""
        self._main.switch(size)

    # --- what their owner calls ---------------------------------------------------------------

    def begin(self, number: int, run: Callable[[], Any], context: Context | None = None) -> None:
        """Begin a run, in a copy of this context or another's; it goes on until it asks."""
        self._alive[number] = own = greenlet(run)
        own.gr_context = context or copy_context()
        self._resume(number)

    def advance(self) -> dict[int, Any]:
        """Make the step that most runs ask for; return what the runs that ended returned."""
        self._admit()
        if self._asked:
            numbers = _most_wanted(self._asked)
            steps = [self._asked[number] for number in numbers]
            try:
                found = steps[0].together(numbers, [step.arguments for step in steps])
            except KeyboardInterrupt:
                self.interrupted = True  # which `run` passes on
            except Exception as error:
                for number in numbers:
                    self._resume(number, error=error)
            else:
                for number, answer in zip(numbers, found, strict=True):
                    self._resume(number, answer)
        ended, self._ended = self._ended, {}
        return ended

    def run(
        self,
        runs: Sequence[Callable[[], Any]],
        interrupted: Callable[[Any], bool] = lambda _: False,
    ) -> list[Any]:
        """Run all, and return what they return; an error of one ends them all.

        An interruption (Ctrl-C), which a run's answer may tell, is passed on to all runs.
        """
        answers: dict[int, Any] = {}
        self.interrupted = passed_on = False
        try:
            for number, each in enumerate(runs):
                self.begin(number, each)
            while len(answers) < len(runs):
                ended = self.advance()
                answers |= ended
                self.interrupted = self.interrupted or any(map(interrupted, ended.values()))
                if self.interrupted and not passed_on:
                    passed_on = True
                    for number in list(self._asked):
                        self._resume(number, error=KeyboardInterrupt())
        finally:
            self.close()
        return [answers[number] for number in range(len(runs))]

    def close(self) -> None:
        """End all runs, with what they hold of the device's memory."""
        for own in self._alive.values():
            own.throw()
        for known in (self._alive, self._asked, self._waiting, self._sizes, self._ended):
            known.clear()

    def _resume(self, number: int, *value: Any, error: BaseException | None = None) -> None:
        own = self._alive[number]
        self._asked.pop(number, None)
        self._main = getcurrent()
        got = own.switch(*value) if error is None else own.throw(error)
        if own.dead:
            del self._alive[number]
            self._sizes.pop(number, None)
            self._ended[number] = got
        elif isinstance(got, _Asked):
            self._asked[number] = got
        else:
            self._sizes.pop(number, None)  # where it has other needs now
            self._waiting[number] = got

    def _admit(self) -> None:
        """Let runs that wait for room go on, in their order."""
        used = sum(self._sizes.values())
        if used > FULL * self._room:
            return
        for number, size in list(self._waiting.items()):
            used += size
            if self._sizes and used > self._room:
                return
            self._sizes[number] = self._waiting.pop(number)
            self._resume(number)


def _most_wanted(asked: dict[int, _Asked]) -> list[int]:
    """Return the runs that ask for the most wanted step; late ones after all others."""
    kinds: dict[tuple[bool, Hashable], list[int]] = {}
    for number in sorted(asked):
        kinds.setdefault((asked[number].late, asked[number].kind), []).append(number)
    return min(kinds.items(), key=lambda item: (item[0][0], -len(item[1])))[1]
