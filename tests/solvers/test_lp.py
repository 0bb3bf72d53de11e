"""The certified linear program: it reaches the relaxation's optimum, and proves it."""

import numpy as np
import pytest

import densecrf
import oracles
from densecrf.problem.certificate import Potentials
from densecrf.problem.problem import problem_of
from densecrf.problem.rounding import icm

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")


@pytest.mark.parametrize("seeds", [range(i, i + 35) for i in range(0, 210, 35)], ids=str)
def test_it_reaches_the_optimum_of_the_relaxation(seeds):
    for seed in seeds:
        case = oracles.case(seed)
        result = case.crf.solve("lp", gap=1e-4)
        scale = max(1.0, abs(case.lp_energy))
        tight = case.map_energy - case.lp_energy <= 1e-4 * scale
        short = case.lp_energy - result.lower_bound
        assert short <= 1e-3 * scale
        assert result.converged or not tight


@pytest.mark.parametrize("seed", range(40))
def test_with_two_labels_it_returns_the_exact_optimum(seed):
    case = oracles.case(seed, labels=2)
    result = case.crf.solve("lp", gap=1e-6)
    assert result.energy == pytest.approx(case.map_energy, abs=case.rounding)


@pytest.mark.parametrize("seed", range(24))
def test_tree_metrics_on_four_labels(seed):
    case = oracles.case(seed, labels=4, compatibility="tree")
    result = case.crf.solve("lp", gap=1e-4)
    assert case.lp_energy - result.lower_bound <= 1e-3 * max(1.0, abs(case.lp_energy))


def test_one_iteration_is_one_ordered_filtering():
    result = oracles.case(3).crf.solve("lp", gap=0.0, max_iterations=3)
    assert result.iterations == 3
    assert result.trace.ordered_calls == list(range(4))
    assert not result.converged


def test_gap_zero_runs_until_rounding_is_left_or_to_the_methods_last_iteration():
    crf = oracles.case(3).crf
    result = crf.solve("lp", gap=0.0)
    assert result.converged
    assert 0 <= result.gap <= 2.0**-24
    assert result.message.endswith(("the rounding of the unaries", "the requested 0"))
    result = crf.solve("lp", gap=0.0, iterations=3)
    assert result.iterations == 3
    assert not result.converged
    assert result.message == "end of the method"


def test_a_dominating_pairwise_term_returns_the_best_constant_and_says_why():
    rng = np.random.default_rng(0)
    unary = rng.random((3, 12, 15))
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(4.0, 50.0)], normalization="none")
    with pytest.warns(UserWarning, match="pairwise weights dominate"):
        result = crf.solve("lp")
    assert result.energy == pytest.approx(crf.constant_energies().min())
    assert len(np.unique(result.labels)) == 1
    assert result.gap <= 1e-3


def test_bounds_never_exceed_the_energy_of_any_constant_labelling():
    rng = np.random.default_rng(1)
    crf = densecrf.DenseCRF(rng.random((4, 40, 50)), [densecrf.Spatial(6.0, 80.0)], "none")
    result = crf.solve("lp", gap=0.0, max_iterations=60)
    assert result.lower_bound <= crf.constant_energies().min()


@pytest.mark.parametrize("labels", [2, 150])
def test_few_and_many_labels(labels):
    rng = np.random.default_rng(2)
    unary = rng.normal(size=(labels, 10, 12)).astype(np.float32)
    kernels = [densecrf.Spatial(2.0, 2.0), densecrf.Bilateral(rng.random((10, 12, 3)), 4, 0.3, 3.0)]
    result = densecrf.DenseCRF(unary, kernels).solve("lp", gap=1e-3)
    assert result.gap <= 1e-3


def test_certify_bounds_a_bad_labelling_from_both_sides():
    case = oracles.case(11)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, case.crf.n_labels, case.crf.shape)
    certificate = densecrf.certify(case.crf, labels, budget=80)
    energy = case.crf.energy(labels)
    assert certificate.energy == pytest.approx(energy)
    assert certificate.lower_bound <= case.lp_energy + case.rounding
    assert certificate.better_energy >= case.map_energy - case.rounding
    assert certificate.gap >= (energy - case.map_energy) / max(1, abs(energy)) - 1e-6
    assert "proven" in str(certificate)


@pytest.mark.parametrize("bad", [[[0, 9]], [[0.5, 1]], [0, 1, 0]])
def test_certify_refuses_labels_out_of_range(bad):
    crf = densecrf.DenseCRF(np.zeros((2, 1, 2)))
    with pytest.raises(ValueError, match="labels"):
        densecrf.certify(crf, bad)


@pytest.mark.parametrize("every", [1, 1000])
def test_no_single_pixel_gains_at_the_end(every):
    for seed in range(20):
        case = oracles.case(seed)
        crf = case.crf
        result = crf.solve("lp", gap=0.5, settle_every=every)
        labels, energy = icm(problem_of(crf), result.labels.ravel(), 1000)
        np.testing.assert_array_equal(labels, result.labels.ravel())
        assert result.trace.energy[-1] == result.energy
        assert result.energy == pytest.approx(energy, abs=case.rounding)


def test_nearly_constant_potentials_take_no_filter_call():
    crf = oracles.case(1).crf
    problem = problem_of(crf)
    y = np.random.default_rng(0).random((crf.n_labels, crf.n), np.float32)
    y[0] = 0.3 + 2e-5 * y[0]
    r = problem.flow(y, None, 1.0)
    assert not r[0].any()
    assert r[1].any()
    dual = problem.dual_point_double(Potentials(y, None, 1.0))
    assert not dual[0].any()
    np.testing.assert_allclose(dual, r, atol=1e-4)
    plain = problem.flow(y, None, 10.0)  # of cells that are as much shorter, it is no constant
    assert plain[0].any()


def test_it_begins_with_the_potentials_of_another_run():
    rng = np.random.default_rng(0)
    unary = rng.normal(0, 1, (3, 20, 30)).astype(np.float32)
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(2.0, 4.0)])
    solved = crf.solve("lp", gap=1e-3, keep_dual=True)
    assert isinstance(solved.dual, Potentials)
    offsets = 0 if solved.dual.offsets is None else solved.dual.offsets
    levels = solved.dual.cells * (solved.dual.scores + offsets)
    limits = {"init": solved.marginals, "gap": 0, "max_iterations": 1}
    warm, cold = crf.solve("lp", potentials=levels, **limits), crf.solve("lp", **limits)
    assert warm.gap < 0.1 * cold.gap
    for bad in (levels[:2], "x", np.full_like(levels, np.nan), 1e38 * levels):
        with pytest.raises(ValueError, match="potentials"):
            crf.solve("lp", potentials=bad)
