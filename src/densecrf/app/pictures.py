"""Images and volumes as they are worked on: read, scaled to 0 … 255, reduced where large."""

from dataclasses import dataclass
from math import ceil, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io import FileFormatError, read_image, read_npy
from densecrf.io.images import image_size, shown_colors

__all__ = ["MAX_PIXELS", "WORK_PIXELS", "WORK_VOXELS", "Picture", "read_picture"]

MAX_PIXELS = 64_000_000  # of an image, and voxels of a volume
WORK_PIXELS = 1_000_000  # larger images are reduced by a whole factor, and their labels enlarged
WORK_VOXELS = 2_000_000  # and so are the slices of larger volumes
DARKEST, BRIGHTEST = 0.5, 99.5  # percentiles of a volume that become black and white


@dataclass(frozen=True)
class Picture:
    """An image or a grey volume as it is worked on: from 0 to 255, reduced by `factor`."""

    path: Path
    pixels: npt.NDArray[Any]  # (H, W), (H, W, 3) or, where there is a `depth`, (depth, H, W)
    factor: int
    full: tuple[int, int]  # height and width in the file
    depth: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid that is worked on, (H, W) or (depth, H, W)."""
        return self.pixels.shape[: 2 if self.depth is None else 3]

    def shown(self, at: int = 0) -> npt.NDArray[np.uint8]:
        """Return the picture, or a volume's slice, for display, (H, W, 3)."""
        pixels = self.pixels if self.depth is None else self.pixels[at]
        colors = shown_colors(pixels)
        return np.stack([colors] * 3, -1) if colors.ndim == 2 else colors

    def enlarged(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return labels at the size of the file."""
        if self.factor == 1:
            return labels
        large = labels.repeat(self.factor, -2).repeat(self.factor, -1)
        return large[..., : self.full[0], : self.full[1]]

    def at_full_size(self) -> "Picture":
        """Return the image as it is in the file."""
        return Picture(self.path, read_image(self.path), 1, self.full)


def read_picture(path: Path, name: str) -> Picture:
    """Read an image or a volume, reduced where it is large; ValueError names it by `name`.

    Volumes are three-dimensional ``.npy`` arrays, slices first, and TIFF files of several pages.
    """
    try:
        if path.suffix.lower() == ".npy":
            return _of_array(path, read_npy(path, max_bytes=8 * MAX_PIXELS), name)
        height, width, pages = image_size(path)
        _check_size(name, (pages, height, width))
        if pages > 1:
            stack = np.stack([_grey(read_image(path, page=page)) for page in range(pages)])
            return _of_array(path, stack, name)
        pixels = read_image(path)
    except FileFormatError as error:
        raise ValueError(f"{name}: {error.reason}") from error
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror or error}") from error
    factor = max(1, ceil(sqrt(width * height / WORK_PIXELS)))
    if factor > 1:
        from PIL import Image

        pixels = np.asarray(Image.fromarray(shown_colors(pixels)).reduce(factor))
    return _checked(Picture(path, pixels, factor, (height, width)), name)


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    if prod(shape) > MAX_PIXELS:
        size = " × ".join(str(n) for n in reversed(shape) if n != 1)
        raise ValueError(
            f"{name}: {size} pixels are more than {MAX_PIXELS / 1e6:.0f} million; "
            "crop or shrink it first"
        )


def _checked(picture: Picture, name: str) -> Picture:
    if min(picture.shape) < 2:
        size = " × ".join(map(str, reversed(picture.shape)))
        raise ValueError(f"{name}: {size} pixels are too few")
    return picture


def _grey(page: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return page if page.ndim == 2 else page.mean(-1)


def _of_array(path: Path, array: npt.NDArray[Any], name: str) -> Picture:
    """Return the picture of an array: an image of two axes, or a volume of three."""
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise ValueError(
            f"{name}: an array of shape {array.shape} and type {array.dtype} is not an image "
            "(H, W) or volume (slices, H, W) of numbers"
        )
    _check_size(name, array.shape)
    pixels = array.astype(np.float32)
    if not np.isfinite(pixels).all():
        raise ValueError(f"{name}: holds NaN or infinite values; replace them first")
    if array.dtype != np.uint8:
        low, high = np.percentile(pixels, (DARKEST, BRIGHTEST))
        pixels = np.clip((pixels - low) * np.float32(255 / max(high - low, 1e-12)), 0, 255)
    height, width = array.shape[-2:]
    most = WORK_PIXELS if array.ndim == 2 else WORK_VOXELS
    factor = max(1, ceil(sqrt(array.size / most)))
    pixels = _reduced(pixels, factor)
    depth = None if array.ndim == 2 else len(array)
    return _checked(Picture(path, pixels, factor, (height, width), depth), name)


def _reduced(pixels: npt.NDArray[Any], factor: int) -> npt.NDArray[Any]:
    """Return the means of blocks of the last two axes; the last ones may be smaller."""
    for axis in (-2, -1) if factor > 1 else ():
        starts = np.arange(0, pixels.shape[axis], factor)
        counts = np.diff(np.append(starts, pixels.shape[axis])).astype(np.float32)
        sums = np.add.reduceat(pixels, starts, axis)
        pixels = np.moveaxis(np.moveaxis(sums, axis, -1) / counts, -1, axis)
    return np.ascontiguousarray(pixels)
