"""Models from a network's output alone."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf import adapt


def street(width: int, sure: float) -> tuple[np.ndarray, np.ndarray]:
    """Return an image of one colour, and probabilities of a stripe of label 1 on label 0."""
    p = np.full((3, 30, 60), 0.01)
    p[0] = 0.98
    p[:2, :, 30 : 30 + width] = np.array([0.99 - sure, sure])[:, None, None]
    return np.full((30, 60, 3), 90, np.uint8), p


def costs(width: int, sure: float) -> tuple[float, ...]:
    image, p = street(width, sure)
    return adapt([image] * 3, [p] * 3, axis=0).label_costs


def test_thin_labels_cost_less():
    assert costs(2, 0.9)[1] < costs(6, 0.9)[1] < costs(20, 0.9)[1]


def test_labels_that_the_network_is_not_sure_of_cost_less():
    assert costs(4, 0.55)[1] < costs(4, 0.8)[1] < costs(4, 0.95)[1]


def test_the_evidence_is_a_mean_over_the_data_set():
    both = adapt(*zip(street(4, 0.55), street(4, 0.95), strict=True), axis=0).label_costs
    assert costs(4, 0.55)[1] < both[1] < costs(4, 0.95)[1]


@pytest.mark.parametrize("p", [np.full((3, 8, 9), 1 / 3), np.eye(3)[:, [0] * 72].reshape(3, 8, 9)])
def test_costs_are_positive_without_borders_or_evidence(p):
    found = adapt([np.zeros((8, 9, 3), np.uint8)] * 2, [p] * 2, axis=0).label_costs
    assert all(0 < cost <= 1 for cost in found)
