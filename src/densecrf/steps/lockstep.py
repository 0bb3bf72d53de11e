"""Several solver runs that advance together: each asks for steps, which are made for all at once.

A run is an ordinary call of a solver, in a coroutine of its own (greenlet). Where it asks for a
step (`Lockstep.ask`), it is suspended until all others ask for something or have ended; then the
step that most of them ask for is made for these, in one. So each run keeps its own numbers, limits
and turns, a run that ends makes room for one that waits, and every algorithm is written once, for
one problem.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
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
    before : callable, optional
        Called before each step.

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

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._main: Any = None
        self._before = before
        #: Whether a run, or a step, was interrupted.
        self.interrupted = False

    def ask(self, kind: Hashable, together: Together, arguments: Any, *, late: bool = False) -> Any:
        """Return this run's answer of `together`, made for all runs that ask for the same kind.

        With `late`, only when no run asks for anything else: it brings the runs in step again.
        """
        return self._main.switch(_Asked(kind, together, arguments, late))

    def run(
        self,
        runs: Sequence[Callable[[], Any]],
        interrupted: Callable[[Any], bool] = lambda _: False,
        sizes: Sequence[int] | None = None,
        room: int | None = None,
    ) -> list[Any]:
        """Run all, and return what they return.

        An interruption (Ctrl-C), which a run's answer may tell, is passed on to all runs. Where
        there is `room` for runs of so large `sizes` together, the others wait for their turn.
        """
        self._main = getcurrent()
        self.interrupted = passed_on = False
        answers: list[Any] = [None] * len(runs)
        asked: dict[int, _Asked] = {}
        alive: dict[int, Any] = {}
        sizes = [0] * len(runs) if sizes is None else sizes
        waiting = deque(range(len(runs)))

        def resume(number: int, *value: Any, error: BaseException | None = None) -> None:
            own = alive[number]
            asked.pop(number, None)
            got = own.switch(*value) if error is None else own.throw(error)
            if not own.dead:
                asked[number] = got
                return
            answers[number] = got
            del alive[number]
            self.interrupted = self.interrupted or interrupted(got)

        def everyone(error: BaseException) -> None:
            for number in list(asked):
                resume(number, error=error)

        def enter() -> None:
            used = sum(sizes[number] for number in alive)
            if alive and room is not None and used > FULL * room:
                return
            while waiting:
                number = waiting[0]
                used += sizes[number]
                if alive and room is not None and used > room:
                    return
                alive[number] = own = greenlet(runs[waiting.popleft()])
                own.gr_context = copy_context()
                resume(number)

        try:
            enter()
            while asked:
                if self.interrupted and not passed_on:
                    passed_on = True
                    everyone(KeyboardInterrupt())
                    enter()
                    continue
                numbers = _most_wanted(asked)
                steps = [asked[number] for number in numbers]
                try:
                    self._before()
                    found = steps[0].together(numbers, [step.arguments for step in steps])
                except KeyboardInterrupt as error:
                    self.interrupted = passed_on = True
                    everyone(error)
                else:
                    for number, answer in zip(numbers, found, strict=True):
                        resume(number, answer)
                enter()
        finally:  # an error of one run ends them all, with what they hold of the device's memory
            for own in alive.values():
                own.throw()
        return answers


def _most_wanted(asked: dict[int, _Asked]) -> list[int]:
    """Return the runs that ask for the most wanted step; late ones after all others."""
    kinds: dict[tuple[bool, Hashable], list[int]] = {}
    for number in sorted(asked):
        kinds.setdefault((asked[number].late, asked[number].kind), []).append(number)
    return min(kinds.items(), key=lambda item: (item[0][0], -len(item[1])))[1]
