"""Chunks that a store lacks: its format reads them as a fill value, without a word.

They were left out because they hold nothing else, or never written, or lost on the way; the store
does not tell which.
"""

import asyncio
from typing import Any

from densecrf.large.tiles import Box, Tiling, common

__all__ = ["absent_in_array", "absent_in_hdf5", "absent_in_raster", "zarr_within"]

Absent = list[tuple[str, Box]]


def zarr_within(array: Any) -> Any:
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


def absent_in_array(array: Any, box: Box) -> Absent:
    """Return the chunks (of sharded arrays, shards) of a window that a Zarr array lacks."""
    array = zarr_within(array)
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


def absent_in_hdf5(dataset: Any, box: Box) -> Absent:
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


def absent_in_raster(raster: Any, box: Box) -> Absent:
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
