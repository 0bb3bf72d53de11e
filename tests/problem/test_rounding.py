"""Rounding: distributions, guarantees, and descent."""

import numpy as np
import pytest

import oracles
from densecrf import DenseCRF, Spatial
from densecrf.problem import rounding
from densecrf.problem.problem import problem_of


def random_point(labels, shape, seed=0):
    weights = np.random.default_rng(seed).exponential(size=(labels, *shape))
    return weights / weights.sum(0)


def test_argmax_keeps_the_grid():
    y = random_point(3, (4, 5))
    np.testing.assert_array_equal(rounding.argmax(y), y.argmax(0))


def test_interval_is_repeatable_and_keeps_the_grid():
    y = random_point(3, (4, 5))
    one, two, other = (rounding.interval(y, seed) for seed in (1, 1, 2))
    assert one.shape == (4, 5)
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_interval_of_a_labelling_is_itself():
    labels = np.random.default_rng(0).integers(4, size=(6, 7))
    y = np.moveaxis(np.eye(4)[labels], -1, 0)
    np.testing.assert_array_equal(rounding.interval(y, 0), labels)


def test_interval_draws_each_label_with_its_marginal_probability():
    y = random_point(3, (5,))
    rng = np.random.default_rng(0)
    draws = np.array([rounding.interval(y, rng) for _ in range(4000)])
    shares = np.array([(draws == label).mean(0) for label in range(3)])
    np.testing.assert_allclose(shares, y, atol=0.03)  # four standard errors


def test_interval_parts_pixels_at_most_twice_as_often_as_the_relaxation():
    y = random_point(4, (6,), seed=3)
    rng = np.random.default_rng(0)
    draws = np.array([rounding.interval(y, rng) for _ in range(4000)])
    parted = (draws[:, :, None] != draws[:, None, :]).mean(0)
    distance = 0.5 * np.abs(y[:, :, None] - y[:, None, :]).sum(0)
    assert (parted <= 2 * distance + 0.03).all()


def test_expected_energy_of_interval_rounding_is_within_twice_the_pairwise_term():
    for seed in range(6):
        crf = oracles.case(seed).crf
        y = random_point(crf.n_labels, crf.shape, seed)
        unary = float((crf.unary * y.reshape(crf.n_labels, -1)).sum())
        pairs = crf.relaxed_energy(y) - unary
        rng = np.random.default_rng(0)
        drawn = [crf.energy(rounding.interval(y, rng)) for _ in range(1000)]
        error = 4 * np.std(drawn) / np.sqrt(len(drawn))
        assert np.mean(drawn) <= unary + 2 * pairs + error


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.1]], "product of simplices"),
        ([[1.5, 0.5], [-0.5, 0.5]], "product of simplices"),
        ([[np.nan, 0.5], [0.5, 0.5]], "not finite"),
        ([0.5, 0.5], "labels, "),
    ],
)
def test_interval_refuses_what_it_could_not_finish(y, message):
    with pytest.raises(ValueError, match=message):
        rounding.interval(y, 0)


@pytest.mark.parametrize("kind", ["potts", "tree", "vector", "matrix"])
def test_icm_ends_where_no_single_pixel_gains(kind):
    for seed in range(18):
        case = oracles.case(seed, compatibility=kind)
        crf = case.crf
        start = np.random.default_rng(seed).integers(crf.n_labels, size=crf.n)
        labels, energy = rounding.icm(problem_of(crf), start, max_sweeps=1000)
        assert energy == pytest.approx(crf.energy(labels), abs=case.rounding)
        assert case.map_energy - case.rounding <= energy <= crf.energy(start) + case.rounding
        for pixel in range(crf.n):
            for label in range(crf.n_labels):
                other = labels.copy()
                other[pixel] = label
                assert crf.energy(other) >= energy - case.rounding


def test_icm_never_raises_the_energy_where_parallel_moves_would():
    """Pixels that dislike their neighbours' label all flip together, for ever."""
    import densecrf

    crf = densecrf.DenseCRF(
        np.zeros((2, 6, 6)), [densecrf.Spatial(2, 1.0)], "none", "exact",
        compatibility=[[1.0, 0.0], [0.0, 1.0]],
    )  # fmt: skip
    problem = problem_of(crf)
    start = np.zeros(36, np.int64)
    last = crf.energy(start)
    for sweeps in range(1, 8):
        labels, energy = rounding.icm(problem, start, max_sweeps=sweeps)
        assert energy <= last
        last = energy
    assert energy < 0.6 * crf.energy(start)
    assert len(np.unique(labels)) == 2


def test_icm_leaves_its_input_alone():
    crf = oracles.case(0).crf
    start = np.zeros(crf.n, np.int64)
    rounding.icm(problem_of(crf), start, max_sweeps=5)
    assert (start == 0).all()
    labels, energy = rounding.icm(problem_of(crf), start, max_sweeps=0)
    np.testing.assert_array_equal(labels, start)
    assert energy == pytest.approx(crf.energy(start), rel=1e-5)


def test_a_descent_can_be_continued():
    crf = oracles.case(2).crf
    start = np.random.default_rng(2).integers(crf.n_labels, size=crf.n)
    for most in range(6):
        descent = rounding.Descent(problem_of(crf), start)
        made = sum(descent.sweeps(1) for _ in range(most))
        labels, energy = rounding.icm(problem_of(crf), start, max_sweeps=most)
        np.testing.assert_array_equal(descent.labels, labels)
        assert descent.energy == energy
        assert made <= most
    descent.sweeps(1000)
    filterings = descent.problem.calls.plain
    assert descent.sweeps(1000) == 0  # it has settled, and knows
    assert descent.problem.calls.plain == filterings


def test_a_candidate_is_not_considered_twice_in_a_row(monkeypatch):
    unary = np.random.default_rng(0).uniform(0, 0.1, (2, 5, 6))
    problem = problem_of(
        DenseCRF(unary, [Spatial(3, weight=5)], filter="exact")
    )  # best: a constant
    considered = []
    plain = rounding.Incumbent.consider

    def consider(self, labels):
        considered.append(labels)
        plain(self, labels)

    monkeypatch.setattr(rounding.Incumbent, "consider", consider)
    incumbent = rounding.Incumbent(problem)
    incumbent._iteration = rounding.OFTEN + 1  # level sets of both labels
    y = np.full_like(problem.unary, 1 / problem.n_labels)  # rounded to constants, whatever the bias
    for _ in range(4):
        incumbent._round(y)
    assert len(considered) == 1
