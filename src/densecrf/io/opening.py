"""Open regular files only, tell whether two paths are one file, sort names by their numbers."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import IO

from densecrf.io.errors import FileFormatError

__all__ = ["by_numbers", "identities", "kind_of_file", "open_regular"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a path ("a folder", "a named pipe", …), or None for a regular file."""
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))  # noqa: PTH116 - follows links, as open


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading in binary.

    Raises
    ------
    OSError
        When it is missing or cannot be opened.
    FileFormatError
        When it is a folder, a device, a socket or a pipe, whose opening would block.
    """
    kind = kind_of_file(path)
    if kind is not None:
        raise FileFormatError(path, f"is {kind}, not a file")
    return Path(path).open("rb")


def identities(path: Path) -> list[object]:
    """Return keys that identify a file: its resolved path, and its inode if it exists.

    The case of letters is ignored, as on Windows and macOS.
    """
    name = unicodedata.normalize("NFC", os.path.realpath(path)).casefold()
    try:
        found = path.stat()
    except OSError:
        return [name]
    return [name, (found.st_dev, found.st_ino)]


def by_numbers(path: Path) -> list[tuple[int, str]]:
    """Return a key that puts image2 before image10."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]
