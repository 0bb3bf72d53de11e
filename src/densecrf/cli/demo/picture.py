"""One picture of the demonstration: what goes in, what comes out, and what is proven."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.cli.demo.proof import Comparison, at_least, at_most, gap_of, mean_field_excess
from densecrf.data import UNMARKED
from densecrf.io import atomic_writer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_picture"]

WIDTH = 13.0  # inches
AXIS = 1.3  # inches of the energy axis
KEY = 0.28  # inches of the labels' names
TINT = 0.62
LP_COLOR, MF_COLOR, WALL_COLOR = "#0a7d34", "#c1121f", "#6c6c6c"
TITLES = ("A few strokes", "Mean field", "Linear program, certified", "Where they differ")
EXPLANATION = (
    "Both methods look for the labelling of lowest energy: colours as under the label's strokes, "
    "and one label for neighbours of like colour.\nOnly the linear program can say how good its "
    "answer is: it proves that no labelling whatsoever lies in the hatched range."
)


def write_picture(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write the picture of some scenes, each solved by ``mf`` and ``lp`` at least.

    Parameters
    ----------
    path : path-like
        The PNG to write, whole or not at all.
    comparisons : sequence of Comparison
        One row each.
    """
    from PIL import Image

    buffer = io.BytesIO()
    _figure(comparisons).savefig(buffer, format="png", dpi=110)
    # A palette makes a third of the size, and the eye does not see it.
    picture = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.FLOYDSTEINBERG)
    with atomic_writer(path) as file:
        picture.save(file, "PNG", optimize=True)


def _figure(comparisons: Sequence[Comparison]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heights: list[float] = []
    for done in comparisons:
        h, w = done.scene.image.shape[:2]
        heights += [WIDTH / 4 * h / w, KEY, AXIS]
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.0, hspace=0.0)
    figure = Figure(figsize=(WIDTH, sum(heights) + 1.1), layout=layout)
    grid = figure.add_gridspec(len(heights), 4, height_ratios=heights)
    for row, done in enumerate(comparisons):
        panels = [figure.add_subplot(grid[3 * row, column]) for column in range(4)]
        _draw_panels(panels, done)
        if row == 0:
            for axes, title in zip(panels, TITLES, strict=True):
                axes.set_title(title, fontsize=13, fontweight="bold")
        _name_labels(figure.add_subplot(grid[3 * row + 1, :]), done)
        _draw_certificate(figure.add_subplot(grid[3 * row + 2, :]), done)
    figure.supxlabel(EXPLANATION, fontsize=11.5, color="0.25")
    return figure


def _draw_panels(panels: "Sequence[Axes]", done: Comparison) -> None:
    """Draw strokes, both answers, and their difference."""
    mf, lp = done.result("mf").labels, done.result("lp").labels
    colors = _rgb(done.scene.colors)
    pale = 0.35 * done.scene.image + 0.65 * 255
    pictures = [
        _strokes(done, colors),
        _tinted(done.scene.image, mf, colors),
        _tinted(done.scene.image, lp, colors),
        np.where((mf != lp)[..., None], _rgb((MF_COLOR,))[0], pale),
    ]
    for axes, picture in zip(panels, pictures, strict=True):
        axes.imshow(np.clip(picture, 0, 255).astype(np.uint8), interpolation="antialiased")
        axes.set_axis_off()


def _rgb(colors: Sequence[str]) -> npt.NDArray[np.float64]:
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(color) for color in colors]) * 255


def _tinted(
    image: npt.NDArray[Any], labels: npt.NDArray[Any], colors: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    grey = 40 + 0.85 * image.mean(2, keepdims=True)
    return np.asarray(TINT * colors[labels] + (1 - TINT) * grey)


def _strokes(done: Comparison, colors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the photograph with the strokes on it, edged in white."""
    drawn = done.scene.scribbles != UNMARKED
    edged = drawn.copy()
    for axis in (0, 1):
        for by in (-1, 1):
            edged |= np.roll(drawn, by, axis)
    picture = np.where(edged[..., None], 255.0, done.scene.image)
    picture[drawn] = colors[done.scene.scribbles[drawn]]
    return np.asarray(picture)


def _name_labels(axes: "Axes", done: Comparison) -> None:
    from matplotlib.patches import Patch

    names = zip(done.scene.classes, done.scene.colors, strict=True)
    handles = [Patch(color=color, label=name) for name, color in names]
    axes.legend(
        handles=handles, loc="center", ncols=len(handles), fontsize=11.5, frameon=False,
        handlelength=1.3, borderpad=0,
    )  # fmt: skip
    axes.set_axis_off()


def _draw_certificate(axes: "Axes", done: Comparison) -> None:
    """Draw the energy axis: what is impossible, and where both answers lie."""
    mf, lp = done.result("mf"), done.result("lp")
    bound = lp.energy if lp.lower_bound is None else lp.lower_bound
    span = max(mf.energy - bound, 0.01 * abs(bound))
    low, high = bound - 0.45 * span, bound + 1.25 * span
    axes.axvspan(low, bound, facecolor="0.93", edgecolor="0.75", hatch="///", lw=0)
    axes.axhline(0, color="0.2", lw=1.2)
    axes.axvline(bound, color=WALL_COLOR, lw=3)
    for result, color in ((lp, LP_COLOR), (mf, MF_COLOR)):
        axes.plot(result.energy, 0, "o", color=color, ms=12, zorder=3, clip_on=False)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    axes.text(
        (low + bound) / 2, 0.5, f"proven: nothing\nbelow {math.floor(bound):,}",
        ha="center", va="center", fontsize=11, color="0.2", bbox=box,
    )  # fmt: skip
    axes.text(
        bound + 0.03 * span, 0.55,
        f"linear program {lp.energy:,.0f}\nat most {at_most(gap_of(done))} above the best "
        f"of all {done.crf.n_labels}$^{{{done.crf.n}}}$ labellings",
        color=LP_COLOR, fontsize=11.5, fontweight="bold", va="center",
    )  # fmt: skip
    axes.text(
        mf.energy, 0.55, f"mean field {mf.energy:,.0f}\nno bound",
        color=MF_COLOR, fontsize=11.5, fontweight="bold", ha="center", va="center",
    )  # fmt: skip
    axes.annotate(
        "", (mf.energy, -0.42), (lp.energy, -0.42),
        arrowprops={"arrowstyle": "<->", "color": MF_COLOR, "lw": 1.5},
    )  # fmt: skip
    axes.text(
        (lp.energy + mf.energy) / 2, -0.42,
        f"at least {at_least(mean_field_excess(done))} above the best",
        color=MF_COLOR, fontsize=11, ha="center", va="center", bbox=box,
    )  # fmt: skip
    axes.set(xlim=(low, high), ylim=(-0.8, 1))
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.text(high, -0.3, "energy (lower is better)", ha="right", va="center", fontsize=10.5)
