"""``densecrf fit``: learn a model from images with ground truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from densecrf.cli import options as o
from densecrf.cli.datasets import Classes, Data, Kind, Split, open_dataset
from densecrf.cli.large import Scheduler, connected
from densecrf.cli.outputs import check_outputs
from densecrf.cli.progress import progress_bar
from densecrf.cli.reports import (
    console,
    fail,
    output,
    percent,
    print_failures,
    print_json,
    reporting_errors,
    require,
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
    strength: Annotated[
        float,
        typer.Option(
            help="Strength of the regulariser that keeps the model near --start.", min=1e-6
        ),
    ] = 1.0
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation; 0: none.", min=0)] = 5
    passes: Annotated[
        int, typer.Option(help="Maximum number of passes over the images.", min=1)
    ] = 30
    reduce: Annotated[
        int, typer.Option(help="Learn from reduced images: 2 halves the resolution.", min=1)
    ] = 1
    kind: Kind = None
    classes: Classes = None
    jobs: o.Jobs = 1
    threads: o.Threads = None
    device: o.Device = None
    scheduler: Scheduler = None


@partial(o.with_options, keyword="chosen", declared=FitOptions, make=FitOptions)
def fit(
    *,
    chosen: FitOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The model's file; beside it, a folder keeps its journal."
        ),
    ] = Path("fitted.json"),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Learn kernel weights and label costs from images with ground truth.

    The training objective comes with a proven lower bound, and the model is checked on images left
    out: where it is no better than the start, the start is written. Interrupted, the command writes
    the best model so far; run it again to go on.

    For example:

    densecrf fit --data msrc --split val --out msrc.json --jobs 8 --threads 1

    densecrf segment images/ --probs logits/ --model msrc.json
    """
    require("densecrf fit", "clarabel", "scipy")
    o.require_extras(chosen.device, chosen.scheduler)
    dataset = open_dataset(chosen.data, chosen.kind, chosen.classes)
    journal = out.with_suffix(".journal")
    made = [(path, chosen.data) for path in (out, journal / "any.json")]  # one for all its records
    check_outputs(made, dataset.files(), "choose another --out")
    with reporting_errors(), connected(chosen.scheduler) as client:
        names = dataset.names(chosen.split)
        examples, failures = _examples(dataset, names)
        if not examples:
            print_failures(failures, 0)
            raise fail(f"{chosen.data}: no image can be learned from")
        progress = not (quiet or as_json)
        model = _learn(chosen, examples, len(dataset.palette), journal, client, progress)
        write_parameters(out, model)
    provenance = dict(model.provenance)
    if as_json:
        print_json({"file": str(out), "failures": failures, **provenance})
    else:
        for stage in provenance["stages"]:
            output.print(
                f"{stage['learned']}: objective {stage['objective']:.4f}, proven to be within "
                f"{percent(stage['certificate'])} of the optimum after {stage['passes']} passes"
            )
        if "verdict" in provenance:
            output.print(provenance["verdict"])
        console.print(f"Written: {out}; use it by --model {out}")
    print_failures(failures, len(examples))
    if provenance["interrupted"]:
        console.print("Interrupted. Run the same command again to go on.")
        raise typer.Exit(130)
    if failures:
        raise typer.Exit(1)


def _learn(
    chosen: FitOptions,
    examples: "Sequence[Example]",
    labels: int,
    journal: Path,
    client: Any,
    progress: bool,
) -> Parameters:
    from densecrf.learning.fit import fit_examples
    from densecrf.learning.training_set import Settings
    from densecrf.records import RecordStore

    with progress_bar("passes", progress) as advance:

        def report(stage: str, passes: int, objective: float, bound: float) -> None:
            if stage.endswith("search"):
                told = f"{stage}: accuracy {percent(objective)}, IoU {percent(bound)}"
                advance(passes, None, told)
            else:
                told = f"{stage}: objective {objective:.4f}, at least {bound:.4f}"
                advance(passes, chosen.passes, told)

        return fit_examples(
            examples,
            labels,
            Settings(
                chosen.strength,
                max_passes=chosen.passes,
                folds=chosen.folds,
                reduce=chosen.reduce,
            ),
            model=get_parameters(chosen.start),
            jobs=chosen.jobs,
            threads=chosen.threads,
            device=chosen.device,
            client=client,
            report=report,
            journal=RecordStore(journal, durable=False),
        )


def _examples(dataset: Dataset, names: Sequence[str]) -> "tuple[list[Example], dict[str, str]]":
    """Return the images that can be learned from, and why the others cannot."""
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
