"""Label compatibilities: trees, vectors, matrices; label costs from what regions pay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from densecrf import ArgumentError, DenseCRF, LabelTree, Spatial
from densecrf.model.compatibility import compatibility_matrix


def test_leaves_alone_are_potts():
    np.testing.assert_array_equal(LabelTree(4).matrix(), 1 - np.eye(4))


@given(st.lists(st.floats(0, 10), min_size=4, max_size=4), st.floats(0, 10), st.floats(0, 10))
def test_a_tree_gives_a_metric(leaf, inner, outer):
    assume(max(*leaf, inner, outer) > 1e-30)
    d = LabelTree(4, [([0, 1], inner), ([0, 1, 2], outer)], leaf=leaf).matrix()
    np.testing.assert_array_equal(d, d.T)
    assert (np.diag(d) == 0).all()
    assert (d[:, :, None] <= d[:, None, :] + d.T[None, :, :] + 1e-6).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelTree(1), "labels=1"),
        (lambda: LabelTree(2**40), "labels: .*GiB"),
        (lambda: LabelTree(3, leaf=[1, 2]), "leaf="),
        (lambda: LabelTree(3, leaf=-1), r"leaf\[0\]"),
        (lambda: LabelTree(3, [([0, 3], 1)]), r"groups\[0\]=3: must be 2 or less"),
        (lambda: LabelTree(3, [([0, 1], 1), ([1, 2], 1)]), r"groups\[1\]=\[1, 2\]: overlaps"),
        (lambda: LabelTree(3, [([0, 1], np.nan)]), r"groups\[0\] length"),
        (lambda: LabelTree(3, [(0, 1.0)]), "groups="),
        (lambda: LabelTree(3, 5), "groups=5"),
        (lambda: compatibility_matrix(np.ones((2, 2)), 3), "compatibility: shape"),
        (lambda: compatibility_matrix([[0, 1], [2, 0]], 2), "not symmetric"),
        (lambda: compatibility_matrix([[0, np.inf], [np.inf, 0]], 2), "compatibility: 2 of 4"),
        (lambda: compatibility_matrix("potts", 2), "compatibility: dtype"),
        (lambda: compatibility_matrix(LabelTree(3), 2), "a tree of 3 labels for 2"),
    ],
)
def test_bad_compatibilities_are_refused_by_name(make, message):
    with pytest.raises((ValueError, MemoryError), match=message):
        make()


def brute_force_energy(crf: DenseCRF, costs: np.ndarray, labels: np.ndarray) -> float:
    kernel = crf.pairwise.apply(np.eye(crf.n, dtype=np.float32)).astype(np.float64)
    x = labels.ravel()
    pairs = np.triu(kernel * costs[x[:, None], x[None, :]], 1).sum()
    return float(crf.unary[x, np.arange(crf.n)].sum() + pairs)


@pytest.mark.parametrize(
    "compatibility",
    [
        None,
        [0.5, 1.0, 2.0],
        np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0.0]]),
        np.array([[-1, 0, 0], [0, 0.5, 0], [0, 0, 2.0]]),
        LabelTree(3, [([0, 1], 1.0)], leaf=[0.4, 0.4, 0.6]),
    ],
)
@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_energy_is_the_sum_over_pairs(compatibility, normalization):
    rng = np.random.default_rng(0)
    unary = rng.random((3, 4, 5))
    crf = DenseCRF(
        unary, [Spatial(1.5, weight=2.0)], normalization, "lattice", compatibility=compatibility
    )
    costs = 1 - np.eye(3) if crf.compatibility is None else crf.compatibility
    labels = rng.integers(0, 3, (4, 5))
    assert crf.energy(labels) == pytest.approx(brute_force_energy(crf, costs, labels), rel=1e-5)
    for label, energy in enumerate(crf.constant_energies()):
        constant = np.full((4, 5), label)
        assert energy == pytest.approx(brute_force_energy(crf, costs, constant), rel=1e-5)
        assert crf.energy(constant) == pytest.approx(energy, rel=1e-5)


@pytest.mark.parametrize("leaf", [0.0, [0.0, 0.0, 0.0], 1e-60])
def test_a_tree_without_lengths_is_refused(leaf):
    with pytest.raises(ArgumentError, match=r"leaf=.*all lengths are 0"):
        LabelTree(3, [([0, 1], 0.0)], leaf=leaf)
    assert LabelTree(3, [([0, 1], 1.0)], leaf=leaf).matrix().max() == 0.5


def test_almost_symmetric_costs_are_made_symmetric():
    """Bounds and energies are those of one matrix, to the last bit."""
    costs = np.array([[0.0, 9e-9], [0.0, 0.0]])
    stored = compatibility_matrix(costs, 2)
    np.testing.assert_array_equal(stored, stored.T)
    unary = [[0.1, -0.1, 0.6, 0.1], [-0.5, 0.4, 1.3, 0.9]]
    crf = DenseCRF(unary, [Spatial(1.5, 1e9)], "symmetric", "exact", compatibility=costs)
    result = crf.solve("qp", tolerance=1e-9, iterations=200)
    labellings = np.stack(np.unravel_index(np.arange(16), (2,) * 4), 1)
    assert result.lower_bound <= min(crf.energy(x) for x in labellings)


def test_costs_near_the_largest_float_are_averaged_without_overflow():
    largest = 3e38
    stored = compatibility_matrix(np.array([[0.0, largest], [largest, 0.0]]), 2)
    assert stored[0, 1] == np.float32(largest)


@pytest.mark.parametrize("seed", range(20))
def test_tree_of_its_own_matrix(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    labels = rng.permutation(count).tolist()
    cut = int(rng.integers(1, count))
    groups = [(part, 1.5 * float(rng.random())) for part in (labels[:cut], labels[cut:])]
    inner = [(part[: len(part) // 2], float(rng.random())) for part, _ in groups if len(part) > 2]
    leaf = rng.choice([0.0, 0.3, 1.0], count) + 0.1 * (seed % 2)
    costs = LabelTree(count, groups + inner, leaf).matrix()
    np.testing.assert_allclose(LabelTree.of_metric(costs).matrix(), costs, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_tree_of_other_costs(seed):
    costs = np.random.default_rng(seed).random((5, 5))
    assert LabelTree.of_metric(costs + costs.T - 2 * np.diag(costs.diagonal())) is None
    assert LabelTree.of_metric(np.zeros((5, 5))) is None
    assert LabelTree.of_metric(np.eye(5) - 1) is None
