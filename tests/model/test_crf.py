"""The model: energies against brute force and against the reference, and what it accepts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf import Bilateral, DenseCRF, Features, LabelTree, Spatial

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
UNARY = np.random.default_rng(1).random((3, 6, 7))
KERNELS = (Spatial(2, weight=1.5), Bilateral(IMAGE, 3, 60, weight=2.5))


def kernel_matrix(crf: DenseCRF) -> np.ndarray:
    return crf.pairwise.apply(np.eye(crf.n, dtype=np.float32)).astype(np.float64)


def brute_force_relaxed(crf: DenseCRF, y: np.ndarray) -> float:
    y = y.reshape(crf.n_labels, -1).astype(np.float64)
    differences = np.abs(y[:, :, None] - y[:, None, :]).sum(0)
    pairs = 0.5 * np.triu(kernel_matrix(crf) * differences, 1).sum()
    return float((crf.unary * y).sum() + pairs)


# --- energies --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["2_14_s_dc", "2_14_s_mf"])
def test_reference_energies_are_reproduced(shared_data, case):
    """Eleven labellings each, and their energies, of the paper's own program."""
    about = json.loads((shared_data / "reference" / "energies.json").read_text())[case]
    problem = np.load(shared_data / "msrc_paper" / f"{about['image']}.npz")
    sizes = about["parameters"]
    crf = DenseCRF(
        np.moveaxis(problem["unary"], -1, 0),
        [
            Spatial(sizes["spatial_std"], weight=2 * sizes["spatial_weight"]),
            Bilateral(
                problem["image"],
                sizes["bilateral_xy_std"],
                sizes["bilateral_color_std"],
                weight=2 * sizes["bilateral_weight"],
            ),
        ],
        normalization="none",
        filter="lattice",
    )
    labellings = np.load(shared_data / "reference" / f"{case}.npz")
    energies = {method: crf.energy(labellings[method]) for method in about["energies"]}
    assert len(energies) == 11
    assert energies == pytest.approx(about["energies"], rel=1e-5)


@pytest.mark.parametrize("engine", ["lattice", "exact", "auto"])
@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_energy_is_the_sum_over_unordered_pairs(engine, normalization):
    crf = DenseCRF(UNARY, KERNELS, normalization, engine)
    labels = np.random.default_rng(2).integers(0, 3, (6, 7))
    x = labels.ravel()
    pairs = np.triu(kernel_matrix(crf) * (x[:, None] != x[None, :]), 1).sum()
    expected = np.take_along_axis(UNARY, labels[None], 0).sum() + pairs
    assert crf.energy(labels) == pytest.approx(expected, rel=1e-5)
    assert crf.energy(x) == crf.energy(labels) == crf.energy(labels.astype(float))


def test_symmetric_normalisation_divides_by_the_root_of_both_masses():
    plain = DenseCRF(UNARY, [Spatial(2)], "none", "exact")
    normalised = DenseCRF(UNARY, [Spatial(2)], "symmetric", "exact")
    matrix = kernel_matrix(plain)
    mass = matrix.sum(1)
    np.testing.assert_allclose(
        kernel_matrix(normalised), matrix / np.sqrt(mass[:, None] * mass[None, :]), rtol=1e-5
    )


def test_exact_gaussian_of_a_hand_made_pair():
    crf = DenseCRF([[[0.0, 1.0]], [[1.0, 0.4]]], [Spatial(1.0, weight=2.0)], "none", "exact")
    assert crf.energy([[0, 1]]) == pytest.approx(0.4 + 2 * np.exp(-0.5))
    np.testing.assert_allclose(crf.constant_energies(), [1.0, 1.4], rtol=1e-6)


@pytest.mark.parametrize("engine", ["lattice", "exact"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_relaxed_energy_is_the_linear_programs_objective(engine, seed):
    crf = DenseCRF(UNARY, KERNELS, "symmetric", engine)
    y = np.random.default_rng(seed).dirichlet(np.ones(3), (6, 7)).transpose(2, 0, 1)
    assert crf.relaxed_energy(y) == pytest.approx(brute_force_relaxed(crf, y), rel=1e-5)


def test_relaxed_energy_equals_the_energy_at_vertices():
    crf = DenseCRF(UNARY, KERNELS)
    labels = np.random.default_rng(3).integers(0, 3, (6, 7))
    vertex = (np.arange(3)[:, None, None] == labels).astype(float)
    assert crf.relaxed_energy(vertex) == pytest.approx(crf.energy(labels), rel=1e-5)


def test_relaxed_energy_of_a_tree_metric_at_vertices():
    tree = LabelTree(3, [([0, 1], 1.0)], leaf=[0.4, 0.4, 0.6])
    crf = DenseCRF(UNARY, KERNELS, compatibility=tree)
    labels = np.random.default_rng(3).integers(0, 3, (6, 7))
    vertex = (np.arange(3)[:, None, None] == labels).astype(float)
    assert crf.relaxed_energy(vertex) == pytest.approx(crf.energy(labels), rel=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(3)), st.integers(0, 2**31))
def test_permuting_labels_changes_no_energy(permutation, seed):
    crf = DenseCRF(UNARY, KERNELS)
    permuted = DenseCRF(UNARY[list(permutation)], KERNELS)
    labels = np.random.default_rng(seed).integers(0, 3, (6, 7))
    renamed = np.argsort(permutation)[labels]
    assert permuted.energy(renamed) == pytest.approx(crf.energy(labels), rel=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31))
def test_permuting_pixels_changes_no_energy(seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(42)
    points = Bilateral(IMAGE, 3, 60).features((6, 7))
    unary, labels = UNARY.reshape(3, -1), rng.integers(0, 3, 42)
    here = DenseCRF(unary, [Features(points)]).energy(labels)
    there = DenseCRF(unary[:, order], [Features(points[order])]).energy(labels[order])
    assert there == pytest.approx(here, rel=1e-5)


@pytest.mark.parametrize("shape", [(30,), (5, 6), (3, 4, 5)])
def test_grids_of_one_to_three_axes(shape):
    rng = np.random.default_rng(0)
    unary, image = rng.random((2, *shape)), rng.random((*shape, 2))
    crf = DenseCRF(unary, [Spatial(1.5), Bilateral(image, 2, 0.2)])
    assert crf.shape == shape
    assert np.isfinite(crf.energy(unary.argmin(0)))
    grid = DenseCRF(unary, [Spatial(1.5)], "none", "grid")
    exact = DenseCRF(unary, [Spatial(1.5)], "none", "exact")
    labels = unary.argmin(0)
    assert grid.energy(labels) == pytest.approx(exact.energy(labels), rel=1e-3)


def test_a_model_without_kernels_is_its_unaries():
    crf = DenseCRF(UNARY)
    assert crf.energy(UNARY.argmin(0)) == pytest.approx(UNARY.min(0).sum(), rel=1e-6)


# --- what it accepts -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8", np.int16, np.uint8])
def test_unaries_of_any_dtype_and_layout(dtype):
    unary = (8 * UNARY).astype(dtype)
    expected = DenseCRF(unary.astype(np.float32), KERNELS).energy(np.zeros((6, 7), int))
    for layout in (unary, np.asfortranarray(unary), np.repeat(unary, 2, 2)[:, :, ::2]):
        assert DenseCRF(layout, KERNELS).energy(np.zeros((6, 7), int)) == expected


def test_the_users_unary_is_not_kept():
    unary = UNARY.astype(np.float32)
    crf = DenseCRF(unary, ignore=np.ones((6, 7), bool))
    assert (crf.unary == 0).all()
    assert (unary == UNARY.astype(np.float32)).all()


def test_ignored_pixels_have_no_unary():
    ignore = np.zeros((6, 7), bool)
    ignore[2, 3] = True
    crf = DenseCRF(UNARY, ignore=ignore)
    kept = UNARY.argmin(0)
    assert crf.energy(kept) == pytest.approx(np.where(ignore, 0, UNARY.min(0)).sum(), rel=1e-6)


def test_probabilities_become_their_negative_logarithm():
    p = np.random.default_rng(0).dirichlet(np.ones(3), (6, 7))
    crf = DenseCRF.from_probabilities(p, axis=-1)
    np.testing.assert_allclose(crf.unary, -np.log(p.reshape(-1, 3).T), rtol=1e-5)


def test_logits_become_the_negative_log_softmax():
    z = 5 * np.random.default_rng(0).standard_normal((3, 6, 7))
    crf = DenseCRF.from_logits(z)
    expected = np.log(np.exp(z).sum(0)) - z
    np.testing.assert_allclose(crf.unary, expected.reshape(3, -1), rtol=1e-4, atol=1e-5)
    assert DenseCRF.from_logits(1e30 * np.sign(z)).unary.max() <= np.float32(2.1e30)


def test_coarse_logits_are_upsampled_to_the_image():
    coarse = np.random.default_rng(0).standard_normal((3, 2, 2))
    crf = DenseCRF.from_logits(coarse, KERNELS)
    assert crf.shape == (6, 7)
    assert DenseCRF.from_logits(coarse, shape=(4, 4)).shape == (4, 4)
    assert DenseCRF.from_logits(np.zeros((2, 2, 2, 2)), shape=(4, 5, 6)).shape == (4, 5, 6)


def test_labels_with_void_pixels():
    labels = np.array([[0, 1, 255], [2, 2, 1]])
    crf = DenseCRF.from_labels(labels, 3, confidence=0.8)
    unary = crf.unary.reshape(3, 2, 3)
    assert (unary[:, 0, 2] == 0).all()
    assert unary[0, 0, 0] == pytest.approx(-np.log(0.8))
    assert unary[1, 0, 0] == pytest.approx(-np.log(0.1))


def test_model_describes_itself():
    assert repr(DenseCRF(UNARY, KERNELS)) == (
        "DenseCRF(3 labels, 6 × 7 pixels, Spatial, Bilateral, symmetric)"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DenseCRF(UNARY[:1]), "unary: .* 1 label"),
        (lambda: DenseCRF(UNARY[0, 0]), "unary: shape"),
        (lambda: DenseCRF(UNARY[:, :0]), "unary: .*no pixels"),
        (lambda: DenseCRF(np.where(UNARY > 0.5, np.nan, 0)), "unary: .*not finite"),
        (lambda: DenseCRF(UNARY * 1e300), "unary: .*beyond the range of float32"),
        (lambda: DenseCRF(UNARY.astype(object)), "unary: dtype object"),
        (lambda: DenseCRF(np.ma.masked_greater(UNARY, 0.5)), "unary: a masked array"),
        (lambda: DenseCRF(UNARY, KERNELS[0]), "kernels=.*list"),
        (lambda: DenseCRF(UNARY, None), "kernels=None"),
        (lambda: DenseCRF(UNARY, [Spatial]), "kernels: .*not a kernel"),
        (lambda: DenseCRF(UNARY, [IMAGE]), "(?s)kernels: .*not a kernel"),
        (lambda: DenseCRF(UNARY[:, :, :5], KERNELS), "image: shape"),
        (lambda: DenseCRF(UNARY, [Spatial(1e-10)]), "sigma=1e-10"),
        (lambda: DenseCRF(UNARY, KERNELS, "both"), "normalization='both'"),
        (lambda: DenseCRF(UNARY, KERNELS, filter="latice"), "filter=.*'lattice'"),
        (lambda: DenseCRF(UNARY, KERNELS, filter="grid"), "only for Spatial kernels"),
        (lambda: DenseCRF(UNARY, ignore=np.ones(3)), "ignore: shape"),
        (lambda: DenseCRF(UNARY).energy(np.zeros((7, 6), int)), "labels: shape"),
        (lambda: DenseCRF(UNARY).energy(np.full((6, 7), 3)), "labels: value 3"),
        (lambda: DenseCRF(UNARY).energy(np.full((6, 7), 0.5)), "labels: not whole"),
        (lambda: DenseCRF(UNARY).relaxed_energy(UNARY[:2]), "y: shape"),
        (lambda: DenseCRF.from_probabilities(UNARY), "probabilities: they add up"),
        (lambda: DenseCRF.from_probabilities(UNARY * 9), "probabilities: values from"),
        (lambda: DenseCRF.from_probabilities(UNARY, clip="x"), "clip='x'"),
        (lambda: DenseCRF.from_probabilities(UNARY, axis=3), "axis=3"),
        (lambda: DenseCRF.from_logits(UNARY, axis="labels"), "axis='labels'"),
        (lambda: DenseCRF.from_logits(UNARY, shape=(0, 4)), "shape="),
        (lambda: DenseCRF.from_logits(UNARY, shape=(4,)), "logits: 2 axes of pixels"),
        (lambda: DenseCRF.from_logits([[1], [2, 3]]), "logits: not an array"),
        (lambda: DenseCRF.from_labels([[0, 9]], 3), "labels: value 9"),
        (lambda: DenseCRF.from_labels([[0, 1]], 1), "n_labels=1"),
        (lambda: DenseCRF.from_labels([[0, 1]], 2, confidence=1), "confidence=1"),
        (lambda: DenseCRF.from_labels([[0, 1]], 2, void="none"), "void='none'"),
        (lambda: DenseCRF.from_labels([[0, 1e30]], 2), "labels: not whole"),
    ],
)
def test_bad_input_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_read_only_unaries_are_not_copied():
    unary = np.random.default_rng(0).random((2, 4, 5), dtype=np.float32)
    crf = DenseCRF(unary, [Spatial(1)])
    assert not np.shares_memory(crf.unary, unary)  # the caller may change it
    unary.setflags(write=False)
    crf = DenseCRF(unary, [Spatial(1)])
    assert np.shares_memory(crf.unary, unary)
    assert np.isfinite(crf.solve("lp").energy)
    ignored = DenseCRF(unary, [Spatial(1)], ignore=np.ones((4, 5), bool))
    assert not ignored.unary.any()
    assert unary.all()


def test_other_unaries_share_the_filters():
    rng = np.random.default_rng(0)
    kernels = [Spatial(sigma=2, weight=1.5)]
    crf = DenseCRF(rng.random((3, 4, 5)), kernels)
    unary = rng.random((2, 4, 5))
    other = crf.with_unary(unary)
    assert other.pairwise is crf.pairwise
    labels = rng.integers(0, 2, (4, 5))
    assert other.energy(labels) == DenseCRF(unary, kernels).energy(labels)
    with pytest.raises(ValueError, match="grid"):
        crf.with_unary(rng.random((2, 5, 4)))


def test_a_kernel_without_weight_is_not_built():
    rng = np.random.default_rng(0)
    unary, image = rng.random((3, 6, 7)), rng.integers(0, 256, (6, 7, 3)).astype(np.uint8)
    bilateral = Bilateral(image, 3, 60, 5)
    both = DenseCRF(unary, [Spatial(3, 0), bilateral])
    labels = rng.integers(0, 3, (6, 7))
    assert len(both.pairwise.parts) == 1
    assert both.energy(labels) == DenseCRF(unary, [bilateral]).energy(labels)
    without = DenseCRF(unary, [Spatial(3, 0)]).solve("lp")
    assert (without.labels == unary.argmin(0)).all()
    assert without.gap < 1e-9
