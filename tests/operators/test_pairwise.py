"""The matrix K against its explicit definition: sums, masses, diagonals, restrictions."""

import numpy as np
import pytest

from densecrf.model.kernels import Bilateral, Spatial
from densecrf.operators.levels import Levels
from densecrf.operators.pairwise import Pairwise, build_filter

SHAPE, WEIGHTS = (5, 6), (0.7, 2.5)
N = 30
ENGINES = ["exact", "lattice", "grid"]


def kernels(engine):
    image = np.random.default_rng(1).integers(0, 255, (*SHAPE, 3))
    other = (
        Spatial(3.0, WEIGHTS[1]) if engine == "grid" else Bilateral(image, 3.0, 60.0, WEIGHTS[1])
    )
    return [Spatial(1.2, WEIGHTS[0]), other]


def filters(engine, blur="symmetric"):
    return [
        (kernel.weight, build_filter(kernel, SHAPE, engine, blur, 1)) for kernel in kernels(engine)
    ]


def explicit(engine, normalization, blur="symmetric"):
    """Return K from the matrices of its kernels."""
    total = np.zeros((N, N))
    for weight, part in filters(engine, blur):
        k = part.apply(np.eye(N)).astype(np.float64)
        if normalization == "symmetric":
            scale = 1 / np.sqrt(k.sum(1))
            k = scale[:, None] * k * scale
        total += weight * k
    return total


@pytest.fixture(params=["symmetric", "none"])
def normalization(request):
    return request.param


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def pairwise(engine, normalization):
    return Pairwise(filters(engine), N, normalization)


@pytest.fixture
def matrix(engine, normalization):
    return explicit(engine, normalization)


def test_gaussians_are_what_exact_filters_sum():
    total = np.zeros((N, N))
    for kernel in kernels("exact"):
        f = kernel.features(SHAPE).astype(np.float64)
        total += kernel.weight * np.exp(-0.5 * ((f[:, None] - f) ** 2).sum(2))
    np.testing.assert_allclose(explicit("exact", "none"), total, rtol=1e-5, atol=1e-7)


def test_apply_is_the_product_with_the_matrix(pairwise, matrix):
    y = np.random.default_rng(2).random((3, N)).astype(np.float32)
    np.testing.assert_allclose(pairwise.apply(y), y @ matrix.T, rtol=2e-5)
    np.testing.assert_allclose(pairwise.apply_double(y.astype(float)), y @ matrix.T, rtol=2e-5)


def test_symmetry(pairwise, matrix):
    k = pairwise.apply_double(np.eye(N))
    np.testing.assert_allclose(k, k.T, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(k, matrix, rtol=2e-5, atol=1e-6)


def test_forward_blur_is_symmetrised_in_double(normalization):
    pairwise = Pairwise(filters("lattice", "forward"), N, normalization)
    plain = explicit("lattice", normalization, "forward")
    k = pairwise.apply_double(np.eye(N))
    np.testing.assert_allclose(k, k.T, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(k, (plain + plain.T) / 2, rtol=1e-4, atol=1e-5)


def test_masses_and_diagonal(pairwise, matrix):
    np.testing.assert_allclose(pairwise.mass, matrix.sum(1), rtol=2e-5)
    np.testing.assert_allclose(pairwise.mass_double, matrix.sum(1), rtol=2e-5)
    np.testing.assert_allclose(pairwise.diagonal, np.diag(matrix), rtol=2e-5)
    assert pairwise.total_mass == pytest.approx(matrix.sum(), rel=1e-5)


def test_the_diagonal_in_double_precision_is_that_of_the_matrix(pairwise):
    diagonal = np.diag(pairwise.apply_double(np.eye(N)))
    np.testing.assert_allclose(pairwise.diagonal_double, diagonal, rtol=1e-14)


def test_restriction_is_the_submatrix(pairwise, matrix):
    pixels = np.array([0, 3, 4, 11, 17, 29])
    part = pairwise.restricted(pixels)
    inside = matrix[np.ix_(pixels, pixels)]
    got = part.apply(np.eye(len(pixels), dtype=np.float32))
    np.testing.assert_allclose(got, inside, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(part.mass, inside.sum(1), rtol=1e-4)


@pytest.mark.parametrize("costs", [None, np.array([[0, 1, 2], [1, 0.5, 1], [2, 1, 0]])])
def test_pairs_of_a_labelling(pairwise, matrix, costs):
    x = np.random.default_rng(3).integers(0, 3, N)
    mu = 1.0 - np.eye(3) if costs is None else costs
    expected = (matrix * mu[x[:, None], x]).sum()
    assert pairwise.pairs_double(x, 3, costs) == pytest.approx(expected, rel=2e-5)


def test_ordered_sums(pairwise, matrix):
    """With levels as far apart as the scores, the order is that of the scores."""
    y = np.random.default_rng(4).integers(0, 4, (2, N)).astype(np.float32)
    extents = np.stack([y.min(1), y.max(1)], 1)
    sign = np.sign(y[:, :, None] - y[:, None, :])
    expected = (matrix * sign).sum(2)
    levels = Levels(4, 0.0, 1.0, False)
    got = pairwise.ordered(y, levels, extents=extents)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    double = pairwise.ordered_double(y, None, extents, levels)
    np.testing.assert_allclose(double, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(double.sum(1), 0, atol=1e-12 * float(matrix.sum()))
    np.testing.assert_allclose(
        pairwise.ordered(y, levels, "adaptive"), expected, rtol=1e-4, atol=1e-4
    )


def test_the_grid_is_for_spatial_kernels_alone():
    with pytest.raises(ValueError, match="filter='grid': works only for Spatial kernels"):
        build_filter(kernels("exact")[1], SHAPE, "grid", "symmetric", 1)
