"""Options of the commands that run over a data set, and the plan that they describe."""

from collections.abc import Callable, Iterator, Mapping
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

from densecrf.cli.reports import console, describe, fail, print_json
from densecrf.experiments.protocols import PARAMETERS, PROTOCOLS, get_parameters, get_protocol
from densecrf.experiments.runner import Plan, make_plan
from densecrf.io import Dataset
from densecrf.presets import read_preset
from densecrf.solvers import METHODS

__all__ = ["open_dataset", "plan_of", "progress_bar", "reporting_errors", "tell_picture"]

USED_METHODS = "unary,mf5,mf,dc-neg,prox-lp-acc,lp"
LIMITS = ("gap", "time_limit", "max_iterations")

Data = Annotated[
    Path, typer.Option(help="Folder of images/, labels/ and logits/, probs/ or unaries/.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results and records.")]
ProtocolName = Annotated[
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
ChosenImages = Annotated[str, typer.Option(help="Images, separated by commas.")]
Every = Annotated[int, typer.Option(help="Only every n-th image.", min=1)]
Kind = Annotated[
    str | None,
    typer.Option(help="Which scores, where there are several: logits, probabilities, energies."),
]
Classes = Annotated[
    str | None, typer.Option(help="Built-in classes (msrc, voc, camvid), without a meta.json.")
]
Gap = Annotated[float | None, typer.Option(help="Stop within this fraction of the optimum.")]


def open_dataset(data: Path, kind: str | None, classes: str | None) -> Dataset:
    """Open a data set, or end the command with the reason."""
    with reporting_errors():
        return Dataset.open(data, kind=kind, classes=classes)  # type: ignore[arg-type]


def plan_of(options: Mapping[str, Any]) -> Plan:
    """Return the plan that a command's options describe, or end it with the reason.

    Parameters
    ----------
    options
        By their parameters' names, as ``typer.Context.params`` has them; those that a command
        does not have may be missing.
    """
    try:
        protocol = get_protocol(options["protocol"])
        label = options.get("params") or protocol.default
        from_file = label not in PARAMETERS and Path(label).is_file()
        parameters = read_preset(label) if from_file else get_parameters(label)
        dataset = open_dataset(Path(options["data"]), options["kind"], options["classes"])
        names = dataset.names(options.get("split"))
        if options.get("images") is not None:
            names = tuple(name.strip() for name in options["images"].split(","))
        limits = {name: options.get(name) for name in LIMITS}
        return make_plan(
            dataset,
            protocol,
            parameters,
            label=Path(label).stem if from_file else label,
            images=names[:: options.get("every", 1)],
            methods=tuple(name.strip() for name in options["methods"].split(",")),
            limits={name: value for name, value in limits.items() if value is not None},
            threads=options["threads"],
        )
    except (OSError, ValueError) as error:
        raise fail(describe(error), 2) from error


def tell_picture(path: Path, as_json: bool, more: Mapping[str, Any]) -> None:
    """Say where a picture is; to programs also what it shows."""
    if as_json:
        print_json({"picture": str(path), **more})
    else:
        console.print(f"Picture: {path}", soft_wrap=True)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the command with the reason, where there is one that its user can act on."""
    try:
        yield
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error


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
