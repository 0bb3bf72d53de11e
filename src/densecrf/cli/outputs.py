"""The files of a command: checked before it starts, and found again after earlier runs."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import typer

from densecrf import __version__
from densecrf.cli.options import ModelOptions, SolveOptions
from densecrf.io import FileFormatError
from densecrf.io.images import IMAGE_SUFFIXES
from densecrf.io.opening import identities, kind_of_file

__all__ = ["check_outputs", "done_before", "label_file", "read_record", "run_settings"]

PNG_END = b"IEND\xaeB`\x82"  # the last chunk's name and checksum

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

    Paths are compared by name, ignoring case, and through symbolic and hard links. `outputs` has
    each file to write with its source; `remedy` ends the message.
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
    """Return the label map of ``--out``, known by its suffix; None for a folder.

    A name with the suffix of another format is refused.
    """
    suffix = out.suffix.lower()
    if suffix in suffixes:
        return out
    if suffix in OTHER_FORMATS:
        reason = "is lossy and changes labels" if suffix in LOSSY else "is not supported"
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
    """Return everything that a result depends on, for JSON; equal settings need no second run.

    Inputs are recorded by size and modification time, so that finished images are not read again.
    """
    names = ("palette", "page", "bands", "background", "background_power")
    reading = {name: getattr(model, name) for name in names}
    settings = {
        "version": __version__,
        "model": {"specification": asdict(model.specification), **reading},
        "solver": {key: value for key, value in asdict(solver).items() if key != "threads"},
        "inputs": {str(path): _stamp(path) for path in inputs},
        **more,
    }
    return cast("dict[str, Any]", json.loads(json.dumps(settings)))


def _stamp(path: Path) -> list[int]:
    """Return size and modification time of a file, or of a folder that holds a Zarr array."""
    kind = kind_of_file(path)
    if kind is not None and (kind != "a folder" or path.suffix in IMAGE_SUFFIXES):
        raise FileFormatError(path, f"is {kind}, not a file")
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def done_before(
    files: Iterable[Path], record: Path, settings: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the record of an earlier run with these settings, if its files are whole."""
    found = read_record(record) if all(_whole(path) for path in files) else None
    return found if found is not None and found.pop("settings") == settings else None


def _whole(path: Path) -> bool:
    """Return whether a file exists that no failure of the system has cut short."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(PNG_END)))
            return size > 0 and (path.suffix != ".png" or file.read() == PNG_END)
    except OSError:
        return False


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the record that an earlier run wrote beside its label map; None for other files."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and {"settings", "files"} <= record.keys() else None
