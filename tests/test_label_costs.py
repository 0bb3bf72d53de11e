"""Label costs: what regions pay for their borders."""

import numpy as np
import pytest

from densecrf import DenseCRF, LabelTree, Spatial
from densecrf.label_costs import BorderStatistics, border_statistics
from densecrf.learning.energy_features import energy_features


def striped(width: int, height: int = 40, length: int = 60) -> np.ndarray:
    """Return unaries of a vertical stripe (label 1) in the middle."""
    unary = np.zeros((3, height, length), np.float32)
    unary[1] = 3
    unary[2] = 5
    middle = slice(length // 2 - width // 2, length // 2 - width // 2 + width)
    unary[:2, :, middle] = np.array([3, 0])[:, None, None]
    return unary


def test_statistics_are_the_energy_of_the_borders() -> None:
    crf = DenseCRF(striped(4), [Spatial(2, weight=3)], filter="exact")
    found = border_statistics(crf)
    labels = crf.unary.argmin(0).reshape(crf.shape)
    unary = np.take_along_axis(crf.unary, labels.reshape(1, -1), 0).sum()
    assert 0.5 * found.paid.sum() == pytest.approx(crf.energy(labels) - unary, rel=1e-4)
    assert found.pixels.sum() == labels.size


def test_thin_labels_cost_less() -> None:
    costs = [
        border_statistics(DenseCRF(striped(width), [Spatial(3, weight=6)])).label_costs(1.0)[1]
        for width in (2, 4, 8, 16)
    ]
    assert costs == sorted(costs)
    assert costs[0] < 0.5 * costs[-1]


def test_costs_do_not_depend_on_resolution_when_sigmas_follow() -> None:
    once = border_statistics(DenseCRF(striped(4), [Spatial(3, weight=6)], filter="exact"))
    large = striped(4).repeat(2, 1).repeat(2, 2)
    twice = border_statistics(DenseCRF(large, [Spatial(6, weight=6)], filter="exact"))
    np.testing.assert_allclose(
        once.paid[:2] / once.pixels[:2], twice.paid[:2] / twice.pixels[:2], rtol=0.03
    )


def test_few_pixels_are_drawn_to_the_average() -> None:
    pixels, paid = np.array([1e6, 100.0, 0.0]), np.array([1e6, 900.0, 0.0])
    costs = BorderStatistics(1, pixels, paid).label_costs(1.0)
    assert costs[0] == pytest.approx(1.0, abs=1e-3)
    assert costs[1] > 0.6  # its own statistics alone would say 1/9
    assert costs[2] == pytest.approx(1.0, abs=1e-3)


def test_features_give_the_energy_of_any_weights() -> None:
    rng = np.random.default_rng(3)
    unary = rng.random((4, 9, 11)).astype(np.float32)
    labels = rng.integers(0, 4, (9, 11))
    costs = np.array([0.2, 1.0, 0.5, 0.7])
    crf = DenseCRF(
        unary,
        [Spatial(2, weight=1.5), Spatial(4, weight=0.5)],
        compatibility=LabelTree(4, leaf=costs),
        filter="exact",
    )
    features = energy_features(unary, crf.pairwise, labels)
    energy = features.unary + np.array([1.5, 0.5]) @ features.cuts @ costs
    assert energy == pytest.approx(crf.energy(labels), rel=1e-5)
    assert features.areas.tolist() == np.bincount(labels.reshape(-1), minlength=4).tolist()
