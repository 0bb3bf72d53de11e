"""Objects from boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import densecrf
from densecrf.model.boxes import from_box
from oracles import brute_force

IMAGE = np.full((40, 60, 3), (60, 90, 70), np.uint8)
IMAGE[10:30, 20:40] = (200, 60, 40)
BOX = (20, 10, 40, 30)
rng = np.random.default_rng(3)


def disc(noise=0.0):
    """Return an image of a disc, the disc, and its box."""
    y, x = np.mgrid[:48, :64]
    mask = (y - 22) ** 2 + (x - 30) ** 2 < 15**2
    image = np.where(mask[..., None], (190, 120, 60), (70, 110, 100))
    image = image + np.random.default_rng(0).normal(0, noise, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8), mask, (16, 8, 45, 37)


@pytest.mark.parametrize("noise", [0, 30])
def test_a_disc_in_its_box(noise):
    image, mask, box = disc(noise)
    result = from_box(image, box)
    found = result.labels == 1
    assert (found & mask).sum() / (found | mask).sum() > 0.95
    assert result.gap <= 1e-3


def test_both_conventions_grey_and_channels_first_agree():
    image, _, (x0, y0, x1, y1) = disc(10)
    labels = from_box(image, (x0, y0, x1, y1)).labels
    for other in (
        from_box(image, (x0, y0, x1 - x0, y1 - y0), kind="xywh"),
        from_box(image / 255, np.array([[x0, y0, x1, y1]])),
        from_box(np.moveaxis(image, -1, 0), (x0, y0, x1, y1), channel_axis=0),
        from_box(image.astype(float) * 4, (x0, y0, x1, y1), image_range=(0, 1020)),
    ):
        np.testing.assert_array_equal(other.labels, labels)
    grey = from_box(image[..., 0], (x0, y0, x1, y1)).labels
    assert (grey != labels).mean() < 0.05


def test_several_boxes_give_labels_that_exclude_each_other():
    image = IMAGE.copy()
    image[2:8, 44:58] = (40, 60, 220)
    boxes = [BOX, (44, 2, 58, 8)]
    result = from_box(image, boxes)
    truth = np.zeros((40, 60), int)
    truth[10:30, 20:40], truth[2:8, 44:58] = 1, 2
    np.testing.assert_array_equal(result.labels, truth)
    assert result.crf.n_labels == 3


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 8), st.integers(0, 5), st.data())
def test_an_object_is_in_its_box_and_never_empty(seed, x, y, data):
    width, height = data.draw(st.integers(1, 14 - x)), data.draw(st.integers(1, 9 - y))
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (10, 15, 3), np.uint8)
    if seed % 3 == 0:
        image[:] = 7  # nothing to see
    result = from_box(image, (x, y, x + width, y + height), gap=0.05)
    outside = np.ones((10, 15), bool)
    outside[y : y + height, x : x + width] = False
    assert not result.labels[outside].any()
    assert result.labels.any()
    assert result.lower_bound <= result.energy
    assert result.energy == pytest.approx(result.crf.energy(result.labels), rel=1e-4, abs=1e-3)


def test_energy_and_bound_are_of_the_last_model():
    image = rng.integers(0, 256, (3, 4, 3), np.uint8)
    result = from_box(image, (1, 0, 4, 3), gap=0)
    labels, energy = brute_force(result.crf)
    assert result.energy == pytest.approx(energy, rel=1e-4)
    assert result.lower_bound <= energy + 1e-4
    np.testing.assert_array_equal(result.labels.ravel(), labels)


def test_the_answer_does_not_depend_on_threads():
    image, _, box = disc(30)
    one, two = (from_box(image, box, threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one.labels, two.labels)
    assert (one.energy, one.lower_bound) == (two.energy, two.lower_bound)


def test_no_strength_leaves_the_evidence():
    image, _, box = disc(30)
    result = from_box(image, box, strength=0)
    np.testing.assert_array_equal(result.labels, result.crf.unary.reshape(2, 48, 64).argmin(0))


@pytest.mark.parametrize(
    ("box", "options", "message"),
    [
        ((1, 2, 3), {}, r"box: shape \(3,\); give four numbers"),
        ([[[1, 2, 3, 4]]], {}, r"box: shape \(1, 1, 4\)"),
        (np.zeros((0, 4)), {}, r"box: shape \(0, 4\)"),
        ("dog", {}, "box"),
        ((0, 0, 60, 40), {}, "is the whole image: it leaves no background"),
        ((np.nan, 0, 3, 4), {}, r"box=\(nan, 0.0, 3.0, 4.0\): must be finite"),
        ((5, 5, 5, 9), {}, r"no width or height as xyxy.*kind='xywh'"),
        ((30, 20, 10, 10), {}, "no width or height"),
        ((30, 20, 0, 10), {"kind": "xywh"}, r"no width or height as xywh.*kind='xyxy'"),
        ((100, 100, 120, 130), {}, "holds no pixel of an image of 60 × 40; give it in pixels"),
        ((0.1, 0.1, 0.4, 0.4), {}, "in pixels"),
        ([(0, 0, 30, 40), (30, 0, 60, 40)], {}, "cover the whole image"),
        (BOX, {"kind": "yxyx"}, "kind='yxyx': must be one of"),
        (BOX, {"strength": -1}, "strength=-1"),
    ],
)
def test_wrong_boxes_say_what_to_do(box, options, message):
    with pytest.raises(densecrf.ArgumentError, match=message):
        densecrf.from_box(IMAGE, box, **options)


def test_wrong_images_and_names():
    with pytest.raises(densecrf.ArgumentError, match=r"shape \(3, 40, 60\).*channel_axis=0"):
        from_box(np.zeros((3, 40, 60)), BOX)
    with pytest.raises(TypeError, match="Did you mean 'kind'"):
        from_box(IMAGE, BOX, kinds="xywh")


def test_a_box_beyond_the_image_is_cut_off():
    labels = from_box(IMAGE, (20, -7.5, 40, 30)).labels
    np.testing.assert_array_equal(labels, from_box(IMAGE, (20, 0, 40, 30)).labels)
