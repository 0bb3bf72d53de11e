"""The progress bar of all commands, and the warnings that belong to each piece of work."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from densecrf.cli.reports import console, describe

__all__ = ["collecting_warnings", "progress_bar"]


@contextmanager
def progress_bar(unit: str, shown: bool) -> Iterator[Callable[[int, int | None, str], None]]:
    """Show a bar with the time left; the yielded function moves it and puts words beside it."""
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
    """Collect warnings in place of showing them.

    The yielded function returns a context whose value lists those of the calling thread in it.
    Warnings of constant labellings are left out: commands have their own, with their options.
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
