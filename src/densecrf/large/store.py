"""The working files of a run: blocks of arrays, a record for each finished task, a manifest.

Files are written atomically, and no task writes files that another task of its stage reads: a task
may run twice or be killed without changing the result. A stage is finished when all of its records
exist. Rows of arrays have checksums, which detect damaged files. One run at a time uses a folder.
"""

import errno
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from densecrf.io.atomic import atomic_writer, write_json
from densecrf.large.tiles import Box, Tiling, channels, common, inside, shape_of
from densecrf.records import RecordStore
from densecrf.validation import ArgumentError

__all__ = ["BusyError", "DamagedFileError", "IncompatibleRunError", "WorkingFiles"]

MANIFEST = "manifest.json"
PARTS = ("arrays", "records")
HEADER = re.compile(
    rb"\{'descr': '([^']+)', 'fortran_order': False, 'shape': \((\d+(?:, \d+)+)\), \} *\n"
)


class IncompatibleRunError(ValueError):
    """The folder holds the working files of a run with other settings or inputs."""


class BusyError(OSError):
    """Another run uses the folder."""


class DamagedFileError(OSError):
    """A working file has changed since it was written."""


@dataclass(frozen=True)
class WorkingFiles:
    """The folder of a run.

    Attributes
    ----------
    folder : Path
        The folder.
    tiling : Tiling
        The blocks; each array has one file per block.
    """

    folder: Path
    tiling: Tiling

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs, if `filelock` is installed."""
        try:
            from filelock import FileLock, Timeout
        except ModuleNotFoundError:
            yield
            return
        place = self.folder.with_name(self.folder.name + ".lock")
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            remedy = f"another run uses {self.folder}; wait for its end, or give another out"
            raise BusyError(errno.EBUSY, f"out: {remedy}") from None
        try:
            yield
        finally:
            place.unlink(missing_ok=True)
            lock.release()

    def begin(self, settings: dict[str, Any]) -> None:
        """Start or continue a run; refuse another run's files."""
        path = self.folder / MANIFEST
        settings = json.loads(json.dumps(settings))
        if not path.exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                remedy = "holds other files; give a new or empty folder"
                raise ArgumentError("scratch", str(self.folder), remedy)
            write_json(path, settings)
            return
        before = json.loads(path.read_text("utf-8"))
        if before != settings:
            other = [key for key in settings if before.get(key) != settings[key]]
            raise IncompatibleRunError(
                f"out: {self.folder} holds an unfinished run with other {', '.join(other)}; remove "
                "that folder to start again, or repeat the call that began it"
            )

    def clear(self) -> None:
        """Remove arrays and records: the run starts again."""
        for part in PARTS:
            shutil.rmtree(self.folder / part, ignore_errors=True)

    def remove(self) -> None:
        """Remove the working files, and their folder if nothing else is in it."""
        self.clear()
        (self.folder / MANIFEST).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def forget(self, stage: str) -> None:
        """Remove the arrays of a stage that is no longer needed."""
        shutil.rmtree(self.folder / "arrays" / stage, ignore_errors=True)

    # --- records ------------------------------------------------------------------------------

    def finish(self, stage: str, task: int, record: dict[str, Any]) -> dict[str, Any]:
        """Write and return the record of a task; this marks the task as finished."""
        self._records.save((stage, str(task)), {}, record)
        return record

    def record(self, stage: str, task: int) -> dict[str, Any] | None:
        """Return the record of a task, None if it is not finished."""
        return cast("dict[str, Any] | None", self._records.load((stage, str(task)), {}))

    @property
    def _records(self) -> RecordStore:
        """The records; their settings are those of the manifest."""
        return RecordStore(self.folder / "records", durable=False)

    # --- arrays ---------------------------------------------------------------------------------

    def write(self, stage: str, box: Box, values: npt.NDArray[Any]) -> None:
        """Write an array (channels, *box) whose box is made of whole blocks."""
        for block in self.tiling.blocks(box):
            part = np.ascontiguousarray(values[channels(inside(block, box))])
            with atomic_writer(self._file(stage, block), durable=False) as file:
                npy.write_array(file, part, allow_pickle=False)
                file.write(_checksums(part).tobytes())

    def read(self, stage: str, box: Box, picked: slice = slice(None)) -> npt.NDArray[Any]:
        """Read some channels of a box from the blocks that it touches."""
        out: npt.NDArray[Any] | None = None
        for block in self.tiling.blocks(box):
            shared = common(block, box)
            part = _rows(self._file(stage, block), inside(shared, block), picked)
            if out is None:
                out = np.empty((len(part), *shape_of(box)), part.dtype)
            out[channels(inside(shared, box))] = part
        if out is None:
            raise ValueError("an empty box")
        return out

    def _file(self, stage: str, block: Box) -> Path:
        name = "_".join(str(part.start) for part in block)
        return self.folder / "arrays" / stage / f"{name}.npy"


def _checksums(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return a checksum of each row of an array (channels, rows, ...)."""
    rows = values.reshape(-1, *values.shape[2:])
    return np.array([zlib.crc32(row) for row in rows], np.uint32)


def _damaged(path: Path) -> DamagedFileError:
    return DamagedFileError(f"{path}: has changed since it was written")


def _header(path: Path, file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of a file that was written here.

    NumPy's own reader compiles the header as Python, which fails in Python 3.11 if two threads of a
    worker do so at once.
    """
    try:
        npy.read_magic(file)
    except ValueError as error:
        raise _damaged(path) from error
    found = HEADER.match(file.read(int.from_bytes(file.read(2), "little")))
    if found is None:
        raise _damaged(path)
    return tuple(map(int, found[2].split(b","))), np.dtype(found[1].decode())


def _rows(path: Path, box: Box, wanted: slice) -> npt.NDArray[Any]:
    """Read a box of an array (channels, *block) from its file, no more rows than needed."""
    with path.open("rb") as file:
        shape, dtype = _header(path, file)
        start = file.tell()
        plane = int(np.prod(shape[1:], dtype=np.int64))
        row = plane // shape[1]
        rows = box[0]
        picked = range(*wanted.indices(shape[0]))
        out = np.empty((len(picked), *shape_of(box)), dtype)
        height = rows.stop - rows.start
        file.seek(start + dtype.itemsize * shape[0] * plane)
        sums = np.frombuffer(file.read(), np.uint32)
        if len(sums) != shape[0] * shape[1]:
            raise _damaged(path)
        for i, channel in enumerate(picked):
            file.seek(start + dtype.itemsize * (channel * plane + rows.start * row))
            values = np.frombuffer(file.read(dtype.itemsize * height * row), dtype)
            block = values.reshape(height, *shape[2:])
            first = channel * shape[1] + rows.start
            if (_checksums(block[None]) != sums[first : first + height]).any():
                raise _damaged(path)
            out[i] = block[channels(box[1:])]
    return out
