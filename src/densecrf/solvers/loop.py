"""The loop that all methods share: trace, best labelling, limits, interruption.

A method is a generator of `Step`: it does its mathematics and yields; everything else, from the
clock to Ctrl-C, is looked after here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from densecrf.problem import Problem
from densecrf.result import Trace, relative_gap

__all__ = ["Finish", "Limits", "Outcome", "Step", "drive"]


#: What is done to the best labelling at the end: (problem, labels) to (labels, energy).
Finish = Callable[[Problem, Any], tuple[Any, float]]


@dataclass
class Step:
    """What a method has after an iteration.

    Attributes
    ----------
    y : array, (labels, n)
        The relaxed solution.
    relaxed : float, optional
        The relaxation's objective.
    bound : float, optional
        A lower bound on the energy of every labelling that this iteration proved.
    labels : array, (n,), optional
        The labelling to score, argmax of `y` by default.
    energy : float, optional
        Its energy, where the method knows it already.
    info : dict
        Remarks for the result.
    """

    y: Any
    relaxed: float | None = None
    bound: float | None = None
    labels: Any = None
    energy: float | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Limits:
    """When to stop, and who wants to know of each iteration."""

    gap: float | None = None
    time_limit: float | None = None
    max_iterations: int | None = None
    callback: Callable[["Outcome"], Any] | None = None
    started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.perf_counter() - self.started


@dataclass
class Outcome:
    """The best so far, updated by each iteration; callbacks get it."""

    trace: Trace = field(default_factory=Trace)
    y: Any = None
    labels: Any = None
    energy: float = float("inf")
    lower_bound: float | None = None
    iterations: int = 0
    converged: bool = False
    interrupted: bool = False
    message: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    _scored: Any = None
    _scored_energy: float = float("inf")

    @property
    def gap(self) -> float | None:
        """The relative gap between the best energy and the best bound."""
        return relative_gap(self.energy, self.lower_bound)

    def improve(self, problem: Problem, finish: Finish, seconds: Callable[[], float]) -> None:
        """Finish the best labelling; where that lowers its energy, the trace's last row has it."""
        labels, energy = finish(problem, self.labels)
        if energy < self.energy:
            self.labels, self.energy = labels, energy
            trace = self.trace
            trace.energy[-1] = trace.current_energy[-1] = energy
            trace.plain_calls[-1], trace.seconds[-1] = problem.calls.plain, seconds()

    def take(self, problem: Problem, step: Step, seconds: float) -> None:
        """Score a step's labelling, keep what is better, and write a row of the trace."""
        labels = problem.argmax(step.y) if step.labels is None else step.labels
        energy = step.energy
        if energy is None:
            unchanged = self._scored is not None and bool((labels == self._scored).all())
            energy = self._scored_energy if unchanged else problem.energy(labels)
        self._scored, self._scored_energy = labels, energy
        if energy < self.energy:
            self.energy, self.labels = energy, labels
        self.y = step.y
        if step.bound is not None and np.isfinite(step.bound):
            old = self.lower_bound
            self.lower_bound = step.bound if old is None else max(old, step.bound)
        self.info.update(step.info)
        trace = self.trace
        trace.seconds.append(seconds)
        trace.plain_calls.append(problem.calls.plain)
        trace.ordered_calls.append(problem.calls.ordered)
        trace.energy.append(self.energy)
        trace.current_energy.append(energy)
        trace.relaxed.append(step.relaxed)
        trace.lower_bound.append(self.lower_bound)


def drive(
    problem: Problem,
    start: Step,
    steps: Iterator[Step],
    limits: Limits,
    *,
    scored: bool = True,
    finish: Finish | None = None,
) -> Outcome:
    """Run a method to its end or to a limit; return the best that was seen.

    Ctrl-C, once the starting point is scored, ends the run and keeps its best. Where iterations are
    not `scored`, only the last one's labelling is, and the trace has this one row. A method that
    has iterated and has time left may `finish` its best labelling.
    """
    outcome = Outcome()
    last = start
    if scored:
        outcome.take(problem, start, limits.seconds())
    try:
        while not _reached(outcome, limits):
            step = next(steps, None)
            if step is None:
                short = limits.gap is not None and outcome.gap is not None
                outcome.converged = not short
                outcome.message = "the method's last iteration" if short else "converged"
                break
            outcome.iterations += 1
            last = step
            start.y = start.labels = None  # large, and whoever made it still holds the step
            if scored:
                outcome.take(problem, step, limits.seconds())
            if limits.callback is not None and limits.callback(outcome) is True:
                outcome.message = "stopped by the callback"
                break
        if finish is not None and outcome.iterations and not _late(limits):
            outcome.improve(problem, finish, limits.seconds)
            _within(outcome, limits)
    except KeyboardInterrupt:
        outcome.interrupted = True
        outcome.message = "interrupted: this is the best so far"
    if not scored:
        outcome.take(problem, last, limits.seconds())
    return outcome


def _reached(outcome: Outcome, limits: Limits) -> bool:
    if _within(outcome, limits):
        return True
    if limits.max_iterations is not None and outcome.iterations >= limits.max_iterations:
        outcome.message = f"iteration limit of {limits.max_iterations} reached"
        return True
    if _late(limits):
        outcome.message = f"time limit of {limits.time_limit:g} s reached"
        return True
    return False


def _within(outcome: Outcome, limits: Limits) -> bool:
    gap = outcome.gap
    if limits.gap is None or gap is None or gap > limits.gap:
        return False
    outcome.converged = True
    outcome.message = f"gap {gap:.2e} is within the asked {limits.gap:g}"
    return True


def _late(limits: Limits) -> bool:
    return limits.time_limit is not None and limits.seconds() >= limits.time_limit
