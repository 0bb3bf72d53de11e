"""Layouts of images and scores: clear ones are understood, others refused with both readings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import densecrf
from densecrf import ArgumentError, Bilateral
from densecrf.refinement import build
from scored_image import HARD, IMAGE, LOGITS, RNG, UNARY, H, L, P, W, unary

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
    assert build(IMAGE, np.moveaxis(LOGITS[:3], 0, -1)).n_labels == 3
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


def test_low_resolution_logits_have_the_axis_that_leaves_the_image_s_proportions():
    image = RNG.integers(0, 256, (213, 320, 3), dtype=np.uint8)
    small = RNG.normal(size=(27, 40, 21))
    expected = unary(image, small, axis=2)
    np.testing.assert_array_equal(unary(image, small), expected)
    np.testing.assert_array_equal(unary(image, small.transpose(2, 0, 1)), expected)
    np.testing.assert_array_equal(unary(image, small.transpose(2, 0, 1)[None]), expected)


def test_low_resolution_logits_of_which_two_axes_fit_need_its_name():
    image = RNG.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    small = RNG.normal(size=(8, 8, 8))
    with pytest.raises(ValueError, match="when you name its label axis by axis=0 or axis=2"):
        build(image, small)
    assert build(image, small, axis=2).shape == (32, 32)
    p = np.exp(small) / np.exp(small).sum(2, keepdims=True)
    np.testing.assert_array_equal(unary(image, p), unary(image, p, axis=2))


@pytest.mark.parametrize("shape", [(L, 5, W), (L, H, 5), (5, 4, 3)])
def test_scores_out_of_proportion_are_not_resized(shape):
    with pytest.raises(ValueError, match=r"does not fit .*name its label axis by axis=$"):
        build(IMAGE, RNG.normal(size=shape))


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
    assert build(IMAGE[:3, :3, :2], SQUARE, axis=0).n_labels == 3


def test_scores_between_logits_and_energies_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways: logits, higher is .*or energies, lower is"):
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
    assert build(IMAGE, mask, kind="labels").n_labels == 2
    assert build(IMAGE, mask, kind="probabilities").n_labels == 2


def test_a_map_of_logits_is_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 ways: logits of the foreground \(kind='logits'\)"):
        build(IMAGE, LOGITS[1])


# --- PyTorch's layouts ------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("image", [IMAGE, IMAGE.transpose(2, 0, 1), IMAGE.transpose(2, 0, 1)[None]])
def test_tensors_and_arrays_may_be_mixed(image, dtype):
    torch = pytest.importorskip("torch")
    logits = torch.from_numpy(LOGITS[None]).to(getattr(torch, dtype)).requires_grad_()
    expected = unary(IMAGE, LOGITS)
    for some in (image, torch.from_numpy(image.copy())):
        np.testing.assert_allclose(unary(some, logits), expected, atol=0.1)
    result = densecrf.refine(torch.from_numpy(image.copy()), logits, method="unary")
    assert type(result.labels) is np.ndarray
    assert result.labels.shape == (H, W)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_batches_of_one_have_the_image_s_shape(classes):
    logits = LOGITS[None, :classes]
    for image in (IMAGE.transpose(2, 0, 1)[None], IMAGE.transpose(2, 0, 1)):
        crf = build(image, logits)
        assert crf.unary.shape == (classes, H * W)
        np.testing.assert_array_equal(crf.unary, unary(IMAGE, logits, axis=1))
    assert build(IMAGE.transpose(2, 0, 1)[None], HARD).shape == (H, W)
    assert build(IMAGE.transpose(2, 0, 1)[None], P[1]).shape == (H, W)
    assert build(IMAGE[None], np.moveaxis(P, 0, -1)[None], axis=3, channel_axis=-1).shape == (H, W)


# --- alpha ------------------------------------------------


def with_alpha(alpha):
    return np.concatenate([IMAGE, np.full((H, W, 1), alpha, np.uint8)], -1)


def test_an_opaque_alpha_channel_is_left_out():
    for image in (with_alpha(255), np.moveaxis(with_alpha(255), -1, 0)):
        np.testing.assert_array_equal(build(image, P).kernels[1].image, IMAGE)


def test_an_alpha_channel_that_varies_is_refused_with_both_readings():
    image = with_alpha(255)
    image[0, 0, 3] = 7
    with pytest.raises(ArgumentError, match=r"2 ways: .*alpha.*or four channels \(channel_axis=-1"):
        build(image, P)
    assert build(image, P, channel_axis=-1).kernels[1].image.shape == (H, W, 4)


# --- what is recognised rather than misread ------------------------------------------------


@pytest.mark.parametrize("kind", [None, "probabilities"])
def test_percentages_are_recognised(kind):
    with pytest.raises(ArgumentError, match=r"percentages.* divide by 100"):
        build(IMAGE, 100 * P, kind=kind)


@pytest.mark.parametrize("axis", [None, 0])
def test_swapped_height_and_width_are_not_resized(axis):
    with pytest.raises(ArgumentError, match="height and width look swapped"):
        build(IMAGE, P.transpose(0, 2, 1), axis=axis)


@pytest.mark.parametrize(("white", "suggested"), [(4000, 4095), (1000, 1023), (16000, 16383)])
def test_images_of_fewer_than_16_bits_in_uint16_are_refused(white, suggested):
    image = (IMAGE.astype(np.float64) * white / 255).astype(np.uint16)
    with pytest.raises(ArgumentError, match=rf"image_range=\(0, {suggested}\), or .*\(0, 65535\)"):
        build(image, P)
    assert build(image, P, image_range=(0, white)).kernels[1].image.max() == pytest.approx(255, 0.1)


# --- what is not an array of numbers ------------------------------------------------


def test_pillow_images_of_a_palette_are_their_colours():
    picture = Image.fromarray(IMAGE).quantize(16)
    colors = np.asarray(picture.convert("RGB"))
    for image in (picture, picture.convert("PA"), Image.fromarray(colors).convert("CMYK")):
        (_, kernel) = build(image, P).kernels
        np.testing.assert_array_equal(kernel.image, colors)
    labels = Image.fromarray(HARD.astype(np.uint8)).convert("P")
    np.testing.assert_array_equal(unary(picture, labels), unary(IMAGE, HARD))
    np.testing.assert_array_equal(Bilateral(picture, 3, 3).image, colors)


@pytest.mark.parametrize("name", ["photo.png", Path("photo.png")])
def test_a_path_is_not_an_array(name):
    with pytest.raises(
        ArgumentError, match=r"image=.*read the file first, with densecrf.io.read_im"
    ):
        build(name, P)
    with pytest.raises(ArgumentError, match=r"probabilities=.*photo.png.*read .* with numpy.load"):
        build(IMAGE, name)


FIRST = IMAGE.transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("image", "scores"), [(IMAGE, P), (FIRST, P), (FIRST, P.transpose(1, 2, 0)), (IMAGE, LOGITS)]
)
def test_a_batch_is_for_refine_many(image, scores):
    """Channels and labels both last would be a volume of so many slices."""
    with pytest.raises(ArgumentError, match=r"5 images at once are for densecrf\.refine_many$"):
        build(np.stack([image] * 5), np.stack([scores] * 5))


@pytest.mark.parametrize("labels", [3, L])
@pytest.mark.parametrize("axis", [0, -1])
def test_probabilities_in_8_bits_are_to_be_divided(labels, axis):
    p = P[:labels] / P[:labels].sum(0)
    with pytest.raises(ArgumentError, match=r"add up to 255 .*8 bits; divide by 255"):
        build(IMAGE, np.moveaxis(np.rint(255 * p).astype(np.uint8), 0, axis))
