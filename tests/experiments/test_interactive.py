"""The robot that draws strokes."""

from __future__ import annotations

import numpy as np

from experiments.interactive import VOID, iou_after, longest_path, quality, stroke_through
from experiments.interactive import strokes_to as needed


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
