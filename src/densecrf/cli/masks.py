"""``densecrf masks``: the masks of a COCO file, refined."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.batch import Watch, run_batch
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    collecting_warnings,
    console,
    fail,
    finish,
    output,
    percent,
    print_json,
    print_notes,
    print_table,
    reporting_errors,
)
from densecrf.io import FileFormatError, read_image, write_json
from densecrf.io.opening import open_regular
from densecrf.masks import refine_masks
from densecrf.model.masks import BORDER
from densecrf.model.presets import PRESETS

__all__ = ["masks"]

Annotations = list[dict[str, Any]]


def masks(
    image: Annotated[
        Path, typer.Argument(help="The image, or the folder of the images that the file names.")
    ],
    annotations: Annotated[
        Path,
        typer.Argument(
            help="COCO JSON: a data set, or a list of results (run lengths, polygons or boxes)."
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        o.output_option(
            "--out", "-o", help="The refined file. Default: NAME.refined.json beside NAME.json."
        ),
    ] = None,
    exclusive: Annotated[
        bool, o.model_option(help="Let a pixel belong to one mask of an image at most.")
    ] = False,
    border: Annotated[
        float,
        o.model_option(help="Error of the masks' borders, in pixels.", min=0.5),
    ] = BORDER,
    confidence: Annotated[
        float | None,
        o.model_option(help="Probability that a pixel is right, everywhere; instead of --border."),
    ] = None,
    preset: Annotated[
        str | None,
        o.model_option(help=f"Kernels: {', '.join(PRESETS)}. Default: ours for masks."),
    ] = None,
    strength: Annotated[float, o.model_option(help="Factor of both kernel weights.", min=0)] = 1.0,
    gap: Annotated[
        float,
        o.solver_option(
            help="Stop a mask when its energy is proven to be within this fraction of the optimum.",
            callback=o.check_gap,
        ),
    ] = 1e-3,
    max_iterations: o.MaxIterations = None,
    threads: o.Threads = None,
    device: Annotated[
        str | None, o.solver_option(help="PyTorch device to solve on, such as cuda.")
    ] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Refine the masks of an image, or of a folder of images, along the edges in them.

    Every annotation keeps its fields; segmentation, area and bbox describe the refined mask, and
    ``densecrf`` holds its gap, the number of changed pixels, and warnings.

    For example:

    densecrf masks photo.jpg masks.json

    densecrf masks val2017 instances_val2017.json --out refined.json
    """
    o.require_extras(device, None)
    target = annotations.with_suffix(".refined.json") if out is None else out
    with reporting_errors():
        content = _read(annotations)
        groups = _by_image(image, annotations, content)
    check_outputs([(target, annotations)], [annotations, *groups], "give another name to --out")
    keywords: dict[str, Any] = {"border": border, "confidence": confidence, "strength": strength}
    keywords |= {"exclusive": exclusive, "gap": gap, "max_iterations": max_iterations}
    keywords |= {"threads": threads, "device": device}
    if preset is not None:
        keywords["model"] = preset

    with collecting_warnings() as collect:

        def work(path: Path, _: Watch) -> dict[str, Any]:
            with collect() as notes:
                found = refine_masks(read_image(path), groups[path], kind="coco", **keywords)
                for given, refined, each in zip(groups[path], found.masks, found, strict=True):
                    numbers = each.to_dict()
                    given |= refined | {"densecrf": numbers}
            return {
                "masks": len(found),
                "gap": max(found.gap, default=0.0),
                "changed": sum(each.changes.changed for each in found),
                "warnings": notes,
            }

        done = run_batch(list(groups), str, work, progress=not quiet)
    if done.interrupted:
        finish(done.failures, len(done.results), "; nothing was written")
    if done.results:
        with reporting_errors():
            write_json(target, content, indent=None)
    if as_json:
        print_json({"out": str(target), "images": done.results, "failures": done.failures})
    else:
        _report(done.results)
        if done.results:
            console.print(f"written to {target}")
    finish(done.failures, len(done.results))


def _report(results: Mapping[str, Mapping[str, Any]]) -> None:
    rows = []
    for name, each in results.items():
        rows.append(
            {
                "image": Path(name).name,
                "masks": f"{each['masks']}",
                "changed pixels": f"{each['changed']:,}",
                "largest gap": percent(each["gap"]),
            }
        )
        print_notes(Path(name).name, each["warnings"])
    if rows:
        print_table(rows)
    else:
        output.print("no masks")


def _read(path: Path) -> Any:
    """Return a COCO data set or a list of results."""
    try:
        with open_regular(path) as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"is not JSON ({error})") from error
    found = content.get("annotations") if isinstance(content, dict) else content
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise FileFormatError(
            path, 'must hold a list of annotations, or an object with "annotations" and "images"'
        )
    return content


def _by_image(image: Path, file: Path, content: Any) -> dict[Path, Annotations]:
    """Return the annotations of each image, by its path."""
    found: Annotations = content["annotations"] if isinstance(content, dict) else content
    names = _names(file, content)
    if not image.is_dir():
        if not image.exists():
            raise fail(f"{image}: there is no such file or folder", 2)
        own = [key for key, name in names.items() if Path(name).name == image.name]
        if len(names) > 1 and not own:
            raise FileFormatError(file, f"names {len(names)} images, and none is {image.name}")
        chosen = [each for each in found if not own or each.get("image_id") in own]
        if not own and len({each.get("image_id") for each in chosen}) > 1:
            raise FileFormatError(
                file,
                "has masks of several images without their names; give the folder, and a file "
                'with "images"',
            )
        return {image: chosen}
    if not names:
        raise FileFormatError(
            file, f'names no images; to use the folder {image} it needs "images" with "file_name"'
        )
    groups: dict[Path, Annotations] = {}
    for each in found:
        key = each.get("image_id")
        if not isinstance(key, (int, str)) or key not in names:
            raise FileFormatError(file, f"has an annotation of image_id {key!r}, not in images")
        groups.setdefault(image / names[key], []).append(each)
    return groups


def _names(file: Path, content: Any) -> dict[Any, str]:
    """Return the file names of a data set's images, by their ids."""
    listed: Iterable[Any] = content.get("images", []) if isinstance(content, dict) else []
    names: dict[Any, str] = {}
    for each in listed:
        if not isinstance(each, dict) or not isinstance(each.get("file_name"), str):
            raise FileFormatError(file, 'an entry of "images" has no "file_name"')
        names[each.get("id")] = each["file_name"]
    return names
