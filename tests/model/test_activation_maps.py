"""Activation maps with a background."""

import numpy as np
import pytest

import densecrf
from densecrf import with_background

MAPS = np.array([[[0.9, 0.2, 0.0]], [[0.0, 0.1, 0.0]]], np.float32)


def test_the_background_wins_below_the_threshold():
    assert with_background(MAPS, threshold=0.3).argmax(0).tolist() == [[1, 0, 0]]
    assert with_background(MAPS, threshold=0.15).argmax(0).tolist() == [[1, 1, 0]]


def test_the_background_is_a_power_of_what_the_maps_leave():
    p = with_background(MAPS, power=3)
    np.testing.assert_allclose(p[0, 0, 1] / p[1, 0, 1], 0.8**3 / 0.2, rtol=1e-5)
    np.testing.assert_allclose(p.sum(0), 1, rtol=1e-6)


def test_classes_may_be_on_any_axis():
    last = with_background(np.moveaxis(MAPS, 0, -1), power=4, axis=-1)
    np.testing.assert_array_equal(last, with_background(MAPS, power=4))


def test_refine_reads_them():
    image = np.zeros((6, 8, 3), np.uint8)
    image[:, 4:] = 200
    maps = np.where(image[..., 0] > 0, 0.8, 0.1)[None]
    result = densecrf.refine(image, with_background(maps, threshold=0.3), strength=0.1)
    assert result.labels[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("maps", "keywords", "said"),
    [
        (MAPS, {}, "give either threshold=0.3 or power=4"),
        (MAPS, {"threshold": 0.3, "power": 4}, "give either threshold=0.3 or power=4"),
        (MAPS, {"threshold": 30}, "threshold=30: must be between 0 and 1"),
        (MAPS, {"power": 0}, "power=0"),
        (5 * MAPS, {"power": 4}, "values from 0 to 4.5: give numbers from 0 to 1"),
        (MAPS * np.nan, {"power": 4}, "maps"),
        (MAPS[:0], {"power": 4}, "maps: .*give \\(classes, \\*spatial\\)"),
        (MAPS, {"power": 4, "axis": 3}, "axis 3 of shape"),
    ],
)
def test_bad_maps_are_refused(maps, keywords, said):
    with pytest.raises(ValueError, match=said):
        with_background(maps, **keywords)
