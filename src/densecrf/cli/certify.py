"""``densecrf certify``: how far from optimal a labelling is."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from densecrf.certificates import certify as certify_labels
from densecrf.cli import options as o
from densecrf.cli.inputs import Sources, find_job, load, read_labelling
from densecrf.cli.progress import collecting_warnings, progress_bar
from densecrf.cli.reports import describe, fail, output, print_json, print_notes
from densecrf.model import DenseCRF
from densecrf.unaries import FORBIDDEN

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
            help="Filter calls to spend on the bound; more make it sharper.",
            min=1,
            rich_help_panel=o.SOLVER,
        ),
    ] = 50,
    *,
    model: o.ModelOptions,
    as_json: o.Json = False,
) -> None:
    """Say how far from the global optimum a labelling is at most, whoever made it.

    Pixels of --labels that are void (255, or --void) are given the labels of lowest energy found
    for them, all others being kept; what is judged is the labelling so completed.

    For example:

    densecrf certify photo.jpg --probs photo.npy --labels result.png
    """
    if probs is None and scribbles is None:
        raise typer.BadParameter(
            "the energy needs --probs (or --scribbles); --labels is what is judged"
        )
    job = find_job(image, Sources(probs, None, scribbles))
    try:
        with collecting_warnings() as heard_here, progress_bar("bound", not as_json) as tell:
            tell(0, None, image.name)
            with heard_here() as heard:
                crf = load(job, model).crf
                judged, void = _completed(crf, read_labelling(labels, model.palette), model.void)
                certificate = certify_labels(crf, judged, budget=budget)
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error
    if void:
        heard.append(f"{void} void pixels were given the labels of lowest energy found for them")
    print_notes(image.name, heard)
    if as_json:
        names = ("energy", "lower_bound", "gap", "better_energy", "excess", "calls", "seconds")
        numbers = {name: getattr(certificate, name) for name in names}
        files = {"image": str(image), "labels": str(labels)}
        print_json({**files, **numbers, "void_pixels": void, "warnings": heard})
    else:
        output.print(str(certificate), markup=False, soft_wrap=True)


def _completed(
    crf: DenseCRF, labels: npt.NDArray[Any], void: tuple[int, ...]
) -> tuple[npt.NDArray[Any], int]:
    """Return the labelling with a label for each void pixel, and how many those are.

    The other pixels' labels are fixed by unary costs, as seeds are.
    """
    count = len(crf.unary)
    empty = np.isin(labels, [value for value in void if value != 255 or count <= 255])
    if labels.shape != crf.shape or not empty.any() or empty.all():
        return labels, 0  # the library says what is wrong with the first and the last
    known = np.where(empty, 0, labels)
    crf.check_labels(known)
    other = np.arange(count)[:, None] != known.reshape(1, -1)
    unary = np.where(other & ~empty.reshape(1, -1), np.float32(FORBIDDEN), crf.unary)
    fixed = DenseCRF(unary.reshape(count, *crf.shape), crf.kernels)
    found = fixed.solve("lp").labels
    return np.where(empty, found, labels), int(empty.sum())
