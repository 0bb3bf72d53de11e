"""Open files for reading: regular ones only, so that no reader waits for a pipe or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from densecrf.io.errors import FileFormatError

__all__ = ["kind_of_file", "open_regular"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """Return what lies at a path ("a folder", "a named pipe", …), or None for a regular file."""
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))  # noqa: PTH116 - follows links, as open


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading in binary.

    Raises
    ------
    OSError
        When it is missing or cannot be opened.
    FileFormatError
        When it is a pipe, a device, a socket or a folder: opening a pipe would wait for ever.
    """
    kind = kind_of_file(path)
    if kind is not None:
        raise FileFormatError(path, f"is {kind}, not a file")
    return Path(path).open("rb")
