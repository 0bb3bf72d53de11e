"""Annotations, void pixels and seeds: what is known of the pixels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import densecrf
from densecrf.model.unaries import FORBIDDEN, from_labels
from densecrf.refinement import build
from scored_image import HARD, IMAGE, H, L, P, W


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.zeros((H, W), int), {}, "only label 0 occurs; give n_labels="),
        (np.full((H, W), 255), {}, "every pixel is void"),
        (HARD, {"n_labels": 2}, "value . is neither a label 0 … 1"),
        (HARD - 1, {}, r"value -1 is neither a label .*give void=-1"),
        (HARD, {"void": "none"}, "void='none': must be one of 'auto'"),
        (HARD, {"confidence": 1.0}, "confidence=1.0"),
    ],
)
def test_wrong_labels_say_what_to_do(labels, options, message):
    with pytest.raises(ValueError, match=message):
        build(IMAGE, labels, **options)


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


# --- 0 and 255 ------------------------------------------------

MASK = np.where(HARD > 1, 255, 0).astype(np.uint8)
BINARY = (HARD > 1).astype(int)


@pytest.mark.parametrize("mask", [MASK, MASK.astype(int), MASK > 0], ids=str)
@pytest.mark.parametrize("options", [{}, {"n_labels": 2}])
def test_a_mask_of_0_and_255_is_two_labels(mask, options):
    expected = build(IMAGE, BINARY, n_labels=2).unary
    np.testing.assert_array_equal(build(IMAGE, mask, **options).unary, expected)
    np.testing.assert_array_equal(from_labels(mask, 2), from_labels(BINARY, 2))


@pytest.mark.parametrize("options", [{"void": 255, "n_labels": 2}, {"n_labels": L}])
def test_255_beside_0_is_void_where_that_is_said_or_labels_are_many(options):
    unary = build(IMAGE, MASK, **options).unary
    assert (unary[:, MASK.ravel() == 255] == 0).all()
    assert unary[:, MASK.ravel() == 0].argmin(0).max() == 0


def test_255_is_a_label_where_there_are_more():
    labels = np.arange(H * W).reshape(H, W) * 2 + 1
    assert build(IMAGE, labels).unary.shape[0] == labels.max() + 1
    assert build(IMAGE, labels).unary[:, labels.ravel() == 255].argmin(0) == 255


def test_seeds_hold_on_ignored_pixels():
    everything = np.ones((H, W), bool)
    seeds = np.full((H, W), -1)
    seeds[5, 5:9] = (HARD[5, 5:9] + 1) % L
    crf = build(IMAGE, P, seeds=seeds, ignore=everything)
    planted = (seeds != -1).ravel()
    np.testing.assert_array_equal(crf.unary[:, planted].argmin(0), seeds[seeds != -1])
    assert (crf.unary[:, ~planted] == 0).all()
    labels = densecrf.refine(IMAGE, P, seeds=seeds, ignore=everything, method="mf").labels
    np.testing.assert_array_equal(labels[5, 5:9], seeds[5, 5:9])
