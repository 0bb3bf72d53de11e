"""What commands say: tables for people, JSON for programs, and a list of failures."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from densecrf.experiments.metrics import Interval

__all__ = [
    "as_options",
    "console",
    "describe",
    "fail",
    "number",
    "output",
    "percent",
    "percents",
    "print_failures",
    "print_json",
    "table",
]

#: Progress, remarks and errors go to standard error, results to standard output.
console = Console(stderr=True, highlight=False)
output = Console(highlight=False)


def print_json(value: Any) -> None:
    """Print strict JSON on standard output."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def fail(message: object, code: int = 1) -> typer.Exit:
    """Print why a command cannot go on, and return the exit to raise."""
    console.print(f"[bold red]Error:[/] {escape(str(message))}", soft_wrap=True)
    return typer.Exit(code)


def describe(error: BaseException) -> str:
    """Return an error in one line, with the file where it has one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    return str(error) or type(error).__name__


def as_options(message: str) -> str:
    """Return a message of the library with its arguments written as options.

    Examples
    --------
    >>> as_options("logits (kind='logits') with axis=-1, image_range=(0, 5), or give n_labels=")
    'logits (--kind logits) with --axis -1, --image-range 0 5, or give --n-labels'
    """
    message = re.sub(r"image_range=\(([^,)]+), ([^)]+)\)", r"--image-range \1 \2", message)
    message = message.replace("lower them", "lower --bilateral-weight and --weight")
    for name in ("axis", "kind", "n_labels", "void", "confidence"):
        option = "--" + name.replace("_", "-")
        message = re.sub(rf"\b{name}=('?)([-\w]+)\1", rf"{option} \2", message)
        message = re.sub(rf"\b{name}=", option, message)
    return message


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


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table, numbers to the right."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        out.add_column(column, justify="right" if column in right else "left")
    return out


def print_failures(failures: dict[str, str], done: int) -> None:
    """List what could not be used, each with its reason."""
    if not failures:
        return
    total = done + len(failures)
    console.print(f"\n[bold red]{len(failures)} of {total} could not be used:[/]")
    for name, reason in failures.items():
        console.print(f"  [bold]{escape(name)}[/]  {escape(reason)}", soft_wrap=True)
