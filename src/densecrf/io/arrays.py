"""Read numeric arrays from untrusted ``.npy`` and ``.npz`` files.

`numpy.load` trusts the header: a few bytes can ask it for terabytes. Here the header is checked
against the size of the file and a limit before memory is allocated.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from densecrf.io.errors import FileFormatError
from densecrf.io.opening import open_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["MAX_BYTES", "check_size", "map_npy", "read_npy", "read_npz"]

PathLike = str | os.PathLike[str]

#: The default limit on the size of an array.
MAX_BYTES = 4 * 2**30
_LONGEST_HEADER = 2**16


def read_npy(path: PathLike, *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read a numeric array from a ``.npy`` file.

    Raises
    ------
    FileFormatError
        A ValueError that names the file: not an array, not of numbers, truncated, or larger than
        ``max_bytes``.
    """
    with open_regular(path) as file:
        return _read_array(path, file, os.fstat(file.fileno()).st_size, max_bytes)


def map_npy(path: PathLike) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and data offset of a ``.npy`` file.

    Only the header is read. The checks are those of `read_npy`.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        shape, fortran, dtype, _ = _checked_header(path, file, size, size)
        return shape, fortran, dtype, file.tell()


def read_npz(
    path: PathLike, keys: Sequence[str], *, max_bytes: int = MAX_BYTES
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a ``.npz`` file whose names are in ``keys``.

    Raises
    ------
    FileFormatError
        A ValueError that names the file: not an archive, none of ``keys`` in it, or an array that
        `read_npy` would refuse.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {name.removesuffix(".npy"): name for name in archive.namelist()}
                found = [key for key in keys if key in members]
                if not found:
                    raise FileFormatError(
                        path,
                        f"has no array named {' or '.join(keys)} "
                        f"(found: {', '.join(sorted(members)[:10]) or 'nothing'})",
                    )
                return {key: _read_member(path, archive, members[key], max_bytes) for key in found}
        except FileFormatError:
            raise
        # zipfile raises most of these for encrypted or exotic members, OSError for offsets beyond
        # the end of the file.
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
            OverflowError,
            OSError,
        ) as error:
            raise FileFormatError(path, f"broken or truncated archive ({error})") from error


def _read_member(
    path: PathLike, archive: zipfile.ZipFile, name: str, max_bytes: int
) -> NDArray[Any]:
    size = archive.getinfo(name).file_size
    with archive.open(name) as member:
        return _read_array(path, member, size, max_bytes)


def _read_array(path: PathLike, file: IO[bytes], size: int, max_bytes: int) -> NDArray[Any]:
    # Before the header is read: its length comes from the file and may be gigabytes.
    if size > max_bytes + _LONGEST_HEADER:
        raise FileFormatError(
            path,
            f"holds {size / 2**30:.1f} GiB, above the limit of {max_bytes / 2**30:.1f} GiB; "
            "raise max_bytes if the file is not damaged",
        )
    shape, fortran, dtype, count = _checked_header(path, file, size, max_bytes)
    data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise FileFormatError(path, f"ends after {len(data)} bytes of its array: truncated")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _checked_header(
    path: PathLike, file: IO[bytes], size: int, max_bytes: int
) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Read a header, check it against the file's size, and count its values."""
    shape, fortran, dtype = _read_header(path, file)
    if dtype.kind not in "fiub":
        raise FileFormatError(path, f"holds values of type {dtype}; numbers are needed")
    count = check_size(path, shape, dtype.itemsize, max_bytes)
    stored = size - file.tell()
    if stored != count * dtype.itemsize:
        raise FileFormatError(
            path,
            f"an array of shape {shape} and type {dtype} needs {count * dtype.itemsize} bytes, "
            f"the file has {stored}: truncated or damaged",
        )
    return shape, fortran, dtype, count


def _read_header(path: PathLike, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(file)
        if version == (1, 0):
            return npy.read_array_header_1_0(file)
        if version == (2, 0):
            return npy.read_array_header_2_0(file)
    # The header is a Python literal; NumPy's parser fails in as many ways as Python's does.
    except Exception as error:
        raise FileFormatError(path, f"not a NumPy array file ({error})") from error
    raise FileFormatError(path, f"NumPy format version {version} holds no plain numbers")


def check_size(path: PathLike, shape: Sequence[int], itemsize: int, max_bytes: int) -> int:
    """Return the number of values of a shape from a header; refuse empty or huge ones."""
    count = 1
    for extent in shape:
        if extent < 1:
            raise FileFormatError(path, f"shape {tuple(shape)} has an extent below 1: empty")
        count *= extent
    if count * itemsize > max_bytes:
        raise FileFormatError(
            path,
            f"shape {tuple(shape)} would take {count * itemsize / 2**30:.1f} GiB, above the limit "
            f"of {max_bytes / 2**30:.1f} GiB; raise max_bytes if the file is not damaged",
        )
    return count
