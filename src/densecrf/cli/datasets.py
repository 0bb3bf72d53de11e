"""Options of the commands that read a data set."""

from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli.reports import reporting_errors
from densecrf.io import Dataset

__all__ = ["Classes", "Data", "Kind", "Split", "open_dataset"]

Data = Annotated[
    Path, typer.Option(help="Folder of images/, labels/ and logits/, probs/ or unaries/.")
]
Split = Annotated[str | None, typer.Option(help="Only the images of this split.")]
Kind = Annotated[
    str | None,
    typer.Option(help="Scores to use, if there are several: logits, probabilities, energies."),
]
Classes = Annotated[
    str | None, typer.Option(help="Built-in classes (msrc, voc, camvid), if there is no meta.json.")
]


def open_dataset(data: Path, kind: str | None, classes: str | None) -> Dataset:
    """Open a data set, or end the command with the reason."""
    with reporting_errors():
        return Dataset.open(data, kind=kind, classes=classes)  # type: ignore[arg-type]
