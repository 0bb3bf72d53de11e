"""Inputs: anything with a shape, a dtype and slices, read window by window.

A source can be sent to a worker, where it opens its file again; its data are not sent. Views of a
source have its axes in another order, or are resized.

Formats read missing chunks as a fill value, silently. Such chunks were empty, never written, or
lost; the store cannot tell which.
"""

import asyncio
import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io.arrays import map_npy
from densecrf.io.errors import FileFormatError
from densecrf.io.images import read_image, read_labels, white_of
from densecrf.io.opening import kind_of_file
from densecrf.io.unaries import read_known
from densecrf.io.volumes import NIFTI, is_dicom, read_volume
from densecrf.large.tiles import Box, Tiling, common, shape_of
from densecrf.model.reading import picked
from densecrf.model.resample import resize_window
from densecrf.validation import ArgumentError

__all__ = [
    "Source",
    "coarse",
    "file_of",
    "holds_data",
    "needs",
    "open_raster",
    "open_source",
    "raster_range",
    "resized",
    "valid",
    "whole",
    "with_axes",
]

PHOTOS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
ARCHIVES = (".npz", ".unary", ".c_unary")
TIFF = (".tif", ".tiff")

Array = npt.NDArray[Any]
#: The names of missing chunks, and the part of a window that each holds.
Absent = list[tuple[str, Box]]


@dataclass(frozen=True, eq=False)
class Source:
    """An array that is read window by window.

    Attributes
    ----------
    place : str
        Its path, or its kind of array.
    shape, dtype
        As of an array.
    name : str
        What distinguishes it from other inputs, as far as known without reading it.
    window : callable
        Returns a window of it.
    lacking : callable, optional
        Returns the chunks of a window that are missing, and the part of it that each holds.
    portable : bool
        Whether a worker can open it.
    nodata : float, optional
        The value of pixels without data.
    kind : str, optional
        The kind of scores, if an archive names it.
    raster : bool
        Whether rasterio reads it.
    origin : Source, optional
        The source of a view.
    content : callable, optional
        Returns a digest of an array in memory, which has no name.
    """

    place: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str
    window: Callable[[Box], Array]
    lacking: Callable[[Box], Absent] | None = None
    portable: bool = True
    nodata: float | None = None
    kind: str | None = None
    raster: bool = False
    origin: "Source | None" = None
    content: Callable[[], str] | None = None

    @property
    def identity(self) -> str:
        """The name that distinguishes it from other inputs; computed by reading an array."""
        return self.name if self.content is None else f"{self.name} {self.content()}"

    def read(self, name: str, box: Box) -> Array:
        """Return a window; errors name the source and the window."""
        try:
            return self.window(box)
        except (MemoryError, ImportError, ArgumentError):
            raise
        except Exception as error:  # each library raises its own
            where = ", ".join(f"{part.start}:{part.stop}" for part in box)
            reason = f"cannot be read at [{where}]: {str(error) or type(error).__name__}"
            raise OSError(f"{name}: {self.place} {reason}") from error

    def absent(self, box: Box) -> Absent:
        """Return the chunks of a window that are missing, and the part of it that each holds."""
        return [] if self.lacking is None else self.lacking(box)


def open_source(name: str, given: Any, *, native: bool = True) -> Source:
    """Return a source for a path or an array.

    Parameters
    ----------
    name : str
        The argument's name, for errors.
    given : path-like or array
        ``.npy``, ``.zarr``, ``.tif`` (and what else rasterio reads), ``.nii``, ``.h5:dataset``, a
        DICOM file, which stands for its series; or anything with shape, dtype and slices.
    native : bool
        Whether 16-bit photographs keep their values; otherwise they are scaled to 0 to 255.
    """
    if isinstance(given, (str, os.PathLike)):
        return _from_path(name, os.fspath(given), native)
    if isinstance(given, np.memmap) and isinstance(given.filename, (str, os.PathLike)):
        if given.flags.c_contiguous and type(given.base) is not np.memmap:
            path = os.fspath(given.filename)
            return _mapped(path, given.dtype, given.shape, int(given.offset), "C")
        return _of_array(given, portable=False)
    if all(hasattr(given, each) for each in ("shape", "dtype", "__getitem__")):
        by_itself = type(given).__module__.split(".")[0] in ("zarr", "dask", "xarray")
        return _of_array(given, portable=by_itself)
    if isinstance(given, (list, tuple)):
        return _of_array(np.asarray(given), portable=False)
    raise ArgumentError(name, ..., f"{type(given).__name__} is neither a path nor an array")


def _from_path(name: str, path: str, native: bool) -> Source:
    file, colon, inner = path.partition(".h5:")
    if colon:
        return _in_file(f"{file}.h5", partial(_use_dataset, f"{file}.h5", inner), inner)
    if not Path(path).exists():
        raise FileNotFoundError(2, f"{name}: no such file", path)
    lower = path.rstrip("/").lower()
    if Path(path).is_dir():
        return _in_file(path, partial(_use_zarr, path))
    kind = kind_of_file(path)
    if kind is not None:  # opening a pipe would block
        raise FileFormatError(path, f"is {kind}, not a file")
    if lower.endswith(".npy"):
        shape, fortran, dtype, offset = map_npy(path)
        return _mapped(path, dtype, shape, offset, "F" if fortran else "C")
    if lower.endswith((*PHOTOS, *ARCHIVES)):
        archive = lower.endswith(ARCHIVES)
        found = _in_file(path, partial(_use_whole, path, name, native, _stamp(path)), str(native))
        return replace(found, kind=read_known(path)[1] if archive else None)
    if lower.endswith(NIFTI):
        return _in_file(path, partial(_use_volume, path))
    if is_dicom(Path(path)):
        return _in_file(path, partial(_use_series, path, _stamp(path)))
    return _raster(path, name)


# --- formats --------------------------------------------------------------------------------------


def _of_array(array: Any, *, portable: bool) -> Source:
    """Return an array in memory, or a lazy one: Zarr, Dask, xarray, HDF5."""
    place, dtype = type(array).__name__, np.dtype(array.dtype)
    shape = tuple(int(side) for side in array.shape)
    content = partial(_digest, array) if isinstance(array, np.ndarray) else None
    name = f"{place} {shape} {dtype} {'' if content else getattr(array, 'name', '')}"
    window, lacking = partial(_slice, array), partial(_absent_in_array, array)
    return Source(place, shape, dtype, name, window, lacking, portable, content=content)


def _digest(array: Array) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in array:
        digest.update(np.ascontiguousarray(row).tobytes())
    return digest.hexdigest()


def _slice(array: Any, box: Box) -> Array:
    return np.asarray(array[box])


def _mapped(path: str, *mapping: Any) -> Source:
    """Return a file that numpy.memmap reads; it is opened for each window."""
    dtype, shape, _, _ = mapping
    return Source(path, shape, dtype, _stamp(path), partial(_map, path, *mapping))


def _map(path: str, dtype: Any, shape: Any, offset: int, order: Any, box: Box) -> Array:
    array: Any = np.memmap(path, dtype, "r", offset, shape, order)
    return np.array(array[box])


def _in_file(path: str, use: Callable[[Callable[[Any], Any]], Any], what: str = "") -> Source:
    """Return an array in a file, which `use` opens and passes to a function."""
    try:
        sides, dtype = use(lambda array: (array.shape, np.dtype(array.dtype)))
    except (MemoryError, ImportError, ArgumentError):
        raise
    except Exception as error:  # each library raises its own
        raise FileFormatError(path, f"cannot be read ({error})") from error
    shape = tuple(int(side) for side in sides)
    if not shape or dtype.kind not in "fiub":
        raise FileFormatError(path, f"holds values of type {dtype}; numbers are needed")
    folder = Path(path).is_dir()
    identity = f"{Path(path).resolve()} {shape} {dtype}" if folder else f"{_stamp(path)} {what}"
    window, lacking = partial(_use_window, use), partial(_use_absent, use)
    return Source(path, shape, dtype, identity, window, lacking)


def _use_window(use: Any, box: Box) -> Array:
    return np.asarray(use(lambda array: array[box]))


def _use_absent(use: Any, box: Box) -> Absent:
    found: Absent = use(lambda array: _absent_in_array(array, box))
    return found


def _use_zarr(path: str, function: Callable[[Any], Any]) -> Any:
    """Use a Zarr array in a folder; of an OME-Zarr image its full resolution."""
    opened = needs("zarr", path).open(path, mode="r")
    if not hasattr(opened, "shape"):
        image = opened.attrs.get("multiscales") or opened.attrs.get("ome", {}).get("multiscales")
        if not image:
            raise FileFormatError(path, "is a group; give one of its arrays")
        opened = opened[image[0]["datasets"][0]["path"]]
    return function(opened)


def _use_volume(path: str, function: Callable[[Any], Any]) -> Any:
    """Use a NIfTI file."""
    return function(needs("nibabel", path).load(path).dataobj)


def _use_series(path: str, stamp: str, function: Callable[[Any], Any]) -> Any:
    """Use the series that a DICOM file belongs to."""
    return function(_read_series(path, stamp))


@lru_cache(maxsize=1)
def _read_series(path: str, stamp: str) -> Array:
    del stamp
    volume = read_volume(path)
    values = volume.meant(volume.values)
    values.setflags(write=False)
    return values


def _use_dataset(path: str, name: str, function: Callable[[Any], Any]) -> Any:
    """Use a data set of an HDF5 file."""
    with needs("h5py", path).File(path, "r") as file:
        if name not in file:
            raise FileFormatError(path, f"has no data set {name!r}")
        return function(file[name])


def _use_whole(
    path: str, role: str, native: bool, stamp: str, function: Callable[[Any], Any]
) -> Any:
    """Use a file of a format that has no windows: a photograph, an archive of arrays."""
    return function(_read_whole(path, role, native, stamp))


@lru_cache(maxsize=2)
def _read_whole(path: str, role: str, native: bool, stamp: str) -> Array:
    """Read a file by the readers of images in memory; a new `stamp` means a changed file."""
    del stamp
    if path.lower().endswith(ARCHIVES):
        values = read_known(path)[0]
    else:
        values = read_image(path, native=native) if role == "image" else read_labels(path)
    values.setflags(write=False)
    return values


def _raster(path: str, role: str) -> Source:
    """Return a raster, (height, width, bands), or (height, width) if it has one band."""
    try:
        with open_raster(path) as raster:
            bands = tuple(
                i
                for i, meaning in enumerate(raster.colorinterp, 1)
                if role != "image" or meaning.name != "alpha"
            )
            shape = (raster.height, raster.width, *([len(bands)] if len(bands) > 1 else []))
            dtype, nodata = np.dtype(raster.dtypes[0]), raster.nodata
    except needs("rasterio", path).errors.RasterioError as error:
        raise FileFormatError(path, f"cannot be read ({error})") from error
    window, lacking = partial(_raster_window, path, bands), partial(_absent_in_raster, path)
    return Source(path, shape, dtype, _stamp(path), window, lacking, nodata=nodata, raster=True)


def _raster_window(path: str, bands: tuple[int, ...], box: Box) -> Array:
    rows, columns, *some = box
    window = ((rows.start, rows.stop), (columns.start, columns.stop))
    with open_raster(path) as raster:
        values = np.asarray(raster.read(list(bands[some[0]]) if some else bands[0], window=window))
    return np.moveaxis(values, 0, -1) if some else values


def open_raster(path: Any, mode: str = "r", **profile: Any) -> Any:
    """Open a raster, with or without a georeference."""
    rasterio = needs("rasterio", str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        return rasterio.open(path, mode, **profile)


def needs(module: str, path: str, extra: str = "large") -> Any:
    """Import the optional library that reads a file."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{path}: needs {module}, which is not installed; pip install 'densecrf[{extra}]'",
            name=module,
        ) from error


def file_of(path: str) -> str:
    """Return the file of a path, which may name a data set in it."""
    file, colon, _ = path.partition(".h5:")
    return f"{file}.h5" if colon else path


def _stamp(path: str) -> str:
    """Return the path with the size and the time of the last change."""
    found = Path(path).stat()
    return f"{Path(path).resolve()} {found.st_size} {found.st_mtime_ns}"


def whole(name: str, source: Source, *, native: bool = True) -> Array:
    """Read a whole view in the order of its own axes; `native` as for `open_source`."""
    while source.origin is not None:
        source = source.origin
    if name == "image" and source.raster and source.place.lower().endswith(TIFF):
        try:
            return read_image(source.place, native=native)
        except FileFormatError as error:
            if not error.too_many_pixels:
                raise
    return source.read(name, tuple(slice(0, side) for side in source.shape))


def raster_range(source: Source, values: Array) -> tuple[float, float] | None:
    """Return black and white of a 16-bit raster with these values, as for other photographs."""
    if not source.raster or values.dtype != np.uint16:
        return None
    return 0.0, float(white_of(source.place, values))


# --- views ----------------------------------------------------------------------------------------


def with_axes(source: Source, axes: tuple[int | None, ...]) -> Source:
    """Return a source with some axes in another order; the others, of length one, are dropped.

    None adds an axis of length one.
    """
    return replace(
        source,
        shape=tuple(1 if axis is None else source.shape[axis] for axis in axes),
        name=f"{source.name} {axes}",
        window=partial(_window_of_axes, source, axes),
        lacking=partial(_absent_of_axes, source, axes),
        origin=source,
    )


def _window_of_axes(source: Source, axes: tuple[int | None, ...], box: Box) -> Array:
    own = tuple(axis for axis in axes if axis is not None)
    return picked(source.window(_box_of_axes(source, axes, box)), own).reshape(shape_of(box))


def _absent_of_axes(source: Source, axes: tuple[int | None, ...], box: Box) -> Absent:
    return [
        (name, tuple(slice(0, 1) if axis is None else part[axis] for axis in axes))
        for name, part in source.absent(_box_of_axes(source, axes, box))
    ]


def _box_of_axes(source: Source, axes: tuple[int | None, ...], box: Box) -> Box:
    theirs = [slice(0, 1)] * len(source.shape)
    for part, axis in zip(box, axes, strict=True):
        if axis is not None:
            theirs[axis] = part
    return tuple(theirs)


def resized(source: Source, shape: tuple[int, ...]) -> Source:
    """Return scores (labels, *grid) of a lower resolution, resized to a plane image."""
    return replace(
        source,
        shape=shape,
        dtype=np.dtype(np.float64 if source.dtype == np.float64 else np.float32),
        name=f"{source.name} {shape}",
        window=partial(_window_resized, source, shape),
        lacking=partial(_absent_resized, source),
        nodata=None,
        origin=source,
    )


def _window_resized(source: Source, shape: tuple[int, ...], box: Box) -> Array:
    labels, *places = box
    return resize_window(
        lambda part: source.window((labels, *part)), source.shape[1:], shape[1:], tuple(places)
    )


def _absent_resized(source: Source, box: Box) -> Absent:
    """Return the missing chunks, each for the whole window, since its part is unknown."""
    every = (box[0], *(slice(0, side) for side in source.shape[1:]))
    return [(name, box) for name, _ in source.absent(every)]


def coarse(mask: Source, shape: tuple[int, ...]) -> Source | None:
    """Return a mask of a reduced grid, enlarged to the whole grid.

    None unless the mask's grid is the whole one reduced by one factor of at least 2, along some or
    all axes, rounded up or down.
    """
    reduced = mask.shape
    if len(reduced) != len(shape) or not all(reduced):
        return None
    sides = [each for each in zip(shape, reduced, strict=True) if each[0] != each[1]]
    least = max((side / (small + 1) for side, small in sides), default=1.0)
    most = min((side / max(small - 1, 1e-9) for side, small in sides), default=1.0)
    if least >= most or any(2 * small > side + 1 for side, small in sides):
        return None
    window = partial(_window_of_coarse, mask, shape)
    return replace(mask, shape=shape, window=window, lacking=None, origin=mask)


def _window_of_coarse(source: Source, shape: tuple[int, ...], box: Box) -> Array:
    places = [
        (2 * np.arange(part.start, part.stop) + 1) * small // (2 * side)  # of pixels' centres
        for part, side, small in zip(box, shape, source.shape, strict=True)
    ]
    window = tuple(slice(int(each[0]), int(each[-1]) + 1) for each in places)
    return source.window(window)[np.ix_(*(each - each[0] for each in places))]


def valid(image: Source, mask: Source | None) -> Source:
    """Return which pixels of an image (*grid, channels) hold data and are inside a mask."""
    return replace(
        image,
        shape=image.shape[:-1],
        dtype=np.dtype(bool),
        content=partial(_identity_of_valid, image, mask),
        window=partial(_window_of_valid, image, mask),
        lacking=None,
        portable=image.portable and (mask is None or mask.portable),
        origin=image,
    )


def _identity_of_valid(image: Source, mask: Source | None) -> str:
    return f"{image.identity} {'' if mask is None else mask.identity}"


def _window_of_valid(image: Source, mask: Source | None, box: Box) -> Array:
    held = holds_data(image.window((*box, slice(0, image.shape[-1]))), image.nodata, -1)
    if mask is not None:
        held &= np.asarray(mask.window(box)).reshape(held.shape).astype(bool)
    return held


def holds_data(
    values: Array, nodata: float | None, axis: int | tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """Return which pixels hold data: not all of their channels along an axis are nodata."""
    if nodata is None:
        return np.ones(np.delete(values.shape, axis), bool)
    empty = np.isnan(values) if np.isnan(nodata) else values == nodata
    return ~np.asarray(empty.all(axis))


# --- missing chunks ------------------------------------------------------------------------------


def _zarr_within(array: Any) -> Any:
    """Return the Zarr array behind an array: itself, or one that Dask or xarray reads unchanged."""
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
    """Return the chunks (of sharded arrays, shards) of a window that an array lacks."""
    if type(array).__module__.startswith("h5py"):
        return _absent_in_hdf5(array, box)
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


def _absent_in_raster(path: str, box: Box) -> Absent:
    """Return the blocks of a window (rows, columns[, bands]) that a sparse GeoTIFF lacks."""
    rows, columns, bands = (*box, slice(0, 1))[:3]
    found = []
    with open_raster(path) as raster:
        if raster.driver != "GTiff":
            return []
        shape = (raster.height, raster.width)
        for band in range(bands.start, bands.stop):
            for (y, x), part in _touched(raster.block_shapes[band], (rows, columns), shape):
                if raster.get_tag_item(f"BLOCK_OFFSET_{x}_{y}", "TIFF", bidx=band + 1) is None:
                    where = (*part, slice(band, band + 1))[: len(box)]
                    found.append((f"{y}/{x} of band {band + 1}", where))
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
