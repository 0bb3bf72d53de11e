"""The output of commands: tables for people, JSON for programs, and a list of failures."""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from densecrf.extras import check_installed
from densecrf.validation import ArgumentError, ArgumentWarning

if TYPE_CHECKING:
    from densecrf.metrics import Interval

__all__ = [
    "as_option",
    "console",
    "describe",
    "fail",
    "number",
    "output",
    "percent",
    "percents",
    "print_done_before",
    "print_failures",
    "print_json",
    "print_notes",
    "print_table",
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
    """Print why a command cannot go on, and return the exit to raise."""
    console.print(Text.assemble(("Error:", "bold red"), f" {message}"))
    return typer.Exit(code)


#: Errors that a user can act on.
ERRORS = (OSError, ValueError, MemoryError, ImportError)


@contextmanager
def reporting_errors(*more: type[Exception]) -> Iterator[None]:
    """End the command with the reason of an error that its user can act on, or of one of `more`."""
    errors: tuple[type[Exception], ...] = (*ERRORS, *more)
    try:
        yield
    except errors as error:
        raise fail(describe(error)) from error


def require(purpose: str, *modules: str) -> None:
    """End the command before it works, where a library is missing that it will need."""
    with reporting_errors():
        check_installed(purpose, *modules)


def describe(error: BaseException) -> str:
    """Return an error in one line, with the file where it has one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    if isinstance(error, (ArgumentError, ArgumentWarning)):
        return error.spelled(as_option)
    return str(error) or type(error).__name__


#: Arguments of the library that are options of the commands, by the same name.
OPTIONS = (
    *("axis", "kind", "n_labels", "void", "image_range", "model", "strength", "confidence"),
    *("sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight"),
    *("page", "bands", "palette", "classes", "split"),
    *("method", "gap", "time_limit", "max_iterations", "threads", "device"),
    *("methods", "params", "protocol", "metric", "trials", "workers", "jobs", "within"),
)


def as_option(name: str, value: str) -> str:
    """Return an argument of the library as the option that gives it.

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
    """Return an energy or bound for a table; "-" where there is none."""
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
    """Return the columns that every table of results has, of a result as a dictionary."""
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
    """Say how many results were there already."""
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
