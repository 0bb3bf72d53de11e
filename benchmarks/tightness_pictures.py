"""Pictures of what `benchmarks.tightness` measured: distributions, and undecided pixels."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.plotting import label_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["distributions", "undecided_pixels"]

FLOOR = 1e-8  # gaps below it are drawn there: the rounding of the unaries is about 6e-8


def distributions(records: list[dict[str, Any]], path: Path) -> None:
    """Draw how gaps, filter calls and proven pixels are distributed, a line for each setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.4), layout="constrained")
    gaps, calls, shares = figure.subplots(1, 3)
    for index, title in enumerate(dict.fromkeys(record["setting"] for record in records)):
        color = f"C{index}"
        own = [record for record in records if record["setting"] == title]
        label = f"{title} ({len(own)})"
        _steps(gaps, [max(FLOOR, record["gap"]) for record in own], color, label=label)
        for gap, style in ((1e-3, "-"), (1e-6, ":")):
            counts = [record["calls"][f"{gap:g}"] or np.inf for record in own]
            _steps(calls, counts, color, linestyle=style)
        _steps(shares, [100 * (1 - record["proven"]) for record in own], color)
    gaps.set(xscale="log", xlabel="relative gap in the end", xlim=(FLOOR, 1e-3))
    gaps.axvline(1e-6, color="0.6", lw=0.8)
    calls.set(xlabel="ordered filter calls to 0.1 % (lines) and to 1e-6 (dots)", xlim=(0, 200))
    shares.set(xlabel="pixels that are not proven (%)", xscale="symlog", xlim=(0, 100))
    for axes in (gaps, calls, shares):
        axes.set(ylabel="share of the problems", ylim=(0, 1.01))
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)


def _steps(axes: "Axes", values: list[float], color: str, **options: Any) -> None:
    """Draw an empirical distribution function."""
    ordered = np.sort(np.array(values, float))
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    finite = np.isfinite(ordered)
    axes.step(ordered[finite], share[finite], where="post", color=color, lw=1.4, **options)


def undecided_pixels(files: list[tuple[str, Path]], labels: int, path: Path) -> None:
    """Draw label maps of optimal labellings with the undecided pixels in black."""
    from matplotlib.figure import Figure

    columns = 4
    rows = -(-len(files) // columns)
    figure = Figure(figsize=(12, 2.6 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns))
    colors = 0.35 + 0.65 * label_colors(labels)
    for axis, (title, file) in zip(axes, files, strict=False):
        with np.load(file) as kept:
            shown = colors[kept["labels"]]
            shown[kept["possible"] != 1] = 0
        axis.imshow(shown, interpolation="nearest")
        axis.set_title(title, fontsize="small")
    for axis in axes:
        axis.axis("off")
    figure.savefig(path, dpi=80)
