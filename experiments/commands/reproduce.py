"""The paper's evaluation on a data set: tables, curves, speed-up, panels."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.large import Scheduler, connected
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    console,
    describe,
    fail,
    output,
    print_failures,
    print_json,
    progress_bar,
    reporting_errors,
    require,
)
from densecrf.io import write_json
from densecrf.records import RecordStore
from experiments.commands import options as e
from experiments.commands.options import PlanOptions, tell_picture
from experiments.figures import save_figure
from experiments.runner import Plan, Run, run
from experiments.tables import FORMATS, compare, comparison_files, write_comparison

__all__ = ["curves", "gaps", "panel", "speedup", "table"]


@o.with_options()
def table(
    *,
    chosen: PlanOptions,
    out: e.Out = Path("reproduction"),
    jobs: o.Jobs = 1,
    scheduler: Scheduler = None,
    style: Annotated[
        str, typer.Option("--format", help=f"What to print: {', '.join(FORMATS)}.")
    ] = "text",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare methods: who finds lower energies, how low, how fast, how accurate.

    Writes the table as text, Markdown, CSV, LaTeX and JSON, and one line per image. After an
    interruption run the same command again: finished tasks are kept.

    For example:

    python -m experiments table --data msrc --protocol paper --params msrc-dc --jobs 4
    """
    require("the table", "tabulate")
    if style not in FORMATS:
        raise typer.BadParameter(f"{style!r} is not one of {', '.join(FORMATS)}")
    plan = chosen.plan()
    stem = f"table-{plan.protocol.name}-{plan.label}"
    chosen.check_outputs(plan, comparison_files(out, stem))
    with (
        reporting_errors(),
        connected(scheduler) as client,
        progress_bar("images", not (quiet or as_json)) as advance,
    ):
        records = RecordStore(out / "records")
        done = run(plan, records, jobs=jobs, progress=advance, client=client)
    _finish(plan, done, out, stem, None if as_json else style)


def _finish(plan: Plan, done: Run, out: Path, stem: str, style: str | None) -> None:
    """Write the table, print it (as JSON where `style` is None), and report failures."""
    try:
        comparison = compare(done.outcomes, plan.methods)
        about = _about(plan, done)
        written = write_comparison(out, stem, comparison, done.outcomes, about)
    except (OSError, ValueError) as error:
        print_failures(dict(done.failures), 0)
        raise fail(describe(error), 130 if done.interrupted else 1) from error
    if style is None:
        files = [str(path) for path in written]
        print_json({"about": about, **asdict(comparison), "files": files})
    else:
        output.print(comparison.render(style), end="")
    console.print(f"Written: {', '.join(path.name for path in written)} in {out}")
    print_failures(dict(done.failures), len(plan.images) - len(done.failures))
    if done.interrupted:
        console.print("Interrupted. Run the same command again to continue.")
        raise typer.Exit(130)
    if done.failures:
        raise typer.Exit(1)


def _about(plan: Plan, done: Run) -> dict[str, Any]:
    numbers = plan.parameters
    weights = (
        f"Parameters {plan.label}: spatial {numbers.sigma:g}/{numbers.weight:g}, bilateral "
        f"{numbers.sigma_xy:g}/{numbers.sigma_color:g}/{numbers.bilateral_weight:g} "
        "(weights over unordered pairs)."
    )
    limits = ", ".join(f"{name} {value:g}" for name, value in plan.limits.items())
    return {
        "title": f"{plan.dataset.name}: protocol {plan.protocol.name}, parameters {plan.label}",
        "notes": [
            f"Protocol {plan.protocol.name}: {plan.protocol.about}.",
            weights,
            *([f"Limits: {limits}."] if limits else []),
        ],
        "protocol": {method: plan.protocol.describe(method) for method in plan.methods},
        "failures": dict(done.failures),
    }


@o.with_options("images", "split", "every", "max_iterations")
def curves(
    *,
    chosen: PlanOptions,
    images: e.ImageNames,
    study: Annotated[
        str, typer.Option(help="What to vary: methods, lambda, levels, order.")
    ] = "methods",
    out: e.Out = Path("reproduction"),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Draw energy and bound against time, for methods or for variants of prox-lp.

    For example:

    python -m experiments curves --data msrc --images 2_14_s --study lambda
    """
    require("the picture", "matplotlib")
    from experiments.curves import STUDIES, draw_curves, measure_curves, methods_study

    if study not in ("methods", *STUDIES):
        raise typer.BadParameter(f"{study!r} is not one of methods, {', '.join(STUDIES)}")
    plan = replace(chosen, images=images).plan()
    variants = methods_study(plan.methods) if study == "methods" else STUDIES[study]
    stem = f"curves-{study}-{plan.protocol.name}-{plan.label}"
    chosen.check_outputs(plan, (out / f"{stem}{end}" for end in (".json", ".png")))
    with reporting_errors(), progress_bar("runs", not (quiet or as_json)) as advance:
        found = measure_curves(plan, study, variants, RecordStore(out / "records"), advance)
        write_json(out / f"{stem}.json", [vars(curve) for curve in found])
        save_figure(out / f"{stem}.png", draw_curves(found))
    ends = {"study": study, "curves": [curve.end() for curve in found]}
    tell_picture(out / f"{stem}.png", as_json, ends)


def speedup(
    image: Annotated[Path, typer.Option(help="A colour image.")],
    out: e.Out = Path("reproduction"),
    repeats: Annotated[int, typer.Option(help="Runs of each; the fastest counts.", min=1)] = 3,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Time the ordered filter against divide and conquer and Algorithm 3 as printed.

    For example:

    python -m experiments speedup --image photo.png
    """
    require("the picture", "matplotlib")
    from densecrf.io import read_image
    from experiments.speedup import draw_speedup, measure_speedup

    stem = f"speedup-{image.stem}"
    written = [(out / f"{stem}{end}", image) for end in (".json", ".png")]
    check_outputs(written, [image], "choose another --out")
    with reporting_errors(), progress_bar("measurements", not (quiet or as_json)) as advance:
        picture = read_image(image)
        if picture.ndim != 3:
            raise ValueError(f"{image}: is grey; the bilateral kernel needs a colour image")
        store = RecordStore(out / "records")
        points = measure_speedup(picture, store, name=image.stem, repeats=repeats, progress=advance)
        height, width = picture.shape[:2]
        title = f"{image.stem} ({height} × {width}): times faster than divide and conquer"
        write_json(out / f"{stem}.json", [vars(point) for point in points])
        save_figure(out / f"{stem}.png", draw_speedup(points, title))
    tell_picture(out / f"{stem}.png", as_json, {"points": [vars(point) for point in points]})


@o.with_options("images", "split", "every", "gap", "time_limit", "max_iterations")
def panel(
    *,
    chosen: PlanOptions,
    images: e.ImageNames,
    out: e.Out = Path("reproduction"),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Draw images, each method's labelling, uncertain pixels and ground truth, side by side.

    For example:

    python -m experiments panel --data msrc --images 2_14_s,4_11_s
    """
    require("the picture", "matplotlib")
    from experiments.panel import draw_panel

    plan = replace(chosen, images=images).plan()
    stem = f"panel-{plan.protocol.name}-{plan.label}"
    chosen.check_outputs(plan, [out / f"{stem}.png"])
    with reporting_errors(), progress_bar("images", not (quiet or as_json)) as advance:
        save_figure(out / f"{stem}.png", draw_panel(plan, progress=advance))
    shown = {"images": plan.images, "methods": plan.methods}
    tell_picture(out / f"{stem}.png", as_json, shown)


def gaps(
    table: Annotated[Path, typer.Argument(help="A table's lines by image, table-*-images.csv.")],
    as_json: o.Json = False,
) -> None:
    """Draw how far above the best bound each method ends, over the images of a table.

    For example:

    python -m experiments gaps reproduction/table-shared-usual-images.csv
    """
    from experiments.bound_gaps import bound_gaps, draw_bound_gaps

    stem = table.stem.removesuffix("-images").replace("table", "gaps", 1)
    picture = table.with_name(f"{stem}.png")
    check_outputs([(picture, table)], [table], "rename the table")
    with reporting_errors():
        found = bound_gaps(table)
        save_figure(picture, draw_bound_gaps(found))
    above = {method: values.tolist() for method, values in found.items()}
    tell_picture(picture, as_json, {"percent_above_the_best_bound": above})
