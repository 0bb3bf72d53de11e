"""Changes of a labelling against its input: counts, and when they warn."""

import numpy as np
import pytest

from densecrf import ArgumentWarning
from densecrf.solvers.changes import compare


def unaries(labels: np.ndarray, probability: float, count: int = 3) -> np.ndarray:
    """Return unaries of hard labels held with one probability."""
    p = np.full((count, labels.size), (1 - probability) / (count - 1))
    p[labels.ravel(), np.arange(labels.size)] = probability
    return -np.log(p).astype(np.float32)


def scene() -> np.ndarray:
    """Return 100 × 100 labels: mostly 0, a fifth 1, a thin line of 2."""
    labels = np.zeros((100, 100), int)
    labels[:, :20] = 1
    labels[:, 60:63] = 2
    return labels


def test_counts() -> None:
    before = scene()
    after = before.copy()
    after[:, 60:63] = 0
    found = compare(unaries(before, 0.95), after)
    assert found.pixels == 10_000
    assert found.changed == found.overturned == 300
    assert found.confident == 10_000
    assert found.area_before == (7700, 2000, 300)
    assert found.area_after == (8000, 2000, 0)
    assert found.overturned_by_label == (0, 0, 300)
    assert found.to_dict()["area_after"] == [8000, 2000, 0]


def test_a_lost_label_warns_with_numbers_and_remedy() -> None:
    before = scene()
    text = compare(unaries(before, 0.95), np.where(before == 2, 0, before)).warning()
    assert "label 2 keeps 0 of 300 pixels" in text
    assert "strength=0.5" in str(ArgumentWarning("labels", ..., text))
    assert "densecrf.fit" in text


def test_an_unsure_label_may_go() -> None:
    before = scene()
    unary = unaries(before, 0.95)
    unsure = before.ravel() == 2
    unary[:, unsure] = unaries(before, 0.6)[:, unsure]
    assert compare(unary, np.where(before == 2, 0, before)).warning() == ""


def test_confident_pixels_that_flip_warn() -> None:
    before = scene()
    after = before.copy()
    after[:, :40] = 1  # label 1 doubles
    text = compare(unaries(before, 0.95), after).warning()
    assert "2,000 of 10,000 confident pixels (20 %" in text


def test_moved_borders_and_removed_noise_are_silent() -> None:
    before = scene()
    noisy = before.copy()
    noisy[np.random.default_rng(0).random(before.shape) < 0.03] = 1
    after = before.copy()
    after[:, 18:22] = 1
    assert compare(unaries(noisy, 0.95), after).warning() == ""


def test_one_label_everywhere_warns() -> None:
    before = scene()
    text = compare(unaries(before, 0.8), np.zeros_like(before)).warning()
    assert text.startswith("label 0 takes all 10,000 pixels")


def test_one_label_everywhere_is_silent_where_the_input_was_nearly_so() -> None:
    before = np.zeros((100, 100), int)
    before[:2] = 1
    assert compare(unaries(before, 0.8), np.zeros_like(before)).warning() == ""


def test_pixels_without_evidence_have_no_label_to_lose() -> None:
    unary = np.zeros((2, 100), np.float32)
    unary[0, :10] = 3
    found = compare(unary, np.ones(100, int))
    assert found.changed == 0
    assert found.area_before == (0, 10)
    assert found.warning() == ""


def test_a_fall_of_the_expected_iou_is_warned_of_where_the_weights_are_high() -> None:
    unary = unaries(scene(), 0.8)
    without_line = np.where(scene() == 2, 0, scene())
    found = compare(unary, without_line, excess=2.0)
    # The line's IoU was 0.8 of 300 pixels over 300 + 0.1 of the 9,700 others + 0.
    assert found.loss_by_label[2] == pytest.approx(240 / (240 + 970 + 300 - 240), rel=1e-3)
    assert found.loss == pytest.approx(sum(found.loss_by_label) / 3)
    assert "times the usual ones for scores" not in found.warning()
    told = compare(unary, without_line, excess=5.0).warning()
    assert "the weights are 5.0 times the usual ones for scores" in told
    assert "that of label 2 by 18.9" in told
    assert not compare(unary, scene(), excess=100.0).warning()
