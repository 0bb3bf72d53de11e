"""``densecrf box``: the objects in boxes of a photo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import densecrf, said
from densecrf.io import read_labels, write_image
from densecrf.model.boxes import from_box

IMAGE = np.full((40, 60, 3), 60, np.uint8)
IMAGE[10:30, 20:40] = (180, 90, 60)


@pytest.fixture(autouse=True)
def _photo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    write_image("photo.png", IMAGE)


def test_a_box_becomes_a_mask():
    done = densecrf("box", "photo.png", "--box", "20,10,20,20", "--kind", "xywh", "--out", "m.png")
    assert done.exit_code == 0, done.output
    assert "written to m.png" in said(done)
    expected = from_box(IMAGE, (20, 10, 40, 30))
    np.testing.assert_array_equal(read_labels("m.png"), expected.labels)
    assert json.loads(Path("m.json").read_text("utf-8"))["gap"] == pytest.approx(expected.gap)


def test_several_boxes_and_the_default_name():
    boxes = ("--box", "20,10,40,30", "--box", "2 2 9 9")
    done = densecrf("box", "photo.png", *boxes, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["out"] == "photo.mask.png"
    assert set(np.unique(read_labels("photo.mask.png"))) == {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--box", "1,2,3"], "'1,2,3' is not four numbers", 2),
        (["--box", "a,2,3,4"], "is not four numbers", 2),
        (["--box", "1,2,3,4", "--out", "photo.png"], "would replace the input", 2),
        (["--box", "1,2,3,4", "--out", "mask.jpg"], "lossy", 2),
        (["--box", "1,2,3,4", "--out", "folder"], "ends in .png", 2),
        (["--box", "40,10,20,30"], "no width or height", 1),
        ([], "Missing option '--box'", 2),
    ],
)
def test_wrong_calls_say_what_to_do(arguments, message, code):
    done = densecrf("box", "photo.png", *arguments)
    assert done.exit_code == code
    assert message in said(done)
