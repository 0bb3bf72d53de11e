"""How tight the linear programming relaxation is, on real images and pixel by pixel.

    python -m benchmarks.tightness --data ../shared/data --jobs 2 --write

`lp` with gap=0 on every image of each setting: filter calls to some gaps, the gap in the end, the
share of proven pixels. Two-label problems are made from photographs: boxes, scribbles and colour
models, strong and weak. Records are kept in a JSON file, so that a run can be continued.
"""

import argparse
import json
import os
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import tightness_pictures
from benchmarks.harness import Section, keep, machine, two_kernels
from densecrf import DenseCRF

COLUMNS = (
    "setting",
    "problems",
    *(f"≤ {gap}" for gap in ("0.1 %", "1e-5")),
    "optimal (≤ 1e-6)",
    "calls to 0.1 %: median / p95",
    "pixels proven where optimal",
)
GAPS = (1e-3, 1e-4, 1e-5, 1e-6)
KINDS = ("box", "scribbles", "colours")
STRENGTHS = ("strong", "weak")
USUAL, MILD = (3, 3, 60, 13, 10), (3, 1, 60, 13, 4)


class Setting(NamedTuple):
    """A data set, weights and a normalisation."""

    title: str
    folder: str
    split: str
    parameters: tuple[float, ...]
    normalization: str


SETTINGS = (
    Setting("MSRC Val, 3/10", "msrc", "val", USUAL, "symmetric"),
    Setting("MSRC Test, 3/10", "msrc", "test", USUAL, "symmetric"),
    Setting("MSRC Val, 1/4", "msrc", "val", MILD, "symmetric"),
    Setting("MSRC Test, 1/4", "msrc", "test", MILD, "symmetric"),
    Setting("MSRC Val, 3/10, not normalised", "msrc", "val", USUAL, "none"),
    Setting("CamVid, 3/10", "camvid", "val", USUAL, "symmetric"),
    Setting("CamVid, 1/4", "camvid", "val", MILD, "symmetric"),
)
TWO_LABELS = "two labels, 3/10"


def problem(data: Path, setting: str, name: str) -> DenseCRF:
    """Return the model of one image, or of one two-label problem (``name:kind:strength``)."""
    from PIL import Image

    if setting == TWO_LABELS:
        name, kind, strength = name.split(":")
        image = np.array(Image.open(data / "msrc" / "images" / f"{name}.png").convert("RGB"))
        return DenseCRF(two_label_unary(image, kind, strength), two_kernels(image, USUAL))
    chosen = next(each for each in SETTINGS if each.title == setting)
    folder = data / chosen.folder
    image = np.array(Image.open(folder / "images" / f"{name}.png").convert("RGB"))
    logits = np.load(folder / "logits" / f"{name}.npz")["logits"]
    kernels = two_kernels(image, chosen.parameters)
    return DenseCRF.from_logits(logits, kernels, axis=-1, normalization=chosen.normalization)


def two_label_unary(image: Any, kind: str, strength: str) -> Any:
    """Return energies of background and object, (2, height, width), from a box in the middle."""
    height, width = image.shape[:2]
    box = np.zeros((height, width), bool)
    box[height // 5 : 4 * height // 5, width // 5 : 4 * width // 5] = True
    strong = strength == "strong"
    if kind == "box":
        p = np.where(box, 0.9, 0.1) if strong else np.where(box, 0.6, 0.4)
    elif kind == "scribbles":
        p = np.full((height, width), 0.5)
        q = 0.99 if strong else 0.7
        p[height // 2 - 4 : height // 2 + 4, width // 3 : 2 * width // 3] = q
        p[:6], p[-6:] = 1 - q, 1 - q
    else:  # log-likelihood ratio of colours inside and outside the box, and none outside
        bins = (image // 32).astype(int) @ (64, 8, 1)
        inside = np.bincount(bins[box], minlength=512) + 1.0
        outside = np.bincount(bins[~box], minlength=512) + 1.0
        ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        odds = ratio[bins] * (1.0 if strong else 0.2)
        p = np.where(box, 1 / (1 + np.exp(-odds)), 0.02)
    p = p.clip(1e-4, 1 - 1e-4)
    return np.stack([-np.log(1 - p), -np.log(p)])


def measure(data: Path, iterations: int, keep: Path, case: tuple[str, str]) -> dict[str, Any]:
    """Return what one problem's run says; keep its labels, the proven pixels and its trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = problem(data, *case).solve("lp", gap=0.0, max_iterations=iterations, threads=1)
    trace = result.trace
    possible = np.full(result.labels.shape, 255) if result.possible is None else result.possible
    np.savez_compressed(
        kept(keep, *case),
        labels=result.labels.astype(np.uint8),
        possible=possible.astype(np.uint8),
        energy=trace.energy,
        lower_bound=np.array(trace.lower_bound, float),
        calls=trace.ordered_calls,
    )
    calls: dict[str, int | None] = {}
    for gap in GAPS:  # by the estimates of the run, and what is proven in the end
        reached = (
            call
            for call, energy, bound in zip(
                trace.ordered_calls, trace.energy, trace.lower_bound, strict=True
            )
            if bound is not None and energy - bound <= gap * max(1.0, abs(energy))
        )
        calls[f"{gap:g}"] = next(reached, None)
    return {
        "setting": case[0],
        "name": case[1],
        "energy": result.energy,
        "gap": result.gap,
        "optimal": result.optimal,
        "proven": float(result.proven.mean()),
        "undecided": int((~result.proven).sum()),
        "calls": calls,
        "iterations": result.iterations,
        "seconds": result.seconds,
    }


def kept(folder: Path, setting: str, name: str) -> Path:
    """Return the file of one problem's arrays."""
    return folder / re.sub(r"[^\w.]+", "-", f"{setting}-{name}.npz")


def cases(data: Path, settings: list[str], most: int | None) -> Iterator[tuple[str, str]]:
    """Yield the settings' problems."""
    for setting in SETTINGS:
        if setting.title in settings:
            meta = json.loads((data / setting.folder / "meta.json").read_text())
            names = meta["splits"][setting.split]
            if setting.folder == "camvid":
                names = [name for split in meta["splits"].values() for name in split]
            yield from ((setting.title, name) for name in names[:most])
    if TWO_LABELS in settings:
        names = json.loads((data / "msrc" / "meta.json").read_text())["splits"]["test"]
        kinds = [f"{kind}:{strength}" for kind in KINDS for strength in STRENGTHS]
        chosen = [f"{name}:{kind}" for name in names[:34] for kind in kinds][:200]
        yield from ((TWO_LABELS, name) for name in chosen[:most])


def draw(records: list[dict[str, Any]], keep: Path, folder: Path) -> None:
    """Draw the distributions, and the undecided pixels of some MSRC images at usual weights.

    Four have the most undecided pixels among the optimal ones, four the middle rank.
    """
    tightness_pictures.distributions(records, folder / "how-tight.png")
    usual = [record for record in records if record["setting"] == SETTINGS[1].title]
    optimal = sorted((r for r in usual if r["optimal"]), key=lambda record: record["proven"])
    middle = len(optimal) // 2
    files = [
        (f"{record['name']}: {record['undecided']} undecided", kept(keep, record["setting"], name))
        for record in optimal[:4] + optimal[middle : middle + 4]
        if (name := record["name"])
    ]
    if files:
        tightness_pictures.undecided_pixels(files, 21, folder / "how-tight-undecided.png")


def table(records: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of a table, one for each setting."""
    rows = []
    for title in [*(setting.title for setting in SETTINGS), TWO_LABELS]:
        own = [record for record in records if record["setting"] == title]
        if not own:
            continue
        gaps = np.array([record["gap"] for record in own])
        shares = [f"{100 * (gaps <= gap).mean():.0f} %" for gap in (1e-3, 1e-5, 1e-6)]
        calls = _calls(own, GAPS[0])
        proven = [record["proven"] for record in own if record["optimal"]]
        mean = f"{100 * np.mean(proven):.1f} %" if proven else "–"
        middle = f"{_middle(calls, 50)} / {_middle(calls, 95)}"
        rows.append((title, str(len(own)), *shares, middle, mean))
    return rows


def _calls(records: list[dict[str, Any]], gap: float) -> list[float]:
    calls = (record["calls"][f"{gap:g}"] for record in records)
    return [np.inf if each is None else float(each) for each in calls]


def _middle(calls: list[float], percent: int) -> str:
    value = float(np.percentile(calls, percent, method="higher"))
    return f"{value:.0f}" if np.isfinite(value) else "–"


def main() -> None:
    """Measure what is not on record yet, and write the tables."""
    titles = [*(setting.title for setting in SETTINGS), TWO_LABELS]
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("DENSECRF_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--settings", nargs="*", default=titles, choices=titles)
    parser.add_argument("--most", type=int, help="problems of each setting")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--records", type=Path, default=Path("tightness.jsonl"))
    parser.add_argument("--keep", type=Path, default=Path("tightness"), help="folder of arrays")
    parser.add_argument("--write", action="store_true", help="write results/tightness.json")
    parser.add_argument("--pictures", type=Path, help="folder to draw distributions in")
    arguments = parser.parse_args()
    known = arguments.records.read_text().splitlines() if arguments.records.exists() else []
    records = [json.loads(line) for line in known]
    done = {(record["setting"], record["name"]) for record in records}
    missing = [
        case
        for case in cases(arguments.data, arguments.settings, arguments.most)
        if case not in done
    ]
    arguments.keep.mkdir(parents=True, exist_ok=True)
    work = partial(measure, arguments.data, arguments.iterations, arguments.keep)
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.records.open("a") as out:
        for record in pool.map(work, missing):
            records.append(record)
            out.write(json.dumps(record) + "\n")
            out.flush()
    if arguments.pictures:
        draw(records, arguments.keep, arguments.pictures)
    section = Section("`lp` with `gap=0`", "", COLUMNS, table(records))
    print(section.markdown())
    if arguments.write:
        keep("tightness", section, "python -m benchmarks.tightness", machine())


if __name__ == "__main__":
    main()
