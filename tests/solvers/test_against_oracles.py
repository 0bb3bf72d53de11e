"""Every method against brute force and a general LP solver, on problems small enough for both."""

import numpy as np
import pytest

import densecrf
import oracles
from densecrf.solvers.registry import REGISTRY

PROBLEMS, QUICK = 210, 105
SEEDS = [
    pytest.param(range(i, i + 35), id=str(i), marks=[pytest.mark.slow] if i >= QUICK else [])
    for i in range(0, PROBLEMS, 35)
]
WITH_TREES = [name for name in densecrf.METHODS if REGISTRY[name].compatibility != "potts"]
WITH_ANY = [name for name in densecrf.METHODS if REGISTRY[name].compatibility == "any"]

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")


def check_order(case: oracles.Case, result: densecrf.Result) -> None:
    """Check bound ≤ LP ≤ MAP ≤ energy, and that the energy is the labelling's."""
    assert result.energy == pytest.approx(case.crf.energy(result.labels), abs=case.rounding)
    assert result.energy >= case.map_energy - case.rounding
    if result.lower_bound is not None:
        assert result.lower_bound <= case.lp_energy + case.rounding
    totals = result.marginals.sum(0)
    assert result.marginals.min() >= 0
    np.testing.assert_allclose(totals, 1, atol=1e-4)


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_lp_is_at_most_map(seed):
    case = oracles.case(seed)
    assert case.lp_energy <= case.map_energy + 1e-6 * (1 + abs(case.map_energy))


@pytest.mark.parametrize("method", densecrf.METHODS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_bound_lp_map_energy(method, seeds):
    for seed in seeds:
        case = oracles.case(seed)
        check_order(case, case.crf.solve(method))


@pytest.mark.parametrize("compatibility", ["potts", "tree"])
@pytest.mark.parametrize("method", densecrf.METHODS)
def test_on_tensors(method, compatibility):
    pytest.importorskip("torch")
    for seed in range(8):
        case = oracles.case(seed, compatibility=compatibility, engine="lattice")
        check_order(case, case.crf.solve(method, device="cpu"))


@pytest.mark.parametrize("method", WITH_TREES)
def test_tree_metrics(method):
    for seed in range(24):
        case = oracles.case(seed, compatibility="tree")
        check_order(case, case.crf.solve(method))


@pytest.mark.parametrize("kind", ["vector", "matrix"])
@pytest.mark.parametrize("method", WITH_ANY)
def test_any_compatibility_is_bounded_by_map(method, kind):
    for seed in range(24):
        case = oracles.case(seed, compatibility=kind)
        result = case.crf.solve(method)
        assert result.energy >= case.map_energy - case.rounding
        assert result.energy == pytest.approx(case.crf.energy(result.labels), abs=case.rounding)
        if result.lower_bound is not None:
            assert result.lower_bound <= case.map_energy + case.rounding


@pytest.mark.parametrize("method", [m for m in densecrf.METHODS if m not in WITH_ANY])
def test_linear_programs_refuse_other_compatibilities(method):
    crf = oracles.case(0, compatibility="matrix").crf
    with pytest.raises(ValueError, match=r"tree metrics.*use one of.*mf"):
        crf.solve(method)


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_without_kernels_each_pixel_takes_its_best_label(method):
    unary = np.random.default_rng(0).normal(size=(3, 4, 5))
    result = densecrf.DenseCRF(unary).solve(method)
    np.testing.assert_array_equal(result.labels, unary.argmin(0))


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_labels_may_be_permuted(method):
    case = oracles.case(7)
    order = np.array([2, 0, 1]) if case.crf.n_labels == 3 else np.arange(case.crf.n_labels)[::-1]
    unary = case.crf.unary.reshape(case.crf.n_labels, *case.crf.shape)[order]
    other = densecrf.DenseCRF(unary, case.crf.kernels, case.crf.normalization, "exact")
    one, two = case.crf.solve(method), other.solve(method)
    np.testing.assert_array_equal(one.labels, order[two.labels])


def test_relaxed_energy_is_the_linear_programs_objective():
    for seed in range(12):
        for kind in ("potts", "tree"):
            case = oracles.case(seed, compatibility=kind)
            labels, energy = oracles.brute_force(case.crf)
            y = np.eye(case.crf.n_labels)[labels].T
            assert case.crf.relaxed_energy(y) == pytest.approx(energy, abs=case.rounding)
