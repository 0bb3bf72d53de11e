"""The paper's proximal methods against themselves on the paper's own parts."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import Section, published, times

if TYPE_CHECKING:
    from densecrf import DenseCRF

TEXT = """
The three proximal methods on MSRC image 2_14_s (DC parameters, unnormalised kernels, K = 10, T = 5)
from `dc-neg`'s marginals, in CPU seconds with one thread, lattices built beforehand. *As printed*
runs them on the literal Algorithm 3 and the multiplicative inner solver, *ours* on the one-pass
filter and the projection; medians of {repeat} and of 1. As printed, `prox-lp` takes minutes: unless
the scale is full, both run one of its proximal steps.
"""


def run(scale: str) -> Section:
    """Measure the three methods."""
    repeat = 1 if scale == "small" else 5
    columns = ("method", "ours", "energy", "as printed", "energy", "as printed / ours")
    crf = published().model("none")
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = crf.solve("dc-neg", threads=1).marginals
        for method in ("prox-lp", "prox-lp-l", "prox-lp-acc"):
            short = scale == "small" or (scale == "medium" and method == "prox-lp")
            steps = {"K": 1} if short else {}
            fast = [_solve(crf, method, start, steps) for _ in range(repeat + 1)][1:]
            printed = {**steps, "order": "literal", "inner": "multiplicative"}
            slow = _solve(crf, method, start, printed)
            seconds = float(np.median([found[0] for found in fast]))
            rows.append(
                (
                    f"`{method}`",
                    f"{seconds:.3g}",
                    f"{fast[0][1]:,.0f}",
                    f"{slow[0]:.3g}",
                    f"{slow[1]:,.0f}",
                    times(slow[0] / seconds),
                )
            )
    return Section("Proximal methods", TEXT.format(repeat=repeat), columns, rows)


def _solve(
    crf: DenseCRF, method: str, start: np.ndarray, options: dict[str, Any]
) -> tuple[float, float]:
    """Return CPU seconds and the energy."""
    started = time.process_time()
    result = crf.solve(method, init=start, threads=1, **options)
    return time.process_time() - started, result.energy
