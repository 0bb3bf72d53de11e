"""Time and memory against the number of pixels, and of many labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import in_child
from benchmarks.harness import Section

TEXT = """
A photograph enlarged to so many pixels, spatial kernel 3 and bilateral kernel 60 / 13, each row a
process of its own with one thread, CPU seconds: *model* builds it, *mf5* makes five mean-field
iterations, *lp* four iterations of the certified linear program (one ordered filter call each) from
its usual start, and its proof. *Peak* is the growth of the resident memory beyond the image and the
unaries, *rule* is 4 × the unary array + 300 bytes per pixel, both in MB; the unaries are read-only,
so that the model does not copy them. Slope of log time against log pixels
(model, mf5 and lp together, {labels} labels): **{slope:.3f}**.

![Time and memory against pixels](scaling.png)
"""
# Side and labels; at scale full all of them.
MANY_LABELS = ((1265, 2), (512, 21), (512, 150), (632, 2), (1265, 21), (256, 150))
CHILD = """
import json, sys, time, warnings
import numpy as np
from skimage import data
from skimage.transform import resize
from benchmarks.child import Peak
from densecrf import Bilateral, DenseCRF, Spatial

warnings.simplefilter("ignore")
side, labels = json.loads(sys.argv[1])
image = resize(data.coffee(), (side, side), order=1, preserve_range=True).astype(np.uint8)
centres = np.linspace(40, 215, labels, dtype=np.float32)[:, None, None]
unary = np.abs(image.mean(-1, dtype=np.float32) - centres) / np.float32(20)
unary = np.ascontiguousarray(unary, np.float32)
unary.setflags(write=False)  # then it is not copied
DenseCRF(unary[:, :8, :8], [Spatial(3)]).solve("lp", max_iterations=1)  # loads what is loaded once
peak, times = Peak(), []
started = time.process_time()
crf = DenseCRF(unary, [Spatial(3, 3), Bilateral(image, 60, 13, 10)])
crf.pairwise.mass
times.append(time.process_time() - started)
for method, limits in (("mf5", {}), ("lp", {"max_iterations": 4})):
    started = time.process_time()
    result = crf.solve(method, threads=1, **limits)
    times.append(time.process_time() - started)
    del result
print(json.dumps({"times": times, "peak": peak.growth()}))
"""


def run(scale: str) -> Section:
    """Measure sizes up to 1.6 million pixels, "full" up to 16 million."""
    sides = {"small": (316, 632), "medium": (316, 632, 1265), "full": (316, 632, 1265, 2530, 4000)}
    labels = 5
    found = [(side, labels, *measure(side, labels)) for side in sides[scale]]
    pixels = np.array([side**2 for side, *_ in found], float)
    seconds = np.array([sum(times) for *_, times, _ in found])
    slope = float(np.polyfit(np.log(pixels), np.log(seconds), 1)[0])
    plot(found, Path(__file__).with_name("scaling.png"))
    found += [(*each, *measure(*each)) for each in MANY_LABELS[: None if scale == "full" else 3]]
    columns = ("pixels", "labels", "model", "mf5", "lp", "peak", "rule")
    rows = [
        (
            f"{side**2:,}",
            count,
            *(f"{t:.3g}" for t in times),
            f"{peak / 1e6:,.0f}",
            f"{rule(side, count) / 1e6:,.0f}",
        )
        for side, count, times, peak in found
    ]
    return Section("Many pixels", TEXT.format(labels=labels, slope=slope), columns, rows)


def rule(side: int, labels: int) -> float:
    """Return the bytes that a run may take beyond its input."""
    return side**2 * (4 * 4 * labels + 300)


def measure(side: int, labels: int) -> tuple[list[float], int]:
    """Return the times and the growth of the peak, in a process of its own."""
    found: dict[str, Any] = in_child(CHILD, side, labels)
    return found["times"], found["peak"]


def plot(found: list[tuple[int, int, list[float], int]], path: Path) -> None:
    """Draw time and memory against pixels."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    pixels = [side**2 for side, *_ in found]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for i, name in enumerate(("model", "mf5", "lp, 4 iterations")):
        left.loglog(pixels, [times[i] for *_, times, _ in found], "o-", label=name)
    total = [sum(times) for *_, times, _ in found]
    left.loglog(pixels, [total[0] * p / pixels[0] for p in pixels], "k:", label="linear")
    left.set(xlabel="pixels", ylabel="CPU seconds")
    left.legend(frameon=False)
    right.loglog(pixels, [peak / 1e6 for *_, peak in found], "o-", label="measured peak")
    allowed = [rule(side, labels) / 1e6 for side, labels, *_ in found]
    right.loglog(pixels, allowed, "k:", label="4 × unaries + 300 bytes per pixel")
    right.set(xlabel="pixels", ylabel="MB beyond the inputs")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
