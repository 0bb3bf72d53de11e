"""Masks of one image: what refining does to them, how exact it is, how long it takes.

    python -m experiments.masks --data FOLDER [--split val] [--every 2] [--peer] [--images 5]
        [--out FILE]

FOLDER/davis has images, true masks and a network's scores. The truth is distorted (blocks of 12
pixels, dilated by 6, eroded by 4), and scores become 0 and 1. Three tables: mean IoU with the
truth; the share of masks solved to 1e-6 within 100 iterations, with three models; CPU milliseconds
for each of 100 masks of 480 × 854 images on one thread. ``--peer`` adds pydensecrf2's mean field.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import densecrf
from densecrf.masks import MASKS, refine_masks
from densecrf.model.parameters import NUMBERS
from densecrf.model.resample import resize_bilinear
from experiments.quality import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KINDS = ("coarse", "dilated", "eroded", "scores")
CONFIDENCE = 1 / (1 + np.exp(-1.0))  # a 0/1 mask through the softmax
#: Spatial deviation and weight; bilateral deviations of position and colour, and weight.
CUTLER, LOCAL, HALF = (3, 7, 50, 5, 10), (1, 2, 20, 5, 5), (1, 1, 20, 5, 2.5)
PEER = {"CutLER's": CUTLER, "local": LOCAL, "half of local": HALF}
COUNT, SIZE = 100, (854, 480)


def held(kernels: tuple[float, ...]) -> densecrf.Parameters:
    """Return the model of masks that are held with the confidence of a softmax."""
    numbers: dict[str, Any] = dict(zip(NUMBERS, kernels, strict=True))
    return densecrf.Parameters(**numbers, confidence=CONFIDENCE)


def disk(radius: int) -> np.ndarray:
    """Return a disk."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return np.asarray(x * x + y * y <= radius * radius)


def distorted(truth: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Return the masks to refine, by kind."""
    from scipy.ndimage import binary_dilation, binary_erosion

    height, width = truth.shape
    side = 12
    more = [(0, -height % side), (0, -width % side)]
    padded = np.pad(truth.astype(float), more, mode="edge")
    blocks = padded.reshape(len(padded) // side, side, -1, side).mean((1, 3)) >= 0.5
    coarse = blocks.repeat(side, 0).repeat(side, 1)[:height, :width]
    logits = resize_bilinear(np.moveaxis(scores, -1, 0), truth.shape)
    return {
        "coarse": coarse,
        "dilated": binary_dilation(truth, disk(6)),
        "eroded": binary_erosion(truth, disk(4), border_value=1),
        "scores": logits[1] > logits[0],
    }


@cache
def masks_of(item: Item) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return an image, its true mask and the masks to refine."""
    truth = item.truth() == 1
    return item.image(), truth, distorted(truth, item.scores())


def iou(mask: np.ndarray, truth: np.ndarray) -> float:
    """Return intersection over union in per cent."""
    union = int((mask | truth).sum())
    return 100 * int((mask & truth).sum()) / union if union else 100.0


def mean_field(image: np.ndarray, mask: np.ndarray, kernels: tuple[float, ...]) -> np.ndarray:
    """Return the mask after ten iterations of pydensecrf2."""
    from pydensecrf.densecrf import DenseCRF2D

    height, width = mask.shape
    peer = DenseCRF2D(width, height, 2)
    p = np.where(np.stack([~mask, mask]), CONFIDENCE, 1 - CONFIDENCE)
    peer.setUnaryEnergy(np.ascontiguousarray(-np.log(p).reshape(2, -1), np.float32))
    peer.addPairwiseGaussian(sxy=kernels[0], compat=kernels[1])
    peer.addPairwiseBilateral(
        sxy=kernels[2], srgb=kernels[3], rgbim=np.array(image), compat=kernels[4]
    )
    return np.asarray(np.array(peer.inference(10)).argmax(0).reshape(height, width) == 1)


def each(function: Callable[[Any], Any], arguments: Iterable[Any], workers: int) -> list[Any]:
    """Return a function's results, by so many processes."""
    if workers <= 1:
        return [function(argument) for argument in arguments]
    with ProcessPoolExecutor(workers, initializer=quiet) as pool:
        return list(pool.map(function, arguments))


def quiet() -> None:
    """Leave out warnings about the models, which are worse on purpose."""
    warnings.simplefilter("ignore", densecrf.ArgumentWarning)


def ious(peer: bool, item: Item) -> dict[str, list[float]]:
    """Return the IoU of an image's masks, by method and kind."""
    image, truth, given = masks_of(item)
    found = {"input": [given[kind] for kind in KINDS]}
    for name, kernels in PEER.items() if peer else ():
        refined = [mean_field(image, given[kind], kernels) for kind in KINDS]
        found[f"mean field, {name} kernels"] = refined
    masks = np.stack([given[kind] for kind in KINDS])
    found["`refine_masks`"] = list(refine_masks(image, masks, threads=1).masks)
    return {name: [iou(mask, truth) for mask in masks] for name, masks in found.items()}


def quality(items: list[Item], peer: bool, workers: int = 1) -> list[list[Any]]:
    """Return the rows of mean IoU."""
    found = each(partial(ious, peer), items, workers)
    return [[name, *np.mean([one[name] for one in found], 0)] for name in found[0]]


MODELS = {
    "near borders (default)": MASKS,
    "local kernels, confidence 0.73": held(LOCAL),
    "CutLER's kernels, confidence 0.73": held(CUTLER),
}


def solved(task: tuple[str, Item]) -> list[tuple[float, int]]:
    """Return gaps and iterations of an image's masks by a model."""
    image, _, given = masks_of(task[1])
    masks = np.stack([given[k] for k in KINDS])
    options: dict[str, Any] = {"gap": 1e-6, "max_iterations": 100, "threads": 1}
    found = refine_masks(image, masks, model=MODELS[task[0]], **options)
    return [(one.gap, one.iterations) for one in found]


def exactness(items: list[Item], workers: int = 1) -> list[list[Any]]:
    """Return, by model, masks, the share within 1e-6, the median iterations, the largest gap."""
    tasks = [(name, item) for name in MODELS for item in items]
    found = each(solved, tasks, workers)
    rows: list[list[Any]] = []
    for name in MODELS:
        own = [one for (model, _), one in zip(tasks, found, strict=True) if model == name]
        gaps, iterations = np.concatenate(own).T
        share = 100 * np.mean(gaps <= 1e-6)
        rows.append([name, len(gaps), share, np.median(iterations), max(gaps)])
    return rows


def speed_of(masks: np.ndarray, peer: bool, item: Item) -> tuple[float, float, float]:
    """Return CPU milliseconds for each mask of a large image, ours and theirs, and our gap."""
    image = large(item)
    began = time.process_time()
    refined = refine_masks(image, masks, threads=1)
    ours = (time.process_time() - began) / len(masks)
    some = masks[:: max(1, len(masks) // 10)]
    began = time.process_time()
    for mask in some if peer else ():
        mean_field(image, mask, CUTLER)
    theirs = (time.process_time() - began) / len(some)
    return 1000 * ours, 1000 * theirs, max(refined.gap)


def large(item: Item) -> np.ndarray:
    """Return an image in the size that speed is measured in."""
    return np.array(Image.fromarray(item.image()).resize(SIZE, Image.Resampling.BICUBIC))


def speed(
    items: list[Item], peer: bool, device: str | None = None, images: int = 1, workers: int = 1
) -> list[list[Any]]:
    """Return medians over images of CPU milliseconds for each of many masks, gaps and ratios."""
    found: list[np.ndarray] = []
    for kind in KINDS:
        for item in items:
            mask = Image.fromarray(masks_of(item)[2][kind]).resize(SIZE, Image.Resampling.NEAREST)
            found.append(np.array(mask))
    masks = np.stack(found[:: max(1, len(found) // COUNT)][:COUNT])
    chosen = items[len(items) // (2 * images) :: max(1, len(items) // images)][:images]
    ours, theirs, gaps = np.transpose(each(partial(speed_of, masks, peer), chosen, workers))
    rows: list[list[Any]] = [["`refine_masks`", len(masks), np.median(ours), max(gaps)]]
    if peer:
        ratio = theirs / ours
        span = f"{np.median(ratio):.1f} times ({min(ratio):.1f} to {max(ratio):.1f})"
        rows.append([f"pydensecrf2's loop: {span}", 10, np.median(theirs), ""])
    for name in ("first call", "then") if device else ():
        wall = time.perf_counter()
        refined = refine_masks(large(chosen[0]), masks, device=device)
        one = 1000 * (time.perf_counter() - wall) / len(masks)
        rows.append([f"on {device}, {name} (elapsed)", len(masks), one, max(refined.gap)])
    return rows


def table(head: str, rows: list[list[Any]], formats: list[str]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    for first, *rest in rows:
        cells = [f"{value:{form}}" if value != "" else "" for value, form in zip(rest, formats)]  # noqa: B905
        lines.append(f"| {first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--every", type=int, default=2, help="use every n-th frame")
    parser.add_argument("--exact-every", type=int, default=8, help="and of those, for exactness")
    parser.add_argument("--peer", action="store_true", help="with the rows of pydensecrf2")
    parser.add_argument("--images", type=int, default=1, help="images that speed is measured on")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--device", help="for a row of speed on a GPU")
    parser.add_argument("--parts", default="quality,exactness,speed")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    quiet()
    folder = given.data / "davis"
    names = json.loads((folder / "meta.json").read_text())["splits"][given.split]
    items = [Item(folder, name) for name in names[:: given.every]]
    parts = []
    if "speed" in given.parts:
        some = items[:: max(1, len(items) // 25)]
        rows = speed(some, given.peer, given.device, given.images, given.workers)
        head = (
            f"100 masks of {given.images} images, 480 × 854 | masks | CPU ms a mask | largest gap"
        )
        parts.append(table(head, rows, ["d", ".1f", ".1e"]))
        print(parts[-1], flush=True)
    if "quality" in given.parts:
        head = f"mean IoU, {len(items)} frames of {given.split} | {' | '.join(KINDS)}"
        parts.append(table(head, quality(items, given.peer, given.workers), [".2f"] * 4))
        print(parts[-1], flush=True)
    if "exactness" in given.parts:
        head = "model | masks | % within 1e-6 | iterations (median) | largest gap"
        rows = exactness(items[:: given.exact_every], given.workers)
        parts.append(table(head, rows, ["d", ".1f", ".0f", ".1e"]))
        print(parts[-1], flush=True)
    if given.out is not None:
        given.out.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
