"""Where labels go: ``.npy``, Zarr and GeoTIFF files, written block by block, seen when whole."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from densecrf.io.atomic import atomic_writer
from densecrf.large.sources import Source, needs, open_raster, open_source
from densecrf.large.tiles import Box, Tiling
from densecrf.validation import ArgumentError

__all__ = ["SUFFIXES", "label_dtype", "open_output", "write_output"]

SUFFIXES = (".npy", ".zarr", ".tif", ".tiff")
OVERVIEWS = 512  # pixels of a side that the smallest overview may have

Block = Callable[[Box], npt.NDArray[Any]]


def label_dtype(n_labels: int) -> np.dtype[Any]:
    """Return the smallest dtype that holds all labels and the value of pixels without one."""
    return np.dtype(np.uint8 if n_labels < 255 else np.uint16)


def write_output(path: Path, tiling: Tiling, block: Block, n_labels: int, like: str | None) -> None:
    """Write a labelling.

    Parameters
    ----------
    path : Path
        One of `SUFFIXES`.
    tiling : Tiling
        Its blocks are written one after the other.
    block : callable
        Gives the labels of a block.
    n_labels : int
        Number of labels.
    like : str or None
        A raster whose place on Earth the labels have.
    """
    dtype = label_dtype(n_labels)
    suffix = path.suffix.lower()
    whole = tuple(slice(0, side) for side in tiling.shape)
    blocks = ((box, block(box).astype(dtype)) for box in tiling.blocks(whole))
    if suffix == ".npy":
        _write_npy(path, tiling.shape, dtype, blocks)
    elif suffix == ".zarr":
        _write_zarr(path, tiling, dtype, blocks)
    elif suffix in (".tif", ".tiff"):
        _write_raster(path, tiling, dtype, blocks, like)
    else:
        raise ArgumentError("out", str(path), f"give a name that ends in {', '.join(SUFFIXES)}")


def open_output(path: Path) -> Any:
    """Return the labels of a written file, read where they are sliced."""
    if path.suffix.lower() == ".npy":
        return np.load(path, mmap_mode="r")
    if path.suffix.lower() == ".zarr":
        return needs("zarr", str(path)).open_array(str(path), mode="r")
    return _RasterLabels(open_source("out", path))


class _RasterLabels:
    """The only band of a raster."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape, self.dtype = source.shape[:2], source.dtype

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        given = key if isinstance(key, tuple) else (key,)
        rows, columns = [*given, slice(None), slice(None)][:2]
        box = tuple(
            slice(*each.indices(side)[:2])
            for each, side in zip((rows, columns), self.shape, strict=True)
        )
        steps = tuple(slice(None, None, each.step) for each in (rows, columns))
        return self._source.read((*box, slice(0, 1)))[..., 0][steps]

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[:, :], dtype)


Blocks = Iterator[tuple[Box, npt.NDArray[Any]]]


def _write_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Blocks) -> None:
    with atomic_writer(path) as file:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, header)
        file.flush()
        os.posix_fallocate(file.fileno(), file.tell(), int(np.prod(shape)) * dtype.itemsize) if (
            hasattr(os, "posix_fallocate")
        ) else file.truncate(file.tell() + int(np.prod(shape)) * dtype.itemsize)
        array = np.memmap(file.name, dtype, "r+", file.tell(), shape)
        for box, values in blocks:
            array[box] = values
        array.flush()


def _write_zarr(path: Path, tiling: Tiling, dtype: np.dtype[Any], blocks: Blocks) -> None:
    zarr = needs("zarr", str(path))
    with _aside(path) as folder:
        array = zarr.open_array(
            str(folder),
            mode="w",
            shape=tiling.shape,
            dtype=dtype,
            chunks=tiling.block,
            fill_value=np.iinfo(dtype).max,
        )
        for box, values in blocks:
            array[box] = values


def _write_raster(
    path: Path, tiling: Tiling, dtype: np.dtype[Any], blocks: Blocks, like: str | None
) -> None:
    rasterio = needs("rasterio", str(path))
    if len(tiling.shape) != 2:
        raise ArgumentError("out", str(path), "a raster has two axes; give .npy or .zarr")
    place: dict[str, Any] = {}
    if like is not None:
        with open_raster(like) as raster:
            place = {"crs": raster.crs, "transform": raster.transform}
    height, width = tiling.shape
    with _aside(path) as temporary:
        profile = {
            "driver": "GTiff",
            "height": height,
            "width": width,
            "count": 1,
            "dtype": str(dtype),
            "nodata": int(np.iinfo(dtype).max),
            "tiled": True,
            "blockxsize": 512,
            "blockysize": 512,
            "compress": "deflate",
            "BIGTIFF": "IF_SAFER",
            **place,
        }
        with open_raster(temporary, "w", **profile) as raster:
            for (rows, columns), values in blocks:
                window = ((rows.start, rows.stop), (columns.start, columns.stop))
                raster.write(values, 1, window=window)
            factors: list[int] = []
            while max(height, width) / 2 ** (len(factors) + 1) >= OVERVIEWS:
                factors.append(2 ** (len(factors) + 1))
            if factors:
                raster.build_overviews(factors, rasterio.enums.Resampling.mode)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Give a temporary name beside the final one, which takes its place at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}{path.suffix}")
    try:
        yield temporary
        if path.is_dir():
            shutil.rmtree(path)
        temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)
