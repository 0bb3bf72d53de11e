"""The files that a command will write, checked before it works, and those of earlier runs."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import typer

from densecrf import __version__
from densecrf.cli.options import ModelOptions, SolveOptions
from densecrf.io import FileFormatError
from densecrf.io.images import IMAGE_SUFFIXES
from densecrf.io.opening import identities, kind_of_file

__all__ = ["check_outputs", "done_before", "label_file", "read_record", "run_settings"]

LOSSY = {".jpg", ".jpeg", ".jpe", ".jfif", ".jp2", ".j2k", ".jxl", ".webp", ".avif", ".heic"}
#: Suffixes of files, unlike a suffix in the name of a folder.
OTHER_FORMATS = {
    *LOSSY,
    *IMAGE_SUFFIXES,
    *(".gif", ".npy", ".npz", ".zarr", ".h5", ".hdf5", ".nii", ".gz", ".mat"),
    *(".json", ".txt", ".csv", ".pdf", ".svg", ".unary"),
}


def check_outputs(
    outputs: Iterable[tuple[Path, object]], inputs: Iterable[Path | None], remedy: str
) -> None:
    """Refuse to write onto an input, onto one file twice, or onto a folder or device.

    Two paths are the same file by their names, whatever the case of the letters, by links, and by
    hard links. `outputs` has each file to write with its source; `remedy` ends the message.
    """
    read = {key: path for path in inputs if path is not None for key in identities(path)}
    written: dict[object, object] = {}
    for path, source in outputs:
        if replaced := [read[key] for key in identities(path) if key in read]:
            reason = f"{path}, made from {source}, would replace the input {replaced[0]}"
            raise typer.BadParameter(f"{reason}; {remedy}")
        name = identities(path)[0]
        if name in written:
            reason = f"{written[name]} and {source} would both be written to {path}"
            raise typer.BadParameter(f"{reason}; {remedy}")
        written[name] = source
        if kind := _obstacle(path):
            raise typer.BadParameter(f"{path} cannot be written: {kind}; {remedy}")


def label_file(out: Path, suffixes: tuple[str, ...] = (".png",)) -> Path | None:
    """Return the label map that ``--out`` names by one of some suffixes; None for a folder.

    A name that ends as another format does is refused: it is meant for a file.
    """
    suffix = out.suffix.lower()
    if suffix in suffixes:
        return out
    if suffix in OTHER_FORMATS:
        reason = "is lossy and changes labels" if suffix in LOSSY else "is not written here"
        remedy = f"give {out.stem}{' or '.join(suffixes)}, or a folder"
        raise typer.BadParameter(f"{out}: {suffix} {reason}; {remedy}", param_hint="--out")
    return None


def _obstacle(path: Path) -> str | None:
    """Return why a file cannot be written, or None."""
    try:
        kind = kind_of_file(path)
    except NotADirectoryError:
        return "a part of its path is a file, not a folder"
    except OSError:
        return None
    return kind and f"it is {kind}"


def run_settings(
    model: ModelOptions, solver: SolveOptions, inputs: Iterable[Path], **more: Any
) -> dict[str, Any]:
    """Return all that a result depends on, as JSON holds it; equal settings need no second run.

    Inputs are recorded by size and time of change: nothing is read of images that are done.
    """
    settings = {
        "version": __version__,
        "model": asdict(replace(model, params=None)),  # whose numbers are in the others
        "solver": {key: value for key, value in asdict(solver).items() if key != "threads"},
        "inputs": {str(path): _stamp(path) for path in inputs},
        **more,
    }
    return cast("dict[str, Any]", json.loads(json.dumps(settings)))


def _stamp(path: Path) -> list[int]:
    """Return size and time of change of a file, or of a folder that holds a Zarr array."""
    kind = kind_of_file(path)
    if kind is not None and (kind != "a folder" or path.suffix in IMAGE_SUFFIXES):
        raise FileFormatError(path, f"is {kind}, not a file")
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def done_before(
    files: Iterable[Path], record: Path, settings: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the record of an earlier run with these settings, where its files are there."""
    found = read_record(record) if all(path.exists() for path in files) else None
    return found if found is not None and found.pop("settings") == settings else None


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the record that an earlier run wrote beside its label map; None for other files."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and {"settings", "files"} <= record.keys() else None
