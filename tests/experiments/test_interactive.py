"""The robot that draws strokes."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from experiments.interactive import (
    BOX_METHODS,
    VOID,
    box_table,
    boxed,
    iou_after,
    longest_path,
    objects,
    quality,
    stroke_through,
)
from experiments.interactive import strokes_to as needed
from experiments.quality import Item


def test_a_stroke_runs_along_the_middle_of_its_region():
    region = np.zeros((30, 60), bool)
    region[10:21, 5:55] = True
    drawn = stroke_through(region, np.random.default_rng(0))
    assert drawn.any()
    assert not (drawn & ~region).any()
    rows = np.nonzero(drawn)[0]
    assert 14 <= rows.mean() <= 16
    again = stroke_through(region, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, again)


def test_the_longest_path_leaves_branches_out():
    axis = np.zeros((5, 9), bool)
    axis[2, :] = True
    axis[:2, 4] = True
    path = longest_path(axis)
    assert len(path) == 9
    assert {path[0], path[-1]} == {(2, 0), (2, 8)}


def test_quality_leaves_void_out():
    truth = np.array([[0, 0, 1, VOID]])
    assert quality(np.array([[0, 0, 1, 0]]), truth, None) == 1
    assert quality(np.array([[0, 1, 1, 0]]), truth, 1) == 0.5


def test_strokes_are_counted_by_label():
    found = {"labels": 2, "iou": [0.5, 0.86, 0.9, 0.91]}
    assert [needed(found, goal) for goal in (0.85, 0.90, 0.99)] == [1.5, 2, 10]
    assert [iou_after(found, k) for k in (1, 2, 10)] == [0.5, 0.9, 0.91]


def scene(folder, name):
    """Write a set of one image: two objects, a speck, and stuff; return the image."""
    folder = folder / name
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True)
    classes = ["background", "grass", "cow"]
    (folder / "meta.json").write_text(json.dumps({"classes": classes}))
    truth = np.zeros((40, 60), np.uint8)
    truth[2:14, 4:20] = truth[20:34, 30:50] = truth[0, 59] = 2
    truth[36:] = 1
    truth[5:8, 5:8] = VOID
    image = np.array([(90, 90, 90), (20, 160, 40), (200, 60, 30)], np.uint8)[np.minimum(truth, 2)]
    Image.fromarray(image).save(folder / "images" / "one.png")
    Image.fromarray(truth).save(folder / "labels" / "one.png")
    return Item(folder, "one")


def test_boxes_are_around_objects_not_specks_and_stuff(tmp_path):
    found = objects(scene(tmp_path, "msrc"))
    assert sorted(box for _, box in found) == [(4, 2, 20, 14), (30, 20, 50, 34)]
    (whole,) = objects(scene(tmp_path, "davis"))
    assert whole[1] == (4, 0, 60, 34)


def test_objects_in_boxes_are_judged_without_void(tmp_path):
    item = scene(tmp_path, "msrc")
    each = {method: boxed(item, method) for method in ("densecrf", "the box")}
    assert each["the box"] == [1, 1]
    assert min(each["densecrf"]) > 0.9
    text = box_table({"msrc": {method: [each] for method, each in each.items()}})
    assert "| msrc (2) | the box | 100.0 | 0.0 % |" in text
    assert "GrabCut" in BOX_METHODS
