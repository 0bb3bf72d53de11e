"""The study of masks: distortions of the truth, and its tables."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.masks import KINDS, distorted, iou, table


def test_distortions_are_what_they_are_called():
    pytest.importorskip("scipy")
    truth = np.zeros((60, 72), bool)
    truth[20:40, 20:44] = True
    scores = np.stack([~truth, truth], -1)[::2, ::2].astype(np.float32)
    given = distorted(truth, scores)
    assert tuple(given) == KINDS
    assert (given["dilated"] >= truth).all()
    assert (given["eroded"] <= truth).all()
    assert given["coarse"][24:36, 24:36].all()
    assert iou(given["scores"], truth) > 90
    assert iou(truth, truth) == 100


def test_tables_have_one_row_for_each():
    found = table("what | a | b", [["x", 1.0, 2.0], ["y", 3.0, ""]], [".1f", ".2f"])
    assert found.splitlines()[2:] == ["| x | 1.0 | 2.00 |", "| y | 3.0 |  |"]
