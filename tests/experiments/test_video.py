"""The study of clips."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from experiments import video


@pytest.fixture
def sequences(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"{clip}_{t:05d}" for clip in ("boat", "car") for t in (1, 2, 3)]
    for folder in ("images", "labels", "logits"):
        (tmp_path / folder).mkdir()
    truth = np.zeros((24, 32), np.uint8)
    truth[6:18, 8:24] = 1
    for name in names:
        noise = rng.normal(0, 9, (24, 32, 3))
        image = np.clip(60 + 100 * truth[..., None] + noise, 0, 255).astype(np.uint8)
        Image.fromarray(image).save(tmp_path / "images" / f"{name}.png")
        Image.fromarray(truth).save(tmp_path / "labels" / f"{name}.png")
        logits = np.stack([1.0 - truth, truth], -1)[::2, ::2] + rng.normal(0, 0.8, (12, 16, 2))
        np.savez(tmp_path / "logits" / f"{name}.npz", logits=logits)
    (tmp_path / "meta.json").write_text(json.dumps({"splits": {"val": names}}))
    return tmp_path


def test_the_table_has_all_methods_and_clips(sequences, monkeypatch):
    out = sequences / "table.md"
    options = ["--data", sequences, "--frames", 2, "--sigma-t", 2, "--out", out]
    monkeypatch.setattr(sys, "argv", ["video", *map(str, options)])
    video.main()
    table = out.read_text()
    for name in ("network", "frame by frame", "video, sigma_t 2", "boat", "car"):
        assert f"| {name} |" in table


def test_flicker_counts_what_changes_where_the_truth_does_not():
    labels = np.array([[[0, 1, 1, 0]], [[1, 0, 1, 1]], [[1, 0, 1, 0]]])
    truth = np.array([[[0, 0, 1, 255]], [[0, 1, 1, 255]], [[0, 1, 1, 255]]])
    assert video.flicker(labels, truth) == 0.5
