"""Single precision when locating pixels: the same filter, but for pixels on a border."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf.operators import LatticeFilter


def test_single_and_double_precision_agree_away_from_borders():
    features = np.random.default_rng(0).normal(0, 3, (500, 5)).astype(np.float32)
    values = np.random.default_rng(1).random((500, 2))
    double = LatticeFilter(features).apply(values)
    single = LatticeFilter(features, precision="single").apply(values)
    np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dimension", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_far_features_are_filtered_or_refused_never_worse(dimension, size):
    """Single precision loses the lattice far from the origin; an index must not go astray."""
    features = np.random.default_rng(2).uniform(-size, size, (300, dimension))
    refusal, out = "", np.zeros(0)
    try:
        out = LatticeFilter(features, precision="single").apply(np.ones(300))
    except ValueError as error:
        refusal = str(error)
    assert np.isfinite(out).all()
    assert out.size == 300 or "too far from zero for single precision" in refusal


def test_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision='half'"):
        LatticeFilter([[0.0]], precision="half")
