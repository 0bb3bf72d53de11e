"""Outputs: ``.npy``, Zarr and GeoTIFF files, written block by block, visible when complete.

Labels inside an OME-Zarr image are ``image.zarr/labels/NAME``, with metadata of NGFF 0.4 and 0.5;
the image lists them when they are complete.
"""

import math
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
from densecrf.io.opening import identities, kind_of_file
from densecrf.large.sources import Source, file_of, needs, open_raster, open_source
from densecrf.large.tiles import Box, Tiling
from densecrf.validation import ArgumentError

__all__ = ["SUFFIXES", "checked_output", "image_of", "open_output", "write_output"]

SUFFIXES = (".npy", ".zarr", ".tif", ".tiff")
OURS = "densecrf labels"  # attribute of the Zarr arrays that are written here
ARRAY = "0"  # of OME-Zarr labels: the full resolution, the only one
OVERVIEWS = 512  # pixels of a side that the smallest overview may have

Block = Callable[[Box], npt.NDArray[Any]]


def checked_output(out: Any, *inputs: Any) -> Path | None:
    """Return the path of the output, or refuse one whose content would be lost.

    No input, path or array, may be `out`, contain it or lie in it.
    """
    if out is None:
        return None
    path = Path(out)
    image = image_of(path)
    if path.suffix.lower() not in SUFFIXES and image is None:
        remedy = f"give a name that ends in {', '.join(SUFFIXES)}, or one in an OME-Zarr's labels/"
        raise ArgumentError("out", str(out), remedy)
    if image is not None:
        check_image(image)
    for file in filter(None, map(_file_of, inputs)):
        if set(identities(path)) & set(identities(file)):
            raise ArgumentError("out", str(out), f"is the input {file}; give another name")
        whole, part = Path(os.path.realpath(path)), Path(os.path.realpath(file))
        own = image is not None and part == Path(os.path.realpath(image))
        if (whole in part.parents or part in whole.parents) and not own:
            raise ArgumentError("out", str(out), f"overlaps with the input {file}")
    if path.exists() and (kind := kind_of_file(path)) and not _is_ours(path):
        remedy = f"is {kind} that densecrf did not write; give another name, or remove it"
        raise ArgumentError("out", str(out), remedy)
    return path


def _file_of(given: Any) -> Path | None:
    """Return the file or folder of an input, if it has one."""
    if isinstance(given, (str, os.PathLike)):
        return Path(file_of(os.fspath(given)))
    for own in (given, getattr(given, "store", None)):
        for place in ("filename", "root", "path"):
            if isinstance(found := getattr(own, place, None), (str, os.PathLike)) and found:
                return Path(found)
    return None


def _is_ours(path: Path) -> bool:
    """Return whether a folder is a Zarr array or group of our labels, which may be replaced."""
    if path.suffix.lower() != ".zarr" and image_of(path) is None:
        return False
    try:
        return OURS in needs("zarr", str(path)).open(str(path), mode="r").attrs
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_output(path: Path, tiling: Tiling, block: Block, dtype: Any, like: str | None) -> None:
    """Write the labels that `block` returns, block by block.

    They have the georeference of the raster `like`, if it has one.
    """
    whole = tuple(slice(0, side) for side in tiling.shape)
    blocks = ((box, block(box).astype(dtype)) for box in tiling.blocks(whole))
    image, suffix = image_of(path), path.suffix.lower()
    if suffix == ".npy":
        _write_npy(path, tiling.shape, dtype, blocks)
    elif suffix in (".tif", ".tiff"):
        _write_raster(path, tiling, dtype, blocks, like)
    else:
        with _aside(path) as folder:
            array = _new_zarr(folder, tiling, dtype, image, path.name)
            for box, values in blocks:
                array[box] = values
        if image is not None:
            list_label(image, path.name)


def open_output(path: Path) -> Any:
    """Return the labels of a written file, read when they are sliced."""
    if path.suffix.lower() == ".npy":
        return np.load(path, mmap_mode="r")
    if path.suffix.lower() == ".zarr" or image_of(path) is not None:
        array = path if path.suffix else path / ARRAY
        return needs("zarr", str(path)).open_array(str(array), mode="r")
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
        return self._source.read("out", box)[steps]

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[:, :], dtype)


Blocks = Iterator[tuple[Box, npt.NDArray[Any]]]


def _write_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Blocks) -> None:
    with atomic_writer(path) as file:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, header)
        file.flush()
        size = math.prod(shape) * dtype.itemsize
        if hasattr(os, "posix_fallocate"):  # fails early on a full disk
            os.posix_fallocate(file.fileno(), file.tell(), size)
        else:
            file.truncate(file.tell() + size)
        array = np.memmap(file.name, dtype, "r+", file.tell(), shape)
        for box, values in blocks:
            array[box] = values
        array.flush()


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
    """Yield a temporary name beside the final one; rename it at the end."""
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


# --- OME-Zarr -------------------------------------------------------------------------------------


def image_of(path: Path) -> Path | None:
    """Return the OME-Zarr image of a path to labels, or None."""
    found = path.suffix == "" and path.parent.name == "labels" and path.parent.parent.is_dir()
    return path.parent.parent if found else None


def check_image(image: Path) -> None:
    """Refuse a folder that is not an OME-Zarr image."""
    try:
        group = needs("zarr", str(image)).open_group(str(image), mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError("out", str(image / "labels"), "is not in an OME-Zarr image") from error
    _multiscales(image, group)


def _new_zarr(
    folder: Path, tiling: Tiling, dtype: np.dtype[Any], image: Path | None, name: str
) -> Any:
    """Return an empty Zarr array: alone, or in a group with an image's axes and scale."""
    zarr = needs("zarr", str(folder))
    made = {
        "shape": tiling.shape,
        "dtype": dtype,
        "chunks": tiling.block,
        "fill_value": np.iinfo(dtype).max,
    }
    if image is None:
        return zarr.open_array(str(folder), mode="w", attributes={OURS: True}, **made)
    of_image = zarr.open_group(str(image), mode="r")
    version, multiscales = _multiscales(image, of_image)
    axes, scale = _space(multiscales, len(tiling.shape))
    transformations = [{"type": "scale", "scale": scale}]
    datasets = [{"path": ARRAY, "coordinateTransformations": transformations}]
    own: dict[str, Any] = {"name": name, "axes": axes, "datasets": datasets}
    label: dict[str, Any] = {"source": {"image": "../../"}}
    group = zarr.open_group(str(folder), mode="w", zarr_format=of_image.metadata.zarr_format)
    if version == "0.4":
        own["version"] = label["version"] = version
        group.attrs.update({"multiscales": [own], "image-label": label, OURS: True})
    else:
        known = {"version": version, "multiscales": [own], "image-label": label}
        group.attrs.update({"ome": known, OURS: True})
    return group.create_array(ARRAY, **made)


def list_label(image: Path, name: str) -> None:
    """Add a name to the image's list of labels."""
    zarr = needs("zarr", str(image))
    of_image = zarr.open_group(str(image), mode="r+")
    version, _ = _multiscales(image, of_image)
    labels = of_image.require_group("labels")
    ome = dict(labels.attrs.get("ome", {}))
    known = labels.attrs.get("labels", []) if version == "0.4" else ome.get("labels", [])
    listed = sorted({*known, name})
    if version == "0.4":
        labels.attrs["labels"] = listed
    else:
        labels.attrs["ome"] = {**ome, "version": version, "labels": listed}


def _multiscales(image: Path, group: Any) -> tuple[str, dict[str, Any]]:
    """Return the version of the metadata, and those of the first image."""
    newer = group.attrs.get("ome")
    found = newer.get("multiscales") if newer else group.attrs.get("multiscales")
    if not found:
        raise ArgumentError("out", str(image / "labels"), "is not in an OME-Zarr image")
    return (newer["version"] if newer else "0.4"), found[0]


def _space(multiscales: dict[str, Any], count: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the axes of space and their scale, of the full resolution."""
    axes = multiscales.get("axes", [])
    space = [i for i, axis in enumerate(axes) if axis.get("type") == "space"]
    if len(space) != count:
        return [{"name": name, "type": "space"} for name in "zyx"[-count:]], [1.0] * count
    scale = [1.0] * len(axes)
    for each in multiscales["datasets"][0].get("coordinateTransformations", []):
        scale = each.get("scale", scale)
    return [axes[i] for i in space], [float(scale[i]) for i in space]
