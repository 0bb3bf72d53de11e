"""Read volumes with their geometry: NIfTI files (needs nibabel) and DICOM series (needs pydicom).

Axes are slices, rows, columns, as radiologists see them: columns to the patient's left, rows to the
back, slices to the feet, as far as the stored axes are near these.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.io.atomic import atomic_writer
from densecrf.io.errors import FileFormatError
from densecrf.io.opening import by_numbers, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "NIFTI",
    "VOLUME_SUFFIXES",
    "Geometry",
    "Volume",
    "is_dicom",
    "one_of_each_series",
    "read_volume",
    "write_nifti_labels",
]

PathLike = str | os.PathLike[str]

NIFTI = (".nii", ".nii.gz")
VOLUME_SUFFIXES = (*NIFTI, ".dcm", ".dicom", ".ima")
MOST_VOXELS = 1 << 29
_SERIES = ("SeriesInstanceUID",)
_SAME_PLACE = 1e-3  # mm


@dataclass(frozen=True)
class Geometry:
    """Where a volume lies, as the file has it.

    Attributes
    ----------
    affine
        (4, 4), from the file's indices to millimetres to the right, the front and the head.
    order
        (3, 2): how the file's axes become columns, rows and slices, as nibabel writes it.
    """

    affine: NDArray[np.float64]
    order: NDArray[np.float64]


@dataclass(frozen=True)
class Volume:
    """A volume of numbers.

    Attributes
    ----------
    values
        (slices, rows, columns), as stored; with a last axis where the file has several volumes.
    spacing
        Millimetres between neighbours along each axis.
    slope, intercept
        What turns stored values into those that are meant, such as Hounsfield units.
    window
        The values that are black and white, where the file says so; white first where it is
        meant to be shown inverted.
    unit
        Of the values, where the file says so.
    geometry
        Where it lies.
    """

    values: NDArray[Any]
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    slope: float = 1.0
    intercept: float = 0.0
    window: tuple[float, float] | None = None
    unit: str = ""
    geometry: Geometry | None = None

    def meant(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return stored values as those that are meant."""
        return np.asarray(stored * np.float64(self.slope) + self.intercept, np.float32)


def read_volume(path: PathLike, *, most: int = MOST_VOXELS) -> Volume:
    """Read a NIfTI file, or the series that a DICOM file belongs to.

    Parameters
    ----------
    path
        ``.nii`` or ``.nii.gz``; or one DICOM file, which stands for all files of its folder that
        have the same series number.
    most
        The largest number of voxels.

    Raises
    ------
    OSError
        When the file is missing or cannot be opened.
    FileFormatError
        A ValueError that names the file, says what is wrong with it, and what to do.
    """
    with open_regular(path):  # errors of the file system stay what they are
        pass
    nifti = os.fspath(path).lower().endswith(NIFTI)
    reader: Callable[[PathLike, int], Volume] = _nifti if nifti else _dicom
    try:
        return reader(path, most)
    except (FileFormatError, ImportError, MemoryError):
        raise
    except Exception as error:  # each library has many kinds of error for broken files
        kind = "NIfTI" if nifti else "DICOM"
        reason = f"broken or truncated {kind} file ({str(error)[:200] or type(error).__name__})"
        raise FileFormatError(path, f"{reason}; fetch or convert it again") from error


def _needed(path: PathLike, module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)}: needs {module}: pip install 'densecrf[medical]'", name=module
        ) from error


def _check_voxels(path: PathLike, shape: Sequence[int], most: int) -> None:
    if prod(shape) > most:
        size = " × ".join(map(str, shape))
        reason = f"{size} voxels are more than {most / 1e6:.0f} million; crop or shrink it first"
        raise FileFormatError(path, reason)
    if min(shape, default=0) < 1:
        raise FileFormatError(path, "holds no voxels")


# --- NIfTI ----------------------------------------------------------------------------------------


def _nifti(path: PathLike, most: int) -> Volume:
    nibabel = _needed(path, "nibabel")
    image = nibabel.load(path, mmap=False)
    shape = tuple(int(side) for side in image.shape)
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if not 3 <= len(shape) <= 4:
        reason = f"holds an array of shape {shape}; give a volume, or several of the same size"
        raise FileFormatError(path, reason)
    _check_voxels(path, shape, most)
    stored = image.dataobj
    if np.dtype(stored.dtype).kind not in "buif":
        reason = f"holds values of type {stored.dtype}; save it as a volume of numbers"
        raise FileFormatError(path, reason)
    affine = np.asarray(image.affine, np.float64)
    order = nibabel.io_orientation(affine)
    if not (np.isfinite(order).all() and np.isfinite(affine).all()):
        raise FileFormatError(path, "has no usable orientation; set its sform or qform")
    to_shown = nibabel.orientations.ornt_transform(order, _left_back_feet(nibabel))
    values = np.asarray(stored.get_unscaled()).reshape(shape)
    turned = nibabel.orientations.apply_orientation(values, to_shown)
    spaces = np.sqrt((affine[:3, :3] ** 2).sum(0))[np.argsort(to_shown[:, 0])][::-1]
    slope, intercept = float(stored.slope), float(stored.inter)
    return Volume(
        np.swapaxes(turned, 0, 2),
        _spacing(path, spaces),
        slope if isfinite(slope) and slope else 1.0,
        intercept if isfinite(intercept) else 0.0,
        _header_window(image.header, slope),
        geometry=Geometry(affine, to_shown),
    )


def _left_back_feet(nibabel: Any) -> Any:
    return nibabel.orientations.axcodes2ornt("LPI")


def _header_window(header: Any, slope: float) -> tuple[float, float] | None:
    low, high = float(header["cal_min"]), float(header["cal_max"])
    return (low, high) if isfinite(low) and isfinite(high) and low < high and slope >= 0 else None


def _spacing(path: PathLike, given: Iterable[Any]) -> tuple[float, float, float]:
    found = [abs(float(each)) for each in given]
    if not all(isfinite(each) and each > 0 for each in found):
        raise FileFormatError(path, f"has a voxel of {found} mm; correct its header")
    slices, rows, columns = found
    return slices, rows, columns


def write_nifti_labels(path: PathLike, labels: NDArray[Any], geometry: Geometry) -> None:
    """Write labels (slices, rows, columns) as a NIfTI file with the axes and the place of another.

    Parameters
    ----------
    path
        ``.nii`` or ``.nii.gz``; it appears whole or not at all.
    labels
        Labels from 0 to 255.
    geometry
        The place of the volume that they belong to.
    """
    nibabel = _needed(path, "nibabel")
    columns_first = np.swapaxes(np.asarray(labels, np.uint8), 0, 2)
    back = np.empty_like(geometry.order)
    back[geometry.order[:, 0].astype(int)] = np.stack([np.arange(3), geometry.order[:, 1]], axis=1)
    stored = nibabel.orientations.apply_orientation(columns_first, back)
    image = nibabel.Nifti1Image(np.ascontiguousarray(stored), geometry.affine)
    data = image.to_bytes()
    if os.fspath(path).lower().endswith(".gz"):
        import gzip

        data = gzip.compress(data, 6, mtime=0)
    with atomic_writer(path) as file:
        file.write(data)


# --- DICOM ----------------------------------------------------------------------------------------


def is_dicom(path: Path) -> bool:
    """Return whether a file is DICOM by its suffix, or, without one, by its beginning."""
    suffix = path.suffix.lower()
    if suffix in VOLUME_SUFFIXES:
        return suffix not in NIFTI
    if suffix and not suffix[1:].isdecimal():  # names such as 1.2.840.113619 are frequent
        return False
    try:
        with open_regular(path) as file:
            return file.read(132)[128:] == b"DICM"
    except (OSError, FileFormatError):
        return False


def one_of_each_series(paths: Iterable[Path]) -> list[Path]:
    """Return files without the DICOM files but the first of each series in each folder."""
    kept: list[Path] = []
    seen: set[tuple[Path, str]] = set()
    for path in paths:
        if is_dicom(path) and (series := _series(path)) is not None:
            if (path.parent, series) in seen:
                continue
            seen.add((path.parent, series))
        kept.append(path)
    return kept


def _series(path: Path) -> str | None:
    """Return the series number of a DICOM file; None where it has none or cannot be read."""
    try:
        found = path.stat()
        return _read_series(str(path), found.st_mtime_ns, found.st_size)
    except OSError:
        return None


@lru_cache(maxsize=20_000)
def _read_series(path: str, _changed: int, _size: int) -> str | None:
    try:
        import pydicom

        head = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=list(_SERIES))
        return str(head.SeriesInstanceUID)
    except Exception:  # it is then opened by itself, which says what is wrong
        return None


def _dicom(path: PathLike, most: int) -> Volume:
    pydicom = _needed(path, "pydicom")
    given = Path(path)
    series = _series(given)
    files = [given]
    if series is not None:
        beside = (each for each in sorted(given.parent.iterdir(), key=by_numbers) if each.is_file())
        files = [each for each in beside if is_dicom(each) and _series(each) == series]
    try:
        heads = [pydicom.dcmread(each, stop_before_pixels=True) for each in files]
    except pydicom.errors.InvalidDicomError as error:
        raise FileFormatError(path, "is not a DICOM file, or lacks its preamble") from error
    with_pixels = [(head, file) for head, file in zip(heads, files, strict=True) if "Rows" in head]
    if not with_pixels:
        raise FileFormatError(path, "holds no pixels; give an image of the series")
    slices = _sorted_slices(path, with_pixels)
    first = slices[0][0]
    frames = int(first.get("NumberOfFrames", 1) or 1)
    shape = (len(slices) * frames, int(first.Rows), int(first.Columns))
    _check_voxels(path, shape, most)
    planes = [_dicom_pixels(file) for _, file in slices]
    slopes = {_rescaling(head) for head, _ in slices}
    if len(slopes) == 1:
        ((slope, intercept),) = slopes
    else:  # of PET each slice has its own
        rescaled = zip(planes, slices, strict=True)
        planes = [_rescaled(plane, *_rescaling(head)) for plane, (head, _) in rescaled]
        slope, intercept = 1.0, 0.0
    values = np.concatenate(planes) if frames > 1 else np.stack(planes)
    return Volume(
        values,
        _spacing(path, (_between(slices), *_pixel_spacing(first))),
        slope,
        intercept,
        _dicom_window(first),
        "HU" if first.get("Modality") == "CT" else str(first.get("RescaleType", "") or ""),
        _dicom_geometry(first, _between(slices)),
    )


def _sorted_slices(path: PathLike, slices: list[tuple[Any, Path]]) -> list[tuple[Any, Path]]:
    """Return the slices of a series along their normal; refuse those that are no volume."""
    if len(slices) == 1:
        return slices
    sizes = {(int(head.Rows), int(head.Columns)) for head, _ in slices}
    turned = {tuple(np.round(_directions(head).ravel(), 3)) for head, _ in slices}
    if len(sizes) > 1 or len(turned) > 1 or any(_frames(head) > 1 for head, _ in slices):
        reason = "its series has slices of different sizes or directions, such as a localizer"
        raise FileFormatError(path, f"{reason}; put those of one volume into a folder of their own")
    if all("ImagePositionPatient" in head for head, _ in slices):
        along = -1 if _is_axial(slices[0][0]) else 1  # from head to feet
        slices = sorted(slices, key=lambda each: along * _height(each[0]))
        gaps = np.abs(np.diff([_height(head) for head, _ in slices]))
        if gaps.min() < _SAME_PLACE:
            reason = "its series has several slices at one place, such as times or echoes"
            raise FileFormatError(path, f"{reason}; put those of one into a folder of their own")
        return slices
    return sorted(slices, key=lambda each: int(each[0].get("InstanceNumber", 0) or 0))


def _frames(head: Any) -> int:
    return int(head.get("NumberOfFrames", 1) or 1)


def _directions(head: Any) -> NDArray[np.float64]:
    """Return the directions of rows' and of columns' indices, (2, 3), in DICOM's axes."""
    given = head.get("ImageOrientationPatient") or (1, 0, 0, 0, 1, 0)
    return np.array([float(each) for each in given]).reshape(2, 3)


def _height(head: Any) -> float:
    """Return the place of a slice along the normal of the series."""
    place = np.array([float(each) for each in head.ImagePositionPatient])
    return float(np.cross(*_directions(head)) @ place)


def _is_axial(head: Any) -> bool:
    return int(np.abs(np.cross(*_directions(head))).argmax()) == 2


def _between(slices: list[tuple[Any, Path]]) -> float:
    """Return the millimetres between slices."""
    heads = [head for head, _ in slices]
    if len(heads) > 1 and all("ImagePositionPatient" in head for head in heads):
        return float(np.median(np.abs(np.diff([_height(head) for head in heads]))))
    for name in ("SpacingBetweenSlices", "SliceThickness"):
        if float(heads[0].get(name, 0) or 0) > 0:
            return float(heads[0].get(name))
    return _pixel_spacing(heads[0])[0]


def _pixel_spacing(head: Any) -> tuple[float, float]:
    given = head.get("PixelSpacing") or head.get("ImagerPixelSpacing") or (1.0, 1.0)
    rows, columns = (float(each) for each in given)
    return rows, columns


def _rescaling(head: Any) -> tuple[float, float]:
    slope, intercept = head.get("RescaleSlope", 1), head.get("RescaleIntercept", 0)
    return float(slope if slope else 1), float(intercept if intercept else 0)


def _rescaled(plane: NDArray[Any], slope: float, intercept: float) -> NDArray[np.float32]:
    return np.asarray(plane * slope + intercept, np.float32)


def _dicom_window(head: Any) -> tuple[float, float] | None:
    """Return the values of black and white of the first window that a file proposes."""

    def first(name: str) -> float:
        value = head.get(name)
        value = value[0] if isinstance(value, (list, tuple)) or hasattr(value, "append") else value
        return float("nan") if value is None else float(value)

    center, width = first("WindowCenter"), first("WindowWidth")
    if not (isfinite(center) and isfinite(width) and width > 0):
        return None
    black, white = center - width / 2, center + width / 2
    return (
        (white, black) if head.get("PhotometricInterpretation") == "MONOCHROME1" else (black, white)
    )


def _dicom_pixels(path: Path) -> NDArray[Any]:
    """Return the stored pixels of a file: grey of colours."""
    import pydicom

    image = pydicom.dcmread(path)
    try:
        pixels = np.asarray(image.pixel_array)
    except (NotImplementedError, RuntimeError, AttributeError) as error:
        syntax = getattr(getattr(image, "file_meta", None), "TransferSyntaxUID", None)
        if syntax is None or not syntax.is_compressed:
            raise
        reason = f"is compressed by {syntax.name}, which nothing installed reads; pip install "
        reason += "'pylibjpeg[all]', or decompress it by dcmdjpeg or gdcmconv --raw"
        raise FileFormatError(path, reason) from error
    if int(image.get("SamplesPerPixel", 1)) > 1:
        return np.asarray(pixels.mean(-1), np.float32)
    return pixels


def _dicom_geometry(head: Any, between: float) -> Geometry | None:
    """Return where a series lies whose first slice has this header."""
    if "ImagePositionPatient" not in head or "ImageOrientationPatient" not in head:
        return None
    columns, rows = _directions(head)  # along a row the column's index grows
    space = _pixel_spacing(head)
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = columns * space[1], rows * space[0]
    along = -1 if _is_axial(head) else 1
    affine[:3, 2] = np.cross(columns, rows) * (along * between)
    affine[:3, 3] = [float(each) for each in head.ImagePositionPatient]
    affine[:2] *= -1  # from DICOM's left and back to NIfTI's right and front
    return Geometry(affine, np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]))
