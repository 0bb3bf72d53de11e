"""The paper's methods, with their starts, in units of pydensecrf's five iterations."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from benchmarks import peer
from benchmarks.harness import DC, NotAtHandError, Section, published

TEXT = """
MSRC image 2_14_s (320 × 213, 21 labels, the paper's DC parameters): CPU time of one thread with the
starting point, lattices built beforehand, over that of pydensecrf's five mean-field iterations with
its construction ({unit:.0f} ms in the median), all in turn; medians of {repeat} rounds, the largest
in brackets. Filter calls count scorings of labellings.
"""
METHODS = ("mf5", "dc-neg", "prox-lp", "prox-lp-l", "prox-lp-acc")


def run(scale: str) -> Section:
    """Measure both normalisations."""
    if not peer.installed():
        raise NotAtHandError("pydensecrf is not installed")
    repeat = 1 if scale == "small" else 3
    paper = published()
    models = {name: paper.model(name) for name in ("none", "symmetric")}
    for crf in models.values():
        crf.solve("mf5", threads=1)
    cells = [(name, method) for name in models for method in METHODS]
    taken: dict[Any, list[float]] = {cell: [] for cell in cells}
    units: list[float] = []
    found = {}
    for _ in range(repeat):
        started = time.process_time()
        peer.mean_field(paper.unary, paper.image, DC)
        units.append(time.process_time() - started)
        for name, method in cells:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                started = time.process_time()
                found[name, method] = models[name].solve(method, threads=1)
            taken[name, method].append(time.process_time() - started)
    rows = []
    for cell in cells:
        ratio, result = np.array(taken[cell]) / units, found[cell]
        calls = f"{result.trace.plain_calls[-1]} + {result.trace.ordered_calls[-1]}"
        share = f"{np.median(ratio):.1f} ({ratio.max():.1f})"
        rows.append((cell[0], f"`{cell[1]}`", share, f"{result.energy:,.0f}", calls))
    columns = ("normalization", "method", "units", "energy", "filter calls, plain + ordered")
    text = TEXT.format(unit=1e3 * float(np.median(units)), repeat=repeat)
    return Section("The paper's methods in units", text, columns, rows)
