"""``densecrf demo``: see in under a minute what it does and what the certificate says."""

from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli import options as o
from densecrf.cli.batch import warnings_by_thread
from densecrf.cli.panel import write_panel
from densecrf.cli.reports import console, describe, fail, output, percent, print_json, table
from densecrf.demonstration import SCENES, Comparison
from densecrf.demonstration import compare as compare_scene

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the pictures.", rich_help_panel=o.OUTPUT)
    ] = Path("demo"),
    as_json: o.Json = False,
) -> None:
    """Segment two photographs from a few strokes: mean field against the certified LP."""
    records = []
    try:
        with warnings_by_thread():
            for scene in SCENES:
                with console.status(f"{scene.name} …"):
                    done = compare_scene(scene)
                picture = out / f"{scene.name}.png"
                write_panel(
                    picture,
                    done.image,
                    [
                        ("strokes", done.scribbles),
                        *((f"{r.method}: energy {r.energy:,.0f}", r.labels) for r in done.results),
                    ],
                )
                if not as_json:
                    _say(done, picture)
                results = [result.to_dict() for result in done.results]
                records.append({"scene": scene.name, "picture": str(picture), "results": results})
    except (OSError, ValueError, MemoryError, ImportError) as error:
        raise fail(describe(error)) from error
    if as_json:
        print_json({"scenes": records})


def _say(done: Comparison, picture: Path) -> None:
    output.print(f"\n[bold]{done.scene.name}[/]: {done.scene.about} ({picture})")
    columns = ("method", "energy", "lower bound", "gap", "seconds")
    rows = table(*columns, right=columns[1:])
    for result in done.results:
        rows.add_row(
            result.method,
            f"{result.energy:,.1f}",
            "-" if result.lower_bound is None else f"{result.lower_bound:,.1f}",
            percent(result.gap),
            f"{result.seconds:.2f}",
        )
    output.print(rows)
    for result in done.results:
        if result.gap is not None:
            output.print(
                f"Proven: of all {done.crf.labels}^{done.crf.n} labellings, none has an energy "
                f"below {result.lower_bound:,.1f}.\nThe answer of {result.method} is within "
                f"{percent(result.gap)} of the best there is."
            )
