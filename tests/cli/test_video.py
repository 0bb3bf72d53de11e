"""``densecrf video``: folders, arrays and videos to label maps."""

import json

import numpy as np
import pytest
from PIL import Image

from command_line import densecrf, said
from densecrf.io import read_labels

MODEL = ("--weight", "1", "--sigma", "2", "--sigma-xy", "5", "--sigma-color", "20", "--axis", "0")


@pytest.fixture
def inputs(folder):
    return ("images", "--probs", "probs", *MODEL)


def test_a_folder_gives_a_label_map_per_frame_and_one_certificate(folder, inputs):
    done = densecrf("video", *inputs, "--out", "labels")
    assert done.exit_code == 0, said(done)
    labels = np.load("labels/labels.npy")
    record = json.loads((folder / "labels" / "labels.npy.json").read_text())
    assert labels.shape == (3, 24, 32)
    assert record["frames"] == 3
    assert record["gap"] <= 0.01
    for t, name in enumerate("abc"):
        assert (read_labels(f"labels/{name}.png") == labels[t]).all()
    again = densecrf("video", *inputs, "--out", "labels", "--json")
    assert json.loads(again.stdout)["skipped"]


def test_arrays_labels_and_flow(folder):
    frames = np.stack([np.asarray(Image.open(f"images/{name}.png")) for name in "abc"])
    known = np.stack([np.load(f"probs/{name}.npy").argmax(0) for name in "abc"])
    np.save("frames.npy", frames)
    np.save("known.npy", known.astype(np.uint8))
    np.save("flow.npy", np.zeros((3, 24, 32, 2), np.float32))
    given = ("frames.npy", "--labels", "known.npy", "--flow", "flow.npy", "--sigma-t", "2")
    assert densecrf("video", *given, "--out", "out.npy", "--quiet").exit_code == 0
    assert np.load("out.npy").shape == (3, 24, 32)
    assert densecrf("video", *given, "--out", "maps", "--quiet").exit_code == 0
    assert (read_labels("maps/00002.png") == np.load("out.npy")[2]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("images",), "give either --probs or --labels"),
        (("images", "--probs", "probs", "--labels", "probs"), "give either --probs or --labels"),
        (("images", "--probs", "probs", "--method", "dc-neg"), "clips are solved by lp or mf5"),
        (("images", "--probs", "probs", "--out", "labels.png"), "give labels.npy or .zarr"),
        (("images", "--probs", "probs", "--out", "images"), "would replace the input"),
        (("images", "--probs", "nothing"), "nothing: "),
        (("images", "--probs", "probs", "--axis", "0", "--sigma-t", "0"), "--sigma-t 0"),
        (("images/d.png", "--probs", "probs"), "d.png: No such file"),
    ],
)
def test_what_cannot_work_is_said(folder, arguments, message):
    done = densecrf("video", *arguments)
    assert done.exit_code in (1, 2)
    assert message in said(done)
    assert "Traceback" not in said(done)
    assert sorted(path.name for path in folder.iterdir()) == ["images", "probs"]


def test_one_image_is_a_clip_of_one_frame(folder, inputs):
    done = densecrf("video", "images/b.png", *inputs[1:], "--out", "labels")
    assert done.exit_code == 0, said(done)
    assert read_labels("labels/b.png").shape == (24, 32)


def test_a_frame_without_scores_is_named(folder, inputs):
    (folder / "probs" / "b.npy").unlink()
    assert "no scores for 1 of 3 frames, such as b" in said(densecrf("video", *inputs))
