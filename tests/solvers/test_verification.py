"""Certificates from strangers: what proves too much is refused, whatever was changed."""

import itertools
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import densecrf
from densecrf.problem.certificate import Mixture, Potentials, Tangent
from densecrf.solvers.verification import verify

FUZZ = Path(__file__).parents[2] / "tools" / "fuzz"


@pytest.fixture
def run_mutation(monkeypatch):
    """The fuzzer's change of a certificate."""
    monkeypatch.syspath_prepend(str(FUZZ))
    from mutations import run_mutation

    yield run_mutation
    for name in ("mutations", "checks", "problems"):
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore")
def test_changed_certificates_are_refused_or_harmless(run_mutation):
    for seed in range(400):
        assert run_mutation(np.random.default_rng([seed, 99])) == [], seed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_changed_certificates_are_refused_or_harmless(run_mutation):
    for seed in range(400, 10_000):
        assert run_mutation(np.random.default_rng([seed, 99])) == [], seed


@pytest.fixture(scope="module")
def crf():
    unary = np.random.default_rng(1).normal(size=(3, 6))
    return densecrf.DenseCRF(unary, [densecrf.Spatial(1.0, 2.0)], filter="exact")


@pytest.fixture(scope="module")
def tree(crf):
    costs = densecrf.LabelTree(3, [([0, 1], 0.5)], leaf=0.6)
    unary = crf.unary.reshape(3, 6)
    return densecrf.DenseCRF(unary, crf.kernels, filter="exact", compatibility=costs)


def potentials(rows=3, seed=0, **options):
    scores = np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32)
    return Potentials(scores, **options)


def least_energy(crf):
    return min(crf.energy(x) for x in itertools.product(range(3), repeat=6))


@pytest.mark.parametrize(
    "shares",
    [(22.0, -22.0), (-1.0, 1.0), (1.0, 1.0), (0.6, 0.5), (1 + 1e-9,), (float("nan"),), (2**70,)],
)
def test_shares_that_are_no_convex_combination_are_refused(crf, shares):
    parts = tuple((share, potentials(seed=i)) for i, share in enumerate(shares))
    with pytest.raises(ValueError, match="share"):
        verify(crf, np.zeros(6, int), Mixture(parts))


def test_shares_of_other_labels_do_not_add_up(crf):
    parts = [(1.0, potentials(rows=1, seed=i, labels=np.array([i]))) for i in range(3)]
    found = verify(crf, np.zeros(6, int), Mixture(tuple(parts)))
    assert found.lower_bound <= least_energy(crf)
    with pytest.raises(ValueError, match="shares that add up"):
        verify(crf, np.zeros(6, int), Mixture((*parts, (0.1, potentials()))))


def test_shares_that_rounding_lifts_above_1_cost_as_much(crf):
    shares = [0.1] * 9 + [np.nextafter(1 - sum([0.1] * 9), 1) + 1e-15]
    parts = tuple((float(share), potentials(seed=i)) for i, share in enumerate(shares))
    assert 0 < Mixture(parts).excess < 1e-14
    assert verify(crf, np.zeros(6, int), Mixture(parts)).lower_bound <= least_energy(crf)


def test_a_part_of_some_labels_of_a_tree_is_refused(tree):
    part = potentials(rows=2, labels=np.array([0, 1]))
    with pytest.raises(ValueError, match="some labels of a tree"):
        verify(tree, np.zeros(6, int), Mixture(((1.0, part),)))


@pytest.mark.parametrize(
    "wrong",
    [
        potentials(rows=2),
        potentials(rows=2, labels=np.array([0, 3])),
        potentials(rows=2, labels=np.array([1, 1])),
        potentials(rows=2, labels=np.array([-1, 1])),
        potentials(rows=2, labels=np.array([0.0, 1.0])),
        potentials(rows=1, labels=np.array(1)),
        potentials(offsets=np.zeros((3, 1), np.float32)),
        potentials(cells=0.0),
        potentials(cells=-1.0),
        potentials(cells=float("nan")),
        potentials(cells=1e7),
        potentials(levels=1),
        potentials(levels=10**9),
        Potentials(np.full((3, 6), np.inf, np.float32)),
        Potentials(np.full((3, 6), 1e300)),
        Potentials(np.full((3, 6), 3e38), np.full((3, 6), 3e38), cells=1.0),
        Potentials(np.zeros((3, 6), int)),
        Tangent(np.zeros((2, 6), np.float32)),
        Tangent(np.full((3, 6), np.nan, np.float32)),
    ],
    ids=repr,
)
def test_numbers_that_are_no_dual_point_are_refused(crf, wrong):
    with pytest.raises(ValueError, match="no dual point of this model"):
        verify(crf, np.zeros(6, int), wrong)


def test_a_tangent_off_the_simplex_is_refused_or_holds(tree):
    with pytest.raises(ValueError, match="add up"):
        verify(tree, np.zeros(6, int), Tangent(np.zeros((3, 6), np.float32)))
    y = np.random.default_rng(0).normal(size=(3, 6))
    y[0] += 3 - y.sum(0)
    for point in (y, 1e3 * y):
        found = verify(tree, np.zeros(6, int), Tangent(point.astype(np.float32)))
        assert found.lower_bound <= least_energy(tree)


def test_many_levels_take_little_memory():
    n = 4000
    crf = densecrf.DenseCRF(np.zeros((2, n)), [densecrf.Spatial(1.0, 1.0)])
    scores = np.linspace(0, 1, 2 * n, dtype=np.float32).reshape(2, n)
    verify(crf, np.zeros(n, int), Potentials(scores, cells=8.0))  # what it takes anyway
    tracemalloc.start()
    verify(crf, np.zeros(n, int), Potentials(scores, cells=6000.0))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 100 * 2**20  # all 3000 levels at once would take 3 x 96 MB


def test_stated_proofs_of_pixels_are_checked(crf):
    result = crf.solve("lp", gap=0.0, keep_dual=True)
    found = result.verify()
    assert found.disagreements(result.energy, result.lower_bound, result.possible) == []
    np.testing.assert_array_equal(found.proven, result.proven)
    worse = np.where(np.arange(6) == 2, (result.labels + 1) % 3, result.labels)
    forged = verify(crf, worse, result.dual)
    assert not forged.proven[2]
    (said,) = forged.disagreements(forged.energy, forged.lower_bound, np.ones(6, np.int32))
    assert "more labels are stated as ruled out than the check proves" in said
