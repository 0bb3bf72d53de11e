"""TIFF files of any number of bands, any planar configuration and depth (needs tifffile).

Pillow misreads planar 16-bit bands, keeps only the upper eight bits of other 16-bit colours, and
drops bands after the third. It is used for single bands and 8-bit colours, tifffile for the rest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from densecrf.io.errors import FileFormatError, too_many_pixels
from densecrf.validation import check_fits, mention

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TiffPage", "is_tiff", "read_tiff_page", "tiff_size"]

PathLike = str | os.PathLike[str]

_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # of TIFF and of BigTIFF, either byte order
_GREY, _RGB = 1, 2  # photometric interpretations whose samples are the bands
_GREY_OF_PILLOW = ("uint8", "uint16", "int16", "uint32", "int32", "float32")
_GDAL_NODATA = 42113  # a tag
_ALPHA = (1, 2)  # extra samples that are declared to be opacity


@dataclass(frozen=True)
class TiffPage:
    """One full image of a TIFF file.

    Attributes
    ----------
    index
        Its index among all images of the file, overviews and masks included.
    pixels
        ``(H, W, bands)`` as stored; None where Pillow reads the page correctly.
    alpha
        The bands, from 0, that are declared as opacity.
    nodata
        The value of pixels without data, as GDAL writes it.
    """

    index: int
    pixels: NDArray[Any] | None
    alpha: tuple[int, ...]
    nodata: float | None = None


def is_tiff(file: IO[bytes]) -> bool:
    """Return whether a file begins with a TIFF signature; its position stays at the start."""
    beginning = file.read(4)
    file.seek(0)
    return beginning in _BEGINNINGS


def read_tiff_page(
    path: PathLike,
    file: IO[bytes],
    page: int | None,
    most_pixels: int | None,
    *,
    as_stored: bool = False,
) -> TiffPage:
    """Read one full image of a TIFF file; overviews and masks do not count.

    Pages that Pillow reads as they are meant are left to it, but for bands of one byte or more
    where these are wanted `as_stored`.

    Raises
    ------
    FileFormatError
        A ValueError that names the file: several pages and none chosen, truncated, missing strips
        or tiles, an unsupported colour space, or a compression without an installed decoder.
    """
    with _tifffile(path).TiffFile(file) as tiff:
        full = _full_pages(path, tiff)
        if page is None and len(full) > 1:
            choice = f"choose one with {mention('page', 0)} to {len(full) - 1}"
            raise FileFormatError(path, f"has {len(full)} pages; {choice}")
        if not 0 <= (page or 0) < len(full):
            raise FileFormatError(path, f"has no page {page}, only 0..{len(full) - 1}")
        chosen = full[page or 0]
        extra = [int(each) for each in chosen.extrasamples]
        colors = int(chosen.samplesperpixel) - len(extra)
        alpha = tuple(colors + at for at, kind in enumerate(extra) if kind in _ALPHA)
        bands = int(chosen.photometric) in (_GREY, _RGB) and chosen.bitspersample >= 8
        if not (as_stored and bands) and _is_for_pillow(chosen, len(extra) == len(alpha)):
            return TiffPage(int(chosen.index), None, alpha)
        if most_pixels is not None and chosen.imagelength * chosen.imagewidth > most_pixels:
            raise too_many_pixels(path, most_pixels)
        return TiffPage(int(chosen.index), _bands(path, chosen), alpha, _nodata(chosen))


def _nodata(page: Any) -> float | None:
    tag = page.tags.get(_GDAL_NODATA)
    try:
        return None if tag is None else float(str(tag.value).strip("\0 "))
    except ValueError:
        return None


def _is_for_pillow(page: Any, no_other_bands: bool) -> bool:
    """Return whether Pillow reads a page correctly, without further packages.

    It swaps the bytes of compressed big-endian numbers, reads int8 as uint8, and lacks other types.
    """
    if int(page.photometric) not in (_GREY, _RGB):  # palettes and others, by Pillow or not at all
        return bool(page.samplesperpixel == 1 or (page.bitspersample == 8 and no_other_bands))
    if page.parent.byteorder == ">" and (page.parent.is_bigtiff or page.bitspersample > 8):
        return False
    if page.samplesperpixel == 1:
        return page.bitspersample < 8 or str(page.dtype) in _GREY_OF_PILLOW
    return str(page.dtype) == "uint8" and no_other_bands


def tiff_size(path: PathLike, file: IO[bytes]) -> tuple[int, int, int]:
    """Return height, width and number of full images without decoding them."""
    with _tifffile(path).TiffFile(file) as tiff:
        full = _full_pages(path, tiff)
        return int(full[0].imagelength), int(full[0].imagewidth), len(full)


def _full_pages(path: PathLike, tiff: Any) -> list[Any]:
    full = [page for page in tiff.pages if not page.subfiletype & 5]  # neither reduced nor mask
    if not full or min(full[0].imagelength, full[0].imagewidth, full[0].samplesperpixel) < 1:
        raise FileFormatError(path, "holds no pixels: damaged, or not an image")
    return full


def _tifffile(path: PathLike) -> Any:
    try:
        import tifffile
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)}: reading TIFF needs tifffile: pip install 'densecrf[cli]'"
        ) from error
    return tifffile


def _bands(path: PathLike, page: Any) -> NDArray[Any]:
    """Return the bands of a page, (H, W, bands), as stored."""
    if int(page.photometric) not in (_GREY, _RGB):
        name = getattr(page.photometric, "name", page.photometric)
        raise FileFormatError(path, f"{name} colours are not supported; save it as RGB")
    if page.axes not in ("YX", "YXS", "SYX") or page.dtype is None or page.dtype.kind not in "uif":
        what = f"{page.bitspersample}-bit samples on axes {page.axes}"
        raise FileFormatError(path, f"{what} are not supported; save it as RGB or grey")
    check_fits("image", page.shape)
    size = page.parent.filehandle.size
    places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    if any(count == 0 for _, count in places):
        raise FileFormatError(path, "lacks some of its strips or tiles; fill them first")
    if any(offset + count > size for offset, count in places):
        raise FileFormatError(path, "broken or truncated image: it ends before its pixels do")
    try:
        pixels = page.asarray()
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        return _by_rasterio(path, page)
    if page.axes == "YX":
        return np.asarray(pixels[..., None])
    return pixels if page.axes == "YXS" else np.moveaxis(pixels, 0, -1)


def _by_rasterio(path: PathLike, page: Any) -> NDArray[Any]:
    """Return the bands of a page whose compression tifffile alone cannot read."""
    try:
        import rasterio
    except ImportError as error:
        raise FileFormatError(
            path,
            f"is compressed by {page.compression.name}; pip install imagecodecs or rasterio, or "
            "save it without compression",
        ) from error
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(f"GTIFF_DIR:{page.index + 1}:{os.path.abspath(path)}") as raster:  # noqa: PTH100
            return np.moveaxis(np.asarray(raster.read()), 0, -1)
