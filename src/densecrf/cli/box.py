"""``densecrf box``: the objects in boxes of a photo."""

from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli import options as o
from densecrf.cli.outputs import check_outputs, label_file
from densecrf.cli.reports import console, print_json, print_table, reporting_errors, solved_columns
from densecrf.io import overlay, read_image, write_image, write_json, write_labels
from densecrf.io.images import shown_colors
from densecrf.model.boxes import KINDS, from_box

__all__ = ["box"]


@o.with_options("max_iterations")
def box(
    image: o.Image,
    *,
    boxes: Annotated[
        list[str],
        o.input_option(
            "--box",
            metavar="X0,Y0,X1,Y1",
            help="A box around an object, in pixels; X1 and Y1 are excluded. Repeatable: the "
            "objects get the labels 1, 2, …",
        ),
    ],
    kind: Annotated[
        str, o.input_option(help="xyxy, or xywh for X,Y,WIDTH,HEIGHT as in COCO.")
    ] = KINDS[0],
    out: Annotated[
        Path | None,
        o.output_option(
            "--out", "-o", help="The label map (.png). Default: NAME.mask.png in this folder."
        ),
    ] = None,
    strength: Annotated[float, o.model_option(help="Factor of both kernel weights.", min=0)] = 1.0,
    solver: o.SolveOptions,
    as_json: o.Json = False,
) -> None:
    """Find the objects in boxes, by their colours, edges and the way from the boxes' sides.

    Writes the label map (0 background), NAME.overlay.png, the labels over the image, and NAME.json,
    energy and certificate of the last round of colour models.

    For example:

    densecrf box photo.jpg --box 75,33,267,189 --out mask.png
    """
    o.require_extras(solver.device, None)
    target = Path(f"{image.stem}.mask.png") if out is None else label_file(out)
    if target is None:
        raise typer.BadParameter(f"{out}: give a name that ends in .png", param_hint="--out")
    shown, record = (target.with_suffix(end) for end in (".overlay.png", ".json"))
    outputs = [(path, image) for path in (target, shown, record)]
    check_outputs(outputs, [image], "choose another --out")
    with reporting_errors():
        picture = read_image(image)
        found = from_box(
            picture,
            [_numbers(each) for each in boxes],
            kind=kind,
            strength=strength,
            method=solver.method,  # type: ignore[arg-type]  # one of them
            gap=solver.gap,
            time_limit=solver.time_limit,
            threads=solver.threads,
            device=solver.device,
        )
        numbers = found.to_dict() | {"boxes": boxes, "kind": kind}
        write_labels(target, found.labels)
        write_image(shown, overlay(shown_colors(picture), found.labels))
        write_json(record, numbers)
    if as_json:
        print_json({"out": str(target), **numbers})
    else:
        print_table([{"image": image.name, **solved_columns(numbers)}])
        console.print(f"written to {target}")


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(each) for each in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        reason = f"{text!r} is not four numbers with commas, such as 75,33,267,189"
        raise typer.BadParameter(reason, param_hint="--box")
    return numbers
