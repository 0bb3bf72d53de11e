"""The output of commands: progress, tables for people, JSON for programs, warnings, failures."""

import json
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from densecrf.extras import check_installed
from densecrf.validation import ArgumentError, ArgumentWarning

if TYPE_CHECKING:
    from densecrf.metrics import Interval

__all__ = [
    "as_option",
    "collecting_warnings",
    "console",
    "describe",
    "fail",
    "finish",
    "number",
    "output",
    "percent",
    "percents",
    "print_done_before",
    "print_failures",
    "print_json",
    "print_notes",
    "print_table",
    "progress_bar",
    "reporting_errors",
    "require",
    "solved_columns",
]

#: Progress, remarks and errors go to standard error, results to standard output.
console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
output = Console(highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print strict JSON on standard output."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def fail(message: object, code: int = 1) -> typer.Exit:
    """Print why a command ends, and return the exit to raise."""
    console.print(Text.assemble(("Error:", "bold red"), f" {message}"))
    return typer.Exit(code)


#: Errors that a user can act on.
ERRORS = (OSError, ValueError, MemoryError, ImportError)


@contextmanager
def reporting_errors(*more: type[Exception]) -> Iterator[None]:
    """End the command with the message of an error that its user can act on, or of `more`."""
    errors: tuple[type[Exception], ...] = (*ERRORS, *more)
    try:
        yield
    except errors as error:
        raise fail(describe(error)) from error


def require(purpose: str, *modules: str) -> None:
    """End the command before it starts if a library is missing."""
    with reporting_errors():
        check_installed(purpose, *modules)


def describe(error: BaseException) -> str:
    """Return an error in one line, with its file if it has one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    if isinstance(error, ArgumentWarning):
        error = error.error
    if isinstance(error, ArgumentError):
        return error.spelled(as_option)
    return str(error) or type(error).__name__


#: Arguments of the library that are options of the commands, by the same name.
OPTIONS = (
    *("box", "axis", "kind", "n_labels", "void", "image_range", "model", "strength", "confidence"),
    *("sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight"),
    *("sigma_t", "window", "flow"),
    *("page", "bands", "palette", "classes", "split"),
    *("method", "gap", "time_limit", "max_iterations", "threads", "device"),
    *("methods", "params", "protocol", "metric", "trials", "workers", "jobs", "within"),
)


def as_option(name: str, value: str) -> str:
    """Return an argument of the library as the option of the same meaning.

    Examples
    --------
    >>> as_option("image_range", "(0, 5)"), as_option("kind", "'logits'"), as_option("n_labels", "")
    ('--image-range 0 5', '--kind logits', '--n-labels')
    """
    if name not in OPTIONS:
        return f"{name}={value}" if value else name
    for mark in "()[] '" if name == "bands" else "(),'":
        value = value.replace(mark, "")
    return f"--{name.replace('_', '-')} {value}".rstrip()


def number(value: float | None) -> str:
    """Return an energy or bound for a table; "-" if there is none."""
    return "-" if value is None else f"{value:,.1f}"


def percent(share: float | None) -> str:
    """Return a gap in a few characters."""
    return "-" if share is None else f"{100 * share:.3g} %"


def percents(interval: "Interval") -> str:
    """Return an estimate with its interval, both in per cent."""
    return (
        f"{100 * interval.estimate:.2f} % "
        f"({100 * interval.low:.2f} to {100 * interval.high:.2f}, 95 % bootstrap)"
    )


def solved_columns(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns common to all tables of results, from a result as a dictionary."""
    return {
        "energy": number(result["energy"]),
        "lower bound": number(result["lower_bound"]),
        "gap": percent(result["gap"]),
    }


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows with the same columns, the first to the left, the others to the right.

    A row is one line, in a terminal of any width.
    """
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(rows[0]):
        shown.add_column(column, justify="right" if column and place else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*map(Text, row.values()))
    shown.width = output.measure(shown, options=output.options.update(max_width=10_000)).maximum
    output.print(shown)


def print_done_before(records: Collection[Mapping[str, Any]]) -> None:
    """Print the number of results of earlier runs."""
    before = sum("skipped" in record for record in records)
    if before:
        console.print(f"{before} of {len(records)} done before; --force does them again")


def print_notes(name: str, notes: Iterable[str]) -> None:
    """Print remarks about an image."""
    for note in notes:
        console.print(f"{name}: {note}", style="yellow")


def print_failures(failures: dict[str, str], done: int) -> None:
    """List the inputs that could not be used, each with its reason."""
    if not failures:
        return
    total = done + len(failures)
    console.print(f"\n{len(failures)} of {total} could not be used:", style="bold red")
    for name, reason in failures.items():
        console.print(Text.assemble("  ", (name, "bold"), f"  {reason}"))


def finish(failures: dict[str, str], done: int, interrupted: str = "") -> None:
    """List the failures; end an interrupted command with 130, one with failures with 1."""
    print_failures(failures, done)
    if interrupted:
        console.print(f"Interrupted{interrupted}")
        raise typer.Exit(130)
    if failures:
        raise typer.Exit(1)


@contextmanager
def progress_bar(unit: str, shown: bool) -> Iterator[Callable[[int, int | None, str], None]]:
    """Show a bar with the time left; the yielded function updates it and its text."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn(unit),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, words: bar.update(
            task, completed=done, total=total, description=words
        )


@contextmanager
def collecting_warnings() -> Iterator[Callable[[], AbstractContextManager[list[str]]]]:
    """Collect warnings instead of showing them.

    The yielded function returns a context whose value lists the calling thread's warnings in it.
    Warnings of constant labellings are left out: commands print their own, with option names.
    """
    here = threading.local()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = describe(message) if isinstance(message, Warning) else message
        collected: list[str] | None = getattr(here, "collected", None)
        if collected is not None and text not in collected:
            collected.append(text)

    @contextmanager
    def collect() -> Iterator[list[str]]:
        here.collected = []
        try:
            yield here.collected
        finally:
            here.collected = None

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", ".*the constant labelling", UserWarning)
        warnings.showwarning = show
        yield collect
