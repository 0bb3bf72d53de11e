"""``densecrf segment`` for an image larger than memory: tile by tile, here or on a cluster."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from densecrf import large
from densecrf.cli import options as o
from densecrf.cli.batch import BatchOutcome
from densecrf.cli.inputs import Sources
from densecrf.cli.outputs import check_outputs, done_before, label_file, run_settings
from densecrf.cli.reports import ERRORS, collecting_warnings, describe, progress_bar, require
from densecrf.io import write_json
from densecrf.io.errors import FileFormatError
from densecrf.io.images import image_size
from densecrf.large.outputs import SUFFIXES
from densecrf.large.sources import file_of, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["FillMissing", "Scheduler", "Tile", "connected", "is_large", "segment_large"]

LARGE = 1 << 26  # pixels at which an image is cut into tiles
SIDE = 2048  # of a tile

Tile = Annotated[
    int | None,
    o.output_option(
        help="Cut the image into tiles with this side, for images larger than memory. Default: "
        f"{SIDE} from {LARGE >> 20} megapixels on. The bound is for the whole image.",
        min=64,
    ),
]
Scheduler = Annotated[
    str | None,
    o.solver_option(
        help="Address of a Dask scheduler, such as tcp://host:8786; its workers do the work.",
        metavar="ADDRESS",
    ),
]

FillMissing = Annotated[
    bool,
    o.input_option(
        "--fill-missing",
        help="Read missing chunks of a Zarr, HDF5 or sparse GeoTIFF as its fill value, instead of "
        "failing.",
    ),
]


def is_large(images: "Sequence[str]", out: Path, tile: int | None) -> bool:
    """Return whether to cut an image: by --tile, by the kind of output, or by its size."""
    if tile is not None or out.suffix.lower() in SUFFIXES:
        if len(images) != 1 or (Path(images[0]).is_dir() and not _is_zarr(images[0])):
            raise typer.BadParameter("--tile and these outputs are for one image: give one")
        return True
    if len(images) != 1:
        return False
    return _is_zarr(images[0]) or (Path(images[0]).is_file() and _pixels(images[0]) > LARGE)


def _is_zarr(path: str) -> bool:
    return path.rstrip("/").lower().endswith(".zarr")


def _pixels(path: str) -> int:
    """Return the size of an image from its header; 0 if unreadable, which is reported later."""
    try:
        height, width, _ = image_size(path)
    except FileFormatError as error:
        return LARGE + 1 if error.too_many_pixels else 0
    except (OSError, ValueError, ImportError):
        return 0
    return height * width


def segment_large(
    image: str,
    sources: Sources,
    out: Path,
    model: o.ModelOptions,
    solver: o.SolveOptions,
    *,
    tile: int | None,
    scheduler: str | None,
    fill_missing: bool,
    force: bool,
    progress: bool,
) -> BatchOutcome:
    """Solve one image tile by tile; the parameters are those of ``densecrf segment``."""
    sources.check()
    if sources.scribbles is not None:
        raise typer.BadParameter(
            "--scribbles: not for images cut into tiles, since colours are learned from the whole "
            "image; segment a reduced copy, enlarge its result and give that as --labels or --probs"
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
    name, batch = Path(image).stem, BatchOutcome()
    try:
        settings = run_settings(model, solver, inputs, tile=tile)
        record = None if force else done_before([labels], record_path, settings)
        if record is not None:
            record["skipped"] = True
        else:
            with (
                connected(scheduler) as client,
                progress_bar("tiles", progress) as advance,
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
        batch.results[name] = record
    except ERRORS as error:
        batch.failures[name] = describe(error)
    return batch


@contextmanager
def connected(address: str | None) -> "Iterator[Any]":
    """Connect to a scheduler, if one is given."""
    if address is None:
        yield None
        return
    distributed = needs("distributed", "--scheduler")
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"no scheduler at {address} ({error}); start one with: dask scheduler",
            param_hint="--scheduler",
        ) from error
    with client:
        yield client
