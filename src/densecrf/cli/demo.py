"""``densecrf demo``: strokes on two photographs, mean field against the certified linear program.

The photographs and strokes are those of `densecrf.data`. Bounds are rounded outwards.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from densecrf.cli import options as o
from densecrf.cli.outputs import check_outputs, label_file
from densecrf.cli.reports import (
    collecting_warnings,
    output,
    print_json,
    print_table,
    progress_bar,
    reporting_errors,
    require,
    solved_columns,
)
from densecrf.data import UNMARKED, Scene, astronaut, coffee
from densecrf.io import atomic_writer
from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.scribbles import scribble_unary
from densecrf.solvers.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Comparison", "compare", "demo", "proven", "write_picture"]

#: Kernels for strokes: short and strong.
KERNELS = Parameters(sigma=3, weight=5, sigma_xy=15, sigma_color=8, bilateral_weight=15)
CERTAINTY = 0.95  # of the strokes' colours
WORDS = {
    "mf5": "mean field, 5 iterations (mf5)",
    "mf": "mean field to convergence (mf)",
    "lp": "linear program (lp)",
}
# Of the picture.
WIDTH = 13.0  # inches
AXIS = 1.3  # inches of the energy axis
KEY = 0.28  # inches of the labels' names
TINT = 0.62
LP_COLOR, MF_COLOR, WALL_COLOR = "#0a7d34", "#c1121f", "#6c6c6c"
TITLES = ("A few strokes", "Mean field", "Linear program, certified", "Where they differ")
EXPLANATION = (
    "Both methods look for the labelling of lowest energy: labels near their strokes and in the "
    "strokes' colours, and one label for neighbours of similar colour.\nOnly the linear program "
    "bounds its distance from the optimum: it proves that no labelling lies in the hatched range."
)


def demo(
    out: Annotated[
        Path, o.output_option("--out", "-o", help="The picture (.png), or a folder for it.")
    ] = Path("demo"),
    as_json: o.Json = False,
) -> None:
    """Segment two photographs from a few strokes: mean field against the certified LP.

    Needs scikit-image for the photographs: pip install "densecrf[demo]".
    """
    require("densecrf demo", "skimage", "matplotlib")
    picture = label_file(out) or out / "demo.png"
    check_outputs([(picture, "the photographs")], [], "choose another --out")
    comparisons = []
    with reporting_errors():
        for scene in (coffee(), astronaut()):
            with collecting_warnings(), progress_bar(scene.name, not as_json) as advance:
                done = compare(scene, on_method=partial(advance, 0, None))
            comparisons.append(done)
            if not as_json:
                _print(done)
        write_picture(picture, comparisons)
    if as_json:
        scenes = [
            {
                "scene": done.scene.name,
                "labels": list(done.scene.classes),
                "results": [result.to_dict() for result in done.results],
            }
            for done in comparisons
        ]
        print_json({"picture": str(picture), "scenes": scenes})
        return
    for line in (*proven(comparisons), f"\nPicture: {picture}"):
        output.print(line)


@dataclass(frozen=True)
class Comparison:
    """A scene solved by several methods."""

    scene: Scene
    crf: DenseCRF
    results: tuple[Result, ...]

    def result(self, method: str) -> Result:
        """Return the result of one method."""
        return next(result for result in self.results if result.method == method)

    @property
    def bound(self) -> float:
        """The lower bound of the linear program."""
        lp = self.result("lp")
        return lp.energy if lp.lower_bound is None else lp.lower_bound

    @property
    def gap(self) -> str:
        """The linear program's largest possible excess over the optimum, rounded up."""
        share = max(0.0, self.result("lp").energy - self.bound) / self.bound
        return f"{math.ceil(1e4 * share) / 100:.2f} %"

    @property
    def excess(self) -> str:
        """Mean field's smallest possible excess over the optimum, rounded down."""
        # The linear program's energy is an upper bound of the optimum.
        share = max(0.0, self.result("mf").energy / self.result("lp").energy - 1)
        return f"{math.floor(1e3 * share) / 10:.1f} %"


def compare(
    scene: Scene,
    methods: tuple[str, ...] = ("mf5", "mf", "lp"),
    on_method: Callable[[str], Any] = lambda _: None,
) -> Comparison:
    """Solve one scene by several methods, on one energy; `on_method` is called before each."""
    unary = scribble_unary(scene.image, scene.scribbles, len(scene.classes), certainty=CERTAINTY)
    crf = DenseCRF(unary, KERNELS.kernels(scene.image))
    results = []
    for method in methods:
        on_method(method)
        results.append(crf.solve(method))
    return Comparison(scene, crf, tuple(results))


def proven(comparisons: Sequence[Comparison]) -> list[str]:
    """Return three lines on the proven bounds."""
    bounds = " and ".join(
        f"of the {done.crf.n_labels}^{done.crf.n} labellings of {done.scene.name} none has an "
        f"energy below {done.result('lp').lower_bound:,.1f}"
        for done in comparisons
    )
    gaps = " and ".join(done.gap for done in comparisons)
    excess = " and ".join(done.excess for done in comparisons)
    return [
        f"Proven: {bounds}.",
        f"So lp's answers are at most {gaps} above the optimum: no method can gain more.",
        f"Mean field, run to convergence, is at least {excess} above the best, without a bound.",
    ]


def _print(done: Comparison) -> None:
    scene = done.scene
    height, width = scene.image.shape[:2]
    output.print(
        f"{scene.name}, {width} x {height} pixels, {len(scene.classes)} labels from "
        f"{scene.strokes} strokes: {scene.about}"
    )
    print_table(
        [
            {
                "method": WORDS[result.method],
                **solved_columns(result.to_dict()),
                "seconds": f"{result.seconds:.2f}",
            }
            for result in done.results
        ]
    )
    output.print()


def write_picture(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write a PNG of some scenes, each solved by ``mf`` and ``lp`` at least."""
    from PIL import Image

    buffer = io.BytesIO()
    _figure(comparisons).savefig(buffer, format="png", dpi=110)
    # A palette cuts the size to a third without a visible difference.
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
        for axes, picture in zip(panels, _pictures(done), strict=True):
            axes.imshow(np.clip(picture, 0, 255).astype(np.uint8), interpolation="antialiased")
            axes.set_axis_off()
        if row == 0:
            for axes, title in zip(panels, TITLES, strict=True):
                axes.set_title(title, fontsize=13, fontweight="bold")
        _name_labels(figure.add_subplot(grid[3 * row + 1, :]), done.scene)
        _draw_certificate(figure.add_subplot(grid[3 * row + 2, :]), done)
    figure.supxlabel(EXPLANATION, fontsize=11.5, color="0.25")
    return figure


def _pictures(done: Comparison) -> list[npt.NDArray[Any]]:
    """Return the strokes, both labellings, and their difference."""
    from matplotlib.colors import to_rgb

    image, scribbles = done.scene.image, done.scene.scribbles
    colors = 255 * np.array([to_rgb(color) for color in done.scene.colors])
    drawn = scribbles != UNMARKED
    edged = drawn.copy()
    for axis in (0, 1):
        for by in (-1, 1):
            edged |= np.roll(drawn, by, axis)
    strokes = np.where(edged[..., None], 255.0, image)
    strokes[drawn] = colors[scribbles[drawn]]
    grey = 40 + 0.85 * image.mean(2, keepdims=True)
    labellings = [done.result(method).labels for method in ("mf", "lp")]
    tinted = [TINT * colors[labels] + (1 - TINT) * grey for labels in labellings]
    differ = np.not_equal(*labellings)[..., None]
    pale = 0.35 * image + 0.65 * 255
    return [strokes, *tinted, np.where(differ, 255 * np.array(to_rgb(MF_COLOR)), pale)]


def _name_labels(axes: "Axes", scene: Scene) -> None:
    from matplotlib.patches import Patch

    names = zip(scene.classes, scene.colors, strict=True)
    handles = [Patch(color=color, label=name) for name, color in names]
    axes.legend(
        handles=handles, loc="center", ncols=len(handles), fontsize=11.5, frameon=False,
        handlelength=1.3, borderpad=0,
    )  # fmt: skip
    axes.set_axis_off()


def _draw_certificate(axes: "Axes", done: Comparison) -> None:
    """Draw the energy axis: the impossible range, and where both labellings lie."""
    mf, lp, bound = done.result("mf"), done.result("lp"), done.bound
    span = max(mf.energy - bound, 0.01 * abs(bound))
    low, high = bound - 0.45 * span, bound + 1.25 * span
    axes.axvspan(low, bound, facecolor="0.93", edgecolor="0.75", hatch="///", lw=0)
    axes.axhline(0, color="0.2", lw=1.2)
    axes.axvline(bound, color=WALL_COLOR, lw=3)
    for result, color in ((lp, LP_COLOR), (mf, MF_COLOR)):
        axes.plot(result.energy, 0, "o", color=color, ms=12, zorder=3, clip_on=False)
    boxed: dict[str, Any] = {
        "ha": "center", "va": "center", "fontsize": 11,
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 2},
    }  # fmt: skip
    bold: dict[str, Any] = {"fontsize": 11.5, "fontweight": "bold", "va": "center"}
    nothing = f"proven: nothing\nbelow {math.floor(bound):,}"
    axes.text((low + bound) / 2, 0.5, nothing, color="0.2", **boxed)
    found = (
        f"linear program {lp.energy:,.0f}\nat most {done.gap} above the best "
        f"of all {done.crf.n_labels}$^{{{done.crf.n}}}$ labellings"
    )
    axes.text(bound + 0.03 * span, 0.55, found, color=LP_COLOR, **bold)
    found = f"mean field {mf.energy:,.0f}\nno bound"
    axes.text(mf.energy, 0.55, found, color=MF_COLOR, ha="center", **bold)
    arrow = {"arrowstyle": "<->", "color": MF_COLOR, "lw": 1.5}
    axes.annotate("", (mf.energy, -0.42), (lp.energy, -0.42), arrowprops=arrow)
    above = f"at least {done.excess} above the best"
    axes.text((lp.energy + mf.energy) / 2, -0.42, above, color=MF_COLOR, **boxed)
    axes.set(xlim=(low, high), ylim=(-0.8, 1))
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.text(high, -0.3, "energy (lower is better)", ha="right", va="center", fontsize=10.5)
