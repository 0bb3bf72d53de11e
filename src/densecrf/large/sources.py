"""Inputs: anything with a shape, a dtype and slices, read window by window.

A source can be sent to a worker, where it opens its file again: data never travel with tasks.
"""

import hashlib
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from densecrf.io.errors import FileFormatError
from densecrf.large.chunks import Absent, absent_in_array, absent_in_hdf5, absent_in_raster
from densecrf.large.tiles import Box
from densecrf.validation import ArgumentError

__all__ = ["Source", "needs", "open_raster", "open_source", "place", "read"]


class Source(Protocol):
    """An array that is read window by window."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        ...

    @property
    def identity(self) -> str:
        """What tells it from other inputs, as far as that can be known cheaply."""
        ...

    @property
    def portable(self) -> bool:
        """Whether a worker can open it."""
        ...

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return a window."""
        ...

    def absent(self, box: Box) -> Absent:
        """Return the chunks of a window that are missing, and the part of it that each holds."""
        ...


@dataclass(frozen=True)
class _Array:
    """An array in memory, or one that reads itself: Zarr, Dask, xarray, HDF5."""

    array: Any
    portable: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        own: np.dtype[Any] = np.dtype(self.array.dtype)
        return own

    @property
    def identity(self) -> str:
        name = f"{type(self.array).__name__} {self.shape} {self.dtype}"
        if isinstance(self.array, np.ndarray):
            digest = hashlib.blake2b(digest_size=16)
            for row in self.array:
                digest.update(np.ascontiguousarray(row).tobytes())
            return f"{name} {digest.hexdigest()}"
        return f"{name} {getattr(self.array, 'name', '')}"

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.asarray(self.array[box])

    def absent(self, box: Box) -> Absent:
        return absent_in_array(self.array, box)


@dataclass(frozen=True)
class _Memmap:
    """A ``.npy`` file or another one that numpy.memmap reads, opened for each window."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"] = "C"
    portable: bool = field(default=True, init=False)

    @property
    def identity(self) -> str:
        return _stamp(self.path)

    def read(self, box: Box) -> npt.NDArray[Any]:
        array: Any = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
        return np.array(array[box])

    def absent(self, box: Box) -> Absent:  # noqa: ARG002
        return []


@dataclass(frozen=True)
class _Zarr:
    """A Zarr array in a folder; of an OME-Zarr image its full resolution."""

    path: str
    portable: bool = field(default=True, init=False)

    def _open(self) -> Any:
        zarr = needs("zarr", self.path)
        opened = zarr.open(self.path, mode="r")
        if hasattr(opened, "shape"):
            return opened
        image = opened.attrs.get("multiscales") or opened.attrs.get("ome", {}).get("multiscales")
        if not image:
            raise FileFormatError(self.path, "is a group; give one of its arrays")
        return opened[image[0]["datasets"][0]["path"]]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self._open().shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        own: np.dtype[Any] = np.dtype(self._open().dtype)
        return own

    @property
    def identity(self) -> str:
        return f"{Path(self.path).resolve()} {self.shape} {self.dtype}"

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.asarray(self._open()[box])

    def absent(self, box: Box) -> Absent:
        return absent_in_array(self._open(), box)


@dataclass(frozen=True)
class _Raster:
    """A raster that rasterio reads (GeoTIFF and others), (height, width, bands)."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nodata: float | None
    portable: bool = field(default=True, init=False)

    @staticmethod
    def of(path: str) -> "_Raster":
        with open_raster(path) as raster:
            sides = (raster.height, raster.width, raster.count)
            return _Raster(path, sides, np.dtype(raster.dtypes[0]), raster.nodata)

    @property
    def identity(self) -> str:
        return _stamp(self.path)

    def read(self, box: Box) -> npt.NDArray[Any]:
        rows, columns, bands = box
        window = ((rows.start, rows.stop), (columns.start, columns.stop))
        with open_raster(self.path) as raster:
            numbers = list(range(*bands.indices(self.shape[2])))
            values = raster.read([number + 1 for number in numbers], window=window)
        return np.moveaxis(np.asarray(values), 0, -1)

    def absent(self, box: Box) -> Absent:
        with open_raster(self.path) as raster:
            return absent_in_raster(raster, box)


@dataclass(frozen=True)
class _Volume:
    """A NIfTI file."""

    path: str
    portable: bool = field(default=True, init=False)

    def _open(self) -> Any:
        return needs("nibabel", self.path).load(self.path).dataobj

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self._open().shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        own: np.dtype[Any] = np.dtype(self._open().dtype)
        return own

    @property
    def identity(self) -> str:
        return _stamp(self.path)

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.asarray(self._open()[box])

    def absent(self, box: Box) -> Absent:  # noqa: ARG002
        return []


@dataclass(frozen=True)
class _Dataset:
    """A data set of an HDF5 file, ``file.h5:name``."""

    path: str
    name: str
    portable: bool = field(default=True, init=False)

    def _read(self, use: Any) -> Any:
        with needs("h5py", self.path).File(self.path, "r") as file:
            if self.name not in file:
                raise FileFormatError(self.path, f"has no data set {self.name!r}")
            return use(file[self.name])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._read(lambda data: data.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        own: np.dtype[Any] = np.dtype(self._read(lambda data: data.dtype))
        return own

    @property
    def identity(self) -> str:
        return f"{_stamp(self.path)} {self.name}"

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.asarray(self._read(lambda data: data[box]))

    def absent(self, box: Box) -> Absent:
        found: Absent = self._read(lambda data: absent_in_hdf5(data, box))
        return found


def place(source: Any) -> str:
    """Return the path of a source, or what kind of array it is."""
    while hasattr(source, "source"):
        source = source.source
    return str(getattr(source, "path", "") or type(source.array).__name__)


def read(name: str, source: Source, box: Box) -> npt.NDArray[Any]:
    """Return a window; what cannot be read is named."""
    try:
        return source.read(box)
    except (MemoryError, ImportError, ArgumentError):
        raise
    except Exception as error:  # each library has its own
        window = ", ".join(f"{part.start}:{part.stop}" for part in box)
        reason = f"cannot be read at [{window}]: {str(error) or type(error).__name__}"
        raise OSError(f"{name}: {place(source)} {reason}") from error


def open_source(name: str, given: Any) -> Source:
    """Return a source for a path or an array.

    Parameters
    ----------
    name : str
        The argument's name, for errors.
    given : path-like or array
        ``.npy``, ``.zarr``, ``.tif`` (and what else rasterio reads), ``.nii``, ``.h5:dataset``;
        or anything with shape, dtype and slices.
    """
    if isinstance(given, (str, os.PathLike)):
        return _from_path(name, os.fspath(given))
    if isinstance(given, np.memmap) and isinstance(given.filename, (str, os.PathLike)):
        if given.flags.c_contiguous and type(given.base) is not np.memmap:
            return _Memmap(os.fspath(given.filename), given.dtype, given.shape, int(given.offset))
        return _Array(given, portable=False)
    if all(hasattr(given, each) for each in ("shape", "dtype", "__getitem__")):
        by_itself = type(given).__module__.split(".")[0] in ("zarr", "dask", "xarray")
        return _Array(given, portable=by_itself)
    if isinstance(given, (list, tuple)):
        return _Array(np.asarray(given), portable=False)
    raise ArgumentError(name, ..., f"{type(given).__name__} is no path and has no shape")


def _from_path(name: str, path: str) -> Source:
    file, colon, inner = path.partition(".h5:")
    if colon:
        return _Dataset(f"{file}.h5", inner)
    if not Path(path).exists():
        raise FileNotFoundError(2, f"{name}: no such file", path)
    lower = path.rstrip("/").lower()
    if lower.endswith(".npy"):
        array = np.load(path, mmap_mode="r")
        return _Memmap(
            path, array.dtype, array.shape, array.offset, "C" if array.flags.c_contiguous else "F"
        )
    if lower.endswith(".zarr") or Path(path).is_dir():
        return _Zarr(path)
    if lower.endswith((".nii", ".nii.gz")):
        return _Volume(path)
    return _Raster.of(path)


def open_raster(path: Any, mode: str = "r", **profile: Any) -> Any:
    """Open a raster, which need not have a place on Earth."""
    rasterio = needs("rasterio", str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        return rasterio.open(path, mode, **profile)


def needs(module: str, path: str) -> Any:
    """Import the optional library that reads a file."""
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{path}: needs {module}, which is not installed; pip install 'densecrf[large]'",
            name=module,
        ) from error


def _stamp(path: str) -> str:
    """Return the path with the size and the time of the last change."""
    found = Path(path).stat()
    return f"{Path(path).resolve()} {found.st_size} {found.st_mtime_ns}"
