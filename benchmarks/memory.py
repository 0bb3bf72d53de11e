"""Peak memory of the ordered filter against the documented formula."""

from __future__ import annotations

from benchmarks.child import in_child
from benchmarks.harness import LABELS, Section

TEXT = """
Growth of the peak resident memory of a process of its own during one call of `ordered` on 21
labels whose input and output exist beforehand, against the documented bound (the formula is in
`LatticeFilter`, the number is what `LatticeFilter.ordered_workspace` returns). In MiB; *all at
once* is what one array of P × labels × H would take.
"""
CHILD = """
import json, sys
import numpy as np
from benchmarks.child import Peak
from benchmarks.harness import photograph, standard_kernels
from densecrf.operators import LatticeFilter
from densecrf.operators.levels import Levels

n, kernel, levels, labels, threads = json.loads(sys.argv[1])
image = photograph(n)
operator = LatticeFilter(standard_kernels(image)[kernel].features(image.shape[:2]))
y = np.random.default_rng(0).random((labels, n), dtype=np.float32)
out = np.zeros_like(y)
operator.mass
spread = Levels(levels, 0.0, levels - 1.0, False)
peak = Peak()
operator.ordered_planes(y, spread, out, threads)
print(json.dumps({
    "peak": peak.growth(),
    "formula": operator.ordered_workspace(labels, levels, threads),
    "vertices": operator.vertices,
}))
"""


def run(scale: str) -> Section:
    """Measure a few kernels and numbers of levels and threads."""
    cases = [
        (68_160, "spatial 1", 10, 1),
        (68_160, "spatial 1", 10, 2),
        (68_160, "spatial 1", 33, 1),
        (68_160, "bilateral 31.2/7.95", 10, 1),
        (68_160, "bilateral 31.2/7.95", 10, 2),
    ]
    if scale != "small":
        cases += [(187_500, "spatial 1", 10, 2), (187_500, "bilateral 31.2/7.95", 10, 2)]
    if scale == "full":
        cases += [(187_500, "bilateral 1/1", 10, 2)]
    columns = ("n", "kernel", "H", "threads", "measured", "formula", "all at once")
    rows = []
    for n, kernel, levels, threads in cases:
        found = measure(n, kernel, levels, LABELS, threads)
        whole = 4 * found["vertices"] * LABELS * levels
        sizes = (f"{x / 2**20:.1f}" for x in (found["peak"], found["formula"], whole))
        rows.append((f"{n:,}", kernel, levels, threads, *sizes))
    return Section("Memory of the ordered filter", TEXT, columns, rows)


def measure(n: int, kernel: str, levels: int, labels: int, threads: int) -> dict[str, int]:
    """Return the growth of the peak, the formula's bytes and the number of lattice points."""
    found: dict[str, int] = in_child(CHILD, n, kernel, levels, labels, threads)
    return found
