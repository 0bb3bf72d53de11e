"""What the facade accepts beyond the original, refuses, and adds."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import densecrf
import densecrf.drop_in.pydensecrf.densecrf as dcrf
from densecrf.drop_in.pydensecrf import utils

H, W, L = 9, 14, 3
RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (H, W, 3), dtype=np.uint8)
UNARY = RNG.random((L, H * W)).astype(np.float32)


def model(unary=UNARY, **bilateral):
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(unary)
    d.addPairwiseGaussian(sxy=3, compat=3)
    d.addPairwiseBilateral(**{"sxy": 20, "srgb": 13, "rgbim": IMAGE, "compat": 10, **bilateral})
    return d


# --- accepted beyond the original ------------------------------------------------


@pytest.mark.parametrize(
    "unary",
    [
        UNARY.astype(np.float64),
        np.asfortranarray(UNARY),
        np.repeat(UNARY, 2, axis=1)[:, ::2],
        UNARY.reshape(L, H, W),
        UNARY.tolist(),
    ],
    ids=["float64", "fortran", "strided", "three axes", "list"],
)
def test_any_dtype_strides_and_grid_shape_of_the_unary(unary):
    np.testing.assert_array_equal(model(unary).inference(3), model().inference(3))


@pytest.mark.parametrize(
    "image",
    [
        IMAGE.astype(np.float32),
        np.asfortranarray(IMAGE),
        IMAGE[:, :, ::-1][:, :, ::-1],
        IMAGE.astype(np.int64),
    ],
    ids=["float32", "fortran", "negative strides", "int64"],
)
def test_any_dtype_and_strides_of_the_image(image):
    np.testing.assert_array_equal(model(rgbim=image).inference(3), model().inference(3))


def test_grey_and_many_channels():
    grey = model(rgbim=IMAGE[..., 0]).inference(2)
    np.testing.assert_array_equal(grey, model(rgbim=IMAGE[..., :1], srgb=(13,)).inference(2))
    assert model(rgbim=np.concatenate([IMAGE, IMAGE], axis=2)).inference(2).shape == (L, H * W)


def test_lists_as_compatibility():
    costs = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    as_list = model(compat=costs).inference(2)
    np.testing.assert_array_equal(as_list, model(compat=np.array(costs, "f4")).inference(2))


def test_double_compatibility_is_refused_as_by_the_original():
    with pytest.raises(ValueError, match=r"compat: a float64 array .*astype"):
        model(compat=np.ones(L))


def test_solve_with_unusual_standard_deviations():
    """The model's own kernels refuse them; its features are as good."""
    with pytest.warns(UserWarning, match="mirrors"):
        mirrored = model(sxy=(20, -20))
    assert mirrored.solve("lp").gap < 1e-3
    assert mirrored.solve("mf5").energy == pytest.approx(model().solve("mf5").energy, rel=0.05)


def test_images_from_zero_to_one_are_warned_of():
    with pytest.warns(UserWarning, match="rgbim: values .* give 255 . rgbim, .* srgb") as caught:
        model(rgbim=IMAGE / 255)
    assert [each.filename for each in caught] == [__file__]


def test_wrong_unary_objects_are_refused():
    d = dcrf.DenseCRF2D(W, H, L)
    for wrong in (None, dcrf.Unary(), UNARY):
        with pytest.raises(ValueError, match="give ConstUnary"):
            d.setUnary(wrong)
    with pytest.raises(ValueError, match=r"f: shape \(3, 7\)"):
        dcrf.LogisticUnary(np.zeros((L, 4)), np.zeros((3, 7)))


@pytest.mark.parametrize("size", [(14.5, 9, 3), (14, 9, float("nan"))])
def test_fractions_of_pixels_are_refused(size):
    with pytest.raises(ValueError, match="whole number"):
        dcrf.DenseCRF2D(*size)


def test_matrices_of_the_eigen_module_are_arrays():
    from densecrf.drop_in.pydensecrf import eigen

    assert isinstance(model().inference(1), eigen.MatrixXf)
    np.testing.assert_array_equal(eigen.matrixXf(UNARY), UNARY)
    with pytest.raises(ValueError, match=r"arr: float64 .* arr\.astype\(numpy\.float32\)"):
        eigen.vectorXf(np.ones(3))


def test_later_changes_of_the_users_arrays_do_not_matter():
    image, unary = IMAGE.copy(), UNARY.copy()
    d = model(unary, rgbim=image)
    image[:], unary[:] = 0, 0
    np.testing.assert_array_equal(d.inference(2), model().inference(2))
    assert d.solve("mf").energy == model().solve("mf").energy


def test_forbidden_labels_stay_forbidden():
    unary = UNARY.copy()
    unary[0, 5] = np.inf
    q = model(unary).inference(5)
    assert q[0, 5] == 0
    assert np.isfinite(q).all()
    assert np.isfinite(model(unary).klDivergence(q))


# --- Q ------------------------------------------------------------------------------------------


def test_q_is_an_array_in_every_way():
    q = model().inference(5)
    assert q.shape == (L, H * W)
    assert np.array(q).dtype == np.float32
    np.testing.assert_allclose(np.sum(q, axis=0), 1, rtol=1e-5)
    assert np.argmax(q, axis=0).reshape((H, W)).shape == (H, W)


def test_steps_make_the_inference():
    d = model()
    q, first, second = d.startInference()
    np.testing.assert_allclose(np.sum(q, axis=0), 1, rtol=1e-5)
    for _ in range(4):
        d.stepInference(q, first, second)
    np.testing.assert_array_equal(q, d.inference(4))
    np.testing.assert_array_equal(d.inference(0), d.startInference()[0])


def test_starting_marginals_can_be_overwritten():
    """Warm start: pydensecrf's users ask for it, and Q is an ordinary array here."""
    d = model()
    q, first, second = d.startInference()
    q[:] = d.inference(4)
    d.stepInference(q, first, second)
    np.testing.assert_array_equal(q, d.inference(5))


# --- solve ------------------------------------------------


def test_solve_minimises_the_declared_energy():
    result = model().solve("mf")
    same = densecrf.DenseCRF(
        UNARY.reshape(L, H, W),
        [densecrf.Spatial(3, 3), densecrf.Bilateral(IMAGE, 20, 13, 10)],
    )
    assert result.labels.shape == (H, W)
    assert result.energy == pytest.approx(same.energy(result.labels))


def test_solve_of_points_without_a_grid():
    d = dcrf.DenseCRF(H * W, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseEnergy(utils.create_pairwise_gaussian((3, 3), (H, W)), compat=3)
    assert d.solve("mf").labels.shape == (H * W,)


def test_solve_keeps_the_sign_of_matrices_and_negative_weights():
    costs = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]], np.float32)
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseGaussian(sxy=3, compat=costs)
    np.testing.assert_array_equal(d.model().compatibility, costs)
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseGaussian(sxy=3, compat=-2)
    np.testing.assert_array_equal(d.model().compatibility, 2 * np.eye(L))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalization": dcrf.NORMALIZE_AFTER}, "needs one symmetric energy"),
        ({"normalization": dcrf.NO_NORMALIZATION}, "NORMALIZE_SYMMETRIC.*to all kernels"),
        ({"compat": np.eye(L, dtype="f4")}, "one label compatibility for all kernels"),
        ({"compat": np.array(range(9), "f4").reshape(3, 3)}, "multiple of the same matrix"),
    ],
)
def test_solve_refuses_what_is_no_single_energy(options, message):
    with pytest.raises(ValueError, match=message):
        model(**options).solve("mf")


@pytest.mark.parametrize("method", ["lp", "mf", "qp"])
def test_solve_forbids_labels_of_infinite_energy(method):
    unary = UNARY.copy()
    forbidden = np.random.default_rng(1).random(unary.shape) < 0.5
    forbidden[:, forbidden.all(0)] = False
    unary[forbidden] = np.inf
    labels = model(unary).solve(method).labels.ravel()
    assert not forbidden[labels, np.arange(H * W)].any()


def test_solve_finds_the_best_labelling_without_forbidden_labels():
    """All labellings of six pixels, under attraction that is stronger than any unary."""
    unary = np.array([[0, 0, np.inf, 0, 0, 3], [np.inf, 1, 0, 1, np.inf, 0]], np.float32)
    d = dcrf.DenseCRF(6, 2)
    d.setUnaryEnergy(unary)
    d.addPairwiseEnergy(np.linspace(0, 1, 6, dtype="f4")[None], 9, normalization=0)
    result = d.solve("lp", gap=0)
    crf = d.model()
    allowed = [
        x for x in product(range(2), repeat=6) if np.isfinite(unary[list(x), range(6)]).all()
    ]
    best = min(allowed, key=lambda x: crf.energy(np.array(x)))
    np.testing.assert_array_equal(result.labels, best)
    assert result.lower_bound <= result.energy < 1e3  # what is forbidden is not out of proportion


POTTS = 1 - np.eye(L, dtype=np.float32)
LINE = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]], np.float32)  # the distance of the labels


@pytest.mark.parametrize("costs", [2 * POTTS, -2 * np.eye(L, dtype=np.float32), 2 * POTTS - 5])
def test_solve_takes_multiples_of_potts_as_weights(costs):
    crf = model(compat=costs).model()
    assert crf.compatibility is None
    assert [kernel.weight for kernel in crf.kernels] == pytest.approx([3, 2])
    assert (
        model(compat=costs).solve("lp").labels.tolist()
        == model(compat=2).solve("lp").labels.tolist()
    )


def test_solve_takes_multiples_of_a_tree_metric_as_weights():
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseGaussian(sxy=3, compat=LINE)
    d.addPairwiseGaussian(sxy=9, compat=3 * LINE)
    crf = d.model()
    np.testing.assert_allclose(crf.tree.matrix(), 3 * LINE, rtol=1e-6)
    assert [kernel.weight for kernel in crf.kernels] == pytest.approx([1 / 3, 1])
    assert d.solve("lp").gap < 1e-3


def test_solve_keeps_small_costs():
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseGaussian(sxy=3, compat=np.float32(1e-7) * LINE)
    np.testing.assert_allclose(d.model().tree.matrix(), 1e-7 * LINE, rtol=1e-5)


def test_solve_of_one_label_says_what_is_wrong():
    d = dcrf.DenseCRF2D(W, H, 1)
    d.setUnaryEnergy(UNARY[:1])
    d.addPairwiseGaussian(sxy=3, compat=3)
    np.testing.assert_array_equal(d.inference(2), 1)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        d.solve("lp")


def test_solve_takes_multiples_of_any_matrix_as_weights():
    d = dcrf.DenseCRF2D(W, H, L)
    d.setUnaryEnergy(UNARY)
    d.addPairwiseGaussian(sxy=3, compat=LINE**2)
    d.addPairwiseGaussian(sxy=9, compat=2 * LINE**2)
    crf = d.model()
    np.testing.assert_array_equal(crf.compatibility, 2 * LINE**2)
    assert [kernel.weight for kernel in crf.kernels] == pytest.approx([0.5, 1])


# --- refused, where the original crashes or computes nonsense ---------------------------


@pytest.mark.parametrize("sigma", [0, 1e-8, float("nan")])
@pytest.mark.parametrize("argument", ["sxy", "srgb"])
def test_tiny_and_senseless_sigmas_are_errors(argument, sigma):
    with pytest.raises(ValueError, match=f"^{argument}="):
        model(**{argument: sigma})


def test_message_of_a_tiny_sigma_names_the_smallest_that_works():
    with pytest.raises(ValueError, match=r"sxy=1e-08: .* give \S+ or greater"):
        dcrf.DenseCRF2D(W, H, L).addPairwiseGaussian(sxy=1e-8, compat=3)


def test_tiny_sigma_in_features():
    features = utils.create_pairwise_gaussian(1e-8, (H, W))
    with pytest.raises(ValueError, match=r"features: a value of .* standard deviations"):
        dcrf.DenseCRF(H * W, L).addPairwiseEnergy(features, compat=3)


@pytest.mark.parametrize(
    ("unary", "message"),
    [
        (UNARY.T, r"transpose it \(u.T\)"),
        (UNARY.reshape(L, H, W).transpose(1, 2, 0), "bring the labels to the front"),
        (UNARY.reshape(L, W, H), "takes the width first"),
        (UNARY[:2], "it has 2 labels, the model was made for 3"),
        (UNARY[:, :7], r"u: shape \(3, 7\); this model needs \(3, 126\)"),
        (np.full_like(UNARY, np.nan), "u: 378 of 378 values are not finite"),
        (np.full_like(UNARY, -np.inf), "values are not finite"),
        (np.full_like(UNARY, np.inf), "every label of pixel 0 costs infinity"),
        (UNARY.astype(complex), "dtype complex128 holds no real numbers"),
    ],
)
def test_wrong_unaries_say_what_to_do(unary, message):
    with pytest.raises(ValueError, match=message):
        dcrf.DenseCRF2D(W, H, L).setUnaryEnergy(unary)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rgbim": IMAGE.transpose(1, 0, 2)}, "DenseCRF2D.* takes the width first"),
        ({"rgbim": IMAGE[:5]}, r"rgbim: shape \(5, 14, 3\); this model needs \(9, 14, channels\)"),
        ({"rgbim": np.full((H, W, 3), np.nan)}, "rgbim: .* values are not finite"),
        ({"srgb": (1, 2)}, "srgb=.*one for each of the 3 channels"),
        ({"sxy": (1,)}, "sxy=.*one for each of the 2 axes"),
        ({"compat": np.ones(4, "f4")}, r"compat: shape \(4,\); give a number, \(3,\) or \(3, 3\)"),
        ({"compat": np.nan}, "compat: .* not finite"),
        ({"kernel": 9}, "kernel=9: must be one of CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL"),
        ({"normalization": 9}, "normalization=9: must be one of NO_NORMALIZATION"),
    ],
)
def test_wrong_kernels_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_wrong_features_say_what_to_do():
    d = dcrf.DenseCRF(H * W, L)
    with pytest.raises(ValueError, match="one column per pixel; transpose it"):
        d.addPairwiseEnergy(np.zeros((H * W, 2)), compat=3)


@pytest.mark.parametrize(("size", "message"), [((0, 3), "nvar=0"), ((3, 0), "nlabels=0")])
def test_empty_models_are_refused(size, message):
    with pytest.raises(ValueError, match=message):
        dcrf.DenseCRF(*size)


def test_one_label_gives_certainty():
    d = dcrf.DenseCRF(4, 1)
    d.addPairwiseEnergy(np.zeros((1, 4)), compat=3)
    np.testing.assert_array_equal(d.inference(3), np.ones((1, 4)))


def test_marginals_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"Q: shape \(3, 2\); give \(3, 126\)"):
        model().klDivergence(np.zeros((3, 2)))


# --- utils ------------------------------------------------


def test_labels_of_any_dtype():
    expected = utils.unary_from_labels(np.array([0, 1, 2]), 2, 0.7)
    for dtype in (np.uint8, np.int16, float):
        np.testing.assert_array_equal(
            utils.unary_from_labels(np.array([0, 1, 2], dtype), 2, 0.7), expected
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: utils.unary_from_labels([0, 3], 2, 0.7), "must not count the unsure label 0"),
        (lambda: utils.unary_from_labels([1, 2], 2, 0.7, zero_unsure=False), "count from 1"),
        (lambda: utils.unary_from_labels([1, 255], 2, 0.7), r"labels\[labels == 255\] = 0"),
        (lambda: utils.unary_from_labels([1, 255], 2, 0.7, False), r"\(labels \+ 1\) % 256"),
        (lambda: utils.unary_from_labels([1, -2], 2, 0.7), "value -2 is not one of"),
        (lambda: utils.unary_from_labels([0.5], 2, 0.7), "not whole numbers"),
        (lambda: utils.unary_from_labels([1], 2, 1.0), "gt_prob=1.0: must be .* less than 1"),
        (lambda: utils.unary_from_labels([1], 0, 0.7), "n_labels=0: must be 1 or greater"),
        (lambda: utils.unary_from_softmax([[np.nan], [1]]), "sm: 1 of 2 values are not finite"),
        (lambda: utils.unary_from_softmax([[0.0], [1]], clip=np.nan), "clip=nan"),
        (lambda: utils.unary_from_softmax([[0.0], [1]], scale=0), "scale=0"),
        (lambda: utils.unary_from_softmax(0.5), "give \\(labels"),
        (lambda: utils.create_pairwise_gaussian((0, 1), (2, 2)), r"sdims\[0\]"),
        (lambda: utils.create_pairwise_gaussian((1,), (2, 2)), "one for each of the 2 axes"),
        (
            lambda: utils.create_pairwise_bilateral((1, 1), (1,) * 3, IMAGE),
            "chdim names their axis",
        ),
        (lambda: utils.create_pairwise_bilateral((1, 1), 1, IMAGE, 5), "chdim=5"),
        (lambda: utils.create_pairwise_bilateral((1, 1), (1,) * 4, IMAGE, 2), "chdim names their"),
    ],
)
def test_utils_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_zero_probabilities_are_clipped():
    unary = utils.unary_from_softmax([[0.0], [1.0]])
    assert np.isfinite(unary).all()


def test_logits_in_place_of_probabilities_are_noticed():
    with pytest.warns(UserWarning, match="apply the softmax first"):
        utils.unary_from_softmax([[3.0, -2.0], [1.0, 0.5]])


def test_deprecated_names_warn_and_work():
    with pytest.warns(DeprecationWarning, match="use unary_from_labels"):
        unary = utils.compute_unary([0, 1, 2], 2, GT_PROB=0.7)
    np.testing.assert_array_equal(unary, utils.unary_from_labels([0, 1, 2], 2, 0.7))
    with pytest.warns(DeprecationWarning, match="use unary_from_softmax"):
        unary = utils.softmax_to_unary([[0.0, 0.5], [1.0, 0.5]])
    assert np.isposinf(unary[0, 0])


# --- install ------------------------------------------------


def run(code):
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip(), done.stderr


def test_install_takes_over_the_old_names():
    out, _ = run(
        "from densecrf.drop_in.pydensecrf import install; install(); install()\n"
        "import pydensecrf.densecrf as dcrf\n"
        "from pydensecrf.utils import unary_from_softmax\n"
        "from pydensecrf import densecrf as other\n"
        "print(dcrf.__name__, unary_from_softmax.__module__, other is dcrf)"
    )
    assert out == "densecrf.drop_in.pydensecrf.densecrf densecrf.drop_in.pydensecrf.utils True"


def test_install_after_the_original_warns():
    _, err = run(
        "import sys, types, densecrf\n"
        "sys.modules['pydensecrf'] = types.ModuleType('pydensecrf')\n"
        "densecrf.drop_in.pydensecrf.install()"
    )
    assert "pydensecrf was imported before" in err


def test_star_and_attribute_access():
    assert densecrf.drop_in.pydensecrf.densecrf is dcrf
    assert set(dcrf.__all__) <= set(dir(dcrf))
