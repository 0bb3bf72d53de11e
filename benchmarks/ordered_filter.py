"""The one-pass ordered filter against the literal Algorithm 3 and divide and conquer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import (
    LABELS,
    Section,
    in_turn,
    median_seconds,
    milliseconds,
    random_scores,
    standard_features,
    times,
)
from densecrf.operators import LatticeFilter
from densecrf.operators.levels import Levels

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """
One ordered filter call on 21 labels with random scores, H = 10 levels, lattice built beforehand, in
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
    y = random_scores(n)
    return [
        _row(name, LatticeFilter(features), y, halves)
        for name, features in standard_features(n, fine=fine)
    ]


def _row(name: str, operator: LatticeFilter, y: np.ndarray, halves: int) -> tuple[Any, ...]:
    out = np.empty_like(y)
    n = y.shape[1]

    def one_pass(threads: int, *, hard: bool) -> Callable[[], object]:
        levels = Levels(10, 0.0, 9.0, hard)
        return lambda: operator.ordered_planes(y, levels, out, threads)

    def baseline(order: str, labels: int) -> Callable[[], object]:
        some = y[:labels]
        return lambda: operator.ordered_exactly(some, order, 10, 1)

    alone, soft, literal = in_turn(
        one_pass(1, hard=True), one_pass(1, hard=False), baseline("literal", LABELS)
    )
    both = median_seconds(one_pass(2, hard=True), threads=2)
    conquer = median_seconds(baseline("divide-and-conquer", halves), budget=6.0)
    conquer *= LABELS / halves
    return (
        f"{n:,}",
        name,
        f"{operator.vertices / n:.2f}",
        *map(milliseconds, (alone, both, soft, literal, conquer)),
        times(literal / alone),
        times(conquer / alone),
    )
