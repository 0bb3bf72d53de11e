"""``densecrf demo``: two photographs, and the meaning of a certificate, in under a minute."""

from pathlib import Path
from typing import Annotated, Any

from densecrf.cli import options as o
from densecrf.cli.demo.picture import write_picture
from densecrf.cli.demo.proof import Comparison, proven
from densecrf.cli.demo.proof import compare as compare_scene
from densecrf.cli.outputs import check_outputs, label_file
from densecrf.cli.progress import collecting_warnings, progress_bar
from densecrf.cli.reports import (
    output,
    print_json,
    print_table,
    reporting_errors,
    require,
    solved_columns,
)
from densecrf.data import Scene, astronaut, coffee

__all__ = ["demo"]

WORDS = {
    "mf5": "mean field, 5 iterations (mf5)",
    "mf": "mean field, to its end (mf)",
    "lp": "linear program (lp)",
}


def demo(
    out: Annotated[
        Path, o.output_option("--out", "-o", help="The picture (.png), or a folder for it.")
    ] = Path("demo"),
    as_json: o.Json = False,
) -> None:
    """Segment two photographs from a few strokes: mean field against the certified LP.

    Needs scikit-image for the photographs: pip install "densecrf[demo]".
    """
    require("densecrf demo", "skimage", "matplotlib")
    picture = label_file(out) or out / "demo.png"
    check_outputs([(picture, "the photographs")], [], "choose another --out")
    with reporting_errors():
        comparisons = [_solve(scene(), as_json) for scene in (coffee, astronaut)]
        write_picture(picture, comparisons)
    if as_json:
        scenes = [_record(done) for done in comparisons]
        print_json({"picture": str(picture), "scenes": scenes})
        return
    for line in proven(comparisons):
        output.print(line)
    output.print(f"\nPicture: {picture}")


def _solve(scene: Scene, silent: bool) -> Comparison:
    with collecting_warnings(), progress_bar(scene.name, not silent) as advance:
        done = compare_scene(scene, on_method=lambda method: advance(0, None, method))
    if not silent:
        _print(done)
    return done


def _print(done: Comparison) -> None:
    h, w = done.scene.image.shape[:2]
    scene = done.scene
    output.print(
        f"{scene.name}, {w} x {h} pixels, {len(scene.classes)} labels from "
        f"{scene.strokes} strokes: {scene.about}"
    )
    print_table(
        [
            {
                "method": WORDS[result.method],
                **solved_columns(result.to_dict()),
                "seconds": f"{result.seconds:.2f}",
            }
            for result in done.results
        ]
    )
    output.print()


def _record(done: Comparison) -> dict[str, Any]:
    results = [result.to_dict() for result in done.results]
    return {"scene": done.scene.name, "labels": list(done.scene.classes), "results": results}
