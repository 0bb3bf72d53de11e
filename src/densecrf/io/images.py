"""Read photographs and label maps, write label maps and overlays (needs Pillow, tifffile)."""

from __future__ import annotations

import os
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from densecrf.io.atomic import atomic_writer
from densecrf.io.errors import FileFormatError, too_many_pixels
from densecrf.io.opening import open_regular
from densecrf.io.palettes import Palette, get_palette
from densecrf.io.tiff import is_tiff, read_tiff_page, tiff_size
from densecrf.validation import ArgumentError, check_integer, mention, warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = [
    "IMAGE_SUFFIXES",
    "image_size",
    "overlay",
    "read_bands",
    "read_image",
    "read_labels",
    "shown_colors",
    "white_of",
    "write_image",
    "write_labels",
]

PathLike = str | os.PathLike[str]

#: Suffixes of images in a folder.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")

# Conversions of Pillow's modes. Alpha is dropped, not composited: compositing would change the
# stored colours.
_TO_MODE = {
    "1": "L",
    "L": "L",
    "LA": "L",
    "La": "LA",
    "P": "RGB",
    "PA": "RGB",
    "RGB": "RGB",
    "RGBA": "RGB",
    "RGBX": "RGB",
    "RGBa": "RGBA",
    "CMYK": "RGB",
    "YCbCr": "RGB",
}
TWELVE_BITS = 2**12 - 1
_DEEP_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "reading and writing images needs Pillow: pip install densecrf[cli]"
        ) from error
    return Image


def read_image(
    path: PathLike,
    *,
    page: int | None = None,
    bands: int | Sequence[int] | None = None,
    native: bool = False,
) -> NDArray[Any]:
    """Read a PNG, JPEG, BMP, TIFF or other image that Pillow or tifffile reads.

    Colour is returned as ``(H, W, 3)``, grey as ``(H, W)`` and a TIFF of other bands as
    ``(H, W, bands)``. Orientation tags are not applied, so that the pixels match score maps made
    from the same file.

    * 8-bit images, palettes included: uint8.
    * 16-bit grey, and all bands of 16-bit TIFF files: float32 scaled to 0 to 255, so that colour
      standard deviations mean the same as for 8-bit images; with ``native`` the stored uint16. If
      all values are below 4096, they are read as 12-bit, with a warning.
    * 16-bit colour in other formats: uint8, since Pillow keeps only the upper eight bits.
    * Floating-point numbers (TIFF): float32 as stored. Bands of other integers: as stored.
    * An alpha channel is dropped, not composited. All other bands of a TIFF file are kept.

    Parameters
    ----------
    path
        The file.
    page
        The page of a multi-page file, from 0. Such files are refused without it.
    bands
        The bands to read, in this order, from 1 as in GDAL: ``(4, 3, 2)``. Alpha is a band.
    native
        Keep 16-bit values as stored.

    Raises
    ------
    OSError
        When the file is missing or cannot be opened.
    FileFormatError
        A ValueError that names the file, when it is not an image, is truncated, has several
        pages, or exceeds Pillow's limit on the number of pixels.
    """
    decoded = _decode(path, page, as_labels=False, alpha=bands is not None)
    values = decoded.pixels if bands is None else _chosen(path, decoded.pixels, bands)
    if values.dtype == np.uint16 and not native:
        return np.asarray(values * np.float32(255 / white_of(path, values)), np.float32)
    return values


def read_bands(path: PathLike, *, page: int | None = None) -> tuple[NDArray[Any], float | None]:
    """Return all bands of an image as stored, (H, W, bands), and the value that means no data.

    An alpha channel is a band, and values may be of any type and scale, or NaN: for those who
    choose bands and what is black and white.

    Raises
    ------
    OSError, FileFormatError
        As `read_image`.
    """
    with _opened(path) as file:
        if is_tiff(file):
            found = read_tiff_page(path, file, page, _most_pixels(), as_stored=True)
            if found.pixels is not None:
                native = found.pixels.dtype.newbyteorder("=")
                return np.ascontiguousarray(found.pixels, native), found.nodata
    pixels = _decode(path, page, as_labels=False, alpha=True).pixels
    return pixels if pixels.ndim == 3 else pixels[..., None], None


def _chosen(path: PathLike, pixels: NDArray[Any], bands: int | Sequence[int]) -> NDArray[Any]:
    """Return the chosen bands in their order; a single one as grey."""
    stored = pixels[..., None] if pixels.ndim == 2 else pixels
    count = stored.shape[-1]
    wanted = [bands] if isinstance(bands, (int, np.integer)) else list(bands)
    index = [check_integer("bands", band, at_least=1) - 1 for band in wanted]
    if not index or max(index) >= count:
        raise ArgumentError("bands", wanted, f"{os.fspath(path)} has {count} bands: 1 to {count}")
    return np.ascontiguousarray(stored[..., index[0] if len(index) == 1 else index])


def white_of(path: PathLike, values: NDArray[np.uint16]) -> int:
    """Return the value of white in 16-bit pixels, which may hold 12-bit or 8-bit values."""
    largest = int(values.max())
    if not 255 < largest <= TWELVE_BITS:
        return 65535 if largest > 255 else 255
    what = (
        f"{os.fspath(path)} has 16-bit pixels with values up to {largest} and is read as 12-bit, "
        f"with white at {TWELVE_BITS}. If white is another value, set it, for example with "
        f"{mention('image_range', (0, 65535))}"
    )
    warn("image", what)
    return TWELVE_BITS


@dataclass(frozen=True)
class _Decoded:
    pixels: NDArray[Any]  # (H, W) or (H, W, bands)
    mode: str  # Pillow's mode, or the number and type of the bands


def _decode(path: PathLike, page: int | None, *, as_labels: bool, alpha: bool = False) -> _Decoded:
    """Decode one page, with its alpha channel or without."""
    with _opened(path) as file:
        if is_tiff(file):
            return _decode_tiff(path, file, page, as_labels, alpha)
        with _pillow().open(file) as image:
            _seek(path, image, page)
            mode: str = image.mode
            return _Decoded(_pixels(path, image, as_labels, alpha), mode)


def image_size(path: PathLike) -> tuple[int, int, int]:
    """Return height, width and number of pages of an image without decoding it.

    Raises
    ------
    OSError, FileFormatError
        As `read_image`.
    """
    with _opened(path) as file:
        if is_tiff(file):
            return tiff_size(path, file)
        with _pillow().open(file) as image:
            return image.height, image.width, _page_count(image)


@contextmanager
def _opened(path: PathLike) -> Iterator[IO[bytes]]:
    """Open an image's file; errors of its decoders become a FileFormatError."""
    pillow = _pillow()
    # Opened here, so that errors of the file system are raised unchanged.
    with open_regular(path) as file:
        try:
            yield file
        except (FileFormatError, ImportError):
            raise
        except pillow.DecompressionBombError as error:
            raise too_many_pixels(path, 2 * pillow.MAX_IMAGE_PIXELS) from error
        except pillow.UnidentifiedImageError as error:
            volume = os.fspath(path).lower().endswith((".nii", ".nii.gz", ".h5"))
            remedy = (
                "is a volume: use densecrf.large.refine or densecrf segment --tile, after "
                "pip install 'densecrf[large]'"
            )
            what = remedy if volume else "is not an image of a known format"
            raise FileFormatError(path, what) from error
        except MemoryError as error:
            raise FileFormatError(path, "does not fit in memory; cut it into tiles") from error
        # Decoders raise many kinds of errors for broken files: SyntaxError, struct.error, EOFError.
        except Exception as error:
            raise FileFormatError(path, f"broken or truncated image ({error})") from error


def _most_pixels() -> int | None:
    limit = _pillow().MAX_IMAGE_PIXELS
    return None if limit is None else 2 * int(limit)


def _decode_tiff(
    path: PathLike, file: IO[bytes], page: int | None, as_labels: bool, alpha: bool
) -> _Decoded:
    found = read_tiff_page(path, file, page, _most_pixels())
    if found.pixels is None:
        file.seek(0)
        with _pillow().open(file) as image:
            image.seek(found.index)
            if image.mode in ("RGBA", "LA") and not alpha:
                _warn_of_alpha(path, found.alpha, np.array(image)[..., -1:])
            mode = image.mode
            return _Decoded(_pixels(path, image, as_labels, alpha), mode)
    pixels = found.pixels
    if found.alpha and not alpha:
        _warn_of_alpha(path, found.alpha, pixels[..., found.alpha])
        pixels = np.delete(pixels, found.alpha, axis=-1)
    if pixels.dtype.kind == "f":
        pixels = _finite(path, pixels)
    mode = f"{found.pixels.shape[-1]} bands of {pixels.dtype}"
    native = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))
    if native.shape[-1] > 1:
        return _Decoded(native, mode)
    grey = native[..., 0]
    return _Decoded(grey if grey.dtype.kind == "f" else _sixteen_bits(path, grey), mode)


def _warn_of_alpha(path: PathLike, bands: tuple[int, ...], opacity: NDArray[Any]) -> None:
    """Warn of opacity with many values: GDAL declares a fourth band as opacity by default."""
    if ((opacity == 0) | (opacity == opacity.max())).all():
        return
    which = ", ".join(str(band + 1) for band in bands)
    every = tuple(range(1, max(bands) + 2))
    warn(
        "image",
        f"{os.fspath(path)} declares band {which} as opacity, and it is ignored; to use it, give "
        f"{mention('bands', every)}",
    )


def _page_count(image: Any) -> int:
    # Phones write JPEGs with an extra preview as MPO: their first frame is the photograph.
    return 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))


def _seek(path: PathLike, image: Any, page: int | None) -> None:
    pages = _page_count(image)
    if page is None and pages > 1:
        first = mention("page", 0)
        raise FileFormatError(path, f"has {pages} pages; choose one with {first} to {pages - 1}")
    if page is not None and not 0 <= page < pages:
        raise FileFormatError(path, f"has no page {page}, only 0..{pages - 1}")
    if page:
        image.seek(page)


def _raw_mode(arguments: Any) -> str:
    """Return the mode of stored pixels: the first or only argument of a decoder."""
    return str(arguments[0] if isinstance(arguments, tuple) and arguments else arguments)


def _pixels(path: PathLike, image: Any, as_labels: bool, alpha: bool) -> NDArray[Any]:
    if as_labels and image.mode in ("P", "1"):
        return np.array(image).astype(np.uint8)
    if image.mode in _DEEP_MODES:
        return _sixteen_bits(path, np.array(image))
    if image.mode == "F":
        return _finite(path, np.array(image, np.float32))
    halved = any(";16" in _raw_mode(part[-1]) for part in image.tile)  # one of two bytes is kept
    kept = {**_TO_MODE, "LA": "LA", "RGBA": "RGBA"} if alpha else _TO_MODE
    while image.mode in kept and kept[image.mode] != image.mode:
        image = image.convert(kept[image.mode])
    if image.mode not in kept:
        raise FileFormatError(path, f"colour mode {image.mode} is not supported; save it as RGB")
    pixels = np.array(image)
    if halved and not as_labels and int(pixels.max()) <= TWELVE_BITS >> 8:
        raise FileFormatError(
            path,
            "has 16-bit colours below 4096, probably 12-bit, of which Pillow keeps only the upper "
            "eight bits; save it with 8 bits per channel or as TIFF",
        )
    return pixels


def _sixteen_bits(path: PathLike, deep: NDArray[Any]) -> NDArray[np.uint16]:
    """Return grey integers of any type as uint16."""
    if deep.min() < 0 or deep.max() > 65535:
        raise FileFormatError(
            path,
            f"{8 * deep.itemsize}-bit values {deep.min()}..{deep.max()} have no known scale; "
            "save the image with 8 or 16 bits",
        )
    return deep.astype(np.uint16)


def _finite(path: PathLike, values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        real = np.asarray(values, np.float32)
    if not np.isfinite(real).all():
        raise FileFormatError(path, "holds NaN or infinite values; replace them first")
    return real


def read_labels(path: PathLike, palette: str | Palette | None = None) -> NDArray[np.int32]:
    """Read a label map: indices (grey or palette image) or colours of a known palette.

    Parameters
    ----------
    path
        Palette images (Pascal VOC) and grey images, 8 or 16 bits, hold the labels themselves;
        colour images (MSRC, CamVid) are decoded with the palette's colours.
    palette
        The classes, by name (``msrc``, ``voc``, ``camvid``, ``camvid32``) or as a `Palette`.
        Without it, indices are not checked and colour images are refused.

    Returns
    -------
    ndarray
        ``(H, W)`` int32; void pixels have the palette's void label.

    Raises
    ------
    FileFormatError
        A ValueError that names the file: unreadable, or labels and colours outside the classes.
    """
    decoded = _decode(path, None, as_labels=True)
    values, mode = decoded.pixels, decoded.mode
    classes = None if palette is None else get_palette(palette)
    if values.dtype.kind == "f":
        raise FileFormatError(path, f"colour mode {mode} cannot hold labels; save 8-bit indices")
    if values.ndim == 2:
        labels = values.astype(np.int32)
        if classes is None:
            return labels
    elif classes is None:
        raise FileFormatError(
            path, f"is a colour image; name the palette of its labels with {mention('palette')}"
        )
    try:
        return classes.check(labels) if values.ndim == 2 else classes.to_labels(values)
    except ValueError as error:
        raise FileFormatError(path, str(error)) from error


def write_labels(
    path: PathLike,
    labels: Any,
    palette: str | Palette | None = None,
    *,
    durable: bool = True,
    comment: str = "",
) -> None:
    """Write labels ``(H, W)`` as a PNG, atomically.

    Up to 256 labels become an 8-bit palette image (the pixel values are the labels, and viewers
    show the colours); more become 16-bit grey. A void label below 0 is written as the largest
    value, 255 or 65535.

    Parameters
    ----------
    path
        The file to write.
    labels
        Integers ``(H, W)``.
    palette
        Class colours, by name or as a `Palette`; those of all other pictures by default.
    durable
        Flush the file to disk at once; see `densecrf.io.atomic.flush_to_disk`.
    comment
        What the file says of the labels, as the PNG's text ``Comment``.
    """
    values = np.asarray(labels)
    if values.ndim != 2 or values.dtype.kind not in "uib" or values.size == 0:
        raise ValueError(
            f"labels of shape {values.shape} and type {values.dtype} must be integers (H, W)"
        )
    if palette is None:
        largest = int(values.max())
        classes = Palette.generic(largest + 1 if largest != 255 else 255)
    else:
        classes = get_palette(palette)
    index = classes.check(values)
    wide = len(classes) > 256 or int(index.max()) > 255
    index = np.where(index < 0, 65535 if wide else 255, index)

    pillow = _pillow()
    if wide:
        picture = pillow.fromarray(index.astype(np.uint16))
    else:
        picture = pillow.fromarray(index.astype(np.uint8)).convert("L")
        picture.putpalette(classes.table[:256].tobytes())
    _save_png(path, picture, durable=durable, comment=comment)


def shown_colors(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image for display, uint8 (H, W) or (H, W, 3): at most its first three bands."""
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[..., :3] if pixels.shape[2] > 3 else pixels[..., 0]
    return np.asarray(np.clip(pixels, 0, 255), np.uint8)


def overlay(
    image: Any,
    labels: Any,
    palette: str | Palette | None = None,
    *,
    alpha: float = 0.5,
    undecided: Any = None,
) -> NDArray[np.uint8]:
    """Tint an image by its labels and draw their borders; void pixels keep their colour.

    Borders are black on bright pixels and white on dark ones.

    Parameters
    ----------
    image
        ``(H, W)`` or ``(H, W, 3)`` on the scale 0 to 255.
    labels
        Integers ``(H, W)``.
    palette
        Class colours, by name or as a `Palette`; those of all other pictures by default.
    alpha
        The weight of the tint, 0 to 1.
    undecided
        Booleans ``(H, W)``: pixels to hatch in black and white, such as `Result.undecided`.

    Examples
    --------
    >>> overlay([[100, 100]], [[1, 1]], alpha=0.5).tolist()
    [[[165, 129, 50], [165, 129, 50]]]
    """
    picture = np.asarray(image)
    index = np.asarray(labels)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha} must be between 0 and 1")
    if picture.shape[:2] != index.shape or picture.ndim not in (2, 3):
        raise ValueError(
            f"image of shape {picture.shape} and labels of shape {index.shape} must be "
            "(H, W[, 3]) and (H, W) of the same size"
        )
    if picture.ndim == 2:
        picture = np.repeat(picture[..., None], 3, axis=2)
    classes = get_palette(palette) if palette is not None else Palette.generic(255)
    tint = classes.to_colors(index).astype(np.float32)
    base = np.clip(picture, 0, 255).astype(np.float32)
    blend = np.where((index == classes.void)[..., None], base, (1 - alpha) * base + alpha * tint)
    edge = np.zeros(index.shape, bool)
    edge[:, 1:] |= index[:, 1:] != index[:, :-1]
    edge[1:] |= index[1:] != index[:-1]
    bright = blend @ np.array([0.299, 0.587, 0.114], np.float32) > 127
    blend[edge] = np.where(bright[edge], 0, 255)[:, None]
    if undecided is not None:
        hatched = np.asarray(undecided)
        if hatched.shape != index.shape or hatched.dtype != bool:
            raise ValueError(
                f"undecided: {hatched.dtype} of shape {hatched.shape}; give booleans of shape "
                f"{index.shape}"
            )
        stripes = np.indices(index.shape).sum(0) // 2 % 2
        blend[hatched] = 255 * stripes[hatched][:, None]
    return np.asarray(blend, np.uint8)


def write_image(path: PathLike, image: Any, *, durable: bool = True) -> None:
    """Write a uint8 image ``(H, W)`` or ``(H, W, 3)`` as a PNG, atomically."""
    values = np.asarray(image)
    grey_or_color = values.ndim == 2 or (values.ndim == 3 and values.shape[2] == 3)
    if values.dtype != np.uint8 or not grey_or_color or values.size == 0:
        raise ValueError(
            f"image of shape {values.shape} and type {values.dtype} must be uint8 (H, W) or "
            "(H, W, 3)"
        )
    _save_png(path, _pillow().fromarray(np.ascontiguousarray(values)), durable=durable)


def _save_png(path: PathLike, picture: Any, *, durable: bool, comment: str = "") -> None:
    if Path(path).suffix.lower() != ".png":
        raise ValueError(f"{os.fspath(path)}: give a name that ends in .png")
    # Runs alone make photographs as small as zlib's default strategy does, in a fifth of the time.
    with atomic_writer(path, durable=durable) as file:
        picture.save(file, format="PNG", compress_type=zlib.Z_RLE, pnginfo=_text(comment))


def _text(comment: str) -> Any:
    if not comment:
        return None
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_itxt("Comment", comment)
    return text
