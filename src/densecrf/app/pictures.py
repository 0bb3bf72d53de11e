"""Images and volumes as they are worked on: read, scaled to 0 … 255, reduced where large."""

from dataclasses import asdict, dataclass, field, replace
from math import ceil, isfinite, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io import FileFormatError, atomic_writer, read_npy
from densecrf.io.images import IMAGE_SUFFIXES, image_size, read_bands, shown_colors
from densecrf.io.volumes import (
    NIFTI,
    VOLUME_SUFFIXES,
    Geometry,
    Volume,
    is_dicom,
    read_volume,
    write_nifti_labels,
)

__all__ = [
    "MAX_PIXELS",
    "PICTURE_SUFFIXES",
    "WORK_PIXELS",
    "WORK_VOXELS",
    "Picture",
    "Reading",
    "block_factor",
    "block_means",
    "picture_suffix",
    "read_picture",
]

PICTURE_SUFFIXES = (*IMAGE_SUFFIXES, ".npy", *VOLUME_SUFFIXES)
MAX_PIXELS = 64_000_000  # of an image
MAX_VOXELS = 1 << 28  # of a volume
WORK_PIXELS = 1_000_000  # larger images are reduced by a whole factor, and their labels enlarged
EXPORT_PIXELS = 16_000_000  # to which a larger image is reduced when its labels are exported
WORK_VOXELS = 2_000_000  # and so are larger volumes
CLIP = 0.5  # per cent of the values that become black, and white, where nothing else is said
SAMPLED = 1 << 22  # of more values, some are looked at for that

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Reading:
    """How the values of a file become colours.

    Attributes
    ----------
    bands : tuple of int, optional
        One band, or three for red, green and blue, from 1; the first ones by default. Of a file
        with several volumes, one of them.
    window : tuple of float, optional
        The values that become black and white.
    clip : float, optional
        Otherwise, the per cent of a band's values that become black, and white. By default 0.5;
        or what the file proposes, and 8-bit values as they are.
    """

    bands: tuple[int, ...] | None = None
    window: tuple[float, float] | None = None
    clip: float | None = None

    @classmethod
    def parse(cls, value: Any) -> "Reading":
        """Return a reading that came as JSON, or raise ValueError."""
        if not isinstance(value, dict) or set(value) - {"bands", "window", "clip"}:
            raise ValueError("a reading is a JSON object with bands, window and clip")
        bands, window, clip = (value.get(name) for name in ("bands", "window", "clip"))
        if bands is not None:
            whole = isinstance(bands, list) and all(
                type(band) is int and band > 0 for band in bands
            )
            if not whole or len(bands) not in (1, 3):
                raise ValueError(f"bands {bands!r} are not one or three numbers from 1")
            bands = tuple(bands)
        if window is not None:
            real = isinstance(window, list) and len(window) == 2 and all(map(_is_number, window))
            if not real or window[0] == window[1]:
                raise ValueError(f"window {window!r} is not two different numbers, black and white")
            window = (float(window[0]), float(window[1]))
        if clip is not None and not (_is_number(clip) and 0 <= clip < 50):
            raise ValueError(f"clip {clip!r} is not between 0 and 50 per cent")
        return cls(bands, window, None if clip is None else float(clip))

    def to_json(self) -> dict[str, Any]:
        """Return the reading as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


@dataclass(frozen=True)
class Values:
    """The bands and values of a file that a user can choose from."""

    bands: int
    low: float
    high: float
    window: tuple[float, float] | None  # the values of black and white, where they are the same
    unit: str = ""


@dataclass(frozen=True)
class Picture:
    """An image or a grey volume as it is worked on: from 0 to 255, reduced by `factor`."""

    path: Path
    pixels: Array  # (H, W), (H, W, 3) or, where there is a `depth`, (depth, H, W)
    factor: int
    full: tuple[int, int]  # height and width in the file
    depth: int | None = None  # slices, as they are worked on
    slices: int = 1  # in the file, which are reduced by
    between: int = 1
    spacing: tuple[float, ...] = ()  # of a volume: millimetres between voxels in the file
    reading: Reading = field(default_factory=Reading)
    values: Values | None = None  # None: 8-bit grey or colours, as in the file
    geometry: Geometry | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid that is worked on, (H, W) or (depth, H, W)."""
        return self.pixels.shape[: 2 if self.depth is None else 3]

    @property
    def distances(self) -> tuple[float, ...] | None:
        """Distances between voxels along each axis, in units of the finest within slices."""
        if self.depth is None:
            return None
        spacing = np.multiply(self.spacing or (1.0,) * 3, (self.between, self.factor, self.factor))
        return tuple(float(each) for each in spacing / spacing[1:].min())

    @property
    def planes(self) -> list[str]:
        """The names of a volume's three planes, by the axis that they are across."""
        if self.geometry is None:
            return ["XY", "XZ", "YZ"]
        shown = np.argsort(self.geometry.order[:, 0])[::-1]  # the file's axis of each of ours
        towards = np.abs(self.geometry.affine[:3, :3]).argmax(0)[shown]
        return [("sagittal", "coronal", "axial")[each] for each in towards]

    def about(self) -> dict[str, Any]:
        """Return what the page shows of how the file is read, as JSON values."""
        values = None if self.values is None else asdict(self.values)
        found: dict[str, Any] = {"reading": self.reading.to_json(), "values": values}
        if self.depth is not None:
            found |= {"planes": self.planes, "distances": self.distances}
        return found

    def shown(self, at: int = 0, axis: int = 0) -> npt.NDArray[np.uint8]:
        """Return the picture, or a volume's plane across an axis, for display, (H, W, 3)."""
        pixels = self.pixels if self.depth is None else self.pixels.take(at, axis)
        colors = shown_colors(pixels)
        return np.stack([colors] * 3, -1) if colors.ndim == 2 else colors

    def enlarged(self, labels: Array) -> Array:
        """Return labels at the size of the file."""
        if self.between > 1:
            labels = labels.repeat(self.between, 0)[: self.slices]
        if self.factor == 1:
            return labels
        large = labels.repeat(self.factor, -2).repeat(self.factor, -1)
        return large[..., : self.full[0], : self.full[1]]

    def finer(self, most: int) -> "Picture":
        """Return an image with more pixels, for an export: up to `most` and `EXPORT_PIXELS`."""
        factor = block_factor(self.full, max(1, min(most, EXPORT_PIXELS)))
        if self.depth is not None or factor >= self.factor:
            return self
        pixels, _ = _colors(*_image_bands(self.path), self.reading)
        return replace(self, pixels=block_means(pixels, factor), factor=factor)

    @property
    def label_suffix(self) -> str:
        """How the name of a label map ends."""
        if self.depth is None:
            return ".png"
        return ".npy" if self.geometry is None else ".nii.gz"

    def write_labels(self, path: Path, labels: Array) -> None:
        """Write a volume's labels at the size of the file, with its axes and place if known."""
        if self.geometry is not None:
            write_nifti_labels(path, labels, self.geometry)
        else:
            with atomic_writer(path) as file:
                np.save(file, labels)


def picture_suffix(path: Path) -> str | None:
    """Return the suffix of an image or volume; None for other files."""
    name = path.name.lower()
    for suffix in (*NIFTI[::-1], *PICTURE_SUFFIXES):
        if name.endswith(suffix):
            return suffix
    return ".dcm" if is_dicom(path) else None


def read_picture(path: Path, name: str, reading: Reading = Reading()) -> Picture:
    """Read an image or a volume, reduced where it is large; ValueError names it by `name`.

    Volumes are three-dimensional ``.npy`` arrays, slices first, TIFF files of several pages, NIfTI
    files and DICOM series, of which any file may be given.
    """
    try:
        if picture_suffix(path) in VOLUME_SUFFIXES:
            return _of_volume(path, name, read_volume(path, most=MAX_VOXELS), reading)
        if path.suffix.lower() == ".npy":
            return _of_array(path, name, reading)
        height, width, pages = image_size(path)
        _check_size(name, (pages, height, width), MAX_PIXELS if pages == 1 else MAX_VOXELS)
        if pages > 1:
            stack = np.stack([_grey(read_bands(path, page=page)[0]) for page in range(pages)])
            return _of_volume(path, name, Volume(stack), reading)
        return _of_bands(path, name, *_image_bands(path), reading)
    except FileFormatError as error:
        raise ValueError(f"{name}: {error.reason}") from error
    except ImportError as error:
        raise ValueError(f"{name}: {str(error).rpartition(': needs ')[2] or error}") from error
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise ValueError(f"{name}: too large for the memory; crop or shrink it first") from error


def _check_size(name: str, shape: tuple[int, ...], most: int) -> None:
    if prod(shape) > most:
        size = " × ".join(str(n) for n in reversed(shape) if n != 1)
        raise ValueError(
            f"{name}: {size} pixels are more than {most / 1e6:.0f} million; crop or shrink it first"
        )


def _checked(picture: Picture, name: str) -> Picture:
    if min(picture.shape) < 2:
        size = " × ".join(map(str, reversed(picture.shape)))
        raise ValueError(f"{name}: {size} pixels are too few")
    return picture


def _grey(page: Array) -> Array:
    return page[..., 0] if page.shape[-1] < 3 else page[..., :3].mean(-1)


def _of_array(path: Path, name: str, reading: Reading) -> Picture:
    """Return the picture of an array: an image of two axes, or a volume of three."""
    array = read_npy(path, max_bytes=8 * MAX_VOXELS)
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise ValueError(
            f"{name}: an array of shape {array.shape} and type {array.dtype} is not an image "
            "(H, W) or volume (slices, H, W) of numbers"
        )
    _check_size(name, array.shape, MAX_PIXELS if array.ndim == 2 else MAX_VOXELS)
    if array.ndim == 2:
        return _of_bands(path, name, array[..., None], None, reading)
    return _of_volume(path, name, Volume(array), reading)


# --- Images ---------------------------------------------------------------------------------------


def _image_bands(path: Path) -> tuple[Array, float | None]:
    """Return the bands of an image that is no volume, and the value that means no data."""
    suffix = picture_suffix(path)
    if suffix == ".npy":
        return read_npy(path)[..., None], None
    if suffix in VOLUME_SUFFIXES:
        volume = read_volume(path)
        return volume.meant(volume.values[0])[..., None], None
    return read_bands(path)


def _of_bands(
    path: Path, name: str, bands: Array, nodata: float | None, reading: Reading
) -> Picture:
    height, width, _ = bands.shape
    pixels, values = _colors(bands, nodata, reading)
    factor = block_factor((height, width))
    shown = block_means(pixels, factor)
    picture = Picture(path, shown, factor, (height, width), reading=reading, values=values)
    return _checked(picture, name)


def block_factor(shape: tuple[int, ...], most: int | None = None) -> int:
    """Return by what an image is reduced to have at most `most` pixels, or `WORK_PIXELS`."""
    return max(1, ceil(sqrt(prod(shape) / (most or WORK_PIXELS))))


def block_means(pixels: Array, factor: int) -> Array:
    """Return the means of an image's blocks; those at the ends may be smaller."""
    if factor == 1:
        return pixels
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).reduce(factor))


def _colors(bands: Array, nodata: float | None, reading: Reading) -> tuple[Array, Values | None]:
    """Return the chosen bands from 0 to 255, (H, W) or (H, W, 3), and what else there is."""
    count = bands.shape[-1]
    chosen = reading.bands or ((1, 2, 3) if count >= 3 else (1,))
    if max(chosen) > count:
        reason = f"band {max(chosen)} of {count}: choose one from 1 to {count}"
        raise FileFormatError("", reason)  # `read_picture` names the file
    picked = [bands[..., band - 1] for band in chosen]
    if bands.dtype == np.uint8 and reading.window is None and reading.clip is None:
        pixels = np.stack(picked, -1) if len(picked) == 3 else np.ascontiguousarray(picked[0])
        extra = count > 4 or reading.bands is not None
        return pixels, Values(count, 0.0, 255.0, (0.0, 255.0)) if extra else None
    planes, windows, ranges = [], set(), []
    for plane in picked:
        sample = _sample(plane, nodata)
        window = reading.window or _window(sample, reading.clip)
        windows.add(window)
        ranges.append((float(sample.min()), float(sample.max())))
        planes.append(_stretched(plane, window, nodata))
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    values = Values(count, low, high, windows.pop() if len(windows) == 1 else None)
    return np.stack(planes, -1) if len(planes) == 3 else planes[0], values


def _sample(values: Array, nodata: float | None = None) -> npt.NDArray[np.float32]:
    """Return the values that there are; of many, some."""
    step = max(1, ceil((values.size / SAMPLED) ** (1 / values.ndim)))
    some = np.asarray(values[(slice(None, None, step),) * values.ndim], np.float32).ravel()
    found = some[np.isfinite(some) & (some != np.float32(np.nan if nodata is None else nodata))]
    if not found.size:
        raise FileFormatError("", "holds no data: every pixel is NaN or the value for none")
    return np.asarray(found)


def _window(sample: npt.NDArray[np.float32], clip: float | None) -> tuple[float, float]:
    share = CLIP if clip is None else clip
    black, white = (float(each) for each in np.percentile(sample, (share, 100 - share)))
    return (black, white) if white > black else (black, black + 1.0)


def _stretched(
    values: Array, window: tuple[float, float], nodata: float | None = None
) -> npt.NDArray[np.uint8]:
    """Return values from black at 0 to white at 255; what is no number, or no data, is black."""
    black, white = window
    scaled = (np.asarray(values, np.float32) - np.float32(black)) * np.float32(
        255 / (white - black)
    )
    shown = np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255)
    if nodata is not None:
        shown[values == nodata] = 0
    return np.asarray(np.rint(shown), np.uint8)


# --- Volumes --------------------------------------------------------------------------------------


def _of_volume(path: Path, name: str, volume: Volume, reading: Reading) -> Picture:
    stored = volume.values
    count = 1 if stored.ndim == 3 else stored.shape[-1]
    chosen = (reading.bands or (1,))[0]
    if chosen > count:
        raise ValueError(f"{name}: volume {chosen} of {count}: choose one from 1 to {count}")
    stored = stored if stored.ndim == 3 else stored[..., chosen - 1]
    if len(stored) == 1:
        window = reading.window or (volume.window if reading.clip is None else None)
        one = replace(reading, bands=None, window=window)
        picture = _of_bands(path, name, volume.meant(stored[0])[..., None], None, one)
        return replace(picture, reading=one)
    sample = volume.meant(_sample(stored))
    eight_bits = stored.dtype == np.uint8 and volume.slope == 1
    default = volume.window or ((0.0, 255.0) if eight_bits else None)
    window = reading.window or (default if reading.clip is None else None)
    window = window or _window(sample, reading.clip)
    factor, between = _factors(stored.shape, volume.spacing)
    pixels = np.stack(
        [
            _volume_means([_stretched(volume.meant(each), window) for each in block], factor)
            for block in np.split(stored, range(between, len(stored), between))
        ]
    )
    picture = Picture(
        path,
        pixels,
        factor,
        (stored.shape[1], stored.shape[2]),
        depth=len(pixels),
        slices=len(stored),
        between=between,
        spacing=volume.spacing,
        reading=reading,
        values=Values(count, float(sample.min()), float(sample.max()), window, volume.unit),
        geometry=volume.geometry,
    )
    return _checked(picture, name)


def _factors(shape: tuple[int, ...], spacing: tuple[float, float, float]) -> tuple[int, int]:
    """Return by what slices' sides and their number are reduced: the finest axis first."""
    factor = between = 1
    slices, height, width = shape
    while ceil(slices / between) * ceil(height / factor) * ceil(width / factor) > WORK_VOXELS:
        if min(spacing[1:]) * factor <= spacing[0] * between or slices <= 2 * between:
            factor += 1
        else:
            between += 1
    return factor, between


def _volume_means(planes: list[npt.NDArray[np.uint8]], factor: int) -> npt.NDArray[np.uint8]:
    """Return the means of blocks of some slices; those at the ends may be smaller."""
    if len(planes) == factor == 1:
        return planes[0]
    mean: Array = np.asarray(np.mean(planes, 0, np.float32))
    for axis in (0, 1) if factor > 1 else ():
        starts = np.arange(0, mean.shape[axis], factor)
        counts = np.diff(np.append(starts, mean.shape[axis])).astype(np.float32)
        sums = np.add.reduceat(mean, starts, axis)
        mean = sums / np.expand_dims(counts, 1 - axis)
    return np.asarray(np.rint(mean), np.uint8)
