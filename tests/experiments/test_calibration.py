"""The curves and errors of `experiments.calibration`, by hand."""

import numpy as np
import pytest

from experiments.calibration import accuracy_at_coverage, area, calibration_error, record


def test_the_order_of_equal_values_does_not_matter():
    rng = np.random.default_rng(0)
    values, right = rng.integers(0, 3, 50).astype(float), rng.integers(0, 2, 50)
    order = rng.permutation(50)
    assert area(values, right) == pytest.approx(area(values[order], right[order]))
    assert accuracy_at_coverage(values, right)[-1] == pytest.approx(right.mean())


def test_a_perfect_ranking_has_the_largest_area():
    right = np.array([1, 0, 1, 1])
    best = area(np.array([3.0, 0.0, 2.0, 1.0]), right)
    assert best == pytest.approx((1 + 1 + 1 + 0.75) / 4)
    assert area(np.array([0.0, 3.0, 1.0, 2.0]), right) < area(np.ones(4), right) < best


def test_probabilities_that_hold_have_no_calibration_error():
    right = np.array([1, 1, 1, 0])
    assert calibration_error(np.full(4, 0.75), right) == pytest.approx(0)
    assert calibration_error(np.full(4, 0.95), right) == pytest.approx(0.2)


def test_the_record_has_a_row_for_each_measure():
    names = ("network", "LP marginals", "mean field", "mean field at the optimum", "confidence")
    one = {name: np.array([0.97, 0.3]) for name in names}
    text = record({"made": [(one, np.array([1, 0]))]})
    assert text.count("| confidence | ") == 4
    assert "| network | 75.00 | 75.00 |" in text
    assert "| network | 50.0 / 100.0 |" in text
