"""The loop's last word: finishing the best labelling."""

from types import SimpleNamespace

import numpy as np
import pytest

import densecrf
import oracles
from densecrf.problem.problem import problem_of
from densecrf.solvers import loop
from densecrf.solvers.loop import Limits, Step, drive

ENERGIES = {2: 12.0, 0: 10.0, 1: 9.0}  # of the constant labellings


@pytest.fixture
def problem(monkeypatch):
    problem = problem_of(oracles.case(1).crf)
    monkeypatch.setattr(problem, "energy", lambda labels: ENERGIES[int(labels[0])])

    def costs(_, dual, __):
        return SimpleNamespace(bound=dual, dual=dual, margin=lambda *_: np.full(problem.n, -1.0))

    monkeypatch.setattr(loop, "Costs", costs)
    return problem


def run(problem, limits, finish, bound=None):
    """Three iterations at a labelling, then the finish."""
    before, labels = (np.full(problem.n, label) for label in (2, 0))
    y = problem.indicator(labels)
    duals = () if bound is None else (bound,)
    steps = [Step(y, None, bound, duals, labels, 10.0) for _ in range(3)]
    start = Step(y, labels=before, energy=12.0)
    return drive(problem, lambda: start, lambda _: iter(steps), limits, finish=finish)


def better(_, labels):
    return labels + 1, 9.0


def test_a_better_labelling_is_taken_and_is_in_the_last_row(problem):
    outcome = run(problem, Limits(), better)
    assert (outcome.energy, outcome.trace.energy) == (9.0, [12.0, 10.0, 10.0, 9.0])
    assert (outcome.labels == 1).all()


def test_a_worse_one_is_not(problem):
    outcome = run(problem, Limits(), lambda _, labels: (labels + 1, 11.0))
    assert (outcome.energy, outcome.trace.energy[-1]) == (10.0, 10.0)
    assert (outcome.labels == 0).all()


def test_it_may_bring_the_gap_within_what_was_asked(problem):
    outcome = run(problem, Limits(gap=0.01, max_iterations=2), better, bound=8.95)
    assert outcome.converged
    assert outcome.message == "gap 5.56e-03, at most the requested 0.01"
    outcome = run(problem, Limits(gap=0.001, max_iterations=2), better, bound=8.95)
    assert not outcome.converged
    assert outcome.message == "iteration limit of 2 reached"


def test_what_is_best_by_its_estimate_is_evaluated(problem):
    """Estimates: 9.5 and then 8 and 7; in double precision 10, 12 and 9."""
    found = [(0, 9.5), (2, 8.0), (1, 7.0)]

    def steps(_):
        for label, energy in found:
            labels = np.full(problem.n, label)
            yield Step(problem.indicator(labels), None, 1.0, (1.0,), labels, estimate=energy)

    start = Step(problem.indicator(np.full(problem.n, 2)), energy=12.0)
    for count, energy in ((1, 10.0), (2, 10.0), (3, 9.0)):
        limits = Limits(gap=0.5, max_iterations=count)
        outcome = drive(problem, lambda: start, steps, limits)
        assert outcome.energy == energy == outcome.trace.energy[-1]
        assert ENERGIES[int(outcome.labels[0])] == energy
        assert outcome.trace.energy == sorted(outcome.trace.energy, reverse=True)


@pytest.mark.parametrize("limits", [{"max_iterations": 0}, {"time_limit": 0.0}])
def test_there_is_none_without_iterations_or_time(problem, limits):
    assert run(problem, Limits(**limits), better).energy == 12.0


def test_ctrl_c_during_it_keeps_the_best(problem):
    def interrupted(*_):
        raise KeyboardInterrupt

    outcome = run(problem, Limits(), interrupted)
    assert outcome.interrupted
    assert outcome.energy == 10.0


@pytest.mark.parametrize("scale", [1e38, 1e-40])
@pytest.mark.parametrize("method", densecrf.METHODS)
def test_marginals_are_distributions_whatever_the_scale(method, scale):
    u = np.random.default_rng(0).random((3, 5, 5)).astype(np.float32) * np.float32(scale)
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(2.0, 1.0)])
    y = crf.solve(method, time_limit=10).marginals
    assert y.min() >= 0
    np.testing.assert_allclose(y.sum(0), 1, atol=1e-5)


@pytest.mark.parametrize("lam", [1e300, float("inf"), 1e-300])
@pytest.mark.parametrize("method", ["prox-lp", "prox-lp-l", "prox-lp-acc"])
def test_an_absurd_proximal_constant_is_refused(method, lam):
    crf = densecrf.DenseCRF(np.zeros((2, 3, 3)), [densecrf.Spatial(1.0)])
    with pytest.raises(ValueError, match="lam="):
        crf.solve(method, lam=lam)


@pytest.mark.parametrize(
    ("name", "value"), [("callback", "x"), ("cells", 1e300), ("least_inner", b"1")]
)
def test_options_that_cannot_be_used_are_refused(name, value):
    crf = densecrf.DenseCRF(np.zeros((2, 3, 3)), [densecrf.Spatial(1.0)])
    with pytest.raises(ValueError, match=f"{name}="):
        crf.solve("lp", **{name: value})


def test_the_last_labelling_is_evaluated_once(monkeypatch):
    problem = problem_of(oracles.case(1).crf)
    evaluated = []
    energy = problem.energy
    monkeypatch.setattr(
        problem, "energy", lambda labels: evaluated.append(labels) or energy(labels)
    )
    y = problem.unary_marginals()
    outcome = drive(problem, lambda: Step(y), lambda _: iter([Step(y)]), Limits(), scored=False)
    assert len(evaluated) == 1
    assert outcome.energy == outcome.trace.energy[-1] == energy(outcome.labels)
