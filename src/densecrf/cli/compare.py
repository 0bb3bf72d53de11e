"""``densecrf compare``: several methods on one image, one energy."""

from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Sources, find_image, load, with_sources
from densecrf.cli.outputs import check_outputs
from densecrf.cli.panel import write_panel
from densecrf.cli.progress import collecting_warnings, progress_bar
from densecrf.cli.reports import (
    console,
    number,
    output,
    percent,
    print_json,
    print_notes,
    print_table,
    reporting_errors,
    require,
    solved_columns,
)
from densecrf.solvers import METHODS
from densecrf.solvers.result import Result, relative_gap
from densecrf.validation import check_choice

__all__ = ["compare"]


@o.with_model
@with_sources
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
        params = None if model.params is None else Path(model.params)
        require("--out", "matplotlib")
        check_outputs([(out, image)], [*files.paths, params], "choose another --out")
    results: list[Result] = []
    with reporting_errors():
        with collecting_warnings() as collect, progress_bar("methods", not as_json) as advance:
            with collect() as collected:
                loaded = load(files, model)
            for method in chosen:
                advance(len(results), len(chosen), method)
                results.append(loaded.crf.solve(method, time_limit=time_limit, threads=threads))
        if out is not None:
            titled = [(_title(result), result.labels) for result in results]
            write_panel(out, loaded.image, titled, image.name)
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


def _title(result: Result) -> str:
    proven = "" if result.gap is None else f", gap {100 * result.gap:.2g} %"
    return f"{result.method}: {result.energy:,.0f}{proven}\n{result.seconds:.2f} s"
