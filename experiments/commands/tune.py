"""Find the kernels' parameters for a method on labelled images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Classes, Data, DataKind, Split, open_dataset
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    console,
    describe,
    fail,
    output,
    percents,
    print_failures,
    print_json,
    progress_bar,
    require,
)
from densecrf.io import Dataset
from densecrf.metrics import METRICS, bootstrap
from densecrf.model.parameters import NUMBERS, read_parameters
from densecrf.solvers import METHODS
from experiments.commands import options as e

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.tune import Target, Tuned

__all__ = ["tune"]


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """What is to be maximised, and where the search begins; fields as the options."""

    data: Data
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "lp"
    metric: Annotated[str, typer.Option(help=f"One of {', '.join(METRICS)}.")] = "accuracy"
    split: Split = None
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0
    start: Annotated[
        list[Path] | None, typer.Option(help="A file of parameters to try first; repeatable.")
    ] = None
    within: Annotated[
        float | None, typer.Option(help="Stay within this factor of the first --start.")
    ] = None
    first_batch: Annotated[
        int, typer.Option(help="Images after which a trial may be pruned.", min=1)
    ] = 8
    gap: e.Gap = None
    max_iterations: o.MaxIterations = None
    kind: DataKind = None
    classes: Classes = None
    threads: o.Threads = None

    def open(self, data: Path) -> Dataset:
        """Open a data set of this kind, or end the command with the reason."""
        return open_dataset(data, self.kind, self.classes)

    def target(self) -> "Target":
        """Return what the options ask for, or end the command with the reason."""
        from experiments.runner import make_plan
        from experiments.tune import Target, ranges_around

        dataset = self.open(self.data)
        try:
            plan = make_plan(
                dataset,
                images=dataset.names(self.split),
                methods=(self.method,),
                limits=e.limits_of(self),
                threads=self.threads,
            )
            target = Target(plan, self.metric, seed=self.seed, first_batch=self.first_batch)
            given = [read_parameters(path) for path in self.start or ()]
            if self.within is not None:
                if not given:
                    raise ValueError("--within needs a --start to stay near")
                target = replace(target, ranges=ranges_around(given[0], self.within))
            return replace(target, start=(*given, *target.start))
        except (OSError, ValueError) as error:
            raise fail(describe(error), 2) from error


@o.with_options()
def tune(
    *,
    sought: TargetOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The parameters' file (.json); trials and plot go next to it.",
        ),
    ] = Path("tuned.json"),
    validation: Annotated[
        str | None,
        typer.Option(help="A split, or another folder, to score the best parameters on."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials in all, earlier runs' included.", min=1)] = 60,
    workers: Annotated[int, typer.Option("--workers", "-j", help="Processes.", min=1)] = 1,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Find the five parameters of the kernels for a method, from images with ground truth.

    Trials are kept in an SQLite file next to the result; run the same command again to go on, or
    with more --trials to search longer. `densecrf segment --params` reads the result, as do the
    commands here.

    For example:

    python -m experiments tune --data msrc --split val --validation test --method lp --out lp.json
    """
    require("tuning", "optuna", "matplotlib")
    target = sought.target()
    dataset = target.plan.dataset
    others = [] if validation is None or validation in dataset.splits else [Path(validation)]
    inputs = [*dataset.files(), *(file for path in others for file in sought.open(path).files())]
    written = (out, out.with_suffix(".sqlite"), _history(out))
    made = [(path, sought.data) for path in written]
    check_outputs(made, [*inputs, *(sought.start or ())], "choose another --out")
    tuned = _search(target, out, trials, workers, progress=not (quiet or as_json))
    if as_json:
        _print_json(tuned, target.metric, out)
    else:
        _print(tuned, target.metric)
    if validation is not None and not tuned.interrupted:
        where = console if as_json else output
        _validate(target, tuned, validation, sought.open, where)
    console.print(f"Written: {out}; use it by --params {out}")
    print_failures(dict(tuned.failures), len(target.plan.images) - len(tuned.failures))
    if tuned.interrupted:
        console.print("Interrupted. Run the same command again to continue.")
        raise typer.Exit(130)
    if tuned.failures:
        raise typer.Exit(1)


def _history(out: Path) -> Path:
    """Return the picture beside the parameters."""
    return out.with_name(f"tune-{out.stem}.png")


def _search(target: "Target", out: Path, trials: int, workers: int, *, progress: bool) -> "Tuned":
    """Search, and write the parameters and the history of the search."""
    from experiments.figures import save_figure
    from experiments.tune import draw_history
    from experiments.tune import tune as search

    try:
        with progress_bar("trials", progress) as advance:
            tuned = search(
                target,
                out.with_suffix(".sqlite"),
                trials=trials,
                workers=workers,
                progress=lambda done, total, best: advance(
                    done, total, "" if best is None else f"best {100 * best:.2f} %"
                ),
            )
        tuned.write(out, target)
        save_figure(_history(out), draw_history(tuned, target.metric))
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error
    return tuned


def _print(tuned: "Tuned", metric: str) -> None:
    numbers = ", ".join(f"{name} {getattr(tuned.parameters, name):.4g}" for name in NUMBERS)
    output.print(f"{metric} {100 * tuned.score:.2f} % with {numbers}")
    if tuned.start_score is not None:
        output.print(f"the best of those given: {100 * tuned.start_score:.2f} %")


def _print_json(tuned: "Tuned", metric: str, out: Path) -> None:
    numbers = {name: getattr(tuned.parameters, name) for name in NUMBERS}
    scores = {"score": tuned.score, "start_score": tuned.start_score}
    failures = dict(tuned.failures)
    print_json(
        {"metric": metric, **scores, "parameters": numbers, "file": str(out), "failures": failures}
    )


def _validate(
    target: "Target",
    tuned: "Tuned",
    where: str,
    open_other: Callable[[Path], Dataset],
    show: "Console",
) -> None:
    """Score the parameters on images that they were not tuned on."""
    dataset = target.plan.dataset
    names = dataset.splits.get(where)
    if names is None:
        dataset = open_other(Path(where))
        names = dataset.names()
    try:
        plan = replace(target.plan, dataset=dataset, images=tuple(names))
        other, failures = replace(target, plan=plan).usable()
        found = other.confusions(tuned.parameters)
        score = bootstrap(found, target.metric)
        images = len(other.plan.images)
        show.print(f"on the {images} images of {where}: {percents(score)}")
        if tuned.start is not None:
            change = bootstrap(found, target.metric, minus=other.confusions(tuned.start))
            show.print(f"over the best of those given: {percents(change)}")
        print_failures(failures, images)
    except (OSError, ValueError, MemoryError) as error:
        raise fail(describe(error)) from error
