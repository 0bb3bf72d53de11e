"""Clips: accuracy, flicker and cost of `refine_video` against the default model frame by frame.

    python -m experiments.video --data FOLDER [--split val] [--frames 16] [--sequences 0]
        [--sigma-t 6] [--flow] [--out FILE]

FOLDER is a set whose names are SEQUENCE_FRAME (images/, labels/, logits/, meta.json). Flicker is
the number of pixels per frame whose label differs from that of the frame before while the true
label does not. Cost is CPU time per frame, on one thread. The flow is OpenCV's (DIS).
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import densecrf
from densecrf.metrics import confusion_matrix, mean_iou
from densecrf.model.resample import resize_bilinear
from experiments.masks import each
from experiments.quality import Item

if TYPE_CHECKING:
    from collections.abc import Callable

READ: dict[str, Any] = {"kind": "logits", "axis": -1, "threads": 1}


class Clip(NamedTuple):
    """A sequence: frames (t, y, x, 3), logits (t, h, w, labels), true labels (t, y, x)."""

    name: str
    frames: np.ndarray
    logits: np.ndarray
    truth: np.ndarray


class Judged(NamedTuple):
    """What a method did to a clip."""

    iou: float
    flicker: float
    seconds: float
    gap: float


def clip_of(name: str, items: list[Item]) -> Clip:
    """Read the frames of a sequence."""
    arrays = [(item.image(), item.scores(), item.truth()) for item in items]
    return Clip(name, *(np.stack(each) for each in zip(*arrays, strict=True)))


def clips(folder: Path, split: str, frames: int, sequences: int) -> list[Clip]:
    """Return the sequences of a split, in the order of their names."""
    names = sorted(json.loads((folder / "meta.json").read_text())["splits"][split])
    items = [Item(folder, name) for name in names]
    groups = itertools.groupby(items, lambda item: item.name.rpartition("_")[0])
    return [clip_of(name, list(group)[:frames]) for name, group in groups][: sequences or None]


def flicker(labels: np.ndarray, truth: np.ndarray) -> float:
    """Return the pixels per frame whose label changes and whose true label does not.

    >>> flicker(np.array([[0, 1, 1], [1, 0, 1]]), np.array([[0, 0, 1], [0, 1, 1]]))
    1.0
    """
    still = (truth[1:] == truth[:-1]) & (truth[1:] != 255)
    return float(((labels[1:] != labels[:-1]) & still).sum() / max(1, len(labels) - 1))


def optical_flow(frames: np.ndarray) -> np.ndarray:
    """Return the flow (t - 1, y, x, 2) of each frame to the next one."""
    cv2: Any = import_module("cv2")
    estimate = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    gray = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    return np.stack([estimate.calc(a, b, None) for a, b in itertools.pairwise(gray)])


def network(clip: Clip) -> tuple[np.ndarray, float]:
    """Return the labels of the largest scores."""
    grid = clip.truth.shape[1:]
    maps = [resize_bilinear(np.moveaxis(each, -1, 0), grid).argmax(0) for each in clip.logits]
    return np.stack(maps), float("nan")


def frame_by_frame(clip: Clip) -> tuple[np.ndarray, float]:
    """Refine each frame by the default model."""
    results = [
        densecrf.refine(frame, scores, **READ)
        for frame, scores in zip(clip.frames, clip.logits, strict=True)
    ]
    return np.stack([each.labels for each in results]), max(each.gap or 0.0 for each in results)


def together(clip: Clip, **options: Any) -> tuple[np.ndarray, float]:
    """Refine the clip by one energy."""
    result = densecrf.refine_video(clip.frames, clip.logits, **READ, **options)
    return np.asarray(result.labels), result.gap or 0.0


def judge(method: Callable[[Clip], tuple[np.ndarray, float]], clip: Clip) -> Judged:
    """Run a method on a clip."""
    started = time.process_time()
    labels, gap = method(clip)
    seconds = (time.process_time() - started) / len(labels)
    iou = 100 * float(mean_iou(confusion_matrix(labels, clip.truth, clip.logits.shape[-1])))
    return Judged(iou, flicker(labels, clip.truth), seconds, gap)


def methods(sigmas: list[float], with_flow: bool) -> dict[str, Any]:
    """Return the methods by name."""
    found: dict[str, Any] = {"network": network, "frame by frame": frame_by_frame}
    for sigma in sigmas:
        found[f"video, sigma_t {sigma:g}"] = lambda clip, s=sigma: together(clip, sigma_t=s)
        if with_flow:
            found[f"video, sigma_t {sigma:g}, flow"] = lambda clip, s=sigma: together(
                clip, sigma_t=s, flow=optical_flow(clip.frames)
            )
    return found


def judge_all(sigmas: list[float], with_flow: bool, clip: Clip) -> dict[str, Judged]:
    """Run all methods on a clip."""
    warnings.simplefilter("ignore")
    return {name: judge(method, clip) for name, method in methods(sigmas, with_flow).items()}


def table(results: dict[str, dict[str, Judged]]) -> str:
    """Return a table in Markdown: each method's means over the clips, then each clip's numbers."""
    base = results["frame by frame"]
    rows = ["| | mean IoU, % | flicker, pixels | seconds per frame | × | largest gap, % |"]
    rows += ["|---|---|---|---|---|---|"]
    cost = np.mean([each.seconds for each in base.values()])
    for name, judged in results.items():
        iou, changes, seconds, _ = np.mean(list(judged.values()), 0)
        gap = 100 * max(each.gap for each in judged.values())
        rows.append(
            f"| {name} | {iou:.2f} | {changes:.0f} | {seconds:.2f} | {seconds / cost:.2f} "
            f"| {'' if np.isnan(gap) else f'{gap:.3f}'} |"
        )
    rows += ["", f"| IoU / flicker | {' | '.join(results)} |", "|---" * (len(results) + 1) + "|"]
    for clip in base:
        cells = [f"{each[clip].iou:.1f} / {each[clip].flicker:.0f}" for each in results.values()]
        rows.append(f"| {clip} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=0, help="0: all")
    parser.add_argument("--sigma-t", type=float, nargs="+", default=[6.0])
    parser.add_argument("--flow", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = clips(given.data, given.split, given.frames, given.sequences)
    results: dict[str, dict[str, Judged]] = {}
    judged = each(partial(judge_all, given.sigma_t, given.flow), found, given.workers)
    for clip, numbers in zip(found, judged, strict=True):
        for name, own in numbers.items():
            results.setdefault(name, {})[clip.name] = own
    text = table(results)
    print(text)
    if given.out is not None:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
