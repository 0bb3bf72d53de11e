"""``densecrf fit``: learn a model from images with ground truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Classes, Data, DataKind, Split, open_dataset
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    console,
    fail,
    finish,
    output,
    percent,
    print_failures,
    print_json,
    progress_bar,
    reporting_errors,
)
from densecrf.io import Dataset, ItemError
from densecrf.model.parameters import Parameters, write_parameters
from densecrf.model.presets import PRESETS, get_parameters

if TYPE_CHECKING:
    from densecrf.learning.examples import Example

__all__ = ["fit"]


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The images to learn from, and how; fields as the options."""

    data: Data
    split: Split = None
    start: Annotated[
        str, typer.Option(help=f"Model to start from: a file, or {', '.join(PRESETS)}.")
    ] = "default"
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation; 0: none.", min=0)] = 5
    kind: DataKind = None
    classes: Classes = None
    jobs: o.Jobs = 1
    threads: o.Threads = None
    device: o.Device = None


@o.with_options()
def fit(
    *,
    chosen: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model's file.")] = Path(
        "fitted.json"
    ),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Find the model that is best on images with ground truth.

    Cross-validation compares four candidates: the starting model, the unchanged input, the starting
    model adapted to the images, and the best of a search over strength, reach and prior. If none is
    better, the starting model is written. Ctrl-C writes the best model so far.

    For example:

    densecrf fit --data msrc --split val --out msrc.json --jobs 8 --threads 1

    densecrf segment images/ --probs logits/ --model msrc.json
    """
    o.require_extras(chosen.device, None)
    dataset = open_dataset(chosen.data, chosen.kind, chosen.classes)
    check_outputs([(out, chosen.data)], dataset.files(), "choose another --out")
    with reporting_errors():
        names = dataset.names(chosen.split)
        examples, failures = _examples(dataset, names)
        if not examples:
            print_failures(failures, 0)
            raise fail(f"{chosen.data}: no image is usable for learning")
        model = _learn(chosen, examples, len(dataset.palette), not (quiet or as_json))
        write_parameters(out, model)
    provenance = dict(model.provenance)
    if as_json:
        print_json({"file": str(out), "failures": failures, **provenance})
    else:
        if "verdict" in provenance:
            output.print(provenance["verdict"])
        console.print(f"Written: {out}; use it with --model {out}")
    best = ". The best model so far is written." if provenance["interrupted"] else ""
    finish(failures, len(examples), best)


def _learn(
    chosen: FitOptions, examples: "Sequence[Example]", labels: int, progress: bool
) -> Parameters:
    from densecrf.learning.fit import LabelledImages, fit_images

    with progress_bar("models", progress) as advance:

        def report(stage: str, tried: int, accuracy: float, iou: float) -> None:
            advance(tried, None, f"{stage}: accuracy {percent(accuracy)}, IoU {percent(iou)}")

        data = LabelledImages(
            examples,
            labels,
            jobs=chosen.jobs,
            threads=chosen.threads,
            device=chosen.device,
            report=report,
        )
        return fit_images(data, get_parameters(chosen.start), chosen.folds)


def _examples(dataset: Dataset, names: Sequence[str]) -> "tuple[list[Example], dict[str, str]]":
    """Return the usable images, and the reasons why the others are not."""
    from densecrf.learning.examples import Example, checked_truth

    examples, failures = [], {}
    void = dataset.palette.void
    for name in names:
        try:
            sample = dataset.items[name].load()
            if sample.labels is None:
                raise ItemError(name, f"{dataset.path} has no labels/ to learn from")
            shape = sample.image.shape[:2]
            truth = checked_truth(name, sample.labels, shape, len(dataset.palette), void)
            if truth is None:
                raise ItemError(name, "all its pixels are void")
        except ItemError as error:  # noqa: PERF203 - a file is read in every turn
            failures[name] = error.reason
        except ValueError as error:
            failures[name] = str(error)
        else:
            examples.append(Example(name, truth, partial(_load, dataset, name)))
    return examples, failures


def _load(dataset: Dataset, name: str) -> tuple[Any, Any]:
    sample = dataset.items[name].load()
    return np.asarray(sample.scores.energies(), np.float32), sample.image
