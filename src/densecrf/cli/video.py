"""``densecrf video``: a clip with scores, to labels that do not flicker."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.outputs import check_outputs, done_before, label_file, run_settings
from densecrf.cli.reports import (
    collecting_warnings,
    console,
    percent,
    print_done_before,
    print_json,
    print_notes,
    print_table,
    progress_bar,
    reporting_errors,
    require,
    solved_columns,
)
from densecrf.io import write_json, write_labels
from densecrf.large.frames import VIDEO_SUFFIXES, frame_files
from densecrf.large.video import SIGMA_T, WINDOW, refine_video

__all__ = ["video"]

SUFFIXES = (".npy", ".zarr")


@o.with_options("page", "bands", "background", "background_power", "time_limit", "device")
def video(
    frames: Annotated[
        Path,
        typer.Argument(
            help="The frames: a folder of images, a video file, or an array (.npy, .zarr)."
        ),
    ],
    *,
    probs: Annotated[
        Path | None,
        o.input_option(
            help="Network output: a folder with a file per frame, named as the frames are, or an "
            "array with time first."
        ),
    ] = None,
    labels: Annotated[
        Path | None, o.input_option(help="Hard labels instead of --probs, likewise.")
    ] = None,
    flow: Annotated[
        Path | None,
        o.input_option(
            help="Optical flow (.npy, .zarr), (frames, height, width, 2): displacements (x, y) to "
            "the next frame, in pixels. Kernels then follow moving objects."
        ),
    ] = None,
    out: Annotated[
        Path,
        o.output_option(
            "--out", "-o", help="Folder for the results; or the labels, .npy or .zarr."
        ),
    ] = Path("segmented"),
    model: o.ModelOptions,
    sigma_t: Annotated[
        float, o.model_option(help="Standard deviation of time in the kernels, in frames.")
    ] = SIGMA_T,
    solver: o.SolveOptions,
    window: Annotated[
        int, o.solver_option(help="Minimum length of a window of a long clip, in frames.", min=2)
    ] = WINDOW,
    force: Annotated[
        bool, o.output_option("--force", help="Process the clip again, even if its results exist.")
    ] = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Segment a clip: sharpen the probabilities of its frames and reduce flicker.

    Writes labels.npy (frames, height, width), labels.npy.json (energy, certificate, settings) and,
    into a folder, a label map NAME.png for each frame. Energy and certificate hold for the whole
    clip. Run the same command again to continue an interrupted run.

    For example:

    densecrf video frames/ --probs logits/ --axis last --out labels/

    densecrf video clip.mp4 --probs scores.npy --flow flow.npy --out labels.npy
    """
    if (probs is None) == (labels is None):
        raise typer.BadParameter("give either --probs or --labels")
    if solver.method not in ("lp", "mf5"):
        raise typer.BadParameter(f"--method {solver.method}: clips are solved by lp or mf5")
    if frames.suffix.lower() in VIDEO_SUFFIXES:
        require(str(frames), "av")
    asked = model.specification
    if labels is not None:
        asked = replace(asked, kind="labels", axis=None)
    with reporting_errors():
        inputs = [path for path in (frames, probs, labels, flow) if path is not None]
        files = frame_files(frames) or []
        alone = label_file(out, SUFFIXES)
        written = alone or out / "labels.npy"
        record_path = written.with_name(written.name + ".json")
        maps = [] if alone else [out / f"{path.stem}.png" for path in files]
        outputs = [(path, frames) for path in (written, record_path, *maps)]
        check_outputs(outputs, [*inputs, *files], "choose another --out")
        settings = run_settings(model, solver, inputs, window=window, sigma_t=sigma_t)
        record = None if force else done_before([written, *maps], record_path, settings)
        if record is not None:
            record["skipped"] = True
        else:
            with (
                progress_bar("windows", not (quiet or as_json)) as advance,
                collecting_warnings() as collect,
                collect() as collected,
            ):
                result = refine_video(
                    frames,
                    probs or labels,
                    flow=flow,
                    out=written,
                    sigma_t=sigma_t,
                    window=window,
                    gap=solver.gap,
                    method=solver.method,
                    max_iterations=solver.max_iterations,
                    threads=solver.threads,
                    progress=lambda stage, done, count: advance(done, count, stage),
                    **asked.keywords(),
                )
            count = int(result.labels.shape[0])
            if not alone:
                for t, path in enumerate(maps or [out / f"{t:05d}.png" for t in range(count)]):
                    write_labels(path, result.labels[t], model.palette)
            told = {"frames": count, "warnings": collected, "files": {"labels": str(alone or out)}}
            record = {**result.to_dict(), **told}
            # The record is written last: if it exists, the other files are complete.
            write_json(record_path, {**record, "settings": settings})
    _report(frames.stem, record, as_json, quiet)


def _report(name: str, record: dict[str, Any], as_json: bool, quiet: bool) -> None:
    """Print the result, as a table or as JSON."""
    if as_json:
        print_json({"name": name, **record})
    elif not quiet:
        row = {"clip": name, "frames": str(record["frames"]), **solved_columns(record)}
        row |= {"proven": percent(record["proven_share"]), "windows": str(len(record["tiles"]))}
        print_table([{**row, "seconds": f"{record['seconds']:.2f}"}])
        print_done_before([record])
        console.print(f"Written: {record['files']['labels']}")
        print_notes(name, record["warnings"])
