"""Read score maps: logits, probabilities or energies, in the usual formats.

Every reader returns `Scores`: values, labels first, and their kind. Probabilities are recognised by
their sums. Logits (higher is better) and energies (lower is better) cannot be told apart by their
values: the caller names them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from densecrf.io.arrays import MAX_BYTES, check_size, read_npy, read_npz
from densecrf.io.errors import FileFormatError
from densecrf.io.opening import open_regular
from densecrf.model.reading import SUM_TOLERANCE, sums_to_one
from densecrf.model.resample import resize_bilinear
from densecrf.model.unaries import negative_log_softmax
from densecrf.validation import check_choice, check_fraction, mention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "KEYS",
    "SCORE_SUFFIXES",
    "Kind",
    "Scores",
    "read_c_unary",
    "read_known",
    "read_scores",
    "read_unary",
]

PathLike = str | os.PathLike[str]
Kind = Literal["energies", "probabilities", "logits"]
ByteOrder = Literal["big", "little"]

#: Names of arrays in ``.npz`` files, and the kind of scores in each.
KEYS: dict[str, Kind] = {"logits": "logits", "probs": "probabilities", "unary": "energies"}

#: Suffixes of the files that `read_scores` reads.
SCORE_SUFFIXES = (".npz", ".npy", ".unary", ".c_unary")
_AXES = {"first": 0, "last": -1}


@dataclass(frozen=True)
class Scores:
    """A score map as read from a file.

    Attributes
    ----------
    values
        ``(L, *spatial)`` float32, C order.
    kind
        ``"energies"`` (lower is better), ``"probabilities"`` or ``"logits"`` (higher is better).
    reason
        How ``kind`` was found, in words.
    path
        The file.
    """

    values: NDArray[np.float32]
    kind: Kind
    reason: str
    path: str

    def resized(self, shape: Sequence[int]) -> Scores:
        """Resize the map to its image, bilinearly with half-pixel centres."""
        if self.values.shape[1:] == tuple(shape):
            return self
        if not np.isfinite(self.values).all():
            raise FileFormatError(self.path, "infinite values cannot be resized; clip them first")
        return Scores(resize_bilinear(self.values, shape), self.kind, self.reason, self.path)

    def energies(self, clip: float = 1e-5) -> NDArray[np.float32]:
        """Return the unary energies.

        Energies are returned as stored, logits as ``-log softmax`` and probabilities as
        ``-log(max(p, clip))``.

        Examples
        --------
        >>> scores = Scores(np.float32([[0.0], [1.0]]), "probabilities", "", "")
        >>> scores.energies().ravel().tolist()
        [11.5129..., -0.0]
        """
        if self.kind == "energies":
            return self.values
        if self.kind == "probabilities":
            clip = check_fraction("clip", clip)
            return np.asarray(-np.log(np.maximum(self.values, np.float32(clip))))
        return negative_log_softmax(self.values)


def read_scores(
    path: PathLike,
    *,
    shape: Sequence[int] | None = None,
    labels: int | None = None,
    axis: Literal["first", "last"] | None = None,
    kind: Kind | None = None,
    max_bytes: int = MAX_BYTES,
) -> Scores:
    """Read a score map from ``.npy``, ``.npz``, ``.unary`` or ``.c_unary``, by its suffix.

    Parameters
    ----------
    path
        The file. A ``.npz`` holds one array named ``logits``, ``probs`` or ``unary``.
    shape
        Spatial shape of the image, if known: it determines the label axis, and a leading batch axis
        of one is dropped. Maps of another resolution need ``axis`` or ``labels``.
    labels
        The number of labels, if known.
    axis
        Whether labels come first or last in an array file. By default ``shape``, ``labels`` or sums
        of one determine the axis; it is an error if both fit.
    kind
        The kind of the values. By default it is the name in a ``.npz``; probabilities are
        recognised, ``.unary`` files hold logits, and other arrays are refused.
    max_bytes
        The largest map to read.

    Raises
    ------
    FileFormatError
        A ValueError that names the file and the reason.
    """
    suffix = Path(path).suffix.lower()
    if suffix in (".unary", ".c_unary"):
        read = read_unary if suffix == ".unary" else read_c_unary
        scores = read(path, kind=kind, max_bytes=max_bytes)
        _check_expected(path, scores.values.shape, shape, labels)
        return scores
    stored: Kind | None = None
    if suffix == ".npy":
        array, reason = read_npy(path, max_bytes=max_bytes), ""
    elif suffix == ".npz":
        array, name = _one_array(path, kind, max_bytes)
        stored, reason = KEYS[name], f"the array is named {name!r}"
    else:
        known, remedy = ", ".join(SCORE_SUFFIXES), ""
        if os.fspath(path).lower().endswith((".nii", ".nii.gz", ".h5", ".zarr", ".tif", ".tiff")):
            remedy = "; use densecrf.large.refine or densecrf segment --tile, after pip install"
            remedy += " 'densecrf[large]'"
        raise FileFormatError(path, f"suffix {suffix!r} is not one of {known}{remedy}")
    if shape is not None and array.ndim == len(shape) + 2 and array.shape[0] == 1:
        array = array[0]
    values = _label_first(path, array, shape, labels, axis)
    _check_expected(path, values.shape, None, labels)
    return _scores(path, values, kind or stored, "named by the caller" if kind else reason)


def read_known(path: PathLike, kind: str | None = None) -> tuple[NDArray[Any], str | None]:
    """Read an array in its stored layout, and its kind if the file or `kind` names one.

    Parameters
    ----------
    path
        A file with one of `SCORE_SUFFIXES`.
    kind
        The kind of the scores, or None.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        return read_npy(path), kind
    if suffix == ".npz":
        array, name = _one_array(path, kind, MAX_BYTES)  # type: ignore[arg-type]
        return array, KEYS[name]
    scores = read_scores(path, kind=kind)  # type: ignore[arg-type]
    return scores.values, scores.kind


def _one_array(path: PathLike, kind: Kind | None, max_bytes: int) -> tuple[NDArray[Any], str]:
    wanted = [name for name, meaning in KEYS.items() if kind in (None, meaning)]
    arrays = read_npz(path, wanted, max_bytes=max_bytes)
    if len(arrays) > 1:
        raise FileFormatError(
            path,
            f"holds {' and '.join(arrays)}; choose by "
            + " or ".join(mention("kind", KEYS[name]) for name in arrays),
        )
    ((name, array),) = arrays.items()
    return array, name


def _label_first(
    path: PathLike,
    array: NDArray[Any],
    shape: Sequence[int] | None,
    labels: int | None,
    axis: str | None,
) -> NDArray[np.float32]:
    """Move the label axis to the front; exactly one reading of the layout must fit."""
    if array.ndim < 2:
        raise FileFormatError(path, f"shape {array.shape} needs a label axis and spatial axes")
    fits = {"first": (array.shape[0], array.shape[1:]), "last": (array.shape[-1], array.shape[:-1])}
    if axis is not None:
        check_choice("axis", axis, tuple(_AXES))
        fits = {axis: fits[axis]}
    else:
        if labels is not None:
            fits = {name: fit for name, fit in fits.items() if fit[0] == labels}
        if shape is not None and any(fit[1] == tuple(shape) for fit in fits.values()):
            fits = {name: fit for name, fit in fits.items() if fit[1] == tuple(shape)}
        if len(fits) == 2:
            summed = [name for name in fits if sums_to_one(np.moveaxis(array, _AXES[name], 0))]
            fits = {name: fits[name] for name in summed or fits}
    if not fits:
        raise FileFormatError(path, f"shape {array.shape} has no axis of {labels} labels")
    if len(fits) == 2:
        readings = " or ".join(f"{n} labels over {s}, axis={a!r}" for a, (n, s) in fits.items())
        raise FileFormatError(path, f"shape {array.shape} can be read two ways: {readings}")
    return _float_labels(np.moveaxis(array, _AXES[next(iter(fits))], 0))


def _check_expected(
    path: PathLike, found: tuple[int, ...], shape: Sequence[int] | None, labels: int | None
) -> None:
    if labels is not None and found[0] != labels:
        raise FileFormatError(path, f"has {found[0]} labels, {labels} were expected")
    if shape is not None and found[1:] != tuple(shape):
        raise FileFormatError(
            path, f"is for an image of shape {found[1:]}, the image has {tuple(shape)}"
        )


def _refuse(path: PathLike, values: NDArray[Any], bad: NDArray[np.bool_]) -> None:
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise FileFormatError(path, f"holds {values[first]} at index {first}")


def _scores(
    path: PathLike,
    values: NDArray[np.float32],
    kind: Kind | None,
    reason: str,
    *,
    tolerance: float = SUM_TOLERANCE,
    otherwise: Kind | None = None,
) -> Scores:
    """Check the values and find their kind: ``otherwise`` if they are not probabilities."""
    if values.shape[0] < 2:
        raise FileFormatError(path, f"has {values.shape[0]} label; at least two are needed")
    if kind is not None:
        check_choice("kind", kind, get_args(Kind))
    _refuse(path, values, np.isnan(values))
    if kind is None:
        if sums_to_one(values, tolerance):
            kind, reason = "probabilities", "values lie in 0..1 and sum to one over the labels"
        elif otherwise is not None:
            kind, reason = otherwise, "values do not sum to one over the labels"
        else:
            raise FileFormatError(
                path,
                "could hold logits (higher is better) or energies (lower is better): "
                "give kind='logits' or kind='energies'",
            )
    if kind == "probabilities" and (values.min() < -1e-6 or values.max() > 1 + 1e-3):
        raise FileFormatError(
            path, f"probabilities range over {values.min():g}..{values.max():g}, not 0..1"
        )
    # A forbidden label has an energy of +inf or a logit of -inf; one label must stay possible.
    best = values.min(axis=0) if kind == "energies" else values.max(axis=0)
    _refuse(path, best, ~np.isfinite(best))
    return Scores(values, kind, reason, os.fspath(path))


def read_unary(
    path: PathLike,
    *,
    kind: Kind | None = None,
    byteorder: ByteOrder = "big",
    max_bytes: int = MAX_BYTES,
) -> Scores:
    """Read an uncompressed ``.unary`` file: width, height, labels, then float32 values.

    The three counts are uint32; the values are in row order, labels fastest. Values that are not
    probabilities are read as logits.
    """
    data = _file_bytes(path, max_bytes)
    width, height, labels = _header(path, data, 3, byteorder)
    count = check_size(path, (height, width, labels), 4, max_bytes)
    _expect_bytes(path, data, 12 + 4 * count, f"{width} x {height} x {labels} values", byteorder)
    flat = np.frombuffer(data, _dtype("f4", byteorder), count, offset=12)
    largest = float(np.abs(flat).max())
    if not largest < 1e12:
        raise FileFormatError(
            path, f"values up to {largest:g} are not scores: damaged, or not {byteorder}-endian"
        )
    values = _float_labels(np.moveaxis(flat.reshape(height, width, labels), -1, 0))
    return _scores(path, values, kind, "named by the caller", otherwise="logits")


def read_c_unary(
    path: PathLike,
    *,
    kind: Kind | None = None,
    byteorder: ByteOrder = "big",
    max_bytes: int = MAX_BYTES,
) -> Scores:
    """Read a compressed ``.c_unary`` file: a table of score vectors and one index per pixel.

    Width, height, labels and the number of keys are uint32, followed by a float32 step, one int32
    vector over the labels per key (in units of the step) and one uint32 key number per pixel, in
    row order. Values that are not probabilities are read as logits.
    """
    data = _file_bytes(path, max_bytes)
    width, height, labels, keys = _header(path, data, 4, byteorder)
    count = check_size(path, (height, width, labels), 4, max_bytes) // labels
    check_size(path, (keys, labels), 4, max_bytes)
    what = f"{keys} keys of {labels} labels and {width} x {height} ids"
    _expect_bytes(path, data, 20 + 4 * (keys * labels + count), what, byteorder)

    step = float(np.frombuffer(data, _dtype("f4", byteorder), 1, offset=16)[0])
    if not np.isfinite(step) or not 1e-12 < step < 1e6:
        raise FileFormatError(path, f"step {step:g} is not a sensible quantisation step")
    table = np.frombuffer(data, _dtype("i4", byteorder), keys * labels, offset=20)
    vectors = (table.reshape(keys, labels) * step).astype(np.float32)
    ids = np.frombuffer(data, _dtype("u4", byteorder), count, offset=20 + table.nbytes)
    if int(ids.max()) >= keys:
        raise FileFormatError(path, f"names key {int(ids.max())} of {keys}: damaged")
    values = np.ascontiguousarray(vectors.T)[:, ids.astype(np.int64)]
    tolerance = max(SUM_TOLERANCE, labels * step / 2)
    return _scores(
        path,
        values.reshape(labels, height, width),
        kind,
        "named by the caller",
        tolerance=min(tolerance, 0.2),
        otherwise="logits",
    )


def _file_bytes(path: PathLike, max_bytes: int) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FileFormatError(path, f"has {size} bytes, above max_bytes={max_bytes}")
        return file.read()


def _dtype(code: str, byteorder: str) -> np.dtype[Any]:
    return np.dtype((">" if byteorder == "big" else "<") + code)


def _header(path: PathLike, data: bytes, fields: int, byteorder: str) -> list[int]:
    """Read the counts at the front; refuse a file in the other byte order."""
    if byteorder not in ("big", "little"):
        raise ValueError(f"byteorder={byteorder!r} must be 'big' or 'little'")
    if len(data) < 4 * fields:
        raise FileFormatError(path, f"ends inside its header ({len(data)} bytes): truncated")
    counts = [int(n) for n in np.frombuffer(data, _dtype("u4", byteorder), fields)]
    if min(counts) < 1:
        raise FileFormatError(path, f"header {counts} has a count of zero: damaged")
    # A small count in the wrong byte order is a multiple of 2**24 or 2**16, beyond any image.
    if min(counts[:3]) >= 2**16:
        other = "little" if byteorder == "big" else "big"
        raise FileFormatError(
            path,
            f"header {counts} is not plausible as {byteorder}-endian; "
            f"if the file is {other}-endian, give byteorder={other!r}",
        )
    return counts


def _expect_bytes(path: PathLike, data: bytes, expected: int, what: str, byteorder: str) -> None:
    if len(data) != expected:
        state = "truncated" if len(data) < expected else "too long"
        raise FileFormatError(
            path,
            f"{what} need {expected} bytes, the file has {len(data)}: {state}, damaged, or not "
            f"{byteorder}-endian",
        )


def _float_labels(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float32)
