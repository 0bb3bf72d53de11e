"""Dense CRFs beside what else a user could take."""

from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Data, open_dataset
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    console,
    output,
    print_json,
    progress_bar,
    reporting_errors,
    require,
)
from densecrf.io import write_json, write_text
from densecrf.model.parameters import read_parameters
from densecrf.records import RecordStore
from experiments.commands import options as e

__all__ = ["alternatives"]


def alternatives(
    *,
    data: Data,
    validation: Annotated[str, typer.Option(help="Split to choose settings on.")] = "val",
    test: Annotated[str, typer.Option(help="Split to judge on.")] = "test",
    every: e.Every = 1,
    learn: Annotated[
        bool,
        typer.Option("--learn/--no-learn", help="Also a model fitted to --validation."),
    ] = True,
    fitted: Annotated[
        Path | None, typer.Option(help="The fitted model, as densecrf fit wrote it.")
    ] = None,
    out: e.Out = Path("reproduction"),
    jobs: o.Jobs = 1,
    threads: o.Threads = None,
    device: o.Device = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare dense CRFs with what else a user could take, on one data set.

    Each method's settings are chosen on the validation split, from the same small number. The table
    has accuracy, IoU and accuracy near true borders, their paired gains over the input with 95 %
    bootstrap intervals, and seconds per image. Methods whose packages are missing are left out:
    pip install -e '.[alternatives]'.

    For example:

    densecrf fit --data camvid --split val --out camvid.json

    python -m experiments alternatives --data camvid --fitted camvid.json --out reproduction
    """
    require("the table", "tabulate")
    from tabulate import tabulate

    from experiments.alternatives import ALTERNATIVES, Judge, as_fitted

    dataset = open_dataset(data, None, None)
    stem = out / f"alternatives-{dataset.name}"
    written = [stem.with_suffix(suffix) for suffix in (".md", ".json")]
    check_outputs([(path, data) for path in written], dataset.files(), "choose another --out")
    rows: list[dict[str, Any]] = []
    with (
        reporting_errors(),
        progress_bar("images", not (quiet or as_json)) as advance,
    ):
        judge = Judge(
            dataset,
            dataset.names(validation)[::every],
            dataset.names(test)[::every],
            RecordStore(out / "records"),
            threads,
            device,
            jobs,
            advance,
        )
        more = [judge.adapted()]
        if fitted is not None:
            more.append(as_fitted(read_parameters(fitted)))
        elif learn:
            more.append(judge.fitted())
        base = judge.judge(ALTERNATIVES[0])
        for alternative in (*ALTERNATIVES, *more):
            try:
                rows.append(judge.judge(alternative).row(base))
            except ImportError as error:  # noqa: PERF203 - minutes of work in every turn
                console.print(f"{alternative.name}: left out ({error})")
        about = (
            f"{dataset.name}: settings chosen on {len(judge.validation)} images ({validation}), "
            f"judged on {len(judge.test)} ({test})"
        )
        table = tabulate(rows, headers="keys", tablefmt="pipe", disable_numparse=True)
        write_text(written[0], f"{about}\n\n{table}\n")
        write_json(written[1], {"about": about, "rows": rows})
    if as_json:
        print_json({"about": about, "rows": rows, "files": [str(path) for path in written]})
    else:
        output.print(f"{about}\n\n{table}")
