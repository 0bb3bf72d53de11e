"""Our methods against pydensecrf's five iterations over whole data sets: medians and tails."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import peer
from benchmarks.harness import SHARED, NotAtHandError, Section, cores, times, two_kernels
from benchmarks.mean_field import PARAMETERS
from densecrf import DenseCRF, refine
from densecrf.drop_in.pydensecrf import densecrf as facade
from densecrf.native import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT = """
CPU time with one thread over pydensecrf's for its five mean-field iterations on the same image,
both with the construction of the model, run in turn: over the images, the median, the 95th
percentile and the largest. Network logits, spatial kernel 3 (weight 3), bilateral kernel 60 / 13
(weight 10); `lp` stops at a proven gap of 0.1 %, pydensecrf proves nothing. `default` is
`densecrf.refine` without options, which also reads the scores and chooses the weights. Where there
are eight cores or more, as many images at a time, each on a core of its own. {sample}
"""
EVERY = {"small": 20, "medium": 5, "full": 1}
SETS = ("msrc", "camvid")
MANY_CORES = 8


def run(scale: str) -> Section:
    """Measure every fifth image, or all of them at scale full."""
    if not peer.installed():
        raise NotAtHandError("pydensecrf is not installed")
    columns = ("data set", "images", "", "median", "p95", "largest", "median ms")
    rows: list[tuple[Any, ...]] = []
    for name in SETS:
        measured = each_on_a_core(_measured, list(images(name, EVERY[scale])))
        for method in ("default", "lp", "mf5", "facade"):
            taken = np.array([each[method] for each in measured])
            ratio = taken / [each["pydensecrf"] for each in measured]
            shares = [times(float(np.percentile(ratio, share))) for share in (50, 95, 100)]
            rows.append(
                (name, len(measured), f"`{method}`", *shares, f"{1e3 * np.median(taken):.0f}")
            )
    chosen = EVERY[scale]
    sample = "All images." if chosen == 1 else f"Every {chosen}th image, in order of their names."
    return Section("Over data sets", TEXT.format(sample=sample), columns, rows)


def each_on_a_core(function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Return what a function gives for each; several at a time where there are cores enough."""
    if core().available_threads() < MANY_CORES:
        return [function(*each) for each in arguments]
    free = get_context("spawn").Queue()
    for each in sorted(os.sched_getaffinity(0)):
        free.put(each)
    with ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), get_context("spawn"), _pin, (free,)
    ) as pool:
        return list(pool.map(function, *zip(*arguments, strict=True)))


def _pin(free: Any) -> None:
    """Bind a process to a core of its own, and let it work once before anything is measured."""
    os.sched_setaffinity(0, {free.get()})
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    _measured(noise, noise.astype(np.float32))


def images(name: str, every: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images and logits (h, w, labels) of a data set, some of them."""
    from PIL import Image

    folder = SHARED / name
    if not folder.is_dir():
        raise NotAtHandError(f"data set {name} is not at {folder}")
    splits = json.loads((folder / "meta.json").read_text("utf-8"))["splits"]
    names = sorted(chain.from_iterable(splits.values()))
    for each in names[::every]:
        path = min((folder / "images").glob(f"{each}.*"))
        yield np.array(Image.open(path)), np.load(folder / "logits" / f"{each}.npz")["logits"]


def _measured(image: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """Return CPU seconds of each."""
    kernels = two_kernels(image, PARAMETERS)
    unary = DenseCRF.from_logits(logits, kernels, axis=-1).unary.reshape(-1, *image.shape[:2])

    def solve(method: str) -> Callable[[], Any]:
        return lambda: DenseCRF(unary, two_kernels(image, PARAMETERS)).solve(method)

    calls = {
        "default": lambda: refine(image, logits, axis=-1, kind="logits"),
        "lp": solve("lp"),
        "mf5": solve("mf5"),
        "facade": lambda: peer.run_facade(facade, unary, image, PARAMETERS, 5),
        "pydensecrf": lambda: peer.mean_field(unary, image, PARAMETERS),
    }
    taken = {}
    with cores(1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            taken[name] = time.process_time() - started
    return taken
