"""How much faster the ordered filter is than divide and conquer (the paper's Figures 4, 9, 10).

The conditional gradient of random scores is timed for four ways to compute it, while the number
of pixels, the number of labels or the standard deviation varies and the other two are fixed. One
thread, so that the algorithms are compared and not their threading.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.model.kernels import Bilateral, Spatial
from densecrf.model.resample import resize_bilinear
from densecrf.operators import LatticeFilter
from experiments.figures import COLORS, new_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from densecrf.records import RecordStore
    from experiments.runner import Progress

__all__ = ["KERNELS", "ORDERS", "SWEEPS", "Point", "draw_speedup", "measure_speedup"]

#: What is timed: one pass with soft and with hard levels, the paper's Algorithm 3, the baseline.
ORDERS = ("soft", "hard", "literal", "divide-and-conquer")
KERNELS = {"spatial": 2, "bilateral": 5}
#: What varies; the middle values of the paper's figures.
SWEEPS: dict[str, tuple[float, ...]] = {
    "pixels": (0.025, 0.1, 0.25, 0.5, 1.0, 2.75),  # times the image's
    "labels": (2, 5, 10, 15, 21),
    "std": (1, 2, 4, 8, 16),
}
LABELS, STD = 21, 1.0
# Divide and conquer treats one label after another and is slow: where the number of labels does not
# vary, this many are timed and the time is scaled.
TIMED_LABELS = 3


@dataclass(frozen=True)
class Point:
    """One measurement."""

    kernel: str  # "spatial" (d = 2) or "bilateral" (d = 5)
    sweep: str  # what varies: "pixels", "labels" or "std"
    pixels: int
    labels: int
    std: float
    vertices: int  # of the lattice
    seconds: Mapping[str, float]  # processor time of one conditional gradient, by order

    @property
    def value(self) -> float:
        """What varies."""
        return float(getattr(self, self.sweep))

    def speedup(self, order: str) -> float:
        """Return how many times faster than divide and conquer `order` is."""
        return self.seconds["divide-and-conquer"] / self.seconds[order]


def measure_speedup(
    image: Any,
    store: RecordStore,
    *,
    name: str = "image",
    sweeps: Mapping[str, tuple[float, ...]] = SWEEPS,
    kernels: tuple[str, ...] = tuple(KERNELS),
    repeats: int = 3,
    progress: Progress | None = None,
) -> list[Point]:
    """Time all points; those with a record are not timed again.

    Parameters
    ----------
    image
        ``(H, W, 3)``, colours from 0 to 255.
    store
        Where the records are.
    name
        The image's name, part of the records' paths.
    sweeps, kernels
        What to vary, and for which kernels.
    repeats
        Rounds, each of which runs every order once; the fastest run counts.
    progress
        Called before each measurement with (done, total, what).
    """
    picture = np.asarray(image)
    todo = [(k, s, value) for k in kernels for s, values in sweeps.items() for value in values]
    points: list[Point] = []
    for kernel, sweep, value in todo:
        key = ("speedup", name, kernel, sweep, f"{value:g}")
        settings = {"orders": ORDERS, "shape": picture.shape, "timed_labels": TIMED_LABELS}
        values = store.load(key, settings)
        if values is None:
            if progress is not None:
                progress(len(points), len(todo), f"{kernel}, {sweep} {value:g}")
            values = vars(_measure(picture, kernel, sweep, value, repeats))
            store.save(key, settings, values)
        points.append(Point(**values))
    return points


def _measure(image: NDArray[Any], kernel: str, sweep: str, value: float, repeats: int) -> Point:
    labels = int(value) if sweep == "labels" else LABELS
    std = value if sweep == "std" else STD
    if sweep == "pixels" and value != 1:
        shape = [max(2, round(side * value**0.5)) for side in image.shape[:2]]
        planes = resize_bilinear(np.moveaxis(image, -1, 0).astype(np.float32), shape)
        image = np.moveaxis(planes, 0, -1)
    grid = image.shape[:2]
    chosen = Spatial(std) if kernel == "spatial" else Bilateral(image, std, std)
    lattice = LatticeFilter(chosen.features(grid), threads=1)
    scores = np.random.default_rng(0).dirichlet(np.ones(labels), lattice.n).astype(np.float32)
    lattice.mass  # noqa: B018 - computed once a filter, not once a gradient
    timed = labels if sweep == "labels" else min(labels, TIMED_LABELS)
    seconds = dict.fromkeys(ORDERS, float("inf"))
    for _ in range(repeats):  # interleaved, so that load on the machine affects all of them
        for order in ORDERS:
            some = timed if order == "divide-and-conquer" else labels
            spent = _seconds(lattice, scores[:, :some], order) * labels / some
            seconds[order] = min(seconds[order], spent)
    return Point(kernel, sweep, lattice.n, labels, float(std), lattice.vertices, seconds)


def _seconds(lattice: LatticeFilter, scores: Any, order: str) -> float:
    begun = time.process_time()
    lattice.ordered(scores, order=order, threads=1)
    return time.process_time() - begun


def draw_speedup(points: list[Point], title: str) -> Figure:
    """Draw the speed-up over divide and conquer: one row per kernel, one column per sweep."""
    from matplotlib.ticker import LogLocator, NullLocator

    kernels = list(dict.fromkeys(point.kernel for point in points))
    sweeps = list(dict.fromkeys(point.sweep for point in points))
    figure = new_figure(3.0 * len(sweeps), 2.8 * len(kernels))
    axes = figure.subplots(len(kernels), len(sweeps), squeeze=False, sharey="row")
    names = {
        "soft": ("one pass, soft levels", COLORS["lp"], "o-"),
        "hard": ("one pass, hard levels", COLORS["dc-neg"], "s-"),
        "literal": ("the paper's Algorithm 3", COLORS["mf"], "^-"),
    }
    titles = {"pixels": "number of pixels", "labels": "number of labels"}
    for row, kernel in zip(axes, kernels, strict=True):
        for axis, sweep in zip(row, sweeps, strict=True):
            own = [p for p in points if (p.kernel, p.sweep) == (kernel, sweep)]
            for order, (label, color, style) in names.items():
                x, y = [p.value for p in own], [p.speedup(order) for p in own]
                axis.plot(x, y, style, color=color, label=label, ms=4)
            axis.set_xlabel(titles.get(sweep, "standard deviation"))
            axis.set_yscale("log")
            axis.grid(alpha=0.3, which="both")
            if sweep == "std":
                axis.set_xscale("log", base=2)
                axis.set_xticks([p.value for p in own], [f"{p.value:g}" for p in own])
            else:
                axis.set_xscale("log" if sweep == "pixels" else "linear")
                axis.xaxis.set_major_formatter("{x:,.0f}")
        row[0].yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator())
        row[0].yaxis.set_major_formatter("{x:,.0f}")
        row[0].set_ylabel(f"{kernel} (d = {KERNELS[kernel]})\ntimes faster")
    axes[0][1 % len(sweeps)].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure
