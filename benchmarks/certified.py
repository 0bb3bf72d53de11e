"""The certified linear program to a gap of 0.1 % against pydensecrf's five iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import peer
from benchmarks.harness import DC, Section, milliseconds, one_and_two_threads, published, times

TEXT = """
`solve("lp")` until it has proven its labelling to be within 0.1 % of optimal, against five
mean-field iterations of pydensecrf, which prove nothing; both with the construction of the model,
on MSRC image 2_14_s (320 × 213, 21 labels, the paper's DC parameters, symmetric normalisation), in
milliseconds: medians of {repeat} rounds, in turn; CPU time with one thread, elapsed time with two.
"""


def run(scale: str) -> Section:
    """Measure one and two threads."""
    repeat = 3 if scale == "small" else 7
    columns = ("threads", "lp", "gap", "ordered filter calls", "pydensecrf", "lp / pydensecrf")
    paper = published()

    def ours() -> Any:
        return paper.model().solve("lp")

    rows: list[tuple[Any, ...]] = []
    calls = [ours]
    if peer.installed():
        calls.append(lambda: peer.mean_field(paper.unary, paper.image, DC))
    result = ours()
    for threads, rounds in one_and_two_threads(*calls, repeat=repeat):
        seconds = np.median(rounds, 0)
        row = [threads, milliseconds(seconds[0]), f"{100 * result.gap:.3f} %"]
        row.append(result.trace.ordered_calls[-1])
        if peer.installed():
            row += [milliseconds(seconds[1]), times(seconds[0] / seconds[1])]
        rows.append(tuple(row))
    return Section("Certified in how long", TEXT.format(repeat=repeat), columns, rows)
