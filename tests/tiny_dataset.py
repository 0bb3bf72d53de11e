"""A tiny data set in the documented layout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from densecrf.io import write_image, write_labels, write_npz

if TYPE_CHECKING:
    from pathlib import Path

H, W, L = 16, 20, 3
COLORS = np.array([(30, 30, 30), (200, 40, 40), (60, 90, 220)], np.uint8)
NAMES = ("a", "b", "c", "d")


def make_dataset(folder: Path) -> Path:
    truth = np.repeat([0, 1, 2], [6, 8, 6])[None].repeat(H, 0)
    for seed, name in enumerate(NAMES):
        rng = np.random.default_rng(seed)
        shifted = np.roll(truth, seed, axis=1)
        logits = 1.5 * (shifted[..., None] == np.arange(L)) + rng.normal(0, 0.8, (H, W, L))
        write_image(folder / "images" / f"{name}.png", COLORS[shifted])
        write_labels(folder / "labels" / f"{name}.png", shifted)
        write_npz(folder / "logits" / f"{name}.npz", {"logits": logits.astype(np.float32)})
    meta = {
        "name": "tiny",
        "classes": ["left", "middle", "right"],
        "void": 255,
        "splits": {"train": ["a", "b"], "val": ["c", "d"]},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder
