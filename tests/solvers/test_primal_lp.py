"""sg-lp and cg-lp: labels that matter, line search, certificates."""

import numpy as np
import pytest

import densecrf
import oracles
from densecrf.problem.problem import problem_of
from densecrf.solvers.primal_lp import line_search, without_idle_labels
from densecrf.solvers.subproblems import Part

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")

METHODS = ("sg-lp", "cg-lp")


def four_labels_two_of_them_hopeless():
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(4, 6, 5))
    unary[[0, 2]] += 30
    return densecrf.DenseCRF(unary, [densecrf.Spatial(1.0, 2.0)], filter="exact")


@pytest.mark.parametrize("method", METHODS)
def test_labels_below_the_threshold_everywhere_are_removed(method):
    result = four_labels_two_of_them_hopeless().solve(method)
    assert result.info["labels_kept"].tolist() == [1, 3]
    assert result.info["init"] == "dc-neg"
    assert (result.marginals[[0, 2]] == 0).all()
    assert result.iterations == 5


def test_a_threshold_that_nobody_reaches_keeps_the_highest_label():
    crf = four_labels_two_of_them_hopeless()
    y = np.full((4, crf.n), 0.25, np.float32)
    y[3, 0] = 0.26
    part = without_idle_labels(problem_of(crf), y, 0.9)
    assert part.info()["labels_kept"].tolist() == [3]


def test_tree_metrics_keep_all_labels():
    crf = oracles.case(5, labels=4, compatibility="tree").crf
    y = np.eye(4, dtype=np.float32)[:, np.zeros(crf.n, int)]
    assert without_idle_labels(problem_of(crf), y, 0.01).problem.n_labels == 4


def test_line_search_takes_the_first_of_the_lowest():
    crf = four_labels_two_of_them_hopeless()
    problem = problem_of(crf)
    kept = np.array([1, 3])
    part = Part(problem, kept)
    rng = np.random.default_rng(1)
    trials = [
        problem.steps.project(rng.normal(size=(2, crf.n)).astype(np.float32)) for _ in range(6)
    ]
    trials.append(trials[2].copy())
    scored = [crf.energy(kept[t.argmax(0)]) for t in trials]
    y, labels, energy = line_search(problem, part, iter(trials))
    assert energy == pytest.approx(min(scored), rel=1e-6)
    assert y is trials[int(np.argmin(scored))]
    assert crf.energy(labels) == pytest.approx(energy, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_no_worse_than_the_start_and_one_ordered_filtering_each(method):
    for seed in range(30):
        crf = oracles.case(seed).crf
        start = crf.solve("dc-neg")
        result = crf.solve(method, init=start)
        assert result.energy <= start.energy + 1e-5 * (1 + abs(start.energy))
        assert result.trace.ordered_calls == list(range(6))


@pytest.mark.parametrize("order", ["soft", "hard", "adaptive", "divide-and-conquer-fixed"])
@pytest.mark.parametrize("method", METHODS)
def test_all_orders_certify(method, order):
    for seed in range(6):
        case = oracles.case(seed)
        result = case.crf.solve(method, order=order, label_threshold=0.1)
        assert result.lower_bound <= case.lp_energy + case.rounding


def test_subgradient_steps_improve_on_the_unaries():
    shares = []
    for seed in range(30):
        case = oracles.case(seed)
        start = case.crf.solve("unary").energy
        if start > case.map_energy + case.rounding:
            gain = start - case.crf.solve("sg-lp", init="unary").energy
            shares.append(gain / (start - case.map_energy))
    assert min(shares) >= 0
    assert np.mean(shares) > 0.5
