"""Models from a network's output alone."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf import adapt
from densecrf.model.presets import PRESETS


def street(width: int, sure: float) -> tuple[np.ndarray, np.ndarray]:
    """Return an image of one colour, and probabilities of a stripe of label 1 on label 0."""
    p = np.full((3, 30, 60), 0.01)
    p[0] = 0.98
    p[:2, :, 30 : 30 + width] = np.array([0.99 - sure, sure])[:, None, None]
    return np.full((30, 60, 3), 90, np.uint8), p


def strength(width: int, sure: float, images: int = 5) -> float:
    image, p = street(width, sure)
    return adapt([image] * images, [p] * images, axis=0).provenance["strength"]


def test_a_label_that_would_go_lowers_the_strength():
    assert strength(1, 0.6) < 1 < strength(20, 0.9)


def test_few_images_say_nothing_of_the_strength():
    assert strength(1, 0.6, images=4) == 1


def test_the_strength_multiplies_the_model_s():
    image, p = street(1, 0.6)
    found = adapt([image] * 5, [p] * 5, axis=0)
    factor = found.provenance["strength"]
    assert found.bilateral_weight == pytest.approx(factor * PRESETS["default"].bilateral_weight)
    assert found.provenance["overruled_by_label"][1] > 0.5


def test_no_prior_where_all_images_show_the_same_labels():
    image, p = street(4, 0.9)
    assert not any(adapt([image] * 10, [p] * 10, axis=0).prior.trust)


def test_few_images_make_no_prior():
    image, p = street(4, 0.9)
    assert adapt([image] * 9, [p] * 9, axis=0).prior is None


def test_a_label_that_goes_from_few_images_does_not_lower_the_strength():
    image, p = street(20, 0.9)
    _, false = street(20, 0.9)
    false[:, 10:14, 5:9] = np.array([0.1, 0.1, 0.8])[:, None, None]  # label 2, removed
    found = adapt([image] * 10, [false] * 3 + [p] * 7, axis=0)
    assert found.provenance["overruled_by_label"][2] > 0.5
    assert found.provenance["strength"] == 1
    everywhere = adapt([image] * 10, [false] * 10, axis=0)
    assert everywhere.provenance["strength"] < 1


@pytest.mark.parametrize("p", [np.full((3, 8, 9), 1 / 3), np.eye(3)[:, [0] * 72].reshape(3, 8, 9)])
def test_images_without_borders_or_evidence(p):
    found = adapt([np.zeros((8, 9, 3), np.uint8)] * 5, [p] * 5, axis=0)
    assert 0.25 <= found.provenance["strength"] <= 2


def test_another_number_of_labels_is_refused():
    image, p = street(4, 0.9)
    with pytest.raises(ValueError, match="image 1 has 2 labels"):
        adapt([image] * 2, [p, p[:2] / p[:2].sum(0)], axis=0)
