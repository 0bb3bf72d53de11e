"""The one-pass ordered filter against the literal Algorithm 3 and divide and conquer."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import (
    LABELS,
    Section,
    median_seconds,
    milliseconds,
    photograph,
    standard_kernels,
    times,
)
from densecrf.filters import LatticeFilter
from densecrf.filters.base import Levels

TEXT = """
Ordered filtering of 21 labels with random scores, H = 10 levels, lattice built beforehand, in
milliseconds (medians; CPU time with one thread, elapsed time with two). *literal* is Algorithm 3
as the paper prints it, *divide and conquer* the method of Desmaison et al. 2016; both run on one
thread here, the latter on {halves} label(s), scaled to 21: its labels are independent. Every
filter uses the symmetric blur.
"""


def run(scale: str) -> Section:
    """Measure both sizes (one, without the finest kernel, where scale is "small")."""
    small = scale == "small"
    sizes = (68_160,) if small else (68_160, 187_500)
    rows = [row for n in sizes for row in _rows(n, fine=scale == "full", halves=1)]
    columns = ("n", "kernel", "vertices/n", "one pass, 1 thread", "2 threads", "soft, 1 thread")
    columns += ("literal", "divide and conquer", "literal / one pass", "d. & c. / one pass")
    return Section("Ordered filter", TEXT.format(halves=1), columns, rows)


def _rows(n: int, *, fine: bool, halves: int) -> list[tuple[Any, ...]]:
    image = photograph(n)
    y = np.random.default_rng(0).random((LABELS, n), dtype=np.float32)
    out = np.empty_like(y)
    hard, soft = Levels(10, 0.0, 9.0, True), Levels(10, 0.0, 9.0, False)
    rows = []
    for name, kernel in standard_kernels(image).items():
        if name == "bilateral 1/1" and not fine:
            continue
        operator = LatticeFilter(kernel.features(image.shape[:2]))

        def one_pass(levels: Levels, threads: int, operator: LatticeFilter = operator) -> float:
            return median_seconds(
                lambda: operator.ordered_planes(y, out, levels, threads=threads),
                threads=threads,
                repeat=7,
            )

        def baseline(order: str, labels: int, operator: LatticeFilter = operator) -> float:
            some, result = y[:labels], out[:labels]
            seconds = median_seconds(
                lambda: operator.ordered_exactly(some, result, order, 10, threads=1),
                repeat=5,
                budget=6.0,
            )
            return seconds * LABELS / labels

        alone = one_pass(hard, 1)
        literal = baseline("literal", LABELS)
        conquer = baseline("divide-and-conquer", halves)
        rows.append(
            (
                f"{n:,}",
                name,
                f"{operator.vertices / n:.2f}",
                milliseconds(alone),
                milliseconds(one_pass(hard, 2)),
                milliseconds(one_pass(soft, 1)),
                milliseconds(literal),
                milliseconds(conquer),
                times(literal / alone),
                times(conquer / alone),
            )
        )
    return rows
