"""One method or parameter set against another, with confidence intervals."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli import options as o
from densecrf.cli.reports import (
    console,
    output,
    percents,
    print_failures,
    print_json,
    progress_bar,
    reporting_errors,
)
from densecrf.records import RecordStore
from experiments.commands import options as e
from experiments.commands.options import PlanOptions
from experiments.runner import Plan, Run, run
from experiments.tables import differences

__all__ = ["difference"]


@o.with_options("params", "methods", "images", "every", "gap", "time_limit", "max_iterations")
def difference(
    *,
    chosen: PlanOptions,
    first: Annotated[
        str, typer.Option(help="METHOD@PARAMS: a method, and parameters as for --params.")
    ],
    second: Annotated[str, typer.Option(help="What to compare it with, likewise.")],
    out: e.Out = Path("reproduction"),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Estimate the difference of two methods or parameter sets, with its confidence interval.

    Runs both on the same images, unless their records exist, and prints accuracy and IoU with 95 %
    bootstrap confidence intervals; that of the difference is paired by image.

    For example:

    python -m experiments difference --data msrc --first lp@tuned.json --second lp@usual
    """
    runs, failures = [], dict[str, str]()
    for name in (first, second):
        method, _, params = name.partition("@")
        plan = replace(chosen, methods=method, params=params or None).plan()
        done = _run(plan, out, name, quiet or as_json)
        failures.update(done.failures)
        runs.append(done.outcomes)
    with reporting_errors():
        images, found = differences(*runs)
    if as_json:
        named = {"first": first, "second": second, "failures": failures}
        intervals = {
            metric: {which: asdict(interval) for which, interval in values.items()}
            for metric, values in found.items()
        }
        print_json({**named, "images": images, "metrics": intervals})
    else:
        output.print(f"{images} images")
        for metric, values in found.items():
            for name, which in ((f" of {first}", "first"), (f" of {second}", "second")):
                output.print(f"{metric}{name}: {percents(values[which])}")
            output.print(f"{metric}, difference: {percents(values['difference'])}")
    print_failures(failures, len(plan.images) - len(failures))
    if failures:
        raise typer.Exit(1)


def _run(plan: Plan, out: Path, title: str, quiet: bool) -> Run:
    with reporting_errors(), progress_bar(title, not quiet) as advance:
        done = run(plan, RecordStore(out / "records"), progress=advance)
    if done.interrupted:
        console.print("Interrupted. Run the same command again to continue.")
        raise typer.Exit(130)
    return done
