"""COCO's run lengths, polygons and boxes."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf.io.coco import (
    box_of,
    decode,
    decode_runs,
    encode,
    encode_runs,
    outlines,
    rasterise,
    run_lengths,
)
from densecrf.validation import ArgumentError


def blob(seed, shape=(17, 23)):
    """Return a mask of some roughness."""
    rng = np.random.default_rng(seed)
    noise = rng.random((shape[0] + 2, shape[1] + 2))
    mean = sum(noise[y : y + shape[0], x : x + shape[1]] for y in range(3) for x in range(3)) / 9
    return mean > rng.uniform(0.4, 0.6)


@pytest.mark.parametrize(
    ("mask", "text"),
    [  # what pycocotools 2.0.11 writes
        (np.eye(8, dtype=bool)[:, :7], "01800000000000I"),
        (np.ones((3, 5), bool), "0?"),
        (np.zeros((3, 5), bool), "?"),
        (np.arange(600).reshape(20, 30) % 7 < 3, None),
    ],
)
def test_text_is_that_of_coco(mask, text):
    runs = run_lengths(mask)
    if text is not None:
        assert encode_runs(runs) == text
    assert decode_runs(encode_runs(runs)) == runs
    assert (
        decode({"size": list(mask.shape), "counts": encode_runs(runs)}, mask.shape) == mask
    ).all()


@pytest.mark.parametrize("seed", range(12))
def test_outlines_are_the_mask_again_or_there_are_holes(seed):
    mask = blob(seed)
    found = outlines(mask)
    if found is None:
        assert isinstance(encode(mask, [[]]), dict)
        assert (decode(encode(mask, [[]]), mask.shape) == mask).all()
    else:
        assert (rasterise(found, mask.shape) == mask).all()
        assert encode(mask, [[]]) == found


def test_a_hole_has_no_outline():
    ring = np.ones((5, 5), bool)
    ring[2, 2] = False
    assert outlines(ring) is None
    ring[2, :2] = False
    assert outlines(ring) is not None


def test_polygons_are_united_and_cut_at_the_image():
    polygons = [[-5, -5, 3, -5, 3, 2, -5, 2], [2, 1, 99, 1, 99, 99, 2, 99]]
    mask = rasterise(polygons, (6, 7))
    expected = np.zeros((6, 7), bool)
    expected[:2, :3] = expected[1:, 2:] = True
    assert (mask == expected).all()


def test_boxes_of_masks():
    mask = np.zeros((6, 7), bool)
    assert box_of(mask) == [0, 0, 0, 0]
    mask[2:4, 3:7] = True
    assert box_of(mask) == [3, 2, 4, 2]


@pytest.mark.parametrize(
    "segmentation",
    [
        {"size": [2, 2], "counts": [1, -1, 4]},
        {"size": [2, 2], "counts": [1.5, 2.5]},
        {"size": [2, 2], "counts": None},
        {"counts": [4]},
        {"size": [2, 2], "counts": [3]},
        "mask",
        [[0, 0, 1, np.nan, 1, 1]],
        [["a", "b", "c", "d", "e", "f"]],
        [[0, 0, 1, 1, 2]],
    ],
)
def test_bad_segmentations_are_refused(segmentation):
    with pytest.raises(ArgumentError):
        decode(segmentation, (2, 2))
