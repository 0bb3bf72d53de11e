from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from densecrf.io import Dataset
from densecrf.metrics import (
    accuracy,
    bootstrap,
    confusion_matrix,
    mean_iou,
)


def random_labels(seed: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, (6, 5))
    labels = np.where(rng.random((6, 5)) < 0.6, truth, rng.integers(0, classes, (6, 5)))
    truth[rng.random((6, 5)) < 0.2] = 255
    return labels, truth


@given(st.integers(0, 1000))
def test_metrics_equal_their_definitions(seed: int) -> None:
    labels, truth = random_labels(seed)
    confusion = confusion_matrix(labels, truth, 4)
    known = truth != 255
    assert confusion.sum() == known.sum()
    assert accuracy(confusion) == pytest.approx((labels == truth)[known].mean())
    ious = []
    for label in range(4):
        both = ((labels == label) & (truth == label) & known).sum()
        either = (((labels == label) | (truth == label)) & known).sum()
        if ((truth == label) & known).any():
            ious.append(both / either)
    assert mean_iou(confusion) == pytest.approx(np.mean(ious))


@given(st.integers(0, 1000))
def test_confusions_add_up(seed: int) -> None:
    labels, truth = random_labels(seed)
    whole = confusion_matrix(labels, truth, 4)
    parts = [confusion_matrix(labels[i : i + 2], truth[i : i + 2], 4) for i in (0, 2, 4)]
    np.testing.assert_array_equal(sum(parts), whole)


def test_labels_outside_the_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels: range over 0\.\.2, outside the 2 classes"):
        confusion_matrix([0, 2], [0, 1], 2)
    with pytest.raises(ValueError, match=r"truth: range over -1\.\.1"):
        confusion_matrix([0, 1], [-1, 1], 2)
    with pytest.raises(ValueError, match="must be the same"):
        confusion_matrix([0], [0, 1], 2)
    with pytest.raises(ValueError, match="must be integers"):
        confusion_matrix([0.5], [0], 2)
    assert confusion_matrix([9], [255], 2).sum() == 0
    assert np.isnan(accuracy(np.zeros((2, 2))))
    assert np.isnan(mean_iou(np.zeros((2, 2))))


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        right = rng.binomial(100, 0.8, 40)
        matrices = [[[r, 100 - r], [0, 0]] for r in right]
        interval = bootstrap(matrices, resamples=400, seed=trial)
        hits += interval.low <= 0.8 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_pairing_makes_the_interval_of_a_difference_narrow() -> None:
    rng = np.random.default_rng(1)
    right = rng.integers(20, 90, 50)
    second = np.array([[[r, 100 - r], [0, 0]] for r in right])
    first = np.array([[[r + 5, 95 - r], [0, 0]] for r in right])
    difference = bootstrap(first, minus=second)
    assert difference.estimate == pytest.approx(0.05)
    assert difference.low == pytest.approx(0.05)
    assert difference.high == pytest.approx(0.05)
    alone = bootstrap(first)
    assert alone.high - alone.low > 0.05


def test_the_bootstrap_is_repeatable_and_names_wrong_arguments() -> None:
    matrices = np.random.default_rng(0).integers(1, 9, (10, 3, 3))
    assert bootstrap(matrices, "iou", seed=3) == bootstrap(matrices, "iou", seed=3)
    assert bootstrap(matrices, "iou", seed=3) != bootstrap(matrices, "iou", seed=4)
    for wrong in (
        lambda: bootstrap(matrices, "f1"),
        lambda: bootstrap(matrices, resamples=0),
        lambda: bootstrap(matrices[0]),
        lambda: bootstrap(matrices, minus=matrices[:5]),
    ):
        with pytest.raises(ValueError, match=r"must|unknown"):
            wrong()


@pytest.mark.slow
def test_scores_of_the_reference_data_are_as_accurate_as_published(shared_data: object) -> None:
    data = Dataset.open(f"{shared_data}/msrc")
    total = np.zeros((21, 21), np.int64)
    for sample in (data.items[name].load() for name in data.names("val")):
        total += confusion_matrix(sample.scores.energies().argmin(0), sample.labels, 21)
    assert accuracy(total) == pytest.approx(0.8522, abs=2e-4)
    assert mean_iou(total) == pytest.approx(0.7042, abs=2e-4)
