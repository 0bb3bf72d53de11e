"""Strokes: how many of them a seeded robot user draws until the labels are right. Boxes.

    python -m experiments.interactive --data FOLDER [--split val] [--sets davis cells ...]
        [--tables strokes boxes] [--methods ...] [--jobs 2] [--out FOLDER] [--page FILE]

The robot draws one stroke in each label's largest region, then one stroke at a time through the
largest region whose label is wrong: along the longest path of the region's medial axis, from which
it leaves out a random part. Images are reduced to 160 pixels; labels of less than one per cent of
an image count as void. Every method gets the strokes that its own mistakes provoke. IoU is the mean
over an image's labels, and the object's alone in davis.

Boxes are those of the true objects of two per cent of an image or more, at full size: davis'
object, cells, and connected regions of MSRC's classes of things. Boxes of more than 90 % of an
image are left out.

Answers are kept in the output folder, image by image: an interrupted run goes on where it was.
``--page FILE`` writes the table into a page, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import densecrf
from densecrf.model.parameters import Parameters
from densecrf.model.scribbles import BINS, color_bins, color_costs, scribble_crf
from densecrf.model.specification import Specification
from densecrf.model.unaries import plant
from experiments.quality import Item, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = np.ndarray

#: Sets, and which of a split's images are taken: one of so many.
SETS = {"davis": 8, "cells": 2, "facade": 3, "msrc": 6}
SIDE = 160  # pixels of the longer side
LEAST_SHARE = 0.01  # of an image's pixels: smaller labels count as void
LEAST_WRONG = 12  # pixels of a region that the robot still sees
BRUSH = 1  # pixels around the path: strokes are three pixels wide
MOST = 10  # strokes per label
AFTER = (1, 3, 5, 10)  # strokes per label at which IoU is noted
GOALS = (0.85, 0.90)
VOID = 255
GAP = 1e-2
ROUNDS = 3  # of GrabCut
#: Sets of boxes, and which of a split's images are taken.
BOXED = {"davis": 8, "cells": 1, "msrc": 1}
STUFF = {"building", "grass", "tree", "sky", "water", "road"}  # classes without objects
LEAST_OBJECT, MOST_BOX = 0.02, 0.9  # of an image's pixels
BOX_ROUNDS = 5  # of GrabCut
LOST = 0.3  # IoU below which an object counts as lost
MARKS = ("<!-- interactive -->", "<!-- end of interactive -->")


# --- methods -------------------------------------------------------------------------------------


def ours(image: Array, strokes: Array, count: int) -> Array:
    """Return the labels that `densecrf segment --scribbles` gives."""
    crf = scribble_crf(Specification(n_labels=count), image, strokes, -1)
    return np.asarray(crf.solve("lp", gap=GAP, threads=1).labels)


def before(image: Array, strokes: Array, count: int) -> Array:
    """Return the labels by the colours under the strokes alone and wide kernels, as in 0.1."""
    bins = color_bins(image)
    counts = [np.bincount(bins[strokes == i], minlength=BINS**3) for i in range(count)]
    unary = color_costs(counts, 3, 0.9).take(bins, axis=1)
    plant(unary, strokes)
    model = Parameters(3, 2, 80, 6, 5, pixels=300 * 355, scale_sigmas=True)
    crf = model.crf(unary, image)
    return np.asarray(crf.solve("lp", gap=GAP, threads=1).labels)


def grab_cut(image: Array, strokes: Array, count: int) -> Array:
    """Return OpenCV's GrabCut; of more than two labels each against the rest.

    Pixels that several labels claim, or none, get the label of the nearest stroke.
    """
    cv2: Any = import_module("cv2")
    cv2.setRNGSeed(0)
    cv2.setNumThreads(1)
    nearest = distances(strokes, count).argmin(0)

    def foreground(label: int) -> Array:
        mask = np.where(nearest == label, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
        mask[strokes >= 0] = cv2.GC_BGD
        mask[strokes == label] = cv2.GC_FGD
        models = np.zeros((1, 65)), np.zeros((1, 65))
        bgr = np.ascontiguousarray(image[..., ::-1])
        cv2.grabCut(bgr, mask, None, *models, ROUNDS, cv2.GC_INIT_WITH_MASK)
        return np.asarray(mask & 1)

    if count == 2:
        return np.asarray(foreground(1))
    claims = np.stack([foreground(label) for label in range(count)])
    alone = np.where(claims.sum(0) == 1, claims.argmax(0), nearest)
    return np.where(strokes >= 0, strokes, alone)


def random_walker(image: Array, strokes: Array, _: int) -> Array:
    """Return scikit-image's random walker."""
    walk: Any = import_module("skimage.segmentation").random_walker
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = walk(image / 255, strokes + 1, beta=130, mode="cg_j", channel_axis=-1)
    return np.asarray(labels) - 1


def geodesic(image: Array, strokes: Array, _: int) -> Array:
    """Return the label of the stroke that is nearest by paths along which the colour changes."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    height, width = strokes.shape
    index = np.arange(height * width).reshape(height, width)
    colors = image.astype(float)
    starts, ends, costs = [], [], []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = np.s_[: height - dy, max(0, -dx) : width - max(0, dx)]
        there = np.s_[dy:, max(0, dx) : width + min(0, dx)]
        step = colors[here] - colors[there]
        starts.append(index[here].ravel())
        ends.append(index[there].ravel())
        costs.append(np.sqrt((step**2).sum(-1) + dy * dy + dx * dx).ravel())
    parts = (np.concatenate(costs), (np.concatenate(starts), np.concatenate(ends)))
    graph = coo_matrix(parts, shape=(index.size, index.size)).tocsr()
    seeds = np.flatnonzero(strokes >= 0)
    _, _, source = dijkstra(graph, False, seeds, return_predecessors=True, min_only=True)
    return np.asarray(strokes.ravel()[source].reshape(strokes.shape))


METHODS: dict[str, Callable[[Array, Array, int], Array]] = {
    "densecrf": ours,
    "before": before,
    "GrabCut": grab_cut,
    "random walker": random_walker,
    "geodesic": geodesic,
}

OURS = ("densecrf", "before")  # depend on the package


def distances(strokes: Array, count: int) -> Array:
    """Return the distance of each pixel from each label's strokes, (labels, H, W)."""
    from scipy.ndimage import distance_transform_edt

    return np.stack([distance_transform_edt(strokes != label) for label in range(count)])


# --- the robot -----------------------------------------------------------------------------------


def scene(item: Item) -> tuple[Array, Array]:
    """Return an image, reduced, and its true labels, which count from 0 without a gap."""
    image, truth = item.image(), item.truth()
    times = min(1.0, SIDE / max(truth.shape))
    size = tuple(max(1, round(side * times)) for side in truth.shape[::-1])
    small = np.array(Image.fromarray(image).resize(size, Image.Resampling.BOX))
    labels = np.array(Image.fromarray(truth).resize(size, Image.Resampling.NEAREST))
    out = np.full(labels.shape, VOID)
    names, counts = np.unique(labels[labels != VOID], return_counts=True)
    for new, name in enumerate(names[counts >= LEAST_SHARE * labels.size]):
        out[labels == name] = new
    return small, out


def largest_region(wanted: Array) -> Array:
    """Return the largest connected region of a mask, by sides."""
    from scipy.ndimage import label

    parts, _ = label(wanted)
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return np.asarray((parts == sizes.argmax()) & wanted)


def stroke_through(region: Array, rng: np.random.Generator) -> Array:
    """Return the pixels of a stroke along a region's medial axis."""
    from scipy.ndimage import binary_dilation, distance_transform_edt

    depth = distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    skeletonize: Any = import_module("skimage.morphology").skeletonize
    axis = skeletonize(region) & (depth >= 0.4 * depth.max())
    deepest = np.unravel_index(depth.argmax(), depth.shape)
    if not axis.any():
        axis[deepest] = True
    axis = largest_region_8(axis)
    path = longest_path(axis)
    share = rng.uniform(0.5, 1.0)
    length = max(1, round(share * len(path)))
    first = int(rng.integers(0, len(path) - length + 1))
    drawn = np.zeros(region.shape, bool)
    drawn[tuple(np.array(path[first : first + length]).T)] = True
    return np.asarray(binary_dilation(drawn, np.ones((3, 3)), iterations=BRUSH) & region)


def largest_region_8(wanted: Array) -> Array:
    """Return the largest connected region of a mask, by sides and corners."""
    from scipy.ndimage import label

    parts, _ = label(wanted, np.ones((3, 3)))
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return np.asarray((parts == sizes.argmax()) & wanted)


def longest_path(axis: Array) -> list[tuple[int, int]]:
    """Return the path between two ends of a connected skeleton that are far apart."""
    pixels = {(int(y), int(x)) for y, x in np.argwhere(axis)}

    def search(start: tuple[int, int]) -> tuple[tuple[int, int], dict[Any, Any]]:
        came: dict[Any, Any] = {start: None}
        rank = [start]
        for y, x in rank:
            for near in ((y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)):
                if near in pixels and near not in came:
                    came[near] = (y, x)
                    rank.append(near)
        return rank[-1], came

    one, _ = search(min(pixels))
    at: Any
    at, came = search(one)
    path = []
    while at is not None:
        path.append(at)
        at = came[at]
    return path


def quality(labels: Array, truth: Array, only: int | None) -> float:
    """Return the mean IoU over the true labels, or one label's."""
    known = truth != VOID
    each = []
    for label in range(truth[known].max() + 1) if only is None else [only]:
        ours, theirs = (labels == label) & known, truth == label
        each.append((ours & theirs).sum() / max(1, (ours | theirs).sum()))
    return float(np.mean(each))


def session(item: Item, method: str) -> dict[str, Any]:
    """Return the number of labels, and IoU after each stroke, from one per label on."""
    image, truth = scene(item)
    count = int(truth[truth != VOID].max(initial=0)) + 1
    if count < 2:
        return {"labels": count, "iou": []}
    rng = np.random.default_rng(sum(map(ord, item.name)))
    only = 1 if item.folder.name == "davis" else None
    strokes = np.full(truth.shape, -1)
    for label in range(count):
        strokes[stroke_through(largest_region(truth == label), rng)] = label
    iou = []
    for number in range(count, MOST * count + 1):
        labels = METHODS[method](image, strokes, count)
        iou.append(quality(labels, truth, only))
        if number < MOST * count:
            wrong = (labels != truth) & (truth != VOID) & (strokes < 0)
            regions = [largest_region(wrong & (truth == label)) for label in range(count)]
            sizes = [region.sum() for region in regions]
            if max(sizes) < LEAST_WRONG:
                break
            worst = int(np.argmax(sizes))
            strokes[stroke_through(regions[worst], rng)] = worst
    return {"labels": count, "iou": iou}


# --- boxes ---------------------------------------------------------------------------------------


def objects(item: Item) -> list[tuple[Array, tuple[int, int, int, int]]]:
    """Return the true objects of an image and their boxes."""
    from scipy.ndimage import find_objects, label

    truth, folder = item.truth(), item.folder
    classes = json.loads((folder / "meta.json").read_text())["classes"]
    kinds = [i for i, name in enumerate(classes) if name not in {"background", *STUFF}]
    regions = [np.isin(truth, kinds)] if folder.name == "cells" else [truth == i for i in kinds]
    found = []
    for region in regions:
        parts = region.astype(int) if folder.name == "davis" else label(region)[0]
        for number, (rows, columns) in enumerate(find_objects(parts), 1):
            mask = parts == number
            area = (rows.stop - rows.start) * (columns.stop - columns.start)
            if mask.mean() >= LEAST_OBJECT and area <= MOST_BOX * mask.size:
                found.append((mask, (columns.start, rows.start, columns.stop, rows.stop)))
    return found


def our_box(image: Array, box: tuple[int, int, int, int]) -> Array:
    """Return the object of `densecrf.from_box`."""
    return np.asarray(densecrf.from_box(image, box, gap=GAP, threads=1).labels == 1)


def grab_cut_box(image: Array, box: tuple[int, int, int, int]) -> Array:
    """Return the object of OpenCV's GrabCut."""
    cv2: Any = import_module("cv2")
    cv2.setRNGSeed(0)
    cv2.setNumThreads(1)
    mask, models = np.zeros(image.shape[:2], np.uint8), (np.zeros((1, 65)), np.zeros((1, 65)))
    x, y, right, bottom = box
    bgr = np.ascontiguousarray(image[..., ::-1])
    rectangle = (x, y, right - x, bottom - y)
    cv2.grabCut(bgr, mask, rectangle, *models, BOX_ROUNDS, cv2.GC_INIT_WITH_RECT)
    return np.asarray(mask & 1 == 1)


def whole_box(image: Array, box: tuple[int, int, int, int]) -> Array:
    """Return the box."""
    mask = np.zeros(image.shape[:2], bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask


BOX_METHODS: dict[str, Callable[[Array, tuple[int, int, int, int]], Array]] = {
    "densecrf": our_box,
    "GrabCut": grab_cut_box,
    "the box": whole_box,
}


def boxed(item: Item, method: str) -> list[float]:
    """Return the IoU of each object of an image."""
    image, known = item.image(), item.truth() != VOID
    each = []
    for mask, box in objects(item):
        found = BOX_METHODS[method](image, box) & known
        each.append(float((found & mask).sum() / (found | mask).sum()))
    return each


def box_table(found: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return the table of boxes, by set and method."""
    rows = [["set (objects)", "method", "IoU", f"below {round(100 * LOST)} %"], ["---"] * 4]
    for name, methods in found.items():
        for method, images in methods.items():
            each = np.array([iou for image in images for iou in image])
            shares = [f"{100 * x:.1f}" for x in (each.mean(), (each < LOST).mean())]
            rows.append([f"{name} ({each.size})", method, shares[0], f"{shares[1]} %"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# --- tables --------------------------------------------------------------------------------------


def strokes_to(found: dict[str, Any], goal: float) -> float:
    """Return the strokes per label after which a goal is met; all of them where it never is."""
    met = np.flatnonzero(np.array(found["iou"]) >= goal)
    return float((met[0] + found["labels"]) / found["labels"]) if met.size else float(MOST)


def iou_after(found: dict[str, Any], strokes: int) -> float:
    """Return IoU after so many strokes per label; the last where the robot had no more to do."""
    place = (strokes - 1) * found["labels"]
    return float(found["iou"][min(place, len(found["iou"]) - 1)])


def summary(sessions: Sequence[dict[str, Any]]) -> list[float]:
    """Return the means over images: strokes to the goals, IoU in per cent."""
    some = [each for each in sessions if each["iou"]]
    numbers = [np.mean([strokes_to(each, goal) for each in some]) for goal in GOALS]
    return [*map(float, numbers), *(100 * np.mean([iou_after(s, k) for s in some]) for k in AFTER)]


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Return the table, by set and method."""
    heads = [f"to {round(100 * goal)} %" for goal in GOALS]
    heads += [f"IoU after {k}" for k in AFTER]
    rows = [["set (images)", "method", *heads], ["---"] * (2 + len(heads))]
    for name, methods in found.items():
        every = {method: summary(sessions) for method, sessions in methods.items()}
        numbers = np.round(np.array(list(every.values())), 2)
        best = np.concatenate([numbers[:, :2].min(0), numbers[:, 2:].max(0)])
        images = sum(bool(each["iou"]) for each in next(iter(methods.values())))
        for method, row in zip(every, numbers, strict=True):
            cells = [f"{x:.2f}" if k < len(GOALS) else f"{x:.1f}" for k, x in enumerate(row)]
            cells = [f"**{c}**" if x == b else c for c, x, b in zip(cells, row, best, strict=True)]
            rows.append([f"{name} ({images})", method, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    tables = ("strokes", "boxes")
    parser.add_argument("--tables", nargs="+", default=list(tables), choices=tables)
    parser.add_argument("--every", type=int, default=1, help="one image of so many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/interactive"))
    parser.add_argument("--page", type=Path, help="of the documentation, to be written")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = ""
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:

        def answers(work: Any, sets: dict[str, int], methods: Any, kind: str) -> Any:
            """Return the answers by set and method."""
            found: dict[str, dict[str, list[Any]]] = {}
            for name in (each for each in chosen.sets if each in sets):
                folder = chosen.data / name
                names = json.loads((folder / "meta.json").read_text())["splits"][chosen.split]
                items = [Item(folder, each) for each in names[:: sets[name] * chosen.every]]
                found[name] = {}
                for method in methods:
                    tasks: dict[str, Any] = {item.name: (item, method) for item in items}
                    file = chosen.out / f"{name}-{chosen.split}-{method}{kind}.jsonl"
                    package = Path(densecrf.__file__).parent if method in OURS else Path(__file__)
                    found[name][method] = kept(file, pool, work, tasks, [package])
                    print(name, method, "done", flush=True)
            return found

        if "strokes" in chosen.tables:
            text = table(answers(session, SETS, chosen.methods, ""))
            print(text)
        if "boxes" in chosen.tables:
            print(box_table(answers(boxed, BOXED, BOX_METHODS, "-boxes")))
    if text and chosen.page is not None:
        begin, end = MARKS
        page = chosen.page.read_text("utf-8")
        written = re.sub(f"{begin}.*{end}", f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)
        chosen.page.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
