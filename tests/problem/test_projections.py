"""The projection onto the simplex against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from densecrf.problem.projections import simplex


def by_sorting(z: np.ndarray) -> np.ndarray:
    """Project one column by the sorting formula, in double precision."""
    u = np.sort(z.astype(np.float64))[::-1]
    tau = (np.cumsum(u) - 1) / np.arange(1, len(u) + 1)
    last = np.flatnonzero(u > tau)[-1]
    return np.maximum(z - tau[last], 0)


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 30), st.integers(1, 70)),
        elements=st.floats(-100, 100, width=32),
    )
)
def test_projection_is_the_nearest_point(z):
    expected = np.stack([by_sorting(column) for column in z.T], 1)
    np.testing.assert_allclose(simplex(z), expected, atol=1e-5)


@pytest.mark.parametrize("magnitude", [1e-30, 1.0, 1e8, 1e20, 3e38])
def test_projection_lies_on_the_simplex_at_any_magnitude(magnitude):
    z = (np.random.default_rng(0).random((21, 1000)) * magnitude).astype(np.float32)
    for sign in (1, -1):
        y = simplex(np.float32(sign) * z)
        assert y.min() >= 0
        np.testing.assert_allclose(y.sum(0), 1, atol=1e-5)


def test_points_of_the_simplex_stay():
    y = np.random.default_rng(0).dirichlet(np.ones(5), 100).T.astype(np.float32)
    np.testing.assert_allclose(simplex(y), y, atol=1e-6)


def test_projection_in_place_of_ties_is_uniform():
    np.testing.assert_allclose(simplex(np.zeros((4, 3), np.float32)), 0.25)
