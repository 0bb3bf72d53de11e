"""The table of seven kinds of images: its signs on a sample, and how it is made."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from densecrf.metrics import mean_iou
from densecrf.model.resample import resize_bilinear
from experiments import quality


@pytest.fixture
def tiny(tmp_path):
    """Return a folder with one set of two images: a disk, and scores at a stride of 6 pixels."""
    folder = tmp_path / "cells"
    for part in ("images", "labels", "logits"):
        (folder / part).mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"splits": {"val": ["a", "b"]}}))
    y, x = np.mgrid[:48, :60]
    truth = ((y - 24) ** 2 + (x - 30) ** 2 < 200).astype(np.uint8)
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        image = 60 + 120 * truth[..., None] + rng.integers(0, 6, (48, 60, 3))
        Image.fromarray(image.astype(np.uint8)).save(folder / "images" / f"{name}.png")
        Image.fromarray(truth).save(folder / "labels" / f"{name}.png")
        coarse = 4 * resize_bilinear(truth[None].astype(float), (8, 10))[0] - 2
        noisy = coarse + rng.normal(0, 0.7, coarse.shape)
        np.savez(folder / "logits" / f"{name}.npz", logits=np.stack([-noisy, noisy], -1))
    return tmp_path


def test_the_command_writes_table_and_pictures_and_goes_on_where_it_was(
    tiny, tmp_path, monkeypatch, capsys
):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- quality -->\nold\n<!-- end of quality -->\nafter\n")
    command = ["quality", "--data", str(tiny), "--sets", "cells", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*command, "--page", str(page)])
    monkeypatch.setattr(quality, "ProcessPoolExecutor", lambda jobs, _: ThreadPoolExecutor(jobs))
    quality.main()
    text = page.read_text()
    assert text.startswith("before\n<!-- quality -->\n\n| images")
    assert text.endswith("<!-- end of quality -->\nafter\n")
    assert "hard labels" in text
    assert (tmp_path / "images" / "quality" / "worst.png").exists()
    assert Image.open(tmp_path / "images" / "quality" / "cells.png").size[0] == 640

    monkeypatch.setattr(quality, "judge", None)  # all is known: nothing is refined again
    quality.main()
    assert page.read_text() == text
    assert "default +" in capsys.readouterr().out


def test_made_input_is_seeded():
    truth = np.zeros((40, 50), np.uint8)
    truth[10:30, 20:] = 1
    first, second = (quality.hard_labels(truth, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, second)
    assert 0.02 < (first != truth).mean() < 0.3
    maps = quality.activation_maps(truth, 2, np.random.default_rng(3))
    assert maps.sum(0) == pytest.approx(1)
    assert maps.max() < 0.99


@pytest.mark.parametrize("name", quality.SETS)
def test_the_default_helps_or_stands_aside(shared_data, name):
    items = quality.items_of(shared_data / name, "val")
    found = [quality.judge(items[quarter * len(items) // 4], {}) for quarter in (1, 2, 3)]
    gains = {}
    for method in ("default", "usual mean field"):
        ours, theirs = (counts.sum(0) for counts in quality.pairs(found, method))
        gains[method] = float(mean_iou(ours) - mean_iou(theirs))
    assert gains["default"] > gains["usual mean field"] - 0.002  # a few pixels, by processor
    assert gains["default"] > (-0.001 if name == "vessels" else 0)  # which are left alone
