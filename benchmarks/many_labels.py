"""`lp` with 150 labels, most of which no pixel has, against 21."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.distributions import each_on_a_core, images
from benchmarks.harness import Section, cores, times, two_kernels
from benchmarks.mean_field import PARAMETERS
from densecrf import DenseCRF
from densecrf.model.unaries import from_logits

TEXT = """
CPU time of `lp` to a proven gap of 0.1 % with one thread on {count} MSRC images: their 21 labels,
and 129 more whose scores are noise of the same mean and deviation, less 2.
"""
EVERY = {"small": 90, "medium": 30, "full": 8}


def run(scale: str) -> Section:
    """Measure some images with both numbers of labels."""
    some = list(images("msrc", EVERY[scale]))
    taken = np.array(each_on_a_core(measure, some))
    ratio = taken[:, 1] / taken[:, 0]
    row = [f"{1e3 * each:.0f}" for each in np.median(taken[:, :2], 0)]
    shares = [times(float(np.percentile(ratio, share))) for share in (50, 95)]
    columns = ("images", "21 labels, ms", "150 labels, ms", "ratio", "p95")
    return Section(
        "Many labels", TEXT.format(count=len(some)), columns, [(len(some), *row, *shares)]
    )


def measure(image: np.ndarray, logits: np.ndarray) -> tuple[float, ...]:
    """Return CPU seconds with 21 and with 150 labels."""
    rng, logits = np.random.default_rng(0), logits.astype(np.float32)
    noise = rng.normal(logits.mean() - 2, logits.std(), (*logits.shape[:2], 129))
    every = np.concatenate([logits, noise.astype(np.float32)], -1)
    return tuple(_seconds(image, each) for each in (logits, every))


def _seconds(image: np.ndarray, logits: Any) -> float:
    unary = from_logits(logits, axis=-1, shape=image.shape[:2])
    with cores(1):
        started = time.process_time()
        DenseCRF(unary, two_kernels(image, PARAMETERS)).solve("lp")
        return time.process_time() - started
