"""``densecrf segment``: images with scores, labels or scribbles, to label maps."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from densecrf.cli import options as o
from densecrf.cli.adapt import ENOUGH, Adapt, adapt_to
from densecrf.cli.batch import BatchOutcome, Watch, Work, in_processes, run_batch
from densecrf.cli.inputs import ImageFiles, Loaded, Sources, find_images, load
from densecrf.cli.large import FillMissing, Scheduler, Tile, connected, is_large, segment_large
from densecrf.cli.outputs import check_outputs, done_before, label_file, read_record, run_settings
from densecrf.cli.reports import (
    collecting_warnings,
    console,
    describe,
    fail,
    finish,
    number,
    percent,
    print_done_before,
    print_json,
    print_notes,
    print_table,
    reporting_errors,
    solved_columns,
)
from densecrf.io import overlay, write_image, write_json, write_labels, write_npz
from densecrf.io.atomic import flush_to_disk
from densecrf.refinement import ON_DEVICE, queue_on
from densecrf.solvers.changes import warning_of_many
from densecrf.solvers.islands import without_islands
from densecrf.solvers.loop import Outcome
from densecrf.solvers.registry import REGISTRY
from densecrf.solvers.result import Result
from densecrf.validation import ArgumentWarning

__all__ = ["segment"]

CONFIDENT = 0.95  # default with --unsure, for pseudo-labels


@o.with_options()
def segment(
    images: o.Images,
    *,
    sources: Sources,
    out: Annotated[
        Path,
        o.output_option(
            "--out", "-o", help="Folder for the results or, for one image, the label map (.png)."
        ),
    ] = Path("segmented"),
    model: o.ModelOptions,
    adapt: Adapt = None,
    solver: o.SolveOptions,
    overlays: Annotated[
        bool,
        o.output_option(
            "--overlay/--no-overlay", help="Write NAME.overlay.png, the labels over the image."
        ),
    ] = True,
    marginals: Annotated[
        bool, o.output_option("--marginals", help="Write the marginals, NAME.npz.")
    ] = False,
    confident: Annotated[
        float | None,
        o.output_option(
            help="Minimum confidence of a written label; other pixels get --unsure. Default: "
            f"{CONFIDENT} with --unsure, otherwise all are written."
        ),
    ] = None,
    unsure: Annotated[
        int | None,
        o.output_option(help="Value of pixels below --confident: 255 for void."),
    ] = None,
    min_area: Annotated[
        int,
        o.output_option(
            help="Islands and holes of fewer pixels go to a neighbour, at a price in energy that "
            "is reported; 0: none.",
            min=0,
        ),
    ] = 0,
    tile: Tile = None,
    scheduler: Scheduler = None,
    fill_missing: FillMissing = False,
    jobs: o.JobsOnDevices = None,
    force: Annotated[
        bool, o.output_option("--force", help="Process images again, even if their results exist.")
    ] = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Segment images: sharpen probabilities, clean labels, or grow scribbles.

    Writes for each image NAME.png (labels, with colours), NAME.overlay.png, NAME.json (energy,
    certificate, changes, settings) and, with --marginals, NAME.npz. Run the same command again to
    continue an interrupted run. With several images, the default model is first adapted to them, as
    by `densecrf adapt`; for mean field, by mean field.

    For example:

    densecrf segment photo.jpg --probs photo.npy --out photo-labels.png

    densecrf segment images/ --probs logits/ --axis last --preset deeplab --out results/ --jobs 2

    densecrf segment photo.jpg --scribbles strokes.png --void 0

    densecrf segment images/ --probs cams/ --background-power 4 --preset cam --unsure 255

    densecrf segment scene.tif --probs scene.zarr --out labels.tif --tile 2048
    """
    o.require_extras(solver.device, scheduler)
    progress = not (quiet or as_json)
    least = _least_confidence(confident, unsure)
    if is_large(images, out, tile):
        if least is not None or min_area or model.background or model.background_power:
            raise typer.BadParameter(
                "--tile does not support confidences, --min-area and activation maps: leave out "
                "--unsure, --confident, --min-area, --background and --background-power, or --tile"
            )
        batch = segment_large(
            images[0],
            sources,
            out,
            model,
            solver,
            tile=tile,
            scheduler=scheduler,
            fill_missing=fill_missing,
            force=force,
            progress=progress,
        )
        _report(batch, 1, as_json, quiet)
        return
    todo = find_images(images, sources, _earlier_results(out))
    devices = [None] if solver.device is None else [d.strip() for d in solver.device.split(",")]
    with reporting_errors():
        queue = None if scheduler or len(devices) > 1 else queue_on(devices[0], jobs or ON_DEVICE)
    jobs = max(jobs or (1 if queue is None else ON_DEVICE), len(devices))
    if scheduler is not None and len(devices) > 1:
        given = f"--device {solver.device}"
        raise typer.BadParameter(f"{given}: with --scheduler, give one device for all workers")
    solver = solver.shared_by(jobs)
    if label_file(out) is not None and len(todo) > 1:
        raise typer.BadParameter(
            f"{out} is one file, but there are {len(todo)} images: give a folder"
        )
    with collecting_warnings() as collect:
        by_image = model.specification.model.grain is not None
        if adapt or (adapt is None and by_image and len(todo) >= ENOUGH):
            found, seen = adapt_to(model, todo, solver, jobs=jobs, progress=progress)
            if seen.interrupted:
                raise fail("interrupted while the model was adapted; nothing is written", 130)
            if found is not None:
                model = replace(model, adapted=found)
        pseudo = None if least is None else (least, 255 if unsure is None else unsure)
        task = _Segment(
            model, solver, out, overlays, marginals, force, collect, devices[0], pseudo, min_area
        )
        task.check_outputs(todo)
        elsewhere = replace(task, collect=None)
        with connected(scheduler) as client, queue or nullcontext():
            work: Work | list[Work] = task if client is None else elsewhere
            if len(devices) > 1:
                places = islice(cycle(devices), jobs)
                work = [replace(elsewhere, device=place) for place in places]
            elif queue is not None:
                work = queue.shared_by(task)
            elif client is None and solver.device is None:
                work = in_processes(elsewhere, jobs, len(todo), solver.threads) or task
            batch = run_batch(
                todo,
                lambda image: image.name,
                work,
                jobs=jobs,
                progress=progress,
                client=client,
            )
    written = [each["files"] for each in batch.results.values() if not each.get("skipped")]
    flush_to_disk(path for files in written for path in files.values())
    _report(batch, len(todo), as_json, quiet)


def _least_confidence(confident: float | None, unsure: int | None) -> float | None:
    """Return the minimum confidence of written labels; None if all are written."""
    if confident is None and unsure is None:
        return None
    if unsure is not None and not 0 <= unsure <= 65535:
        raise typer.BadParameter(
            f"{unsure} is not a value of a label image: use 255", param_hint="--unsure"
        )
    if confident is not None and not 0 < confident < 1:
        raise typer.BadParameter(
            f"{confident:g} is not between 0 and 1, both excluded", param_hint="--confident"
        )
    return CONFIDENT if confident is None else confident


@dataclass(frozen=True)
class _Segment:
    """The work of one image."""

    model: o.ModelOptions
    solver: o.SolveOptions
    out: Path
    overlays: bool
    marginals: bool
    force: bool
    #: Where this process collects warnings; None on workers, which collect their own.
    collect: Callable[[], AbstractContextManager[list[str]]] | None
    #: The device: one of those in the solver's options.
    device: str | None
    #: Minimum confidence of labels, and the value of other pixels; None if all are written.
    pseudo: tuple[float, int] | None = None
    #: Pixels of the smallest island that stays.
    min_area: int = 0

    def check_outputs(self, todo: list[ImageFiles]) -> None:
        """Refuse to write onto an input, or the results of two images onto one file."""
        outputs = [(path, each.image) for each in todo for path in self._paths(each.name).values()]
        inputs = [path for each in todo for path in each.paths]
        apart = ", rename one, or run them apart" if len(todo) > 1 else ""
        check_outputs(outputs, [*inputs, self.model.params], "choose another --out" + apart)

    def __call__(self, given: ImageFiles, watch: Watch) -> dict[str, Any]:
        """Solve and write, unless an earlier run did; return the record of the table."""
        more: dict[str, Any] = {} if self.pseudo is None else {"confident": self.pseudo}
        if self.min_area:
            more["min_area"] = self.min_area
        settings = run_settings(self.model, self.solver, given.paths, **more)
        paths = self._paths(given.name)
        before = None if self.force else done_before(paths.values(), paths["result"], settings)
        if before is not None:
            return {**before, "skipped": True}
        watch.report(f"{given.name}: reading")
        with ExitStack() as stack:
            collect = self.collect or stack.enter_context(collecting_warnings())
            collected = stack.enter_context(collect())
            loaded = load(given, self.model)
            result = self._solve(given, loaded, watch)
        # The record is written last: if it exists, the other files are complete. All are flushed to
        # disk together, at the end of the command.
        labels, record = result.labels, _record(result, collected)
        if self.pseudo is not None:
            least, value = self.pseudo
            labels = result.confident(least, unsure=value)
            record["unsure_share"] = float((labels == value).mean())
        write_labels(paths["labels"], labels, self.model.palette, durable=False)
        if self.overlays:
            shown = overlay(loaded.image, result.labels, undecided=result.undecided)
            write_image(paths["overlay"], shown, durable=False)
        if self.marginals:
            write_npz(paths["marginals"], {"marginals": result.marginals})
        files = {key: str(path) for key, path in paths.items()}
        whole = {**record, "files": files, "settings": settings}
        write_json(paths["result"], whole, durable=False)
        return {**record, "files": files}

    def _solve(self, given: ImageFiles, loaded: Loaded, watch: Watch) -> Result:
        def follow(so_far: Outcome[Any]) -> None:
            proven = "" if so_far.gap is None else f", gap {percent(so_far.gap)}"
            watch.report(f"{given.name}: iteration {so_far.iterations}{proven}")

        # With a callback every iteration is scored, which takes longer than one of mean field.
        callback = follow if REGISTRY[self.solver.method].scored else None
        keywords = {**self.solver.keywords(), "device": self.device}
        result = loaded.crf.solve(self.solver.method, callback=callback, **keywords)
        return without_islands(result, self.min_area)

    def _paths(self, name: str) -> dict[str, Path]:
        stem = self.out.with_suffix("") if label_file(self.out) is not None else self.out / name
        paths = {"labels": stem.with_name(stem.name + ".png")}
        if self.overlays:
            paths["overlay"] = stem.with_name(stem.name + ".overlay.png")
        if self.marginals:
            paths["marginals"] = stem.with_name(stem.name + ".npz")
        return {**paths, "result": stem.with_name(stem.name + ".json")}


def _earlier_results(out: Path) -> set[Path]:
    """Return the pictures of earlier runs in a folder that may lie below the images'."""
    records = [path for path in out.rglob("*.json") if path.is_file() and read_record(path)]
    return {path.with_suffix(end) for path in records for end in (".png", ".overlay.png")}


def _record(result: Result, collected: list[str]) -> dict[str, Any]:
    labels, counts = np.unique(result.labels, return_counts=True)
    used = {str(label): int(count) for label, count in zip(labels, counts, strict=True)}
    label, constant = result.best_constant
    changes = result.changes
    cause = "the weights are too strong for these unaries; lower --bilateral-weight and --weight"
    if constant < result.energy:
        better = f"{number(constant)}, below the {number(result.energy)} of {result.method}"
        collected = [*collected, f"label {label} everywhere has energy {better}: {cause}"]
    elif len(used) == 1:
        collected = [*collected, f"label {labels[0]} everywhere: {cause}"]
    elif suspicious := changes.warning():
        collected = [*collected, describe(ArgumentWarning("labels", ..., suspicious))]
    told = {"pixels_by_label": used, "changes": changes.to_dict(), "warnings": collected}
    return {**result.to_dict(), **told}


def _report(batch: BatchOutcome, total: int, as_json: bool, quiet: bool) -> None:
    """Print the results, as a table or as JSON; exit with 1 or 130 if some are missing."""
    changes = [record["changes"] for record in batch.results.values() if "changes" in record]
    areas = ([each[name] for each in changes] for name in ("area_before", "area_after"))
    suspicious = warning_of_many(*areas)
    together = [describe(ArgumentWarning("labels", ..., suspicious))] if suspicious else []
    if as_json:
        results = [{"name": name, **record} for name, record in batch.results.items()]
        print_json({"results": results, "failures": batch.failures, "warnings": together})
    elif not quiet:
        if batch.results:
            _print_results(batch.results)
        print_notes("all images", together)
    left = f", {total - batch.done} of {total} left. Run the same command again to continue."
    finish(batch.failures, len(batch.results), left if batch.interrupted else "")


def _print_results(results: dict[str, dict[str, Any]]) -> None:
    print_table([_row(name, record) for name, record in results.items()])
    print_done_before(results.values())
    console.print(f"Written: {_written(results)}")
    for name, record in results.items():
        print_notes(name, record["warnings"])


def _row(name: str, record: dict[str, Any]) -> dict[str, str]:
    share = record["proven_share"]  # rounded down, so that 100 % means all
    row = {"image": name, **solved_columns(record)}
    row["proven"] = f"{int(1000 * share) / 10:.1f} %" if share else "-"
    if "tiles" in record:
        row["tiles"] = str(len(record["tiles"]))
    else:
        row["labels"] = str(len(record["pixels_by_label"]))
        if "unsure_share" in record:
            row["unsure"] = percent(record["unsure_share"])
        row["changed"] = percent(record["changes"]["changed"] / record["changes"]["pixels"])
    return {**row, "seconds": f"{record['seconds']:.2f}"}


def _written(results: dict[str, dict[str, Any]]) -> str:
    """Return the files of one image, or the folder of many."""
    if len(results) == 1:
        (record,) = results.values()
        return ", ".join(record["files"].values())
    kinds = ", ".join(next(iter(results.values()))["files"])
    folders = {str(Path(record["files"]["labels"]).parent) for record in results.values()}
    return f"{kinds} of {len(results)} images in {', '.join(sorted(folders))}"
