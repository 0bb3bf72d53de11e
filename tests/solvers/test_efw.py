"""Euclidean Frank-Wolfe: each iterate against the explicit matrix, its limits, its line search."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import densecrf
import oracles
from densecrf.problem.problem import problem_of
from densecrf.solvers.efw import euclidean_frank_wolfe
from densecrf.solvers.quadratic import frank_wolfe

KINDS = ("potts", "tree", "vector", "matrix")
SEEDS = range(12)

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")


def projected(z):
    """Return the projection of each column onto the simplex, by sorting."""
    top = -np.sort(-z, 0)
    excess = (top.cumsum(0) - 1) / np.arange(1, len(z) + 1)[:, None]
    support = (top > excess).sum(0)
    return np.maximum(z - np.take_along_axis(excess, support[None] - 1, 0), 0)


class Explicit:
    """The quadratic relaxation by its matrices, in double precision."""

    def __init__(self, crf, regularization):
        self.unary, self.regularization = crf.unary.astype(np.float64), regularization
        self.k, self.costs = oracles.dense_pairwise(crf), oracles.label_costs(crf)

    def objective(self, y):
        """F(y) + λ/2 (‖y‖² - n)."""
        pairs = self.costs @ y @ self.k
        term = 0.5 * self.regularization * ((y**2).sum() - y.shape[1])
        return (self.unary * y).sum() + 0.5 * (pairs * y).sum() + term

    def target(self, y):
        return projected(-(self.unary + self.costs @ y @ self.k) / self.regularization)

    def along(self, y, target, step):
        return self.objective(y + step * (target - y))

    def best_step(self, y, target):
        """Return where the parabola through three values is least on the way."""
        here, half, there = (self.along(y, target, step) for step in (0.0, 0.5, 1.0))
        bend, slope = 2 * (here - 2 * half + there), 4 * half - 3 * here - there
        return float(np.clip(-slope / (2 * bend), 0, 1)) if bend > 0 else float(there < here)


def start(crf):
    p = np.exp(crf.unary.min(0) - crf.unary).astype(np.float64)
    return p / p.sum(0)


def problem_in_double(crf):
    """Return the problem on float64 tensors."""
    torch = pytest.importorskip("torch")
    from densecrf.operators.torch.pairwise import TensorPairwise
    from densecrf.torch.problem import torch_problem

    features = [torch.from_numpy(kernel.features(crf.shape)).double() for kernel in crf.kernels]
    weights = torch.tensor([kernel.weight for kernel in crf.kernels]).double()
    unary = torch.from_numpy(crf.unary).double()
    normalized = crf.normalization == "symmetric"
    operator = TensorPairwise(features, weights, unary, normalized=normalized)
    costs = None if crf.compatibility is None else torch.from_numpy(oracles.label_costs(crf))
    return torch_problem(unary, operator, costs)


@pytest.mark.parametrize("step", [0.3, 1.0, None])
@pytest.mark.parametrize("kind", ["potts", "matrix"])
def test_iterates_are_those_of_the_explicit_matrix(kind, step):
    for seed in SEEDS:
        crf = oracles.case(seed, compatibility=kind).crf
        explicit, problem = Explicit(crf, 2.0), problem_of(crf)
        y = problem.unary_marginals()
        options = {"iterations": 6, "tolerance": 0.0, "regularization": 2.0, "step": step}
        for found in euclidean_frank_wolfe(problem, y, **options):
            before = y.astype(np.float64)
            target = explicit.target(before)
            share = explicit.best_step(before, target) if step is None else step
            expected = before + share * (target - before)
            scale = 1 + np.abs(explicit.unary + explicit.costs @ before @ explicit.k).max()
            rounding = 1e-6 * scale if step else 1e-4  # of float32, which a short way magnifies
            np.testing.assert_allclose(found.y, expected, rtol=0, atol=rounding)
            y = found.y


@pytest.mark.parametrize("step", [0.3, 1.0, None])
def test_iterates_on_float64_tensors_are_those_of_the_explicit_matrix(step):
    torch = pytest.importorskip("torch")
    for seed in SEEDS:
        crf = oracles.case(seed, engine="lattice").crf
        problem = problem_in_double(crf)
        explicit = Explicit(crf, 2.0)
        explicit.k = problem.pairwise.apply(torch.eye(crf.n).double()).numpy()
        np.fill_diagonal(explicit.k, 0)
        y = start(crf)
        options = {"iterations": 6, "tolerance": 0.0, "regularization": 2.0, "step": step}
        for found in euclidean_frank_wolfe(problem, torch.from_numpy(y), **options):
            target = explicit.target(y)
            share = explicit.best_step(y, target) if step is None else step
            y = y + share * (target - y)
            np.testing.assert_allclose(found.y.numpy(), y, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_line_search_finds_the_minimum_of_the_way(kind):
    for seed in SEEDS:
        case = oracles.case(seed, compatibility=kind)
        explicit, problem = Explicit(case.crf, 0.7), problem_of(case.crf)
        y = problem.unary_marginals()
        options = {"iterations": 5, "tolerance": 0.0, "regularization": 0.7}
        for found in euclidean_frank_wolfe(problem, y, **options):
            before = y.astype(np.float64)
            target = explicit.target(before)
            numeric = minimize_scalar(
                partial(explicit.along, before, target), bounds=(0, 1), method="bounded"
            )
            ends = [explicit.along(before, target, step) for step in (0.0, 1.0)]
            lowest = min(float(numeric.fun), *ends)
            assert explicit.objective(found.y.astype(np.float64)) <= lowest + case.rounding
            assert found.relaxed == pytest.approx(lowest, abs=5 * case.rounding)
            y = found.y


@pytest.mark.parametrize("regularization", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_regularised_energy_never_rises_with_the_line_search(kind, regularization):
    for seed in range(18):
        case = oracles.case(seed, compatibility=kind)
        options = {"tolerance": 0.0, "regularization": regularization}
        relaxed = case.crf.solve("efw", **options).trace.relaxed[1:]
        assert all(b <= a + case.rounding for a, b in pairwise(relaxed))


@pytest.mark.parametrize("kind", KINDS)
def test_small_regularisation_gives_the_vertices_of_frank_and_wolfe(kind):
    for seed in SEEDS:
        crf = oracles.case(seed, compatibility=kind).crf
        problem = problem_of(crf)
        y = problem.unary_marginals()
        zero = np.zeros(crf.n, np.float32)
        classic = frank_wolfe(problem, problem.unary, zero, y, problem.messages(y))
        _, expected = next(classic), next(classic)
        for regularization in (0.0, 1e-5):
            found = next(euclidean_frank_wolfe(problem, y, regularization=regularization))
            np.testing.assert_allclose(found.y, expected.y, atol=1e-4)
        to_vertex = next(euclidean_frank_wolfe(problem, y, step=1.0, regularization=0.0)).y
        best = (crf.unary + problem.messages(y)).argmin(0)
        np.testing.assert_array_equal(to_vertex, problem.indicator(best))


def test_the_regularised_energy_is_the_energy_at_labellings():
    for seed in SEEDS:
        case = oracles.case(seed)
        labels = np.random.default_rng(seed).integers(case.crf.n_labels, size=case.crf.n)
        y = np.eye(case.crf.n_labels)[labels].T
        value = Explicit(case.crf, 3.0).objective(y)
        assert value == pytest.approx(case.crf.energy(labels), abs=case.rounding)


def test_large_regularisation_stays_near_the_middle_and_is_finite():
    crf = oracles.case(1).crf
    y = crf.solve("efw", regularization=1e6, step=1.0, iterations=3).marginals
    np.testing.assert_allclose(y, 1 / crf.n_labels, atol=1e-3)


def test_huge_energies_leave_numbers():
    crf = oracles.case(2).crf
    huge = densecrf.DenseCRF(1e30 * crf.unary.reshape(-1, *crf.shape), crf.kernels)
    for options in ({}, {"step": 0.5}, {"regularization": 1e-6}):
        assert np.isfinite(huge.solve("efw", iterations=3, **options).marginals).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 0),
        ("step", 1.5),
        ("step", np.nan),
        ("regularization", -1.0),
        ("regularization", np.inf),
        ("tolerance", -1),
        ("iterations", -1),
    ],
)
def test_senseless_options_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        oracles.case(0).crf.solve("efw", **{name: value})


def test_the_bound_of_a_linear_program_from_its_point_holds():
    """A certificate of another method that starts where it ends, against brute force."""
    for seed in range(24):
        case = oracles.case(seed)
        result = case.crf.solve("lp", init="efw")
        assert result.lower_bound <= case.map_energy + case.rounding
        assert result.energy >= case.map_energy - case.rounding
