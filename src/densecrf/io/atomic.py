"""Write a file whole or not at all: a temporary name in the same folder, then a rename."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import secrets
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from densecrf.io.opening import kind_of_file

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["atomic_writer", "flush_to_disk", "write_json", "write_npz", "write_text"]

FLUSHES = 16  # files that are flushed at a time
_SUFFIX = ".densecrf.tmp"  # of the temporary names, which no other program uses


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open ``path`` for binary writing so that it appears complete or stays as it was.

    The bytes are written to a temporary file in the same folder and flushed to disk before the
    rename, so neither a killed process nor a full disk leaves half a file. Missing folders are
    created. Temporary files of killed processes are removed by the next process that writes to the
    folder. Without `durable`, nothing is flushed: a power failure may lose the file.

    Raises
    ------
    OSError
        When writing fails, or ``path`` is a folder, a device or a pipe; the message names ``path``
        and the temporary file is gone.

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
    temporary = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _refuse_special(final)
        _remove_abandoned(final.parent.resolve())
        with _temporary(final) as file:
            temporary = Path(file.name)
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if sys.platform != "win32":
                temporary.replace(final)
        if sys.platform == "win32":  # where an open file cannot be renamed
            temporary.replace(final)
        if durable:
            _sync_folder(final.parent)
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write: {error.strerror or error}", str(final)
        ) from error
    finally:
        # After a failure it still exists, incomplete.
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _refuse_special(path: Path) -> None:
    """Refuse to replace anything but a file: as root, a rename would replace ``/dev/null``."""
    with contextlib.suppress(FileNotFoundError):
        kind = kind_of_file(path)
        if kind is not None:
            raise OSError(errno.EEXIST, f"it is {kind}", str(path))


def _temporary(final: Path) -> IO[bytes]:
    """Return a new file beside the final one, locked while it is open."""
    while True:
        name = f".{final.name[:100]}.{secrets.token_hex(6)}{_SUFFIX}"
        file = final.with_name(name).open("xb")
        # Before it is locked, another process may remove the file as abandoned.
        if _lock(file, wait=True) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock a file until it is closed or its process ends; False if another process holds it."""
    if sys.platform == "win32":
        return True  # an open file cannot be removed there
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return wait  # a file system without locks: write, but remove nothing
    return True


@functools.cache
def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of killed processes, once per folder.

    A writer holds the lock of its file, and the system releases it when the process ends. A file
    that can be locked is therefore abandoned.
    """
    for left in folder.glob(f".*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                left.unlink()
            elif kind_of_file(left) is None:
                with left.open("r+b") as file:
                    if _lock(file, wait=False):
                        left.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush the rename to disk, where the system supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems refuse this; the file's own bytes are already flushed.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_to_disk(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Flush files that were written without `durable`, and their folders.

    Several threads do it at a time: the file system then writes its journal once for many files.
    """
    files = [Path(path) for path in paths]
    places = [*files, *dict.fromkeys(path.parent for path in files)]
    with ThreadPoolExecutor(min(FLUSHES, max(len(places), 1))) as pool:
        list(pool.map(_flush, places))


def _flush(place: Path) -> None:
    with contextlib.suppress(OSError):  # gone by now, or on another machine
        if place.is_dir():
            _sync_folder(place)
        else:
            with place.open("rb+") as file:
                os.fsync(file.fileno())


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Write UTF-8 text atomically."""
    with atomic_writer(path, durable=durable) as file:
        file.write(text.encode("utf-8"))


def write_json(
    path: str | os.PathLike[str], value: Any, *, indent: int | None = 1, durable: bool = True
) -> None:
    """Write a value as strict JSON, atomically; NumPy scalars and arrays become plain numbers.

    NaN and infinity, which JSON lacks, raise a ValueError.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: cannot be written as JSON: {error}") from error
    write_text(path, text + "\n", durable=durable)


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
    # On a full disk, numpy.savez_compressed leaves its archive open, and closing it fails again.
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(value), allow_pickle=False)
