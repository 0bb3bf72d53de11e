"""``densecrf compare``: several methods on one image, one energy."""

import io
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Sources, find_image, load
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    collecting_warnings,
    console,
    number,
    output,
    percent,
    print_json,
    print_notes,
    print_table,
    progress_bar,
    reporting_errors,
    require,
    solved_columns,
)
from densecrf.io import atomic_writer, overlay
from densecrf.solvers import METHODS
from densecrf.solvers.result import Result, relative_gap
from densecrf.validation import check_choice

__all__ = ["compare"]

COLUMNS = 4
WIDTH = 3.4  # inches of one picture


@o.with_options()
def compare(
    image: o.Image,
    *,
    sources: Sources,
    methods: Annotated[
        str,
        o.solver_option(
            help=f"Methods, separated by commas: {', '.join(METHODS)}.", show_default="all"
        ),
    ] = ",".join(METHODS),
    out: Annotated[
        Path | None, o.output_option("--out", "-o", help="Picture of all labellings (.png).")
    ] = None,
    model: o.ModelOptions,
    time_limit: o.TimeLimit = 60.0,
    threads: o.Threads = None,
    as_json: o.Json = False,
) -> None:
    """Run several methods on one image: energy, bound and time of each on the same energy.

    For example:

    densecrf compare photo.jpg --probs photo.npy --out methods.png
    """
    chosen = _methods(methods)
    files = find_image(image, sources)
    if out is not None:
        if out.suffix.lower() != ".png":
            raise typer.BadParameter(f"{out}: give a name that ends in .png", param_hint="--out")
        require("--out", "matplotlib")
        check_outputs([(out, image)], [*files.paths, model.params], "choose another --out")
    results: list[Result] = []
    with reporting_errors():
        with collecting_warnings() as collect, progress_bar("methods", not as_json) as advance:
            with collect() as collected:
                loaded = load(files, model)
            for method in chosen:
                advance(len(results), len(chosen), method)
                results.append(loaded.crf.solve(method, time_limit=time_limit, threads=threads))
        if out is not None:
            _write_pictures(out, loaded.image, image.name, results)
    print_notes(image.name, collected)
    if as_json:
        print_json({"image": str(image), "results": [result.to_dict() for result in results]})
    else:
        _print(results)
    if out is not None:
        console.print(f"Picture: {out}")


def _methods(given: str) -> list[str]:
    try:
        return [check_choice("methods", name.strip(), METHODS) for name in given.split(",")]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--methods") from error


def _print(results: list[Result]) -> None:
    bounds = [result.lower_bound for result in results if result.lower_bound is not None]
    best = max(bounds, default=None)
    lowest = number(min(result.energy for result in results))
    print_table(
        [
            {
                "method": result.method,
                **solved_columns(result.to_dict()),
                "gap to best bound": percent(relative_gap(result.energy, best)),
                "seconds": f"{result.seconds:.2f}",
                "": "lowest" if number(result.energy) == lowest else "",
            }
            for result in results
        ]
    )
    label, constant = results[0].best_constant
    output.print(f"For scale: all pixels labelled {label} has energy {number(constant)}.")


def _write_pictures(
    path: Path, image: npt.NDArray[np.uint8], name: str, results: list[Result]
) -> None:
    """Write a PNG with the image and each labelling over it, titled."""
    from matplotlib.figure import Figure

    pictures: list[tuple[str, Any]] = [(name, image)]
    for result in results:
        proven = "" if result.gap is None else f", gap {100 * result.gap:.2g} %"
        title = f"{result.method}: {result.energy:,.0f}{proven}\n{result.seconds:.2f} s"
        pictures.append((title, overlay(image, result.labels)))
    columns = min(COLUMNS, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    height = WIDTH * image.shape[0] / image.shape[1] + 0.5
    figure = Figure(figsize=(WIDTH * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, picture) in zip(axes, pictures, strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axis.set_title(title, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    with atomic_writer(path) as file:
        file.write(buffer.getvalue())
