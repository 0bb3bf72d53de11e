"""Masks of one image: what refining does to them, how exact it is, how long it takes.

    python -m experiments.masks --data FOLDER [--split val] [--every 2] [--peer] [--out FILE]

FOLDER/davis has images, true masks and a network's scores. The truth is distorted (blocks of 12
pixels, dilated by 6, eroded by 4), and scores become 0 and 1. Three tables: mean IoU with the
truth; the share of masks solved to 1e-6 within 100 iterations, with three models; CPU milliseconds
for each of 100 masks of a 480 × 854 image on one thread. ``--peer`` adds pydensecrf2's mean field.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import densecrf
from densecrf.masks import MASKS, refine_masks
from densecrf.model.parameters import NUMBERS
from densecrf.model.resample import resize_bilinear
from experiments.quality import Item

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


def quality(items: list[Item], peer: bool) -> list[list[Any]]:
    """Return the rows of mean IoU."""
    every = [masks_of(item) for item in items]
    rows: list[list[Any]] = [
        ["input", *(np.mean([iou(given[k], t) for _, t, given in every]) for k in KINDS)]
    ]
    for name, kernels in PEER.items() if peer else ():
        found = {
            k: [iou(mean_field(image, given[k], kernels), t) for image, t, given in every]
            for k in KINDS
        }
        rows.append([f"mean field, {name} kernels", *(np.mean(found[k]) for k in KINDS)])
    ours: dict[str, list[float]] = {k: [] for k in KINDS}
    for image, truth, given in every:
        refined = refine_masks(image, np.stack([given[k] for k in KINDS]), threads=1)
        for kind, mask in zip(KINDS, refined.masks, strict=True):
            ours[kind].append(iou(mask, truth))
    rows.append(["`refine_masks`", *(np.mean(ours[k]) for k in KINDS)])
    return rows


def exactness(items: list[Item]) -> list[list[Any]]:
    """Return, by model, masks, the share within 1e-6, the median and the most iterations."""
    rows: list[list[Any]] = []
    models = {
        "near borders (default)": MASKS,
        "local kernels, confidence 0.73": held(LOCAL),
        "CutLER's kernels, confidence 0.73": held(CUTLER),
    }
    for name, model in models.items():
        gaps, iterations = [], []
        for item in items:
            image, _, given = masks_of(item)
            masks = np.stack([given[k] for k in KINDS])
            found = refine_masks(image, masks, model=model, gap=1e-6, max_iterations=100, threads=1)
            gaps += found.gap
            iterations += [each.iterations for each in found]
        share = 100 * np.mean(np.array(gaps) <= 1e-6)
        rows.append([name, len(gaps), share, np.median(iterations), max(gaps)])
    return rows


def speed(items: list[Item], peer: bool, device: str | None = None) -> list[list[Any]]:
    """Return CPU seconds for each of many masks of one large image, the largest gap and ratios."""
    image = np.array(
        Image.fromarray(items[len(items) // 2].image()).resize(SIZE, Image.Resampling.BICUBIC)
    )
    found: list[np.ndarray] = []
    for kind in KINDS:
        for item in items:
            mask = Image.fromarray(masks_of(item)[2][kind]).resize(SIZE, Image.Resampling.NEAREST)
            found.append(np.array(mask))
    masks = np.stack(found[:: max(1, len(found) // COUNT)][:COUNT])
    began = time.process_time()
    refined = refine_masks(image, masks, threads=1)
    ours = (time.process_time() - began) / len(masks)
    rows: list[list[Any]] = [["`refine_masks`", len(masks), 1000 * ours, max(refined.gap)]]
    for name in ("first call", "then") if device else ():
        wall = time.perf_counter()
        refined = refine_masks(image, masks, device=device)
        each = 1000 * (time.perf_counter() - wall) / len(masks)
        rows.append([f"on {device}, {name} (elapsed)", len(masks), each, max(refined.gap)])
    if peer:
        some = masks[:: max(1, len(masks) // 10)]
        began = time.process_time()
        for mask in some:
            mean_field(image, mask, CUTLER)
        theirs = (time.process_time() - began) / len(some)
        rows.append(
            [f"pydensecrf2's loop: {theirs / ours:.1f} times", len(some), 1000 * theirs, ""]
        )
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
    parser.add_argument("--device", help="for a row of speed on a GPU")
    parser.add_argument("--parts", default="quality,exactness,speed")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", densecrf.ArgumentWarning)
    folder = given.data / "davis"
    names = json.loads((folder / "meta.json").read_text())["splits"][given.split]
    items = [Item(folder, name) for name in names[:: given.every]]
    parts = []
    if "speed" in given.parts:
        rows = speed(items[:: max(1, len(items) // 25)], given.peer, given.device)
        parts.append(
            table(
                "100 masks, 480 × 854 | masks | CPU ms a mask | largest gap",
                rows,
                ["d", ".1f", ".1e"],
            )
        )
        print(parts[-1], flush=True)
    if "quality" in given.parts:
        head = f"mean IoU, {len(items)} frames of {given.split} | {' | '.join(KINDS)}"
        parts.append(table(head, quality(items, given.peer), [".2f"] * 4))
        print(parts[-1], flush=True)
    if "exactness" in given.parts:
        head = "model | masks | % within 1e-6 | iterations (median) | largest gap"
        rows = exactness(items[:: given.exact_every])
        parts.append(table(head, rows, ["d", ".1f", ".0f", ".1e"]))
        print(parts[-1], flush=True)
    if given.out is not None:
        given.out.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
