"""One table of seven kinds of images: what the default and the adapted model do to them.

    python -m experiments.quality --data FOLDER [--split val] [--every 1] [--jobs 1] [--out FILE]

For each set under FOLDER (images/, labels/, logits/ of any resolution, meta.json): accuracy and
mean IoU of the network, of five iterations of mean field with the usual kernels, of the default and
of the model adapted to the unlabelled val images, with paired bootstrap intervals of the gains; the
share of images that lose more than one and two points of IoU, and of those the ones warned about.
Hard labels and class activation maps, both made from the ground truth and seeded, are refined, too.
"""

from __future__ import annotations

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import densecrf
from densecrf.learning.adaptation import Seen, adapted, look_at
from densecrf.metrics import accuracy, bootstrap, confusion_matrix, mean_iou
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.model.resample import resize_bilinear
from densecrf.refinement import build

SETS = ("msrc", "camvid", "cells", "facade", "davis", "cracks", "vessels")
GAP = 1e-2
USUAL = Parameters(3, 3, 60, 13, 10)
METHODS = ("input", "usual mean field", "default", "adapted", "fitted")
MADE = ("hard labels", "activation maps")


@dataclass(frozen=True)
class Item:
    """An image of a set."""

    folder: Path
    name: str

    def image(self) -> np.ndarray:
        """Return the colours."""
        (file,) = (self.folder / "images").glob(f"{self.name}.*")
        return np.array(Image.open(file).convert("RGB"))

    def truth(self) -> np.ndarray:
        """Return the true labels, 255 for void."""
        return np.array(Image.open(self.folder / "labels" / f"{self.name}.png"))

    def scores(self) -> np.ndarray:
        """Return the logits, labels last."""
        with np.load(self.folder / "logits" / f"{self.name}.npz") as file:
            return np.asarray(file["logits"], np.float32)


def items_of(folder: Path, split: str, every: int = 1) -> list[Item]:
    """Return the images of a split."""
    names = json.loads((folder / "meta.json").read_text())["splits"][split]
    return [Item(folder, name) for name in names[::every]]


def hard_labels(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a careless annotation: borders displaced by 4 pixels or so, 6 % of blocks wrong."""
    height, width = truth.shape
    labels = np.where(truth == 255, 0, truth)
    shift = rng.normal(0, 4, (2, height // 16 + 2, width // 16 + 2))
    dy, dx = resize_bilinear(shift, truth.shape)
    y, x = np.mgrid[:height, :width]
    rows, columns = (y + dy).round().astype(int), (x + dx).round().astype(int)
    moved = labels[rows.clip(0, height - 1), columns.clip(0, width - 1)]
    blocks = rng.random((height // 8 + 1, width // 8 + 1)) < 0.06
    others = rng.choice(np.unique(labels), blocks.shape)
    wrong, other = (each.repeat(8, 0).repeat(8, 1)[:height, :width] for each in (blocks, others))
    return np.where(wrong, other, moved)


def activation_maps(truth: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return soft maps at a stride of 16 pixels, blurred, each cell wrong by a third or so."""
    labels = np.where(truth == 255, 0, truth)
    one = (labels == np.arange(count)[:, None, None]).astype(np.float32)
    sides = [(0, -side % 16) for side in truth.shape]
    whole = np.pad(one, ((0, 0), *sides), mode="edge")
    cells = whole.reshape(count, whole.shape[1] // 16, 16, -1, 16).mean((2, 4))
    for _ in range(2):
        for axis in (1, 2):
            ends = [(0, 0)] * 3
            ends[axis] = (1, 1)
            low, middle, high = (
                np.take(np.pad(cells, ends, mode="edge"), np.arange(n, n + cells.shape[axis]), axis)
                for n in range(3)
            )
            cells = 0.25 * low + 0.5 * middle + 0.25 * high
    soft = cells * np.exp(rng.normal(0, 0.3, cells.shape)) + 0.01
    maps = resize_bilinear(soft, truth.shape)
    return np.asarray(maps / maps.sum(0))


def see(item: Item, device: str | None) -> Seen:
    """Return what adapting takes from an image."""
    crf = build(item.image(), item.scores(), kind="logits", axis=-1)
    return look_at(crf, 1, GAP, device)


def learn(items: list[Item], device: str | None) -> Parameters:
    """Return the model fitted to labelled images."""
    samples = ((item.image(), item.scores(), item.truth()) for item in items)
    return densecrf.fit(samples, kind="logits", axis=-1, threads=1, jobs=2, device=device)


def judge(
    item: Item, models: dict[str, Parameters], made: bool, device: str | None
) -> dict[str, Any]:
    """Return confusion matrices by method, and whether the default and adapted models warned."""
    image, truth, scores = item.image(), item.truth(), item.scores()
    count = scores.shape[-1]
    found: dict[str, Any] = {"name": item.name, "warned": {}}

    def add(name: str, given: Any, **options: Any) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = densecrf.refine(image, given, threads=1, device=device, **options)
        found["warned"][name] = bool(told)
        found[name] = confusion_matrix(result.labels, truth, count).tolist()

    enlarged = resize_bilinear(np.moveaxis(scores, -1, 0), truth.shape).argmax(0)
    found["input"] = confusion_matrix(enlarged, truth, count).tolist()
    reading: dict[str, Any] = {"kind": "logits", "axis": -1}
    add("usual mean field", scores, model=USUAL, method="mf5", **reading)
    add("default", scores, gap=GAP, **reading)
    for name, model in models.items():
        add(name, scores, model=model, gap=GAP, **reading)
    if made:
        rng = np.random.default_rng(sum(map(ord, item.name)))
        careless, maps = hard_labels(truth, rng), activation_maps(truth, count, rng)
        found["hard labels, input"] = confusion_matrix(careless, truth, count).tolist()
        found["activation maps, input"] = confusion_matrix(maps.argmax(0), truth, count).tolist()
        add("hard labels", careless, kind="labels", n_labels=count, void=None, gap=GAP)
        add("activation maps", maps, axis=0, gap=GAP)
    return found


def table(name: str, found: list[dict[str, Any]]) -> str:
    """Return the rows of a set."""
    rows = []
    for method in (*METHODS, *MADE):
        chosen = [each for each in found if method in each]
        if not chosen:
            continue
        before = f"{method}, input" if method in MADE else "input"
        ours = np.array([each[method] for each in chosen])
        theirs = np.array([each[before] for each in chosen])
        total = ours.sum(0)
        cells = [f"{name}", method, f"{100 * accuracy(total):.2f} / {100 * mean_iou(total):.2f}"]
        if method != "input":
            for metric in ("accuracy", "iou"):
                gain = bootstrap(ours, metric, minus=theirs, resamples=1000)
                cells.append(
                    f"{100 * gain.estimate:+.2f} [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"
                )
            each = 100 * np.array([_iou(a) - _iou(b) for a, b in zip(ours, theirs, strict=True)])
            warned = np.array([item["warned"].get(method, False) for item in chosen])
            cells += [f"{100 * (each < -points).mean():.0f} %" for points in (1, 2)]
            cells.append(
                f"{int((warned & (each < -2)).sum())} of {int((each < -2).sum())}, "
                f"{int((warned & (each > 0)).sum())} of {int((each > 0).sum())}"
            )
        else:
            cells += [""] * 5
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _iou(confusion: np.ndarray) -> float:
    return float(mean_iou(confusion))


HEAD = """\
| set | | accuracy / IoU | accuracy gain | IoU gain | lose > 1 | > 2 | warned: losing, gaining |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--every", type=int, default=1, help="one image of so many")
    parser.add_argument("--made", type=int, default=4, help="one of so many with made-up input")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", help="of refine, for example cuda")
    parser.add_argument("--fit", action="store_true", help="fit to the val images, too")
    parser.add_argument("--out", type=Path, help="matrices of all images, as JSON")
    chosen = parser.parse_args()
    kept: dict[str, Any] = {}
    print(HEAD, flush=True)
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        fitting = {
            name: pool.submit(
                learn, items_of(chosen.data / name, "val", chosen.every), chosen.device
            )
            for name in (chosen.sets if chosen.fit else ())
        }
        for name in chosen.sets:
            folder = chosen.data / name
            unlabelled = items_of(folder, "val", chosen.every)
            seen = list(pool.map(see, unlabelled, [chosen.device] * len(unlabelled)))
            models = {"adapted": adapted(PRESETS["default"], seen)}
            if name in fitting:
                models["fitted"] = fitting[name].result()
            items = items_of(folder, chosen.split, chosen.every)
            mades = [number % chosen.made == 0 for number in range(len(items))]
            shared = [models] * len(items), mades, [chosen.device] * len(items)
            found = list(pool.map(judge, items, *shared))
            made = {which: dict(model.provenance) for which, model in models.items()}
            kept[name] = {"models": made, "images": found}
            print(table(name, found), flush=True)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
