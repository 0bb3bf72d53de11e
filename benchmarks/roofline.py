"""How far the filters are from the machine's memory bandwidth."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.harness import (
    LABELS,
    Section,
    in_turn,
    milliseconds,
    random_scores,
    standard_features,
)
from densecrf.filters import LatticeFilter
from densecrf.filters.base import Levels

TEXT = """
One thread, 375 × 500 pixels, 21 labels, H = 10. *Least bytes* are those that any filter must move
through memory: scores read and results written once, the lattice's incidence (pixels, weights,
corners) read once. *Rows* adds what the vertices' rows would cost if every splat, blur and slice
went through memory, each row read and written once a pass. A copy of 256 MB on this machine moves
**{copy:.1f} GB/s** (read and written), one within 1 MB {cached:.1f} GB/s. A rate of *rows* above
the copy's means that windows of rows stayed in the cache.
"""


def run(scale: str) -> Section:
    """Measure the copy and the filters."""
    repeat = 5 if scale == "small" else 9
    large, small = np.ones(1 << 25, np.float32), np.ones(1 << 17, np.float32)
    rates = []
    for array, times in ((large, 1), (small, 200)):
        target = np.empty_like(array)

        def copy(
            array: np.ndarray = array, target: np.ndarray = target, times: int = times
        ) -> None:
            for _ in range(times):
                np.copyto(target, array)

        (seconds,) = in_turn(copy, clock=time.process_time, repeat=repeat)
        rates.append(2 * array.nbytes * times / seconds / 1e9)
    y = random_scores(187_500)
    out = np.empty_like(y)
    levels = Levels(10, 0.0, 9.0, hard=False)
    rows: list[tuple[Any, ...]] = []
    for name, features in standard_features(187_500):
        operator, dimension = LatticeFilter(features), features.shape[1]
        plain, ordered = in_turn(
            lambda o=operator: o.apply_planes(y, out, threads=1),
            lambda o=operator: o.ordered_planes(y, levels, out, 1),
            clock=time.process_time,
            repeat=repeat,
        )
        for what, seconds, floats in (("apply", plain, 24), ("ordered", ordered, 224)):
            walks = 2 if what == "apply" else 4  # as many as there are blocks of labels
            least, all_rows = _bytes(operator, dimension, floats, walks)
            rows.append(
                (
                    f"{what}, {name}",
                    milliseconds(seconds),
                    f"{least / 1e6:,.0f}",
                    f"{all_rows / 1e6:,.0f}",
                    f"{least / seconds / 1e9:.2g}",
                    f"{all_rows / seconds / 1e9:.3g}",
                )
            )
    columns = ("filter", "ms", "least MB", "rows MB", "least GB/s", "rows GB/s")
    return Section("Roofline", TEXT.format(copy=rates[0], cached=rates[1]), columns, rows)


def _bytes(operator: LatticeFilter, dimension: int, floats: int, walks: int) -> tuple[float, float]:
    """Return the least bytes of so many walks over the lattice, and those with rows of `floats`."""
    n, corners = operator.n, dimension + 1
    incidence = walks * 2 * 8 * corners * n
    least = 2 * 4 * LABELS * n + incidence
    blurs = 2 * corners
    return least, least + (2 * blurs + 2) * 4 * floats * operator.vertices
