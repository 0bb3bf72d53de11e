"""Labellings side by side: the image, each method's result, uncertain pixels, ground truth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from densecrf.metrics import accuracy
from experiments.figures import new_figure
from experiments.runner import Solved, solve_sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.runner import Plan, Progress

__all__ = ["draw_panel"]

CONFIDENT = 0.95  # pixels with all scores below this are uncertain (section 5.1)
UNCERTAIN = ("dc-neg", "lp")  # methods whose uncertain pixels are shown, in white
WIDTH, CAPTION = 1.9, 0.65  # inches of a picture, and of the lines above it
COLUMNS = 5  # pictures per line at most, so that captions can be read at the width of a page
Picture = tuple[Any, str]


def draw_panel(plan: Plan, progress: Progress | None = None) -> Figure:
    """Draw image after image, as in the paper's Figure 3.

    Parameters
    ----------
    plan
        Images, methods, protocol, parameters.
    progress
        Called before each image with (done, total, image).
    """
    rows: list[list[Picture]] = []
    for number, image in enumerate(plan.images):
        if progress is not None:
            progress(number, len(plan.images), image)
        rows.append(_row(plan, image))
    columns = math.ceil(len(rows[0]) / math.ceil(len(rows[0]) / COLUMNS))
    lines = [row[at : at + columns] for row in rows for at in range(0, len(row), columns)]
    heights = [WIDTH * line[0][0].shape[0] / line[0][0].shape[1] + CAPTION for line in lines]
    figure = new_figure(WIDTH * columns, sum(heights))
    axes = figure.subplots(
        len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for line, pictures in zip(axes, lines, strict=True):
        for axis in line[len(pictures) :]:
            axis.set_axis_off()
        for axis, (picture, caption) in zip(line, pictures, strict=False):
            axis.imshow(picture, interpolation="nearest", cmap="gray")
            axis.set_title(caption, fontsize="small")
            axis.set_xticks([])
            axis.set_yticks([])
            for edge in axis.spines.values():
                edge.set_color("0.7")
    return figure


def _row(plan: Plan, image: str) -> list[Picture]:
    sample = plan.dataset.items[image].load()
    palette = plan.dataset.palette
    pictures: list[Picture] = [(sample.image, image)]
    more: list[Picture] = []
    starts: dict[str, Solved] = {}
    for method in plan.methods:
        result, outcome = solve_sample(plan, method, sample, starts)
        caption = f"{method}\n{outcome.energy:,.0f}"
        if outcome.gap is not None:
            caption += f" (gap {100 * outcome.gap:.2g} %)"
        if outcome.confusion is not None and outcome.confusion.any():
            caption += f"\n{100 * float(accuracy(outcome.confusion)):.1f} % correct"
        pictures.append((palette.to_colors(result.labels), caption))
        if method in UNCERTAIN:
            low = result.marginals.max(0) < CONFIDENT
            more.append((low, f"uncertain, {method}\n{100 * low.mean():.1f} % of pixels"))
    if sample.labels is not None:
        more.append((palette.to_colors(sample.labels), "ground truth"))
    return pictures + more
