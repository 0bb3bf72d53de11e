"""The ordered filter on the scores of a solution, most of which are 0 or 1."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Section, in_turn, milliseconds, published, times
from densecrf.operators.levels import Levels
from densecrf.problem.problem import problem_of

TEXT = """
One conditional gradient (both kernels, H = 10, one thread, CPU milliseconds, medians of seven in
turn) at the marginals that `lp` ends with on MSRC image 2_14_s: 68,160 pixels, 21 labels, of which
{used} have any score at all and {share:.2f} % of the pixels a score between 0.001 and 0.999. Labels
whose scores are all equal are skipped; the literal Algorithm 3 skips nothing.
"""


def run(scale: str) -> Section:
    """Measure one image."""
    repeat = 3 if scale == "small" else 7
    columns = ("one pass", "literal", "literal / one pass")
    crf = published().model()
    y = np.ascontiguousarray(crf.solve("lp").marginals.reshape(crf.n_labels, -1))
    problem = problem_of(crf, threads=1)
    levels = Levels(10, 0.0, 9.0, hard=True)
    ours, literal = in_turn(
        lambda: problem.dual_point(y, order="hard", rescale=False),
        lambda: crf.pairwise.ordered(y, levels, "literal", 1),
        repeat=repeat,
    )
    row = (milliseconds(ours), milliseconds(literal), times(literal / ours))
    used = int((y.max(1) > 0).sum())
    share = 100 * float(((y > 1e-3) & (y < 1 - 1e-3)).any(0).mean())
    text = TEXT.format(used=used, share=share)
    return Section("Ordered filter on a solution", text, columns, [row])
