"""``densecrf certify``: how far from optimal a labelling is."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from densecrf.certificates import certify as certify_labels
from densecrf.cli import options as o
from densecrf.cli.inputs import Sources, find_job, load, read_labelling
from densecrf.cli.reports import console, describe, fail, output, print_json

__all__ = ["certify"]


@partial(o.with_model, without="confidence")
def certify(
    image: o.Image,
    labels: Annotated[
        Path,
        typer.Option(help="The labelling in question: .png or .npy.", rich_help_panel=o.INPUT),
    ],
    probs: o.Probs = None,
    scribbles: o.Scribbles = None,
    budget: Annotated[
        int,
        typer.Option(
            help="Filterings to spend on the bound; more make it sharper.",
            min=1,
            rich_help_panel=o.SOLVER,
        ),
    ] = 50,
    *,
    model: o.ModelOptions,
    as_json: o.Json = False,
) -> None:
    """Say how far from the global optimum a labelling is at most, whoever made it.

    For example:

    densecrf certify photo.jpg --probs photo.npy --labels result.png
    """
    if probs is None and scribbles is None:
        raise typer.BadParameter(
            "the energy needs --probs (or --scribbles); --labels is what is judged"
        )
    job = find_job(image, Sources(probs, None, scribbles))
    try:
        crf = load(job, model).crf
        judged = read_labelling(labels, model.palette)
        with console.status("bounding …"):
            certificate = certify_labels(crf, judged, budget=budget)
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error
    if as_json:
        names = ("energy", "lower_bound", "gap", "better_energy", "excess", "calls", "seconds")
        numbers = {name: getattr(certificate, name) for name in names}
        print_json({"image": str(image), "labels": str(labels), **numbers})
    else:
        output.print(str(certificate), markup=False, soft_wrap=True)
