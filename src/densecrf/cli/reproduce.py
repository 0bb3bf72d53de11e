"""``densecrf reproduce``: the paper's evaluation on a data set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from densecrf.cli.reports import console, describe, fail, output, print_failures
from densecrf.experiments.protocols import PARAMETERS, PROTOCOLS, get_parameters, get_protocol
from densecrf.experiments.records import RecordStore
from densecrf.experiments.runner import Plan, Run, make_plan, run
from densecrf.experiments.tables import FORMATS, compare, write_comparison
from densecrf.io import Dataset, write_json, write_text
from densecrf.presets import read_preset
from densecrf.solvers import METHODS

__all__ = ["app", "open_dataset", "plan_of", "progress_bar", "reporting_errors"]

app = typer.Typer(
    name="reproduce",
    help="The paper's evaluation on your data: tables, curves, speed-up, panels, a report.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

USED_METHODS = "unary,mf5,mf,dc-neg,prox-lp-acc,lp"

Data = Annotated[
    Path, typer.Option(help="Folder of images/, labels/ and logits/, probs/ or unaries/.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results and records.")]
ProtocolOption = Annotated[
    str, typer.Option("--protocol", help=f"Which energies: {', '.join(PROTOCOLS)}.")
]
Params = Annotated[
    str | None,
    typer.Option(
        help="Parameters: a file of `densecrf tune`, or one of "
        f"{', '.join(PARAMETERS)}. By default those that the protocol was made for."
    ),
]
Methods = Annotated[str, typer.Option(help=f"Methods, separated by commas: {', '.join(METHODS)}.")]
Split = Annotated[str | None, typer.Option(help="Only the images of this split.")]
Images = Annotated[str | None, typer.Option(help="Only these images, separated by commas.")]
Every = Annotated[int, typer.Option(help="Only every n-th image.", min=1)]
Kind = Annotated[
    str | None,
    typer.Option(help="Which scores, where there are several: logits, probabilities, energies."),
]
Classes = Annotated[
    str | None, typer.Option(help="Built-in classes (msrc, voc, camvid), without a meta.json.")
]
Threads = Annotated[int | None, typer.Option(help="Threads an image; all by default.", min=1)]
Gap = Annotated[float | None, typer.Option(help="Stop within this fraction of the optimum.")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds a method and image, at most.")]
MaxIterations = Annotated[int | None, typer.Option(help="Most iterations.", min=0)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@app.command()
def table(
    data: Data,
    out: Out = Path("reproduction"),
    protocol: ProtocolOption = "shared",
    params: Params = None,
    methods: Methods = USED_METHODS,
    split: Split = None,
    images: Images = None,
    every: Every = 1,
    kind: Kind = None,
    classes: Classes = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Images at a time.", min=1)] = 1,
    threads: Threads = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    max_iterations: MaxIterations = None,
    style: Annotated[
        str, typer.Option("--format", help=f"What to print: {', '.join(FORMATS)}.")
    ] = "text",
    quiet: Quiet = False,
) -> None:
    """Compare methods: who finds lower energies, how low, how fast, how accurate.

    Writes the table as text, Markdown, CSV, LaTeX and JSON, and a line an image. Run it again to
    go on after an interruption: what is done is not done again.

    For example:

    densecrf reproduce table --data msrc --protocol paper --params msrc-dc --jobs 4
    """
    if style not in FORMATS:
        raise typer.BadParameter(f"{style!r} is not one of {', '.join(FORMATS)}")
    limits = {"gap": gap, "time_limit": time_limit, "max_iterations": max_iterations}
    plan = plan_of(
        data, protocol, params, methods, split, images, every, kind, classes, threads,
        {name: value for name, value in limits.items() if value is not None},
    )  # fmt: skip
    with reporting_errors(), progress_bar("images", not quiet) as tell:
        done = run(
            plan,
            RecordStore(out / "records"),
            jobs=jobs,
            progress=lambda number, total, name, _reason: tell(number, total, name),
        )
    _finish(plan, done, out, style)


def _finish(plan: Plan, done: Run, out: Path, style: str) -> None:
    try:
        comparison = compare(done.outcomes, plan.methods)
        stem = f"table-{plan.protocol.name}-{plan.label}"
        written = write_comparison(out, stem, comparison, done.outcomes, _about(plan, done))
    except (OSError, ValueError) as error:
        print_failures(dict(done.failures), 0)
        raise fail(describe(error), 130 if done.interrupted else 1) from error
    output.print(comparison.render(style), markup=False, soft_wrap=True, end="")
    console.print(f"Written: {', '.join(path.name for path in written)} in {out}", soft_wrap=True)
    print_failures(dict(done.failures), len(plan.images) - len(done.failures))
    if done.interrupted:
        console.print("[bold]Interrupted.[/] Run the same command again to go on.")
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


@app.command()
def curves(
    data: Data,
    images: Annotated[str, typer.Option(help="Images, separated by commas.")],
    study: Annotated[
        str, typer.Option(help="What to vary: methods, lambda, levels, order.")
    ] = "methods",
    out: Out = Path("reproduction"),
    protocol: ProtocolOption = "shared",
    params: Params = None,
    methods: Methods = USED_METHODS,
    kind: Kind = None,
    classes: Classes = None,
    threads: Threads = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    quiet: Quiet = False,
) -> None:
    """Draw energy and bound against time, for methods or for variants of prox-lp.

    For example:

    densecrf reproduce curves --data msrc --images 2_14_s --study lambda
    """
    from densecrf.experiments.curves import STUDIES, draw_curves, measure_curves, methods_study
    from densecrf.experiments.figures import save_figure

    if study not in ("methods", *STUDIES):
        raise typer.BadParameter(f"{study!r} is not one of methods, {', '.join(STUDIES)}")
    limits = {"gap": gap, "time_limit": time_limit}
    plan = plan_of(
        data, protocol, params, methods, None, images, 1, kind, classes, threads,
        {name: value for name, value in limits.items() if value is not None},
    )  # fmt: skip
    variants = methods_study(plan.methods) if study == "methods" else STUDIES[study]
    with reporting_errors(), progress_bar("runs", not quiet) as tell:
        found = measure_curves(plan, study, variants, RecordStore(out / "records"), tell)
        stem = f"curves-{study}-{plan.protocol.name}-{plan.label}"
        save_figure(out / f"{stem}.png", draw_curves(found))
        write_json(out / f"{stem}.json", [vars(curve) for curve in found])
        write_text(
            out / f"{stem}.txt",
            f"Study of {study}, protocol {plan.protocol.name} ({plan.protocol.about}), parameters "
            f"{plan.label}. Dashed: lower bounds.",
        )
    console.print(f"Picture: {out / stem}.png", soft_wrap=True)


@app.command()
def speedup(
    image: Annotated[Path, typer.Option(help="A colour image.")],
    out: Out = Path("reproduction"),
    repeats: Annotated[int, typer.Option(help="Runs of each; the fastest counts.", min=1)] = 3,
    quiet: Quiet = False,
) -> None:
    """Time the ordered filter against divide and conquer and Algorithm 3 as printed.

    For example:

    densecrf reproduce speedup --image photo.png
    """
    from densecrf.experiments.figures import save_figure
    from densecrf.experiments.speedup import TIMED_LABELS, draw_speedup, measure_speedup
    from densecrf.io import read_image

    with reporting_errors(), progress_bar("measurements", not quiet) as tell:
        picture = read_image(image)
        if picture.ndim != 3:
            raise ValueError(f"{image}: is grey; the bilateral kernel here needs colours")
        store = RecordStore(out / "records")
        points = measure_speedup(picture, store, name=image.stem, repeats=repeats, progress=tell)
        height, width = picture.shape[:2]
        title = f"{image.stem} ({height} × {width}): times faster than divide and conquer"
        save_figure(out / f"speedup-{image.stem}.png", draw_speedup(points, title))
        write_json(out / f"speedup-{image.stem}.json", [vars(point) for point in points])
        write_text(
            out / f"speedup-{image.stem}.txt",
            "One conditional gradient of random scores, one thread, processor time; 21 labels and "
            "standard deviation 1 where they do not vary. Divide and conquer is timed on "
            f"{TIMED_LABELS} labels and scaled, except where labels vary.",
        )
    console.print(f"Picture: {out / f'speedup-{image.stem}.png'}", soft_wrap=True)


@app.command()
def panel(
    data: Data,
    images: Annotated[str, typer.Option(help="Images, separated by commas.")],
    out: Out = Path("reproduction"),
    protocol: ProtocolOption = "shared",
    params: Params = None,
    methods: Methods = USED_METHODS,
    kind: Kind = None,
    classes: Classes = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Draw images, each method's labelling, the pixels in doubt and the truth, side by side.

    For example:

    densecrf reproduce panel --data msrc --images 2_14_s,4_11_s
    """
    from densecrf.experiments.figures import save_figure
    from densecrf.experiments.panel import draw_panel

    plan = plan_of(data, protocol, params, methods, None, images, 1, kind, classes, threads, {})
    with reporting_errors(), progress_bar("runs", not quiet) as tell:
        stem = f"panel-{plan.protocol.name}-{plan.label}"
        save_figure(out / f"{stem}.png", draw_panel(plan, progress=tell))
        write_text(
            out / f"{stem}.txt",
            f"Protocol {plan.protocol.name}, parameters {plan.label}: energy and accuracy of each "
            "labelling; white pixels have no label with a score of 0.95.",
        )
    console.print(f"Picture: {out / stem}.png", soft_wrap=True)


@app.command()
def spread(
    table: Annotated[Path, typer.Argument(help="A table's lines by image, table-*-images.csv.")],
) -> None:
    """Draw how far above the best bound each method ends, over the images of a table.

    For example:

    densecrf reproduce spread reproduction/table-shared-usual-images.csv
    """
    from densecrf.experiments.figures import save_figure
    from densecrf.experiments.spread import draw_spread, excesses

    stem = table.stem.removesuffix("-images").replace("table", "spread", 1)
    picture = table.with_name(f"{stem}.png")
    with reporting_errors():
        save_figure(picture, draw_spread(excesses(table)))
        write_text(
            picture.with_suffix(".txt"),
            "Share of images that end within so many per cent of the best bound that any method "
            "has proven.",
        )
    console.print(f"Picture: {picture}", soft_wrap=True)


@app.command()
def report(
    out: Out = Path("reproduction"),
    page: Annotated[Path | None, typer.Option(help="The page; OUT/report.html.")] = None,
) -> None:
    """Put all tables and pictures of a folder into one self-contained HTML page."""
    from densecrf.experiments.report import write_report

    target = page or out / "report.html"
    with reporting_errors():
        write_report(out, target)
    console.print(f"Written: {target}", soft_wrap=True)


def open_dataset(data: Path, kind: str | None, classes: str | None) -> Dataset:
    """Open a data set, or end the command with the reason."""
    with reporting_errors():
        return Dataset.open(data, kind=kind, classes=classes)  # type: ignore[arg-type]


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the command with the reason, where there is one that its user can act on."""
    try:
        yield
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error


def plan_of(
    data: Path,
    protocol: str,
    params: str | None,
    methods: str,
    split: str | None,
    images: str | None,
    every: int,
    kind: str | None,
    classes: str | None,
    threads: int | None,
    limits: dict[str, Any],
) -> Plan:
    """Return the plan that the options describe, or end the command with the reason."""
    try:
        chosen = get_protocol(protocol)
        label = params or chosen.default
        from_file = label not in PARAMETERS and Path(label).is_file()
        parameters = read_preset(label) if from_file else get_parameters(label)
        dataset = open_dataset(data, kind, classes)
        names = dataset.names(split)
        if images is not None:
            names = tuple(name.strip() for name in images.split(","))
        return make_plan(
            dataset,
            chosen,
            parameters,
            label=Path(label).stem if from_file else label,
            images=names[::every],
            methods=tuple(name.strip() for name in methods.split(",")),
            limits=limits,
            threads=threads,
        )
    except (OSError, ValueError) as error:
        raise fail(describe(error), 2) from error


@contextmanager
def progress_bar(unit: str, shown: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar with the time left; the yielded function moves it."""
    bar = Progress(
        TextColumn(unit),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not shown,
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )
