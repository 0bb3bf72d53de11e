"""Inputs: anything with a shape, a dtype and slices, read window by window.

A source can be sent to a worker, where it opens its file again: data never travel with tasks.

Chunks that a store lacks are read as a fill value by its format, without a word. They were left out
because they hold nothing else, or never written, or lost on the way; the store does not tell which.
"""

import asyncio
import hashlib
import os
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from densecrf.io.arrays import map_npy
from densecrf.io.errors import FileFormatError
from densecrf.io.images import read_image, read_labels, white_of
from densecrf.io.opening import kind_of_file
from densecrf.io.unaries import read_known
from densecrf.large.tiles import Box, Tiling, common
from densecrf.validation import ArgumentError

PHOTOS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
ARCHIVES = (".npz", ".unary", ".c_unary")
TIFF = (".tif", ".tiff")

__all__ = [
    "Source",
    "needs",
    "open_raster",
    "open_source",
    "place",
    "raster_range",
    "read",
    "whole",
]


#: The names of missing chunks, and the part of a window that each holds.
Absent = list[tuple[str, Box]]


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
        return _absent_in_array(self.array, box)


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
class _Whole:
    """A file of a format that has no windows: a photograph, an archive of arrays."""

    path: str
    role: str
    native: bool = False
    portable: bool = field(default=True, init=False)

    @property
    def kind(self) -> str | None:
        """What an archive says that it holds."""
        return read_known(self.path)[1] if self.path.lower().endswith(ARCHIVES) else None

    @property
    def identity(self) -> str:
        return f"{_stamp(self.path)} {self.native}"

    def _values(self) -> npt.NDArray[Any]:
        return _read_whole(self.path, self.role, self.native, _stamp(self.path))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values().dtype

    def read(self, box: Box) -> npt.NDArray[Any]:
        return np.array(self._values()[box])

    def absent(self, box: Box) -> Absent:  # noqa: ARG002
        return []


@lru_cache(maxsize=2)
def _read_whole(path: str, role: str, native: bool, stamp: str) -> npt.NDArray[Any]:
    """Read a file by the readers of images in memory; `stamp` tells a changed file from before."""
    del stamp
    if path.lower().endswith(ARCHIVES):
        return read_known(path)[0]
    if role == "image":
        return read_image(path, native=native)
    return read_labels(path)


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
        return _absent_in_array(self._open(), box)


@dataclass(frozen=True)
class _Raster:
    """A raster that rasterio reads, (height, width, bands), or without the last where it is one."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nodata: float | None
    bands: tuple[int, ...]
    portable: bool = field(default=True, init=False)

    @staticmethod
    def of(path: str, role: str) -> "_Raster":
        try:
            with open_raster(path) as raster:
                bands = [
                    i
                    for i, meaning in enumerate(raster.colorinterp, 1)
                    if role != "image" or meaning.name != "alpha"
                ]
                several = [len(bands)] if len(bands) > 1 else []
                sides = (raster.height, raster.width, *several)
                dtype = np.dtype(raster.dtypes[0])
                return _Raster(path, sides, dtype, raster.nodata, tuple(bands))
        except needs("rasterio", path).errors.RasterioError as error:
            raise FileFormatError(path, f"cannot be read ({error})") from error

    @property
    def identity(self) -> str:
        return _stamp(self.path)

    def read(self, box: Box) -> npt.NDArray[Any]:
        rows, columns, *bands = box
        window = ((rows.start, rows.stop), (columns.start, columns.stop))
        chosen = list(self.bands[bands[0]]) if bands else self.bands[0]
        with open_raster(self.path) as raster:
            values = np.asarray(raster.read(chosen, window=window))
        return np.moveaxis(values, 0, -1) if bands else values

    def absent(self, box: Box) -> Absent:
        with open_raster(self.path) as raster:
            found = _absent_in_raster(raster, (*box, slice(0, 1))[:3])
        return [(name, part[: len(box)]) for name, part in found]


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
        found: Absent = self._read(lambda data: _absent_in_hdf5(data, box))
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


def whole(name: str, source: Any, *, native: bool = True) -> npt.NDArray[Any]:
    """Read all of what a view shows, in the order of its own axes; `native` as by `open_source`."""
    while hasattr(source, "source"):
        source = source.source
    if name == "image" and isinstance(source, _Raster) and source.path.lower().endswith(TIFF):
        try:
            return read_image(source.path, native=native)
        except FileFormatError as error:
            if not error.too_many_pixels:
                raise
    return read(name, source, tuple(slice(0, side) for side in source.shape))


def open_source(name: str, given: Any, *, native: bool = True) -> Source:
    """Return a source for a path or an array.

    Parameters
    ----------
    name : str
        The argument's name, for errors.
    given : path-like or array
        ``.npy``, ``.zarr``, ``.tif`` (and what else rasterio reads), ``.nii``, ``.h5:dataset``;
        or anything with shape, dtype and slices.
    native : bool
        Whether 16-bit photographs keep their values, which are on the scale 0 to 255 otherwise.
    """
    if isinstance(given, (str, os.PathLike)):
        return _from_path(name, os.fspath(given), native)
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


def file_of(path: str) -> str:
    """Return the file of a path, which may name a data set in it."""
    file, colon, _ = path.partition(".h5:")
    return f"{file}.h5" if colon else path


def _from_path(name: str, path: str, native: bool) -> Source:
    file, colon, inner = path.partition(".h5:")
    if colon:
        return _checked(_Dataset(f"{file}.h5", inner), f"{file}.h5")
    if not Path(path).exists():
        raise FileNotFoundError(2, f"{name}: no such file", path)
    lower = path.rstrip("/").lower()
    if Path(path).is_dir():
        return _checked(_Zarr(path), path)
    kind = kind_of_file(path)
    if kind is not None:  # opening a pipe would wait for ever
        raise FileFormatError(path, f"is {kind}, not a file")
    if lower.endswith(".npy"):
        shape, fortran, dtype, offset = map_npy(path)
        return _Memmap(path, dtype, shape, offset, "F" if fortran else "C")
    if lower.endswith((*PHOTOS, *ARCHIVES)):
        return _checked(_Whole(path, name, native), path)
    if lower.endswith((".nii", ".nii.gz")):
        return _checked(_Volume(path), path)
    return _Raster.of(path, name)


def _checked(source: Source, path: str) -> Source:
    """Return a source whose shape can be read; each library has its own errors otherwise."""
    try:
        if source.shape and source.dtype.kind in "fiub":
            return source
    except (MemoryError, ImportError, ArgumentError):
        raise
    except Exception as error:
        raise FileFormatError(path, f"cannot be read ({error})") from error
    raise FileFormatError(path, f"holds values of type {source.dtype}; numbers are needed")


def open_raster(path: Any, mode: str = "r", **profile: Any) -> Any:
    """Open a raster, which need not have a place on Earth."""
    rasterio = needs("rasterio", str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        return rasterio.open(path, mode, **profile)


def raster_range(source: Any, values: npt.NDArray[Any]) -> tuple[float, float] | None:
    """Return black and white of a raster of 16 bits with these values, as of other photographs."""
    while hasattr(source, "source"):
        source = source.source
    if not isinstance(source, _Raster) or values.dtype != np.uint16:
        return None
    return 0.0, float(white_of(source.path, values))


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


# --- missing chunks ------------------------------------------------------------------------------


def _zarr_within(array: Any) -> Any:
    """Return the Zarr array that another one is, or that a Dask or xarray array reads as it is."""
    kind = type(array).__module__.split(".")[0]
    if kind == "zarr":
        return array
    inner = array
    if kind == "xarray":
        inner = getattr(getattr(array, "variable", array), "_data", None)
    if hasattr(inner, "dask"):
        layers = list(getattr(inner.dask, "layers", {}).values())
        sources = [layer for layer in layers if len(layer) == 1 and len(layers) == 2]
        inner = next(iter(dict(sources[0]).values())) if sources else None
    while inner is not None and type(inner).__module__.split(".")[0] == "xarray":
        inner = getattr(inner, "array", getattr(inner, "_array", None))
    if type(inner).__module__.split(".")[0] == "zarr" and inner.shape == array.shape:
        return inner
    return None


def _absent_in_array(array: Any, box: Box) -> Absent:
    """Return the chunks (of sharded arrays, shards) of a window that a Zarr array lacks."""
    array = _zarr_within(array)
    if array is None:
        return []
    sides = getattr(array, "shards", None) or array.chunks
    parts = _touched(sides, box, array.shape)
    if hasattr(array, "store_path"):
        names = [array.metadata.encode_chunk_key(index) for index, _ in parts]
        there = _exist([array.store_path / name for name in names])
    else:  # Zarr 2
        names = [array._chunk_key(index) for index, _ in parts]
        there = [name in array.chunk_store for name in names]
    return [
        (name, part) for name, (_, part), held in zip(names, parts, there, strict=True) if not held
    ]


def _exist(paths: list[Any]) -> list[bool]:
    from zarr.core.sync import sync  # as Zarr's own calls do

    async def exist() -> Any:
        return await asyncio.gather(*(path.exists() for path in paths))

    return list(sync(exist()))


def _absent_in_hdf5(dataset: Any, box: Box) -> Absent:
    """Return the chunks of a window that were never written to a data set."""
    sides = dataset.chunks
    if sides is None:
        return [] if dataset.id.get_storage_size() else [("all", box)]
    found = []
    for index, part in _touched(sides, box, dataset.shape):
        corner = tuple(i * side for i, side in zip(index, sides, strict=True))
        if dataset.id.get_chunk_info_by_coord(corner).byte_offset is None:
            found.append(("/".join(map(str, index)), part))
    return found


def _absent_in_raster(raster: Any, box: Box) -> Absent:
    """Return the blocks of a window (rows, columns, bands) that a sparse GeoTIFF lacks."""
    if raster.driver != "GTiff":
        return []
    found = []
    for band in range(box[2].start, box[2].stop):
        sides = (*raster.block_shapes[band], 1)
        shape = (raster.height, raster.width, raster.count)
        rows, columns = box[:2]
        for (y, x, _), part in _touched(sides, (rows, columns, slice(band, band + 1)), shape):
            offset = raster.get_tag_item(f"BLOCK_OFFSET_{x}_{y}", "TIFF", bidx=band + 1)
            if offset is None:
                found.append((f"{y}/{x} of band {band + 1}", part))
    return found


def _touched(
    sides: tuple[int, ...], box: Box, shape: tuple[int, ...]
) -> list[tuple[tuple[int, ...], Box]]:
    """Return the chunks that a window touches, each with the part of the window that it holds."""
    return [
        (
            tuple(part.start // side for part, side in zip(chunk, sides, strict=True)),
            common(chunk, box),
        )
        for chunk in Tiling(shape, sides).blocks(box)
    ]
