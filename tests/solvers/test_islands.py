"""Islands and holes below a size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import densecrf
from densecrf.model.unaries import FORBIDDEN
from densecrf.solvers.islands import regions, remove_islands, without_islands


def sizes_by_scipy(labels):
    """Return the sorted sizes of all regions."""
    every = []
    for label in np.unique(labels):
        parts, _ = ndimage.label(labels == label)
        every += np.bincount(parts.ravel())[1:].tolist()
    return sorted(every)


def model(shape=(12, 15), labels=3, seed=0):
    rng = np.random.default_rng(seed)
    unary = rng.gamma(1.0, 1.0, (labels, *shape)).astype(np.float32)
    image = rng.integers(0, 255, (*shape, 3)).astype(np.uint8)
    return densecrf.DenseCRF(unary, [densecrf.Spatial(1, 0.3), densecrf.Bilateral(image, 4, 60, 1)])


@pytest.mark.parametrize("shape", [(30,), (9, 13), (4, 6, 5), (1, 8), (8, 1)])
def test_regions_are_those_of_scipy(shape):
    labels = np.random.default_rng(1).integers(0, 3, shape)
    region, sizes = regions(labels)
    assert sorted(sizes.tolist()) == sizes_by_scipy(labels)
    for number in range(len(sizes)):
        inside = region == number
        assert inside.sum() == sizes[number]
        assert len(np.unique(labels[inside])) == 1
        assert ndimage.label(inside)[1] == 1


@pytest.mark.parametrize("min_area", [2, 5, 40, 10_000])
def test_no_small_region_is_left_and_the_price_is_that_of_the_energy(min_area):
    crf = model()
    labels = crf.unary.reshape(3, 12, 15).argmin(0)
    cleaned, change = remove_islands(crf, labels, min_area)
    assert min(sizes_by_scipy(cleaned)) >= min(min_area, cleaned.size)
    assert change == pytest.approx(crf.energy(cleaned) - crf.energy(labels))
    assert crf.shape == cleaned.shape


def test_an_island_goes_to_the_neighbour_that_costs_least():
    unary = np.zeros((3, 3, 4), np.float32)
    unary[0, :, 2:], unary[1, :, :2] = 5, 5
    unary[2] = 9
    unary[:, 1, 1] = 4, 3, 0  # its second best label is the right side's
    labels = np.array([[0, 0, 1, 1], [0, 2, 1, 1], [0, 0, 1, 1]])
    cleaned, change = remove_islands(densecrf.DenseCRF(unary), labels, 2)
    assert cleaned[1, 1] == 1
    assert change == pytest.approx(3)


def test_nothing_changes_without_a_size():
    crf = model()
    labels = crf.unary.reshape(3, 12, 15).argmin(0)
    for min_area in (0, 1):
        cleaned, change = remove_islands(crf, labels, min_area)
        np.testing.assert_array_equal(cleaned, labels)
        assert change == 0


def test_islands_under_a_stroke_stay():
    unary = np.zeros((2, 5, 5), np.float32)
    unary[1] = 1
    unary[:, 2, 2] = FORBIDDEN, 0
    labels = np.zeros((5, 5), int)
    labels[2, 2] = labels[0, 0] = 1
    cleaned, _ = remove_islands(densecrf.DenseCRF(unary), labels, 5)
    assert cleaned[2, 2] == 1
    assert cleaned.sum() == 1


def test_the_certificate_is_that_of_the_labels_returned():
    crf = model()
    result = crf.solve("lp", gap=1e-4)
    cleaned = without_islands(result, 8)
    changed = cleaned.labels != result.labels
    assert changed.any()
    assert cleaned.energy == pytest.approx(crf.energy(cleaned.labels))
    assert cleaned.lower_bound == result.lower_bound
    assert cleaned.gap > result.gap
    assert cleaned.info["islands"] == pytest.approx(cleaned.energy - result.energy)
    assert not cleaned.proven[changed].any()
    assert not (cleaned.proven & ~result.proven).any()
