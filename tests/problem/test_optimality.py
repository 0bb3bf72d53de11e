"""What is proven of optimal labellings, against all labellings of small problems."""

from dataclasses import replace

import numpy as np
import pytest

import densecrf
from densecrf.problem.certificate import Costs, Potentials, Share, lower_bound
from densecrf.problem.problem import problem_of
from oracles import energies

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def small_problem(seed: int) -> densecrf.DenseCRF:
    """Return a problem of few pixels, with ties now and then."""
    rng = np.random.default_rng(seed)
    n_labels, n = (2, 8) if seed % 3 == 0 else (3, 6) if seed % 3 == 1 else (4, 5)
    unary = rng.normal(size=(n_labels, n)) * rng.choice([0.3, 1.0, 3.0])
    if seed % 5 == 0:
        unary = np.rint(unary)  # labels and labellings that cost the same
    features = rng.normal(size=(n, 2)) * rng.choice([0.5, 1.5])
    compatibility = None
    if seed % 7 == 3 and n_labels == 4:
        compatibility = densecrf.LabelTree(4, [([0, 1], 0.5)])
    return densecrf.DenseCRF(
        unary,
        [densecrf.Features(features, weight=float(rng.choice([0.2, 1.0, 4.0])))],
        normalization=("symmetric", "none")[seed % 2],
        filter=("exact", "lattice")[seed // 2 % 2],
        compatibility=compatibility,
    )


def all_energies(crf: densecrf.DenseCRF) -> tuple[np.ndarray, np.ndarray]:
    """Return all labellings and their energies in double precision."""
    table = energies(crf)
    return np.indices(table.shape).reshape(crf.n, -1).T, table.ravel()


def check(seed: int) -> float:
    """Check one problem; return the share of its pixels that are proven."""
    crf = small_problem(seed)
    labellings, all_of = all_energies(crf)
    result = crf.solve("lp", gap=0.0, max_iterations=60)
    least = all_of.min()
    optima = labellings[all_of <= least + 1e-9 * max(1.0, abs(least))]
    proven = result.proven.ravel()
    assert (optima[:, proven] == result.labels.ravel()[proven]).all(), seed
    used = np.array([len(np.unique(column)) for column in optima.T])
    assert (used <= result.possible.ravel()).all(), seed
    assert result.lower_bound <= least + 1e-5 * max(1.0, abs(least)), seed
    if result.optimal:
        found = all_of[(labellings == result.labels.ravel()).all(1)][0]
        assert found <= least + 2e-6 * max(1.0, abs(least)), seed
    return float(proven.mean())


def test_no_pixel_is_wrongly_proven():
    shares = [check(seed) for seed in range(150)]
    assert np.mean(shares) > 0.5  # and much is proven


@pytest.mark.slow
def test_no_pixel_is_wrongly_proven_in_ten_thousand_problems():
    for seed in range(1000, 11000):
        check(seed)


def test_any_potentials_give_a_valid_proof():
    rng = np.random.default_rng(0)
    for seed in range(40):
        crf = small_problem(seed)
        labellings, all_of = all_energies(crf)
        problem = problem_of(crf)
        labels = rng.integers(crf.n_labels, size=crf.n)
        scores = rng.normal(size=problem.unary.shape).astype(np.float32)
        dual = Potentials(scores, None, float(rng.choice([1.0, 4.0])))
        least = all_of.min()
        assert lower_bound(problem, dual) <= least + 1e-6 * max(1.0, abs(least))
        energy = problem.energy(labels)
        known = Share(energy, sizes=problem.energy_sizes(labels))
        possible = Costs(problem, dual).possible_labels(problem, known)
        optima = labellings[all_of <= least + 1e-9]
        used = np.array([len(np.unique(column)) for column in optima.T])
        assert (used <= possible).all()


def test_the_only_optimum_ends_the_run():
    unary = np.array([[0.0, 0.0, 5.0, 5.0], [5.0, 5.0, 0.0, 0.0]])
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(sigma=1.0, weight=0.5)])
    result = crf.solve("lp", gap=0.0)
    assert result.optimal
    assert result.proven.all()
    assert result.converged
    assert result.gap <= 1e-7
    assert "100.0 % of the pixels" in str(result)


def test_equal_labellings_are_not_proven():
    crf = densecrf.DenseCRF(np.zeros((2, 4)), [densecrf.Spatial(sigma=1.0, weight=1.0)])
    result = crf.solve("lp", gap=0.0)
    assert result.optimal
    assert not result.proven.any()
    assert (result.possible == 2).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3])
def test_optimal_is_relative_to_the_energy_however_small(scale):
    """A labelling that is 10 % above the bound is not optimal in any unit."""
    result = replace(small_problem(1).solve("lp"), margin=None, possible=None, energy=scale)
    assert not replace(result, lower_bound=0.9 * scale).optimal
    assert replace(result, lower_bound=(1 - 1e-7) * scale).optimal


def test_methods_without_a_certificate_prove_nothing():
    crf = small_problem(0)
    result = crf.solve("mf5")
    assert result.possible is None
    assert not result.proven.any()
    assert not result.optimal


def test_certify_names_the_pixels_that_are_right():
    unary = np.array([[0.0, 0.0, 5.0, 5.0], [5.0, 5.0, 0.0, 0.0]])
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(sigma=1.0, weight=0.5)])
    certificate = densecrf.certify(crf, [0, 1, 1, 1])
    assert certificate.proven.tolist() == [True, False, True, True]
    assert (certificate.possible == 1).all()
    assert "75.0 % of the pixels are proven optimal" in str(certificate)


def test_possible_labels_survive_a_file(tmp_path):
    result = small_problem(4).solve("lp", gap=0.0)
    result.save(tmp_path / "result.npz")
    again = densecrf.Result.load(tmp_path / "result.npz")
    assert (again.possible == result.possible).all()
    assert again.optimal == result.optimal


@pytest.mark.parametrize("method", ["lp", "sg-lp", "prox-lp", "cg-lp", "qp"])
def test_nothing_false_is_proven_of_energies_near_the_least_float(method, tmp_path):
    """Costs in single precision lose digits there, and ties must stay ties."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n_labels, n = ((2, 6), (3, 5), (2, 2))[seed % 3]
        scale = 10.0 ** rng.uniform(-45, -33)
        unary = np.rint(2 * rng.normal(size=(n_labels, n))) * scale
        kernel = densecrf.Features(rng.normal(size=(n, 2)), scale * rng.choice([0.5, 1, 2]))
        crf = densecrf.DenseCRF(unary, [kernel], ("symmetric", "none")[seed // 2 % 2])
        labellings, all_of = all_energies(crf)
        optima = labellings[all_of <= all_of.min() + 1e-12 * abs(all_of.min())]
        used = np.array([len(np.unique(column)) for column in optima.T])
        result = crf.solve(method, gap=0.0, init=rng.integers(0, n_labels, n))
        if result.possible is not None:
            assert (used <= result.possible).all(), seed
            result.save(tmp_path / "result.npz")
            assert (densecrf.Result.load(tmp_path / "result.npz").possible >= 1).all()
