"""Colour models from strokes."""

from __future__ import annotations

import numpy as np
import pytest

import densecrf
from densecrf.model.scribbles import scribble_unary

IMAGE = np.zeros((20, 30, 3), np.uint8)
IMAGE[:, 10:20], IMAGE[:, 20:] = (200, 30, 30), (20, 40, 220)
STROKES = np.full((20, 30), 255)
STROKES[5, 2:6], STROKES[6, 12:16], STROKES[7, 22:27] = 0, 1, 2
TRUTH = np.repeat([0, 1, 2], 10)


def test_colours_carry_the_strokes_over_the_image():
    unary = scribble_unary(IMAGE, STROKES)
    np.testing.assert_array_equal(unary.argmin(0), np.tile(TRUTH, (20, 1)))
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(3, 1)])
    np.testing.assert_array_equal(crf.solve("mf").labels, np.tile(TRUTH, (20, 1)))


def test_strokes_keep_their_labels_against_their_colour():
    strokes = STROKES.copy()
    strokes[15, 25] = 0  # blue, but told to be label 0
    assert scribble_unary(IMAGE, strokes)[:, 15, 25].argmin() == 0


def test_strokes_may_count_from_one():
    unary = scribble_unary(IMAGE, np.where(STROKES == 255, 0, STROKES + 1), void=0)
    assert len(unary) == 4
    np.testing.assert_array_equal(unary.argmin(0), np.tile(TRUTH + 1, (20, 1)))


def test_grey_images_and_float_ranges():
    grey = IMAGE[..., 0] / 255
    assert scribble_unary(grey, STROKES, n_labels=5).shape == (5, 20, 30)


@pytest.mark.parametrize(
    ("scribbles", "options", "message"),
    [
        (np.full((20, 30), 255), {}, "no strokes"),
        (np.eye(20, 30, dtype=int), {}, r"every pixel .*96.7% of them 0; say .*void=0"),
        (np.where(STROKES == 1, 1, 255), {}, "all strokes carry label 1"),
        (STROKES[:5], {}, r"scribbles: shape \(5, 30\) does not fit"),
        (STROKES, {"n_labels": 2}, "value 2 is outside"),
        (STROKES, {"certainty": 1}, "certainty=1"),
        (np.where(STROKES == 1, -7, STROKES), {}, "whole numbers from 0"),
    ],
)
def test_wrong_strokes_say_what_to_do(scribbles, options, message):
    with pytest.raises(ValueError, match=message):
        scribble_unary(IMAGE, scribbles, **options)


def test_too_many_channels():
    with pytest.raises(ValueError, match="5 channels are too many"):
        scribble_unary(np.zeros((20, 30, 5)), STROKES)


def test_a_colour_on_both_sides_is_told_apart_by_the_way_to_the_strokes():
    image = np.full((20, 41), 120, np.uint8)
    image[:, 20] = 255  # a wall
    strokes = np.full(image.shape, -1)
    strokes[10, 2:5], strokes[10, 36:39] = 0, 1
    labels = scribble_unary(image, strokes).argmin(0)
    assert (labels[:, :20] == 0).all()
    assert (labels[:, 21:] == 1).all()


def test_colours_of_sure_pixels_carry_strokes_to_islands():
    image = np.zeros((40, 60, 3), np.uint8)
    image[5:15, 5:15] = image[5:15, 45:55] = (220, 60, 40)
    strokes = np.full((40, 60), -1)
    strokes[10, 8:12], strokes[35, 10:50] = 1, 0
    labels = scribble_unary(image, strokes).argmin(0)
    assert (labels == (image[..., 0] > 0)).mean() > 0.99
