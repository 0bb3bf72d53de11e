"""One table of seven kinds of images: what the default and the adapted model do to them.

    python -m experiments.quality --data FOLDER [--split val] [--every 1] [--jobs 1] [--out FOLDER]

For each set under FOLDER (images/, labels/, logits/ of any resolution, meta.json): accuracy and
mean IoU of the network, and what the default, the model adapted to the unlabelled val images, and
five iterations of mean field with the usual kernels gain, with paired bootstrap intervals; the
share of images that lose more than a point of IoU without a warning. Careless hard labels and class
activation maps, both made from the ground truth and seeded, are refined with the default, too.

Answers are kept in the output folder, image by image: an interrupted run goes on where it was.
``--page FILE`` writes the table into a page of the documentation, between its two marks, and
pictures beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import warnings
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import densecrf
from densecrf.learning.adaptation import Seen, adapted, look_at
from densecrf.metrics import accuracy, bootstrap, confusion_matrix, mean_iou
from densecrf.model.parameters import Parameters, read_parameters, write_parameters
from densecrf.model.presets import PRESETS
from densecrf.model.resample import resize_bilinear
from densecrf.refinement import build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SETS = {
    "msrc": "MSRC-21 (weak network), 8",
    "camvid": "CamVid (poles, signs), 8",
    "cells": "white blood cells (good network), 4",
    "facade": "facades (windows, doors), 4",
    "davis": "objects in videos (unsure network), 3",
    "cracks": "cracks of 1 to 5 pixels, 2",
    "vessels": "retinal vessels of 1 to 9 pixels, 2",
}
CONSECUTIVE = {"davis": 4}  # frames of videos differ little: one of so many
GAP = 1e-2
USUAL = Parameters(3, 3, 60, 13, 10)
LOGITS: dict[str, Any] = {"kind": "logits", "axis": -1}
#: The columns of the table, and what each is compared with.
METHODS = {
    "default": "input",
    "adapted": "input",
    "fitted": "input",
    "usual mean field": "input",
    "hard labels": "hard labels, input",
    "activation maps": "activation maps, input",
}
MARKS = ("<!-- quality -->", "<!-- end of quality -->")


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
    every *= CONSECUTIVE.get(folder.name, 1)
    return [Item(folder, name) for name in names[::every]]


def input_labels(scores: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the network's own labelling of an image."""
    return np.asarray(resize_bilinear(np.moveaxis(scores, -1, 0), shape).argmax(0))


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


def see(item: Item) -> dict[str, Any]:
    """Return what adapting takes from an image."""
    seen = look_at(build(item.image(), item.scores(), **LOGITS), 1, GAP)
    return {name: np.asarray(value).tolist() for name, value in vars(seen).items()}


def learn(items: Sequence[Item], jobs: int) -> Parameters:
    """Return the model fitted to labelled images."""
    samples = ((item.image(), item.scores(), item.truth()) for item in items)
    return densecrf.fit(samples, threads=1, jobs=jobs, **LOGITS)


def judge(item: Item, models: dict[str, Parameters], made: bool = False) -> dict[str, Any]:
    """Return confusion matrices by method, and which methods warned.

    Parameters
    ----------
    item : Item
        The image.
    models : dict of Parameters
        Models to be judged besides the default.
    made : bool
        Whether hard labels and activation maps are made from the truth and refined.
    """
    image, truth, scores = item.image(), item.truth(), item.scores()
    count = scores.shape[-1]
    found: dict[str, Any] = {"warned": []}

    def add(name: str, labels: np.ndarray) -> None:
        found[name] = confusion_matrix(labels, truth, count).tolist()

    def refine(name: str, given: Any, **options: Any) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            add(name, densecrf.refine(image, given, threads=1, **options).labels)
        if told:
            found["warned"].append(name)

    add("input", input_labels(scores, truth.shape))
    refine("usual mean field", scores, model=USUAL, method="mf5", **LOGITS)
    refine("default", scores, gap=GAP, **LOGITS)
    for name, model in models.items():
        refine(name, scores, model=model, gap=GAP, **LOGITS)
    if made:
        rng = np.random.default_rng(sum(map(ord, item.name)))
        careless, maps = hard_labels(truth, rng), activation_maps(truth, count, rng)
        add("hard labels, input", careless)
        refine("hard labels", careless, kind="labels", n_labels=count, void=None, gap=GAP)
        add("activation maps, input", maps.argmax(0))
        refine("activation maps", maps, axis=0, gap=GAP)
    return found


def kept(
    file: Path,
    pool: Executor,
    work: Callable[..., Any],
    tasks: dict[str, tuple[Any, ...]],
    code: Sequence[Path] = (Path(densecrf.__file__).parent,),
) -> list[Any]:
    """Return the answers to tasks; those in the file are taken from there, others written to it.

    The file's answers are by the task's name, and hold for the code, files or folders, as it
    is.
    """
    files = [f for each in code for f in ([each] if each.is_file() else each.rglob("*.py"))]
    texts = (path.read_bytes() for path in sorted(files))
    now = hashlib.sha256(b"".join(texts)).hexdigest()[:12]
    found: dict[str, Any] = {}
    if file.exists():
        for line in file.read_text().splitlines():
            name, sources, answer = json.loads(line)
            if sources == now:
                found[name] = answer
    missing = {pool.submit(work, *tasks[name]): name for name in tasks if name not in found}
    with file.open("a") as out:
        for done in as_completed(missing):
            found[missing[done]] = done.result()
            out.write(json.dumps([missing[done], now, done.result()]) + "\n")
            out.flush()
    return [found[name] for name in tasks]


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table, from the matrices of each set's images."""
    methods = [name for name in METHODS if all(name in images[0] for images in found.values())]
    rows = [
        ["images (what is hard), stride", "network", *methods, "lose unwarned: default, adapted"]
    ]
    rows.append(["---"] * len(rows[0]))
    for name, images in found.items():
        total = np.sum([each["input"] for each in images], axis=0)
        row = [SETS[name], f"{100 * accuracy(total):.2f} / {100 * mean_iou(total):.2f}"]
        row += [gain(images, method) for method in methods]
        lost = [100 * unwarned(images, method) for method in ("default", "adapted")]
        rows.append([*row, " %, ".join(f"{share:.0f}" for share in lost) + " %"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def pairs(images: Sequence[dict[str, Any]], method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrices of a method and of what it was given, of the images that have them."""
    chosen = [each for each in images if method in each]
    names = (method, METHODS[method])
    ours, theirs = (np.array([each[name] for each in chosen]) for name in names)
    return ours, theirs


def gain(images: Sequence[dict[str, Any]], method: str) -> str:
    """Return what a method gains in points of accuracy / IoU, with the interval of the IoU."""
    ours, theirs = pairs(images, method)
    points, iou = (
        bootstrap(ours, metric, minus=theirs, resamples=1000) for metric in ("accuracy", "iou")
    )
    span = f"[{100 * iou.low:+.2f}, {100 * iou.high:+.2f}]"
    return f"{100 * points.estimate:+.2f} / {100 * iou.estimate:+.2f} {span}"


def unwarned(images: Sequence[dict[str, Any]], method: str, points: float = 1.0) -> float:
    """Return the share of images that lose more points of IoU without a warning."""
    ours, theirs = pairs(images, method)
    lost = mean_iou(ours) - mean_iou(theirs) < -0.01 * points
    return float(np.mean(lost & [method not in each["warned"] for each in images]))


def picture(item: Item, file: Path) -> None:
    """Write the labels of the network, of the default and the true ones, side by side."""
    scores, truth = item.scores(), item.truth()
    ours = densecrf.refine(item.image(), scores, gap=GAP, **LOGITS).labels
    white = np.full((len(truth), 6), 255)
    sheet = [input_labels(scores, truth.shape), white, ours, white, truth]
    picture = Image.fromarray(np.concatenate(sheet, 1).astype(np.uint8), "P")
    hues = (np.arange(255) * 0.618034) % 1
    colors = 0.62 + 0.28 * np.cos(2 * np.pi * (hues[:, None] + np.array([0, 1 / 3, 2 / 3])))
    picture.putpalette([*(255 * colors).astype(np.uint8).ravel().tolist(), 255, 255, 255])
    picture.resize((640, round(640 * picture.height / picture.width)), 0).save(file, optimize=True)


def write_page(page: Path, text: str, found: dict[str, list[Any]], items: Any) -> None:
    """Write the table into a page, and a picture of each set's median image and of the worst."""
    begin, end = MARKS
    before, _, after = re.split(f"({begin}.*{end})", page.read_text("utf-8"), flags=re.DOTALL)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", "utf-8")
    folder = page.parent / "images" / "quality"
    folder.mkdir(parents=True, exist_ok=True)
    worst: tuple[float, Any] = (np.inf, None)
    for name, images in found.items():
        ours, theirs = pairs(images, "default")
        each = mean_iou(ours) - mean_iou(theirs)
        order = np.argsort(each)
        picture(items[name][order[len(order) // 2]], folder / f"{name}.png")
        worst = min(worst, (float(each[order[0]]), items[name][order[0]]), key=lambda pair: pair[0])
    picture(worst[1], folder / "worst.png")
    print(f"the worst: {worst[1]}, {100 * worst[0]:+.1f} points of IoU")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--every", type=int, default=1, help="one image of so many")
    parser.add_argument("--made", type=int, default=3, help="one of so many with made-up input")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fit", action="store_true", help="fit to the val images, too")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder of answers")
    parser.add_argument("--page", type=Path, help="of the documentation, to be written")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    found, items = {}, {}
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for name in chosen.sets:
            folder = chosen.data / name
            unlabelled = items_of(folder, "val", chosen.every)
            tasks: dict[str, Any] = {item.name: (item,) for item in unlabelled}
            answers = kept(chosen.out / f"{name}-seen.jsonl", pool, see, tasks)
            seen = [Seen(**{key: np.array(each[key]) for key in each}) for each in answers]
            models = {"adapted": adapted(PRESETS["default"], seen)}
            if chosen.fit:
                fitted = chosen.out / f"{name}-fitted.json"
                if not fitted.exists():
                    write_parameters(fitted, learn(unlabelled, chosen.jobs))
                models["fitted"] = read_parameters(fitted)
            items[name] = items_of(folder, chosen.split, chosen.every)
            tasks = {
                f"{item.name} {number % chosen.made == 0} {list(models)}": (
                    item,
                    models,
                    number % chosen.made == 0,
                )
                for number, item in enumerate(items[name])
            }
            file = chosen.out / f"{name}-{chosen.split}-{chosen.every}.jsonl"
            found[name] = kept(file, pool, judge, tasks)
            print(
                name,
                *(f"{m} {gain(found[name], m)}" for m in METHODS if m in found[name][0]),
                sep="; ",
                flush=True,
            )
    text = table(found)
    print(text)
    if chosen.page is not None:
        write_page(chosen.page, text, found, items)


if __name__ == "__main__":
    main()
