"""Write a file whole or not at all: a temporary name in the same folder, then a rename."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["atomic_writer", "write_json", "write_npz", "write_text"]


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open ``path`` for binary writing so that it appears complete or stays as it was.

    The bytes go to a temporary name in the same folder and reach the disk before the rename, so
    neither a killed process nor a full disk leaves half a file under the final name. Folders on
    the way are made.

    Raises
    ------
    OSError
        When writing fails; the message names ``path`` and the temporary file is gone.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_writer(folder / "a.txt") as file:
    ...     _ = file.write(b"whole")
    >>> [entry.name for entry in folder.iterdir()]
    ['a.txt']
    """
    final = Path(path)
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        _sync_folder(final.parent)
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write: {error.strerror or error}", str(final)
        ) from error
    finally:
        # After the rename the temporary name is gone already; otherwise it holds half a file.
        # Where the folder is a file there is nothing to remove, and that error is told already.
        with contextlib.suppress(NotADirectoryError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems refuse this; the file's own bytes are safe by then.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_writer(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 1) -> None:
    """Write a value as strict JSON, atomically; NumPy scalars and arrays become plain numbers.

    JSON has no NaN or infinity: such numbers are refused rather than written as a dialect.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: cannot be written as JSON: {error}") from error
    write_text(path, text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write named arrays as a compressed ``.npz``, atomically.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.npz"
    >>> write_npz(path, {"marginals": np.full((2, 3), 0.5)})
    >>> np.load(path)["marginals"].shape
    (2, 3)
    """
    # Not numpy.savez_compressed: on a full disk it leaves its archive open, which fails again
    # when it is collected.
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(value), allow_pickle=False)
