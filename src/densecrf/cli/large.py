"""``densecrf segment`` for an image larger than memory: tile by tile, here or on a cluster."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from densecrf import large
from densecrf.cli.inputs import Sources
from densecrf.cli.options import (
    ModelOptions,
    SolveOptions,
    input_option,
    output_option,
    solver_option,
)
from densecrf.cli.outputs import check_outputs, done_before, label_file, run_settings
from densecrf.cli.progress import collecting_warnings, progress_bar
from densecrf.cli.reports import (
    console,
    describe,
    percent,
    print_done_before,
    print_failures,
    print_json,
    print_notes,
    print_table,
    require,
    solved_columns,
)
from densecrf.io import write_json
from densecrf.io.errors import TooManyPixelsError
from densecrf.large.outputs import SUFFIXES
from densecrf.large.sources import file_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["FillMissing", "Scheduler", "Tile", "connected", "is_large", "segment_large"]

LARGE = 1 << 26  # pixels from which on an image is cut into tiles
SIDE = 2048  # of a tile

Tile = Annotated[
    int | None,
    output_option(
        help="Cut the image into tiles with this side, for images larger than memory. Default: "
        f"{SIDE} from {LARGE >> 20} megapixels on. The bound is for the whole image.",
        min=64,
    ),
]
Scheduler = Annotated[
    str | None,
    solver_option(
        help="Address of a Dask scheduler, such as tcp://host:8786; its workers do the work.",
        metavar="ADDRESS",
    ),
]

FillMissing = Annotated[
    bool,
    input_option(
        "--fill-missing",
        help="Read missing chunks of a Zarr, HDF5 or sparse GeoTIFF as its fill value, instead of "
        "failing.",
    ),
]


def is_large(images: "Sequence[str]", out: Path, tile: int | None) -> bool:
    """Return whether an image is to be cut: as asked, by the output's kind, or by its size."""
    if tile is not None or out.suffix.lower() in SUFFIXES:
        if len(images) != 1 or (Path(images[0]).is_dir() and not _is_zarr(images[0])):
            raise typer.BadParameter("--tile and such outputs are for one image: give one")
        return True
    if len(images) != 1:
        return False
    return _is_zarr(images[0]) or (Path(images[0]).is_file() and _pixels(images[0]) > LARGE)


def _is_zarr(path: str) -> bool:
    return path.rstrip("/").lower().endswith(".zarr")


def _pixels(path: str) -> int:
    """Return the size of an image by its header; 0 where that cannot be read, as is said later."""
    from densecrf.io.images import image_size

    try:
        height, width, _ = image_size(path)
    except TooManyPixelsError:
        return LARGE + 1
    except (OSError, ValueError, ImportError):
        return 0
    return height * width


def segment_large(
    image: str,
    sources: Sources,
    out: Path,
    model: ModelOptions,
    solver: SolveOptions,
    *,
    tile: int | None,
    scheduler: str | None,
    fill_missing: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve one image tile by tile; the parameters are those of ``densecrf segment``."""
    sources.check()
    if sources.scribbles is not None:
        raise typer.BadParameter(
            "--scribbles: colours are learned from the whole image, which is not for images that "
            "are cut into tiles; grow the strokes on a reduced copy of the image, and give its "
            "result, enlarged, by --labels or --probs"
        )
    if solver.method not in ("lp", "mf5"):
        raise typer.BadParameter(f"--method {solver.method}: tiles are solved by lp or mf5")
    if model.bands is not None:
        raise typer.BadParameter("--bands: not for images cut into tiles; write a file of them")
    if solver.device is not None or solver.time_limit is not None:
        raise typer.BadParameter("--device and --time-limit: not for images cut into tiles")
    known = cast("str", sources.probs or sources.labels)
    asked = model.specification
    if sources.labels:
        asked = replace(asked, kind="labels", axis=None)
    labels = label_file(out, SUFFIXES) or out / f"{Path(image).stem}.tif"
    record_path = labels.with_name(labels.name + ".json")
    inputs = [Path(file_of(each)) for each in (image, known)]
    check_outputs([(path, Path(image)) for path in (labels, record_path)], inputs, "choose another")
    if labels.suffix.lower() != ".npy":
        require(str(labels), "zarr" if labels.suffix.lower() == ".zarr" else "rasterio")
    name, failures, results = Path(image).stem, dict[str, str](), list[dict[str, Any]]()
    try:
        # Files by size and time, as they are large.
        stamps = {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in inputs}
        settings = run_settings(model, solver, inputs=stamps, tile=tile)
        record = None if force else done_before([labels], record_path, settings)
        if record is None:
            with (
                connected(scheduler) as client,
                progress_bar("tiles", not (quiet or as_json)) as advance,
                collecting_warnings() as collect,
                collect() as collected,
            ):
                result = large.refine(
                    image,
                    known,
                    out=labels,
                    tile=tile or SIDE,
                    gap=solver.gap,
                    **asked.keywords(),
                    missing_chunks="fill" if fill_missing else "error",
                    method=solver.method,
                    max_iterations=solver.max_iterations,
                    threads=solver.threads,
                    client=client,
                    progress=lambda stage, done, count: advance(done, count, stage),
                )
            told = {"warnings": collected, "files": {"labels": str(labels)}}
            record = {**result.to_dict(), **told}
            write_json(record_path, {**record, "settings": settings})
        else:
            record["skipped"] = True
        results.append({"name": name, **record})
    except (ValueError, OSError, ImportError, MemoryError) as error:
        failures[name] = describe(error)
    if as_json:
        print_json({"results": results, "failures": failures})
    elif results and not quiet:
        _print(image, results[0])
        print_notes(name, results[0]["warnings"])
    print_failures(failures, 0)
    if failures:
        raise typer.Exit(1)


@contextmanager
def connected(address: str | None) -> "Iterator[Any]":
    """Connect to a scheduler, where there is one."""
    if address is None:
        yield None
        return
    from densecrf.large.sources import needs

    distributed = needs("distributed", "--scheduler")
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"no scheduler at {address} ({error}); start one by: dask scheduler",
            param_hint="--scheduler",
        ) from error
    with client:
        yield client


def _print(image: str, record: dict[str, Any]) -> None:
    print_table(
        [
            {
                "image": Path(image).stem,
                **solved_columns(record),
                "tiles": str(len(record["tiles"])),
                "proven": percent(record["proven_share"]),
                "seconds": f"{record['seconds']:.1f}",
            }
        ]
    )
    print_done_before([record])
    console.print(f"Written: {record['files']['labels']}")
