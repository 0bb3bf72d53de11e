"""`ordered` of every engine against its defining formula on the explicit matrix."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf.operators import LatticeFilter
from densecrf.operators.levels import Levels
from engines import (
    ENGINES,
    FEW_ENGINES,
    build,
    divide_and_conquer,
    exact_sign,
    level_sign,
    literal_sign,
    matrix_of,
    ordered_on,
    random_features,
)

LEVELS = (2, 3, 5, 6, 9, 10, 17, 33)
CHANNELS = 3


def random_problem(operator, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    y = rng.random((operator.n, CHANNELS)).astype(np.float32)
    if ties:
        y = np.round(y * 4) / 4
    return y, rng.random(operator.n).astype(np.float32)


def assert_ordered(operator, result, y, g, sign_of, matrix=None):
    matrix = matrix_of(operator) if matrix is None else matrix
    largest = max(1.0, float(matrix.sum(1).max()))
    for c in range(y.shape[1]):
        expected = ordered_on(matrix, sign_of(y[:, c]), g)
        np.testing.assert_allclose(result[:, c], expected, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("order", ["hard", "soft"])
@pytest.mark.parametrize("engine", ENGINES)
def test_levels_are_the_formula(engine, order):
    operator = build(engine)
    y, g = random_problem(operator)
    low, high = float(y.min()), float(y.max())
    matrix = matrix_of(operator)
    for levels in LEVELS:
        result = operator.ordered(y, g, levels=levels, order=order)
        assert_ordered(
            operator,
            result,
            y,
            g,
            lambda c, h=levels: level_sign(c, h, hard=order == "hard", low=low, high=high),
            matrix,
        )


@pytest.mark.parametrize("order", ["hard", "soft"])
@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_without_rescaling_levels_span_zero_to_one(engine, order):
    operator = build(engine)
    y, g = random_problem(operator)
    y = 2 * y - 0.5  # clipped on both sides
    result = operator.ordered(y, g, order=order, rescale=False)
    assert_ordered(
        operator, result, y, g, lambda c: level_sign(c, 10, hard=order == "hard", low=0, high=1)
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_adaptive_is_the_exact_order(engine, ties):
    operator = build(engine)
    y, g = random_problem(operator, ties=ties)
    assert_ordered(operator, operator.ordered(y, g, order="adaptive"), y, g, exact_sign)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_divide_and_conquer_on_one_lattice_is_the_exact_order(engine, ties):
    operator = build(engine)
    y, g = random_problem(operator, ties=ties)
    result = operator.ordered(y, g, order="divide-and-conquer-fixed")
    assert_ordered(operator, result, y, g, exact_sign)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_divide_and_conquer_is_its_own_recursion(d, ties):
    points = random_features(60, d)
    operator = LatticeFilter(points)
    y, g = random_problem(operator, ties=ties)
    result = operator.ordered(y, g, order="divide-and-conquer")
    for c in range(CHANNELS):
        expected = divide_and_conquer(points, y[:, c], g)
        np.testing.assert_allclose(result[:, c], expected, atol=1e-5 * operator.mass.max())


@pytest.mark.parametrize("levels", [2, 5, 10])
@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_literal_algorithm_has_both_indicator_terms(engine, levels):
    operator = build(engine)
    y, g = random_problem(operator)
    low, high = float(y.min()), float(y.max())
    result = operator.ordered(y, g, levels=levels, order="literal")
    assert_ordered(operator, result, y, g, lambda c: literal_sign(c, levels, low=low, high=high))


def test_literal_algorithm_stays_in_its_bins_for_scores_just_above_one():
    operator = build("lattice-2")
    y = np.full((1, operator.n), np.nextafter(np.float32(1), np.float32(2)))
    y[0, ::2] = -1e-7
    unit = np.clip(y, 0, 1)
    np.testing.assert_array_equal(
        operator.ordered_exactly(y, "literal", 10), operator.ordered_exactly(unit, "literal", 10)
    )


@pytest.mark.parametrize("order", ["soft", "hard", "adaptive", "literal", "divide-and-conquer"])
def test_equal_scores_have_no_order(order):
    for engine in ("exact-2", "lattice-2", "grid-2"):
        operator = build(engine)
        result = operator.ordered(np.full(operator.n, 0.25), order=order)
        np.testing.assert_allclose(result, 0, atol=2e-5 * operator.mass.max())


@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_ordered_planes_are_written_where_asked(engine):
    operator = build(engine)
    y = np.random.default_rng(0).random((2, operator.n), dtype=np.float32)
    out, levels = np.ones_like(y), Levels(10, 0.0, 9.0, False)
    assert operator.ordered_planes(y, levels, out) is out
    expected = operator.ordered(y.T, rescale=False).T
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


def test_a_lattice_adds_its_weighted_ordered_planes():
    operator = build("lattice-2")
    y = np.random.default_rng(0).random((2, operator.n), dtype=np.float32)
    out, levels = np.ones_like(y), Levels(10, 0.0, 9.0, False)
    extents = np.array([[row.min(), row.max()] for row in y])
    operator.add_ordered(out, -3.0, y - 1, np.ones_like(y), extents, levels)
    expected = 1 - 3 * operator.ordered(y.T, rescale=False).T
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


def test_many_levels_approach_the_exact_order():
    operator = build("lattice-2")
    y, g = random_problem(operator)
    exact = operator.ordered(y, g, order="adaptive")
    errors = [np.abs(operator.ordered(y, g, levels=h) - exact).mean() for h in (4, 16, 256, 4096)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 * errors[0]


def test_ranges_below_float32_are_one_level():
    operator = build("lattice-2")
    y = np.zeros(operator.n, np.float32)
    y[3] = 1e-44
    for order in ("soft", "hard", "literal"):
        assert np.abs(operator.ordered(y, order=order)).max() < 1e-4


def test_nan_in_trusted_arrays_is_no_index():
    """Solvers pass trusted arrays; a NaN there spoils numbers, not memory."""
    for engine in ("lattice-2", "grid-2"):
        operator = build(engine)
        y = np.random.default_rng(0).random((2, operator.n), dtype=np.float32)
        y[0, ::3] = np.nan
        y[1] = np.inf
        for hard in (False, True):
            out = operator.ordered_planes(y, Levels(10, 0.0, 9.0, hard))
            assert np.isfinite(out).all()
        if engine == "lattice-2":
            for order in ("literal", "adaptive", "divide-and-conquer-fixed"):
                assert np.isfinite(operator.ordered_exactly(y, order, 10)).all()
