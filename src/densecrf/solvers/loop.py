"""The loop that all methods share: trace, best labelling, limits, interruption.

A method is a generator of `Step`: it does its mathematics and yields; everything else, from the
clock to Ctrl-C, is looked after here. Both hold inside iterations, too: see `densecrf.deadline`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.backend import Array
from densecrf.deadline import Calls, Limits, OutOfTime, check_deadline, deadline, now
from densecrf.problem.certificate import Costs, Dual, Mixture, Share, rounded_down
from densecrf.problem.problem import Problem
from densecrf.solvers.result import Trace, relative_gap
from densecrf.validation import FloatArray, IntArray

__all__ = ["ROUNDING", "Finish", "Limits", "Outcome", "Step", "drive", "unscored"]


PROVABLE = 1e-4  # gap from which on single labels can be ruled out
ROUNDING = 2.0**-24  # gap of what rounding the unaries to float32 changes: no smaller one is asked
DOUBLE = 3.0  # what a filter call of a bound in double precision takes, in iterations (1.9 to 3.2)
SINGLE = 1e-6  # gap that estimates in single precision cannot tell from 0

#: What is done to the best labelling at the end: (problem, labels) to (labels, energy).
Finish: TypeAlias = Callable[[Problem[Array], Array], tuple[Array, float]]


@dataclass
class Step(Generic[Array]):
    """What a method has after an iteration.

    Attributes
    ----------
    y : array, (labels, n)
        The relaxed solution.
    relaxed : float, optional
        The relaxation's objective.
    bound : float, optional
        An estimate of the best lower bound of this iteration's dual points.
    duals : sequence of Dual
        The dual points, the most promising first; `certificates.lower_bound` proves their bounds.
    labels : array, (n,), optional
        The labelling to score, argmax of `y` by default.
    energy : float, optional
        Its energy in double precision, where the method has computed it.
    estimate : float, optional
        An estimate of its energy: it is evaluated where this is below the best.
    info : dict
        Remarks for the result.
    cut : Outcome, optional
        Of a starting point: the run that made it, where a limit ended that run.
    kept : bool
        Whether the dual points may be of use later. Where the loop says no, the method may
        overwrite them.
    rows : ndarray of int, optional
        The labels that `y` has rows of, where not of all; the others' are 0.
    scored : bool
        Whether the labelling is to be scored even if it is not the last one.
    """

    y: Array
    relaxed: float | None = None
    bound: float | None = None
    duals: "Sequence[Dual[Array]]" = ()
    labels: Array | None = None
    energy: float | None = None
    info: dict[str, Any] = field(default_factory=dict)
    cut: "Outcome[Array] | None" = None
    estimate: float | None = None
    kept: bool = True
    rows: IntArray | None = None
    scored: bool = True

    def labelling(self, problem: Problem[Array]) -> Array:
        """Return the labelling to score."""
        if self.labels is not None:
            return self.labels
        labels = problem.steps.argmax(self.y)
        return labels if self.rows is None else problem.steps.from_numpy(self.rows)[labels]


@dataclass
class Outcome(Generic[Array]):
    """The best so far, updated by each iteration; callbacks get it.

    Bounds are estimates in single precision; at the end, and where a proof is tried, they are
    replaced by what is proven in double precision.
    """

    trace: Trace = field(default_factory=Trace)
    #: Whether the bound is to be proven at the end.
    certified: bool = True
    #: Of the last step, and of the best labelling; from the first row of the trace on.
    y: Array = field(init=False, repr=False)
    labels: Array = field(init=False, repr=False)
    #: The labels that `y` has rows of, where not of all.
    rows: IntArray | None = None
    energy: float = float("inf")
    lower_bound: float | None = None
    iterations: int = 0
    converged: bool = False
    interrupted: bool = False
    message: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    #: The best constant labelling's label and energy, where there was time for it.
    best_constant: tuple[int, float] = (0, float("inf"))
    #: The dual point whose bound is proven, how many labels it leaves at each pixel, and how much
    #: other labels cost there at least.
    dual: "Dual[Array] | None" = None
    possible: npt.NDArray[np.int32] | None = None
    margin: FloatArray | None = None
    _proven: float = -float("inf")
    _costs: Costs[Array] | None = None
    _duals: "Sequence[Dual[Array]]" = ()
    _trial: float | None = None
    #: Seconds of the shortest iteration, and of a filter call in double precision.
    _iteration: float = 0.0
    _double: float | None = None
    _next_trial: int = 0
    _scored: Array | None = None
    _scored_energy: float = float("inf")
    _unscored: Step[Array] | None = None

    @property
    def gap(self) -> float | None:
        """The relative gap between the best energy and the best bound."""
        return relative_gap(self.energy, self.lower_bound)

    def improve(
        self, problem: Problem[Array], finish: "Finish[Array]", seconds: Callable[[], float]
    ) -> None:
        """Finish the best labelling; where that lowers its energy, the trace's last row has it."""
        labels, estimate = finish(problem, self.labels)
        energy = problem.energy(labels) if estimate < self.energy else estimate
        if energy < self.energy:
            self.labels, self.energy = labels, energy
            trace = self.trace
            trace.energy[-1] = trace.current_energy[-1] = energy
            trace.plain_calls[-1], trace.seconds[-1] = problem.calls.plain, seconds()

    def take(self, problem: Problem[Array], step: Step[Array], seconds: float) -> None:
        """Score a step's labelling, keep what is better, and write a row of the trace."""
        self._unscored = None
        if step.scored:
            self._score(problem, step)
        else:
            self._unscored = Step(step.y, labels=step.labels, rows=step.rows)
        if step.duals:
            problem.total_mass_double  # noqa: B018 - bounds need it; not after the time limit
        self.y, self.rows = step.y, step.rows
        bound = -np.inf if self.lower_bound is None else self.lower_bound
        if step.bound is not None and np.isfinite(step.bound) and step.bound > bound:
            self.lower_bound, self._duals = step.bound, step.duals
        else:
            step.kept = False
        step.duals = ()  # large
        self.info.update(step.info)
        trace = self.trace
        trace.seconds.append(seconds)
        trace.plain_calls.append(problem.calls.plain)
        trace.ordered_calls.append(problem.calls.ordered)
        trace.energy.append(self.energy)
        trace.current_energy.append(self._scored_energy)
        trace.relaxed.append(step.relaxed)
        trace.lower_bound.append(self.lower_bound)

    def _score(self, problem: Problem[Array], step: Step[Array]) -> None:
        labels = step.labelling(problem)
        energy = self._energy_of(problem, labels, step)
        self._scored, self._scored_energy = labels, energy
        if not len(self.trace) or energy < self.energy:
            self.energy, self.labels = energy, labels

    def score_last(self, problem: Problem[Array], seconds: Callable[[], float]) -> None:
        """Score the last labelling where it was not; the trace's last row has its energy."""
        if self._unscored is not None:
            self._score(problem, self._unscored)
            trace, self._unscored = self.trace, None
            trace.energy[-1], trace.current_energy[-1] = self.energy, self._scored_energy
            trace.plain_calls[-1], trace.seconds[-1] = problem.calls.plain, seconds()

    def _energy_of(self, problem: Problem[Array], labels: Array, step: Step[Array]) -> float:
        """Return the energy of a step's labelling; an estimate where that is not the best."""
        if step.energy is not None:
            return step.energy
        if self._scored is not None and problem.steps.same(labels, self._scored):
            return self._scored_energy
        if step.estimate is not None and step.estimate >= self.energy:
            return step.estimate
        return problem.energy(labels)

    def end(self, limits: Limits) -> float | None:
        """Return when to end: in time for the bound, by what filter calls took so far."""
        if limits.deadline is None or not self.certified or not self._duals:
            return limits.deadline
        call = DOUBLE * self._iteration if self._double is None else self._double
        return limits.deadline - call * _filter_calls(self._duals[0])

    def iterated(self, seconds: float) -> None:
        """Count an iteration, and what it took."""
        self._iteration = min(seconds, self._iteration) if self.iterations else seconds
        self.iterations += 1

    def prove(self, problem: Problem[Array], calls: Calls | None = None) -> float | None:
        """Evaluate the bound in double precision; return the gap that is proven, if any.

        `calls` are the filter calls that may be made; any by default.
        """
        calls = calls or Calls(None)
        for dual in self._duals:
            if not calls.another():
                break
            if calls.late and isinstance(dual, Mixture):
                dual = dual.largest()
            began = now()
            costs = Costs(problem, dual, calls.another)
            self._double = (now() - began) / max(1, _filter_calls(costs.dual))
            if costs.bound > self._proven:
                self._proven, self.dual, self._costs = costs.bound, costs.dual, costs
            if self.lower_bound is None or costs.bound >= self.lower_bound:
                break
        self._duals = ()
        if self.dual is None:
            return None
        if self._proven > self.energy:
            self._proven = self._share(problem).certified(self._proven)
        return relative_gap(self.energy, self._proven)

    def _share(self, problem: Problem[Array]) -> Share:
        """Return the best labelling's share of the energy: all of it."""
        return Share(self.energy, sizes=problem.energy_sizes(self.labels))

    def reaches(self, problem: Problem[Array], gap: float) -> bool:
        """Return whether the requested gap is proven, where the estimates promise it."""
        estimate, gap = self.gap, max(gap, ROUNDING)
        if self._trial is None:
            self._trial = gap
        if estimate is None or not self._duals:
            return False
        blind = estimate <= SINGLE and self.iterations >= self._next_trial
        if estimate > self._trial and not blind:
            return False
        proven = self.prove(problem)
        if proven is None or proven <= gap:
            return proven is not None
        # The ratio of proof and estimate decides when the next trial is worth its time.
        self._costs = None  # large
        self._trial = 0.95 * gap * estimate / proven if estimate > 0 else -np.inf
        self._next_trial = self.iterations + 5 + self.iterations // 5
        return False

    def certify(self, problem: Problem[Array], limits: Limits) -> None:
        """Replace the estimated bound by what is proven; the trace's last row has it."""
        self._scored = None
        problem.give_back_free_memory()
        calls = Calls(-np.inf if self.interrupted else limits.deadline)
        gap = self.prove(problem, calls)
        self.lower_bound = None if self.dual is None else self._proven
        self.trace.lower_bound[-1] = self.lower_bound
        costs, self._costs = self._costs, None
        if self.dual is None or gap is None:
            return
        known = self._share(problem)
        if costs is not None or calls.another():
            costs = costs or Costs(problem, self.dual, calls.another)
            self.margin = costs.margin(problem, known, self.labels)
            if gap <= PROVABLE or self.margin.max() > 0:
                self.possible = costs.possible_labels(problem, known)
        else:
            gap_left = known.energy + known.energy_rounding - self._proven
            self.margin = rounded_down(np.full(problem.n, -gap_left))
        if self.interrupted or limits.gap is None:
            return
        if gap <= max(limits.gap, ROUNDING):
            self.converged = True
            what = f"requested {limits.gap:g}" if gap <= limits.gap else "rounding of the unaries"
            self.message = f"gap {gap:.2e}, at most the {what}"


def drive(
    problem: Problem[Array],
    start: Callable[[], Step[Array]],
    steps: Callable[[Array], Iterator[Step[Array]]],
    limits: Limits,
    *,
    scored: bool = True,
    finish: "Finish[Array] | None" = None,
    certified: bool = True,
) -> Outcome[Array]:
    """Run a method to its end or to a limit; return the best that was seen.

    Ctrl-C and the time limit end the run wherever it is and keep its best: the labelling that was
    scored last, or, before any was, the argmin of the unary energies. A time limit ends it early
    enough for the evaluation of the bound, by what the run's filter calls took; where it was later
    than expected, one filter call is made past the limit.

    `start` makes the starting point, ``steps(y)`` iterates from its marginals, and `finish` is done
    to the best labelling of a method that has iterated and has time left. Where steps are not
    `scored`, only the last one's labelling is, and the trace has this one row; where single steps
    are not, the trace repeats the last energies. The bound is proven
    at the end where the run is to be `certified`.
    """
    outcome: Outcome[Array] = Outcome(certified=certified)
    last: Step[Array] | None = None
    try:
        with deadline(limits.deadline):
            if certified:
                outcome.best_constant = problem.best_constant
            last = start()
            if scored:
                outcome.take(problem, last, limits.seconds())
            if last.cut is None:
                for last in _iterations(steps(last.y), outcome, problem, limits):  # noqa: B020
                    last.scored = last.scored or limits.callback is not None
                    if scored:
                        outcome.take(problem, last, limits.seconds())
            else:
                outcome.message, outcome.interrupted = last.cut.message, last.cut.interrupted
            if not scored:
                last.scored = True
                outcome.take(problem, last, limits.seconds())
            if finish is not None and outcome.iterations:
                with deadline(outcome.end(limits)):
                    check_deadline()
                    outcome.improve(problem, finish, limits.seconds)
    except OutOfTime:
        outcome.message = outcome.message or limits.out_of_time
    except KeyboardInterrupt:
        outcome.interrupted, outcome.converged = True, False
        outcome.message = "interrupted: this is the best so far"
    if not len(outcome.trace) and last is not None and problem.pairwise.built:
        last = replace(last, bound=None, duals=(), scored=True)
        outcome.take(problem, last, limits.seconds())
    outcome.score_last(problem, limits.seconds)
    if not len(outcome.trace):
        return unscored(problem, limits, outcome)
    if outcome.rows is not None:
        outcome.y, outcome.rows = problem.embed_labels(outcome.y, outcome.rows), None
    if certified:
        last = None  # large
        outcome.certify(problem, limits)
    return outcome


def unscored(problem: Problem[Array], limits: Limits, outcome: Outcome[Array]) -> Outcome[Array]:
    """Let the outcome of a run that scored nothing be the argmin of the unary energies.

    Its energy is known where that takes no more than one filter call, and infinite otherwise.
    """
    outcome.message += "; nothing was scored: this is the argmin of the unary energies"
    if problem.costs.tree:
        outcome.best_constant = problem.best_constant  # without a filter call
    labels = problem.steps.argmax(-problem.unary)
    energy = None if problem.pairwise.built else float("inf")
    step = Step(problem.indicator(labels), labels=labels, energy=energy)
    outcome.take(problem, step, limits.seconds())
    return outcome


def _iterations(
    steps: Iterator[Step[Array]], outcome: Outcome[Array], problem: Problem[Array], limits: Limits
) -> Iterator[Step[Array]]:
    """Pass the steps on until one of the limits, which the outcome then has."""
    while not _reached(outcome, problem, limits):
        began = now()
        with deadline(outcome.end(limits)):
            step = next(steps, None)
        if step is None:
            short = limits.gap is not None and outcome.gap is not None
            outcome.converged = not short
            outcome.message = "end of the method" if short else "converged"
            return
        outcome.iterated(now() - began)
        yield step
        del step  # large
        if limits.callback is not None:
            with deadline(None):  # a callback may take its time
                stop = limits.callback(outcome) is True
            if stop:
                outcome.message = "stopped by the callback"
                return


def _reached(outcome: Outcome[Array], problem: Problem[Array], limits: Limits) -> bool:
    end = outcome.end(limits)
    late = end is not None and now() >= end
    if limits.gap is not None and not late and outcome.reaches(problem, limits.gap):
        outcome.converged = True
        return True
    if limits.max_iterations is not None and outcome.iterations >= limits.max_iterations:
        outcome.message = f"iteration limit of {limits.max_iterations} reached"
        return True
    if late:
        outcome.message = limits.out_of_time
    return late


def _filter_calls(dual: Dual[Array]) -> int:
    """Return how many filter calls the bound of a dual point takes."""
    return len(dual.parts) if isinstance(dual, Mixture) else 1
