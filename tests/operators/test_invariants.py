"""Properties that hold for any features and scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from densecrf.operators import ExactFilter, LatticeFilter
from engines import FEW_ENGINES, build, matrix_of

FEATURES = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 30), st.integers(1, 6)),
    elements=st.floats(-50, 50, width=32),
)
MODERATE = settings(max_examples=40, deadline=None)


@MODERATE
@given(FEATURES)
def test_lattice_is_symmetric_and_non_negative_for_any_features(points):
    operator = LatticeFilter(points)
    matrix = matrix_of(operator)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    assert matrix.min() >= 0
    np.testing.assert_allclose(operator.diagonal(), np.diag(matrix), rtol=1e-5, atol=1e-7)


@MODERATE
@given(FEATURES, st.randoms(use_true_random=False))
def test_permuting_pixels_permutes_the_result(points, random):
    permutation = np.array(random.sample(range(len(points)), len(points)))
    y = np.linspace(0, 1, len(points), dtype=np.float32) ** 2
    for engine in (LatticeFilter, ExactFilter):
        operator, permuted = engine(points), engine(points[permutation])
        np.testing.assert_allclose(
            permuted.apply(y[permutation]), operator.apply(y)[permutation], rtol=1e-5, atol=1e-6
        )
        for order in ("soft", "hard", "adaptive"):
            np.testing.assert_allclose(
                permuted.ordered(y[permutation], order=order),
                operator.ordered(y, order=order)[permutation],
                atol=2e-5 * max(1.0, float(operator.mass.max())),
            )


@pytest.mark.parametrize("engine", FEW_ENGINES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), alpha=st.floats(-5, 5), beta=st.floats(-5, 5))
def test_apply_is_linear(engine, seed, alpha, beta):
    operator = build(engine)
    u, v = np.random.default_rng(seed).standard_normal((2, operator.n))
    together = operator.apply(alpha * u + beta * v)
    apart = alpha * operator.apply(u) + beta * operator.apply(v)
    np.testing.assert_allclose(together, apart, atol=1e-3)


@pytest.mark.parametrize("order", ["soft", "hard", "adaptive", "literal"])
@pytest.mark.parametrize("engine", FEW_ENGINES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), levels=st.integers(2, 40))
def test_ordered_is_antisymmetric_and_bounded(engine, order, seed, levels):
    """Σ_a g_a ordered_a = 0 for a symmetric kernel, and |ordered| ≤ Σ_b k_ab g_b."""
    operator = build(engine)
    rng = np.random.default_rng(seed)
    y, g = rng.random((operator.n, 2)), rng.random(operator.n)
    result = operator.ordered(y, g, levels=levels, order=order).astype(np.float64)
    mass = operator.apply(g)
    if order != "literal":  # whose two kinds of bins do not cancel
        np.testing.assert_allclose(g @ result, 0, atol=1e-5 * float(g @ mass))
    assert (np.abs(result) <= mass[:, None] * (1 + 1e-5) + 1e-5).all()


@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_ordered_changes_sign_with_the_scores(engine):
    operator = build(engine)
    y = np.random.default_rng(0).random(operator.n)
    for order in ("soft", "adaptive", "divide-and-conquer-fixed"):
        np.testing.assert_allclose(
            operator.ordered(1 - y, order=order),
            -operator.ordered(y, order=order),
            atol=1e-4 * operator.mass.max(),
        )


@pytest.mark.parametrize("d", [2, 3, 5])
def test_translation_of_features_changes_the_lattice_little(d):
    """Every translation is another lattice over the same Gaussian."""
    points = np.random.default_rng(0).random((800, d)).astype(np.float32) * 4
    value = np.random.default_rng(1).random(800)
    here = LatticeFilter(points).apply(value)
    there = LatticeFilter(points + np.float32(0.37)).apply(value)
    assert np.abs(here - there).mean() < 0.15 * here.mean()


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_translation_by_a_lattice_vector_is_exact(d):
    """A shift by a whole period leaves all barycentric weights as they were."""
    points = np.random.default_rng(0).random((100, d)) * 4
    shifted = points.copy()
    shifted[:, 0] += np.sqrt(
        3
    )  # d+1 lattice units along one elevated axis, as many back on another
    value = np.random.default_rng(1).random(100)
    np.testing.assert_allclose(
        LatticeFilter(shifted).apply(value), LatticeFilter(points).apply(value), rtol=1e-4
    )
