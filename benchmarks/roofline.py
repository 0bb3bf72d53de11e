"""How far the filters are from the machine's memory bandwidth."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.harness import (
    LABELS,
    Section,
    in_turn,
    milliseconds,
    random_scores,
    standard_features,
    standard_kernels,
)
from benchmarks.threads import enlarged
from densecrf.native import core
from densecrf.operators import LatticeFilter
from densecrf.operators.levels import Levels

TEXT = """
One thread, 375 × 500 pixels, 21 labels, H = 10. *Least bytes* are those that any filter must move
through memory: scores read and results written once, the lattice's incidence (pixels, weights,
corners) read once. *Rows* adds what the vertices' rows would cost if every splat, blur and slice
went through memory, each row read and written once a pass. A copy of 256 MB on this machine moves
**{copy:.1f} GB/s** (read and written), one within 1 MB {cached:.1f} GB/s. A rate of *rows* above
the copy's means that windows of rows stayed in the cache. Then all cores together on 1000 × 1000
pixels, in elapsed time, where a copy of 1 GB in as many pieces moves **{together:.1f} GB/s**.
"""
LEVELS = Levels(10, 0.0, 9.0, hard=False)


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
    rows: list[tuple[Any, ...]] = []
    for name, features in standard_features(187_500):
        operator = LatticeFilter(features)
        taken = in_turn(
            lambda o=operator: o.apply_planes(y, out, threads=1),
            lambda o=operator: o.ordered_planes(y, LEVELS, out, 1),
            clock=time.process_time,
            repeat=repeat,
        )
        rows += _rows(operator, name, taken)
    together, shared = all_cores(repeat)
    text = TEXT.format(copy=rates[0], cached=rates[1], together=together)
    columns = ("filter", "ms", "least MB", "rows MB", "least GB/s", "rows GB/s")
    return Section("Roofline", text, columns, rows + shared)


def all_cores(repeat: int) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the rate of a copy by all cores, and rows of filters that all cores share."""
    count = core().available_threads()
    rate = _copied_by(count, repeat)
    shape = (1000, 1000)
    image, _ = enlarged(shape)
    y = random_scores(shape[0] * shape[1])
    out = np.empty_like(y)
    rows = []
    for name, kernel in standard_kernels(image).items():
        if name == "bilateral 1/1":
            continue
        operator = LatticeFilter(kernel.features(shape))
        taken = in_turn(
            lambda o=operator: o.apply_planes(y, out),
            lambda o=operator: o.ordered_planes(y, LEVELS, out),
            clock=time.perf_counter,
            repeat=repeat,
        )
        rows += _rows(operator, f"{name}, {count} cores", taken)
    return rate, rows


def _copied_by(count: int, repeat: int) -> float:
    """Return the rate, in GB/s, of a copy by so many threads."""
    source = np.ones((count, (1 << 28) // count), np.float32)
    target = np.ones_like(source)
    with ThreadPoolExecutor(count) as pool:
        (seconds,) = in_turn(
            lambda: list(pool.map(np.copyto, target, source)),
            clock=time.perf_counter,
            repeat=repeat,
        )
    return 2 * source.nbytes / seconds / 1e9


def _rows(operator: LatticeFilter, name: str, taken: list[float]) -> list[tuple[Any, ...]]:
    """Return the rows of the plain and the ordered filter, given the seconds of each."""
    rows = []
    for what, seconds, floats in (("apply", taken[0], 24), ("ordered", taken[1], 224)):
        walks = 2 if what == "apply" else 4  # as many as there are blocks of labels
        least, all_rows = _bytes(operator, floats, walks)
        sizes = (f"{least / 1e6:,.0f}", f"{all_rows / 1e6:,.0f}")
        rates = (f"{least / seconds / 1e9:.2g}", f"{all_rows / seconds / 1e9:.3g}")
        rows.append((f"{what}, {name}", milliseconds(seconds), *sizes, *rates))
    return rows


def _bytes(operator: LatticeFilter, floats: int, walks: int) -> tuple[float, float]:
    """Return the least bytes of so many walks over the lattice, and those with rows of `floats`."""
    n, corners = operator.n, operator.native.dimension + 1
    incidence = walks * 2 * 8 * corners * n
    least = 2 * 4 * LABELS * n + incidence
    blurs = 2 * corners
    return least, least + (2 * blurs + 2) * 4 * floats * operator.vertices
