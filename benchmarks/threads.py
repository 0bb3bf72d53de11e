"""How the parts scale with threads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.harness import (
    Section,
    cores,
    in_turn,
    milliseconds,
    photograph,
    random_scores,
    standard_features,
    two_kernels,
)
from benchmarks.mean_field import PARAMETERS, smooth_unary
from densecrf import DenseCRF
from densecrf.filters import LatticeFilter
from densecrf.filters.base import Levels
from densecrf.native import core

TEXT = """
Elapsed milliseconds and, in brackets, how many times faster than with one thread; medians of
{repeat} rounds, in turn. Filters: 375 × 500, 21 labels, H = 10; `mf5` with its model: 320 × 480.
"""


def run(scale: str) -> Section:
    """Measure powers of two up to the threads that there are."""
    repeat = 3 if scale == "small" else 7
    most = core().available_threads()
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, most)]
    y = random_scores(187_500)
    out = np.empty_like(y)
    levels = Levels(10, 0.0, 9.0, hard=False)
    rows: list[tuple[Any, ...]] = []
    for name, features in standard_features(187_500):
        operator = LatticeFilter(features)
        for what, call in (
            ("build", lambda t, f=features: LatticeFilter(f, threads=t)),
            ("apply", lambda t, o=operator: o.apply_planes(y, out, t)),
            ("ordered", lambda t, o=operator: o.ordered_planes(y, levels, out, t)),
        ):
            rows.append(_row(f"{what}, {name}", call, counts, repeat))
    small = photograph(153_600)
    unary = smooth_unary(small.shape[:2])

    def mean_field(threads: int) -> None:
        with cores(threads):
            DenseCRF(unary, two_kernels(small, PARAMETERS)).solve("mf5")

    rows.append(_row("mf5 with its model", mean_field, counts, repeat))
    columns = ("", *(f"{count} thread{'s' * (count > 1)}" for count in counts))
    return Section("Threads", TEXT.format(repeat=repeat), columns, rows)


def _row(name: str, call: Any, counts: list[int], repeat: int) -> tuple[Any, ...]:
    calls = [lambda count=count: call(count) for count in counts]
    seconds = in_turn(*calls, clock=time.perf_counter, repeat=repeat)
    cells = (f"{milliseconds(s)} ({seconds[0] / s:.2f})" for s in seconds)
    return (name, *cells)
