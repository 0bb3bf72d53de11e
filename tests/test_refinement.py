"""One call: every layout that can be understood, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import densecrf
from densecrf.presets import PRESETS, get_preset
from densecrf.refinement import FORBIDDEN, build, color_range

H, W, L = 12, 17, 4
RNG = np.random.default_rng(1)
IMAGE = RNG.integers(0, 256, (H, W, 3), dtype=np.uint8)
LOGITS = RNG.normal(0, 2, (L, H, W))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(0)
HARD = P.argmax(0)
UNARY = build(IMAGE, P).unary


def unary(*args, **options):
    return build(*args, **options).unary


# --- layouts ------------------------------------------------


@pytest.mark.parametrize(
    "scores",
    [
        P,
        P.astype(np.float32),
        np.asfortranarray(P),
        np.moveaxis(P, 0, -1),
        P[None],
        np.moveaxis(P, 0, -1)[None],
        LOGITS,
        np.moveaxis(LOGITS, 0, -1),
        LOGITS[None],
        np.log(P),
        -np.log(P),
    ],
    ids=[
        "first",
        "float32",
        "fortran",
        "last",
        "batch of one",
        "batch of one, last",
        "logits",
        "logits last",
        "logits in a batch",
        "log-probabilities",
        "energies",
    ],
)
@pytest.mark.parametrize("image", [IMAGE, np.moveaxis(IMAGE, -1, 0)], ids=["HWC", "CHW"])
def test_every_clear_layout_is_the_same_problem(image, scores):
    np.testing.assert_allclose(unary(image, scores), UNARY, rtol=1e-3, atol=1e-4)


def test_the_image_may_be_grey():
    assert build(IMAGE[..., 0], P).kernels[1].image.shape == (H, W)
    assert build(IMAGE[..., :1], P).kernels[1].image.shape == (H, W, 1)


def test_volumes():
    volume = RNG.integers(0, 256, (5, 6, 7), dtype=np.uint8)
    crf = build(volume, RNG.dirichlet(np.ones(3), (5, 6, 7)))
    assert (crf.n_labels, crf.shape) == (3, (5, 6, 7))


def test_usual_images_are_preferred_where_shapes_leave_two_readings():
    """Nobody has an image of 40 channels and as many labels; many have three of both."""
    volume = RNG.integers(0, 256, (5, 6, 7), dtype=np.uint8)
    assert build(volume, RNG.random((5, 6, 7))).shape == (5, 6, 7)
    assert build(IMAGE, np.moveaxis(LOGITS[:3], 0, -1)).labels == 3
    assert build(np.moveaxis(IMAGE, -1, 0), LOGITS[:3]).shape == (H, W)


def test_whole_numbers_on_colour_images_of_their_shape_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways: one label \(kind='labels'\).*; or 3 labels on"):
        build(IMAGE, IMAGE % 3)


def test_integer_labels():
    crf = build(IMAGE, HARD.astype(np.uint8), n_labels=L, confidence=0.9)
    np.testing.assert_allclose(np.exp(-crf.unary).max(0), 0.9, rtol=1e-5)
    np.testing.assert_array_equal(crf.unary.argmin(0), HARD.ravel())
    np.testing.assert_array_equal(unary(IMAGE, HARD[None], confidence=0.9), crf.unary)


def test_one_hot_labels_are_probabilities():
    np.testing.assert_array_equal(
        unary(IMAGE, np.eye(L, dtype=np.uint8)[HARD]).argmin(0), HARD.ravel()
    )


def test_a_map_of_the_foreground():
    crf = build(IMAGE, P[1])
    assert crf.n_labels == 2
    np.testing.assert_allclose(crf.unary[1], -np.log(P[1]).ravel(), rtol=1e-4)
    np.testing.assert_array_equal(unary(IMAGE, P[1:2]), crf.unary)
    logits = build(IMAGE, LOGITS[1], kind="logits")
    np.testing.assert_allclose(logits.unary[0] - logits.unary[1], LOGITS[1].ravel(), atol=1e-4)


def test_low_resolution_logits_need_the_axis_by_name():
    small = RNG.normal(size=(H // 4, W // 4, L))
    with pytest.raises(ValueError, match="is resized when you name its label axis"):
        build(IMAGE, small)
    assert build(IMAGE, small, axis=2).shape == (H, W)
    assert build(IMAGE, np.moveaxis(small, 2, 0)[None], axis=1).labels == L


SQUARE = RNG.normal(size=(3, 3, 3))


def test_sums_settle_what_shapes_leave_open():
    p = np.exp(SQUARE) / np.exp(SQUARE).sum(0)
    image = IMAGE[:3, :3, :2]
    np.testing.assert_allclose(unary(image, p), -np.log(p).reshape(3, -1), rtol=1e-4)
    np.testing.assert_allclose(
        unary(image, np.moveaxis(p, 0, -1)), -np.log(p).reshape(3, -1), rtol=1e-4
    )


# --- refused, with both readings ------------------------------------------------


def test_two_label_axes_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways.*labels on axis=0.*; or .*labels on axis=2"):
        build(IMAGE[:3, :3, :2], SQUARE)
    assert build(IMAGE[:3, :3, :2], SQUARE, axis=0).labels == 3


def test_scores_between_logits_and_energies_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways: logits, the higher.*or energies, the lower"):
        build(IMAGE, np.abs(LOGITS))
    by_kind = [unary(IMAGE, np.abs(LOGITS), kind=kind) for kind in ("logits", "energies")]
    assert (by_kind[0].argmin(0) == by_kind[1].argmax(0)).all()


def test_sigmoids_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"do not add up to 1.*or logits \(kind='logits'\)"):
        build(IMAGE, 1 / (1 + np.exp(-LOGITS)))


def test_a_whole_float_map_is_refused_with_both_readings():
    mask = (P[1] > 0.5).astype(float)
    with pytest.raises(ValueError, match=r"labels \(kind='labels'\).*certain foreground"):
        build(IMAGE, mask)
    assert build(IMAGE, mask, kind="labels").labels == 2
    assert build(IMAGE, mask, kind="probabilities").labels == 2


def test_a_map_of_logits_is_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways: logits of the foreground \(kind='logits'\)"):
        build(IMAGE, LOGITS[1])


# --- refused, with what to do ------------------------------------------------


@pytest.mark.parametrize(
    ("image", "scores", "message"),
    [
        (np.concatenate([P, P]), IMAGE, "the arguments look swapped, the image comes first"),
        (P, IMAGE, r"whole numbers .* 2 ways: .*\(the image comes first\)"),
        (IMAGE, P.transpose(0, 2, 1), "height and width look swapped"),
        (IMAGE, P[:, :5], r"probabilities: shape \(4, 5, 17\) does not fit an image of shape"),
        (IMAGE, np.where(P > 0.9, np.nan, P), "probabilities: .* not finite, the first is nan at"),
        (np.full((H, W), np.nan), P, "image: .* not finite"),
        (IMAGE, P[:, :0], "holds no values"),
        (IMAGE, "cat.png", "probabilities: dtype <U7 holds no real numbers"),
    ],
)
def test_wrong_arrays_say_what_to_do(image, scores, message):
    with pytest.raises(ValueError, match=message):
        build(image, scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "logit"}, "kind='logit'.*Did you mean 'logits'"),
        ({"axis": 5}, r"axis=5: the array of shape \(4, 12, 17\) has no such axis"),
        ({"preset": "deeplap"}, "preset='deeplap'.*Did you mean 'deeplab'"),
        ({"n_labels": 7}, "n_labels=7: the array holds 4 labels"),
        ({"seeds": np.zeros((2, 2), int)}, r"seeds: shape \(2, 2\) for \(12, 17\) pixels"),
        ({"seeds": np.full((H, W), 9)}, "seeds: value 9 is neither a label 0 … 3 nor -1 or 255"),
        ({"seeds": np.ones((H, W), bool)}, "seeds: a mask says 'foreground', but there are 4"),
        ({"image_range": (3, 3)}, "image_range=.*black lower"),
        ({"scale_sigmas": -2.0}, "scale_sigmas=-2.0"),
        ({"ignore": np.ones((2, 2), bool)}, "ignore: shape"),
        ({"preset": replace(PRESETS["default"], sigma_xy=1e-8)}, "sigma_xy=1e-08.*or greater"),
    ],
)
def test_wrong_options_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        build(IMAGE, P, **options).energy(HARD)


def test_unknown_method_names_the_closest():
    with pytest.raises(ValueError, match=r"method='mff': must be one of .*Did you mean 'mf'"):
        densecrf.refine(IMAGE, P, method="mff")


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.zeros((H, W), int), {}, "only label 0 occurs; give n_labels="),
        (np.full((H, W), 255), {}, "every pixel is void"),
        (HARD, {"n_labels": 2}, "value . is neither a label 0 … 1"),
        (HARD - 1, {}, "value -1 is neither a label"),
        (HARD, {"confidence": 1.0}, "confidence=1.0"),
    ],
)
def test_wrong_labels_say_what_to_do(labels, options, message):
    with pytest.raises(ValueError, match=message):
        build(IMAGE, labels, **options)


# --- void, unsure, seeds ------------------------------------------------


def test_void_pixels_have_no_unary():
    labels = HARD.astype(np.uint8)
    labels[3:5] = 255
    crf = build(IMAGE, labels, n_labels=L)
    void = (labels == 255).ravel()
    assert (crf.unary[:, void] == 0).all()
    assert (crf.unary[:, ~void] > 0).all()


def test_label_zero_as_unsure_is_never_an_answer():
    scribbles = np.zeros((H, W), int)
    scribbles[2:4, 2:8], scribbles[8:10, 9:15] = 1, 2
    result = densecrf.refine(IMAGE, scribbles, void=0, method="mf")
    assert set(np.unique(result.labels)) <= {1, 2}


def test_ignored_pixels_have_no_unary():
    mask = np.zeros((H, W), bool)
    mask[4] = True
    assert (build(IMAGE, P, ignore=mask).unary[:, mask.ravel()] == 0).all()


def test_seeds_keep_their_labels():
    seeds = np.full((H, W), -1)
    seeds[5, 5:9] = (HARD[5, 5:9] + 1) % L
    crf = build(IMAGE, P, seeds=seeds)
    assert (np.sort(crf.unary.reshape(L, H, W)[:, 5, 6])[1:] == FORBIDDEN).all()
    result = densecrf.refine(IMAGE, P, seeds=seeds, method="mf")
    np.testing.assert_array_equal(result.labels[5, 5:9], seeds[5, 5:9])


def test_a_mask_of_seeds_is_foreground():
    mask = np.zeros((H, W), bool)
    mask[5, 5] = True
    assert densecrf.refine(IMAGE, P[1] * 0.5, seeds=mask, method="mf").labels[5, 5] == 1


# --- colours and sizes ------------------------------------------------


def test_the_range_of_colours():
    white = np.array([[0.0, 255.0]])
    np.testing.assert_allclose(color_range(white / 255, None), white)
    np.testing.assert_allclose(color_range((white * 257).astype(np.uint16), None), white)
    np.testing.assert_allclose(color_range(np.array([[False, True]]), None), white)
    np.testing.assert_allclose(color_range(np.array([[-1000, 400]]), (-1000, 400)), white)
    np.testing.assert_array_equal(color_range(IMAGE, None), IMAGE)


def test_a_standardised_image_is_refused():
    with pytest.raises(ValueError, match=r"values from -2 to 3; colour standard deviations"):
        build(np.array([[-2.0, 3.0]]), np.full((2, 1, 2), 0.5))


def test_sigmas_scale_with_the_image():
    large = np.zeros((750, 1000), np.uint8)
    p = np.full((2, 750, 1000), 0.5)
    spatial, bilateral = build(large, p, scale_sigmas=True, preset="deeplab").kernels
    assert (spatial.sigma, bilateral.sigma_xy, bilateral.sigma_color) == (2, 134, 3)
    spatial, bilateral = build(large, p, scale_sigmas=0.5, preset="deeplab").kernels
    assert (spatial.sigma, bilateral.sigma_xy) == (0.5, 33.5)


def test_presets_are_those_that_people_copy():
    rows = {
        "pydensecrf": (3, 3, 80, 13, 10, 5),
        "deeplab": (1, 3, 67, 3, 4, 10),
        "afa": (3, 3, 64, 5, 4, 10),
        "cam": (3, 3, 50, 5, 10, 10),
    }
    for name, row in rows.items():
        p = get_preset(name)
        kernels = (p.sigma, p.weight, p.sigma_xy, p.sigma_color, p.bilateral_weight)
        assert (*kernels, p.iterations) == row
    assert get_preset("cam").confidence == 0.7


def test_mean_field_makes_the_presets_iterations():
    assert densecrf.refine(IMAGE, P, method="mf", preset="pydensecrf").iterations <= 5
    assert densecrf.refine(IMAGE, P, method="mf", max_iterations=2).iterations == 2


def test_the_result_has_the_shape_of_the_image():
    result = densecrf.refine(IMAGE, P, method="mf")
    assert result.labels.shape == (H, W)
    assert result.marginals.shape == (L, H, W)


def test_one_label_results_come_with_a_warning():
    """Weak unaries under strong weights: the answer is one label, and it says why."""
    weak = 0.25 + 0.01 * (P - 0.25)
    with pytest.warns(UserWarning, match="the pairwise weights dominate"):
        densecrf.refine(IMAGE, weak, method="unary")
