"""Every filter is its explicit matrix: symmetric, non-negative, near the Gaussian."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf.model.kernels import Spatial
from densecrf.native import core
from densecrf.operators import ExactFilter, GridFilter, LatticeFilter
from engines import DIMENSIONS, ENGINES, FEW_ENGINES, build, matrix_of, random_features


@pytest.mark.parametrize("engine", ENGINES)
def test_matrix_is_symmetric_and_non_negative(engine):
    matrix = matrix_of(build(engine))
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-6)
    assert matrix.min() >= 0
    assert np.diag(matrix).min() > 0


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_forward_blur_alone_is_not_symmetric_and_averages_to_the_symmetric_one(d):
    forward = matrix_of(build(f"forward-{d}"))
    assert np.abs(forward - forward.T).max() > 1e-4
    symmetric = matrix_of(build(f"lattice-{d}"))
    np.testing.assert_allclose(symmetric, (forward + forward.T) / 2, atol=1e-6)


@pytest.mark.parametrize("engine", [*ENGINES, "forward-2", "forward-5"])
def test_diagonal_is_that_of_the_matrix(engine):
    operator = build(engine)
    np.testing.assert_allclose(operator.diagonal(), np.diag(matrix_of(operator)), rtol=1e-5)


@pytest.mark.parametrize(
    ("d", "spread"), [(1, 1), (2, 0.5), (3, 0.5), (5, 0.3), (6, 0.1), (7, 0.05)]
)
def test_diagonal_where_many_pixels_share_few_vertices(d, spread):
    """Then the paths between the vertices are stored."""
    operator = LatticeFilter(spread * random_features(1200, d))
    assert operator.vertices <= 64 * 1200 >> (d + 1)
    np.testing.assert_allclose(operator.diagonal(), np.diag(matrix_of(operator)), rtol=1e-5)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_pixel_far_away_changes_nothing(d):
    """Coordinates that are too large for short keys are looked up in another table."""
    near = random_features(300, d)
    far = np.concatenate([near, np.full((1, d), 9e5)])
    expected, matrix = (matrix_of(LatticeFilter(points)) for points in (near, far))
    np.testing.assert_array_equal(matrix[:-1, :-1], expected)
    assert not matrix[-1, :-1].any()


@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_mass_is_the_row_sum(engine):
    operator = build(engine)
    np.testing.assert_allclose(operator.mass, matrix_of(operator).sum(1), rtol=1e-5)


@pytest.mark.parametrize("engine", [*ENGINES, "forward-2", "forward-5"])
def test_row_sums_are_those_of_the_matrix(engine):
    operator = build(engine)
    np.testing.assert_allclose(operator.row_sums(), matrix_of(operator).sum(1), rtol=1e-5)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("symmetric", [True, False])
def test_row_sums_have_the_same_bits_for_any_number_of_threads(symmetric):
    lattice = core().Lattice.build(5 * random_features(9000, 3), 0)
    total = core().LatticeSum((lattice,), [0.7], symmetric)
    found = [np.empty(9000) for _ in range(3)]
    for out, threads in zip(found, (1, 2, 3), strict=True):
        total.row_sums(out, threads)
        np.testing.assert_array_equal(out, found[0])


@pytest.mark.parametrize("engine", FEW_ENGINES)
def test_weighted_filter_scales_rows_columns_and_diagonal(engine):
    operator = build(engine)
    rng = np.random.default_rng(1)
    columns, rows = rng.random((2, operator.n), dtype=np.float32)
    rows[0] = 0
    both = operator.weighted(columns, rows).weighted(rows, None)
    expected = rows[:, None] * matrix_of(operator) * (columns * rows)[None, :]
    np.testing.assert_allclose(matrix_of(both), expected, atol=1e-6)
    np.testing.assert_allclose(both.diagonal(), np.diag(expected), atol=1e-6)


def test_exact_filter_is_the_gaussian():
    points = random_features(50, 4).astype(np.float64)
    distance = ((points[:, None] - points[None]) ** 2).sum(-1)
    np.testing.assert_allclose(matrix_of(ExactFilter(points)), np.exp(-0.5 * distance), rtol=1e-6)


def test_exact_filter_keeps_its_digits_far_from_zero():
    points = np.round(random_features(50, 4) * 1024) / 1024
    far = ExactFilter(points.astype(np.float64) + 9e5)
    np.testing.assert_allclose(matrix_of(far), matrix_of(ExactFilter(points)), rtol=1e-6)


@pytest.mark.parametrize(("shape", "sigma"), [((50,), 2.0), ((8, 9), (1.0, 3.0)), ((4, 5, 6), 0.7)])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-8])
def test_grid_filter_is_the_gaussian_to_its_tolerance(shape, sigma, tolerance):
    grid = GridFilter(shape, sigma, tolerance=tolerance)
    exact = ExactFilter(Spatial(sigma).features(shape))
    assert np.abs(matrix_of(grid) - matrix_of(exact)).max() <= tolerance + 1e-6


@pytest.mark.parametrize("d", DIMENSIONS)
def test_lattice_keeps_apart_what_is_far_apart(d):
    points = np.zeros((2, d))
    points[1] = 40
    assert matrix_of(LatticeFilter(points))[0, 1] == 0


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 8, 9, 16, 17, 21, 40])
@pytest.mark.parametrize("engine", ["lattice-2", "lattice-5", "grid-2", "exact-2"])
def test_apply_takes_any_number_of_channels_and_layout(engine, channels):
    operator = build(engine)
    values = np.random.default_rng(0).random((operator.n, channels))
    expected = matrix_of(operator) @ values
    for layout in (
        values,
        np.asfortranarray(values),
        np.repeat(values, 2, 1)[:, ::2],
        values[::-1][::-1],
        values.astype(np.float32),
    ):
        filtered = operator.apply(layout)
        assert filtered.dtype == np.float32
        np.testing.assert_allclose(filtered, expected, rtol=2e-5)
    one = operator.apply(values[:, 0])
    assert one.shape == (operator.n,)
    np.testing.assert_allclose(one, expected[:, 0], rtol=2e-5)


def test_integer_and_boolean_values_are_filtered_as_numbers():
    operator = build("lattice-2")
    inside = np.arange(operator.n) % 2 == 0
    np.testing.assert_array_equal(operator.apply(inside), operator.apply(inside.astype(float)))
    np.testing.assert_array_equal(
        operator.apply(inside.astype(np.uint8)), operator.apply(inside.astype(float))
    )


def test_planes_are_written_where_asked():
    for engine in ("lattice-3", "grid-2", "exact-3"):
        operator = build(engine)
        y = np.random.default_rng(0).random((3, operator.n), dtype=np.float32)
        for out in (np.ones_like(y), np.ones((operator.n, 3), np.float32).T):
            assert operator.apply_planes(y, out) is out
            np.testing.assert_allclose(out, operator.apply(y.T).T, rtol=1e-5)
