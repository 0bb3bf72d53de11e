"""The loop that all methods share: trace, best labelling, limits, interruption.

A method is a generator of `Step`: it does its mathematics and yields; everything else, from the
clock to Ctrl-C, is looked after here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from densecrf.certificates import Dual, checked_bound, lower_bound
from densecrf.problem_base import ProblemBase
from densecrf.result import Trace, relative_gap

__all__ = ["Finish", "Limits", "Outcome", "Step", "drive"]


TRIAL = 1.5  # gaps' ratio, estimate to asked, at which a proof is first tried

#: What is done to the best labelling at the end: (problem, labels) to (labels, energy).
Finish = Callable[[ProblemBase, Any], tuple[Any, float]]


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
        An estimate of the best lower bound of this iteration's dual points.
    duals : tuple of Dual
        The dual points, the most promising first; `certificates.lower_bound` proves their bounds.
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
    duals: tuple[Dual, ...] = ()
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
    """The best so far, updated by each iteration; callbacks get it.

    Bounds and energies are estimates in single precision; at the end they are replaced by what is
    proven in double precision.
    """

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
    #: The dual point whose bound is proven.
    dual: Dual | None = None
    _proven: float = -float("inf")
    _duals: tuple[Dual, ...] = ()
    _trial: float | None = None
    _scored: Any = None
    _scored_energy: float = float("inf")

    @property
    def gap(self) -> float | None:
        """The relative gap between the best energy and the best bound."""
        return relative_gap(self.energy, self.lower_bound)

    def improve(self, problem: ProblemBase, finish: Finish, seconds: Callable[[], float]) -> None:
        """Finish the best labelling; where that lowers its energy, the trace's last row has it."""
        labels, energy = finish(problem, self.labels)
        if energy < self.energy:
            self.labels, self.energy = labels, energy
            trace = self.trace
            trace.energy[-1] = trace.current_energy[-1] = energy
            trace.plain_calls[-1], trace.seconds[-1] = problem.calls.plain, seconds()

    def take(self, problem: ProblemBase, step: Step, seconds: float) -> None:
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
        bound = -np.inf if self.lower_bound is None else self.lower_bound
        if step.bound is not None and np.isfinite(step.bound) and step.bound > bound:
            self.lower_bound, self._duals = step.bound, step.duals
        self.info.update(step.info)
        trace = self.trace
        trace.seconds.append(seconds)
        trace.plain_calls.append(problem.calls.plain)
        trace.ordered_calls.append(problem.calls.ordered)
        trace.energy.append(self.energy)
        trace.current_energy.append(energy)
        trace.relaxed.append(step.relaxed)
        trace.lower_bound.append(self.lower_bound)

    def prove(self, problem: ProblemBase) -> float | None:
        """Evaluate energy and bound in double precision; return the gap that is proven, if any."""
        self.energy = problem.energy(self.labels)
        for dual in self._duals:
            bound = lower_bound(problem, dual)
            if bound > self._proven:
                self._proven, self.dual = bound, dual
            if self.lower_bound is None or bound >= self.lower_bound:
                break
        self._duals = ()
        if self.dual is None:
            return None
        rounding = problem.energy_rounding(self.labels)
        self._proven = checked_bound(self._proven, self.energy, rounding)
        return relative_gap(self.energy, self._proven)

    def reaches(self, problem: ProblemBase, gap: float) -> bool:
        """Return whether the asked gap is proven, where the estimates promise it."""
        estimate = self.gap
        if self._trial is None:
            self._trial = TRIAL * gap
        if estimate is None or estimate > self._trial or not self._duals:
            return False
        proven = self.prove(problem)
        if proven is None or proven <= gap:
            return proven is not None
        # The ratio of proof and estimate says when the next trial is worth its time.
        self._trial = 0.95 * gap * estimate / proven if estimate > 0 else -np.inf
        return False


def drive(
    problem: ProblemBase,
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
        while not _reached(outcome, problem, limits):
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
    except KeyboardInterrupt:
        outcome.interrupted = True
        outcome.message = "interrupted: this is the best so far"
    if not scored:
        outcome.take(problem, last, limits.seconds())
    _certify(outcome, problem, limits)
    return outcome


def _certify(outcome: Outcome, problem: ProblemBase, limits: Limits) -> None:
    """Replace the estimates by what is proven; the trace's last row has it."""
    gap = outcome.prove(problem)
    outcome.lower_bound = None if outcome.dual is None else outcome._proven
    trace = outcome.trace
    trace.energy[-1], trace.lower_bound[-1] = outcome.energy, outcome.lower_bound
    if limits.gap is not None and gap is not None and gap <= limits.gap:
        outcome.converged = True
        outcome.message = f"gap {gap:.2e} is within the asked {limits.gap:g}"


def _reached(outcome: Outcome, problem: ProblemBase, limits: Limits) -> bool:
    if limits.gap is not None and outcome.reaches(problem, limits.gap):
        return True
    if limits.max_iterations is not None and outcome.iterations >= limits.max_iterations:
        outcome.message = f"iteration limit of {limits.max_iterations} reached"
        return True
    if _late(limits):
        outcome.message = f"time limit of {limits.time_limit:g} s reached"
        return True
    return False


def _late(limits: Limits) -> bool:
    return limits.time_limit is not None and limits.seconds() >= limits.time_limit
