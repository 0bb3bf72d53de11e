"""Files through `densecrf.io`: what is whole is read as it was written, what is damaged is refused.

Images, label maps and scores of odd types and shapes are written by other programs' libraries, some
of them damaged afterwards.
"""

from __future__ import annotations

import io
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from problems import pick

from densecrf import io as doors

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]

HAVE_FORMATS = all(find_spec(name) is not None for name in ("PIL", "tifffile"))
REFUSALS = (ValueError, OSError, MemoryError)  # FileFormatError and ArgumentError are ValueErrors
SIZES = ((8, 9), (1, 1), (1, 7), (5, 1), (16, 16), (33, 17))
KINDS = ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", ">u2", ">f4")
TYPES_OF_TIFF = ("u1", "u2", "u4", "i1", "i2", "i4", "f4", "f8", "f2", "u8")


class Case(NamedTuple):
    """A file, how it is read, and what is right."""

    words: str
    suffix: str
    data: bytes
    read: Callable[[Path], Array]
    judge: Callable[[Array, bool], list[str]]
    readable: bool = False  # it may not be refused as long as it is whole


def run_format(rng: np.random.Generator) -> list[str]:
    """Write a file drawn from the seed and read it; return what is wrong with the answer."""
    case = pick(rng, (_image, _labels, _scores))(rng)
    whole = rng.random() < 0.5
    words = f"{case.words}, {'whole' if whole else 'damaged'}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file.{case.suffix}"
        path.write_bytes(case.data if whole else damaged(rng, case.data))
        try:
            found = case.read(path)
        except REFUSALS as error:
            wrong = not str(error) or (whole and case.readable)
            return [f"{words}: refused: {error!r}"] if wrong else []
        except Exception as error:
            return [f"{words}: {type(error).__name__}: {error}"]
    return [f"{words}: {text}" for text in case.judge(found, whole)]


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Return a file that is cut, changed in some bits or bytes, empty, or nothing but noise."""
    way = pick(rng, ("cut", "cut", "flipped", "flipped", "zeros", "empty", "noise", "long", "head"))
    changed = bytearray(data)
    if way == "cut":
        return data[: int(rng.integers(len(data)))]
    if way == "flipped":
        for place in rng.integers(0, len(data), int(pick(rng, (1, 3, 30)))):
            changed[place] ^= 1 << int(rng.integers(8))
    elif way == "zeros":
        first = int(rng.integers(len(data)))
        changed[first : first + 64] = bytes(len(changed[first : first + 64]))
    elif way == "head":
        for place in rng.integers(0, min(len(data), 200), 4):
            changed[place] = int(pick(rng, (0, 1, 127, 128, 255)))
    elif way == "long":
        changed += rng.bytes(50)
    return {"empty": b"", "noise": rng.bytes(200)}.get(way, bytes(changed))


def _values(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Return numbers of a type, over all of its range or over a part that images have."""
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "fc":
        values = rng.random(shape) * pick(rng, (1, 255, 1e4, -3))
        if rng.random() < 0.1:
            values.flat[int(rng.integers(values.size))] = pick(rng, (np.nan, np.inf, 1e300))
        return values.astype(dtype)
    info = np.iinfo(dtype)
    high = int(pick(rng, (1, 2, 100, 255, 4095, info.max)))
    low = info.min if rng.random() < 0.2 else 0
    return rng.integers(low, min(high, info.max), shape, dtype.newbyteorder("="), True).astype(
        dtype
    )


def _image(rng: np.random.Generator) -> Case:
    size = pick(rng, SIZES)
    way = pick(rng, ("pillow", "tifffile", "tifffile", "tifffile", "npy"))
    if way == "pillow":
        return _by_pillow(rng, size)
    if way == "npy":
        values = _values(rng, (*size, *pick(rng, ((), (3,)))), pick(rng, KINDS))
        return _array(values)
    count = int(pick(rng, (1, 2, 3, 3, 4, 5)))
    separate = count > 1 and rng.random() < 0.5
    kind = str(pick(rng, TYPES_OF_TIFF))
    values = _values(rng, (*size, count) if count > 1 else size, kind)
    options: dict[str, Any] = {
        "photometric": "rgb" if count >= 3 and rng.random() < 0.5 else "minisblack",
        "byteorder": pick(rng, ("<", ">")),
        "bigtiff": bool(rng.random() < 0.2),
        "compression": pick(rng, (None, None, "zlib")),
        "tile": (16, 16) if rng.random() < 0.3 else None,
        "predictor": False,
    }
    if count > 1:
        options["planarconfig"] = "separate" if separate else "contig"
        options["extrasamples"] = [0] * (count - (3 if options["photometric"] == "rgb" else 1))
    stored = np.moveaxis(values, -1, 0) if separate else values
    words = f"tiff {kind} {values.shape} {options}"
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
    grey = count == 1 and values.dtype.kind in "ui" and values.dtype != np.uint8
    known = (values.min() >= 0 and values.max() <= 65535) if grey else np.isfinite(single).all()
    return Case(words, "tif", _tiff(stored, options), _native, _equal_tiff(values), bool(known))


def _tiff(values: Array, options: dict[str, Any]) -> bytes:
    import tifffile

    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.ascontiguousarray(values), **options)
    return buffer.getvalue()


def _native(path: Path) -> Array:
    return np.asarray(doors.read_image(path, native=True))


def _by_pillow(rng: np.random.Generator, size: tuple[int, int]) -> Case:
    from PIL import Image

    mode = pick(rng, ("L", "RGB", "RGBA", "LA", "P", "1", "I;16", "CMYK", "F"))
    suffixes = {"I;16": ("png", "tif"), "F": ("tif",), "CMYK": ("jpg", "tif"), "LA": ("png",),
                "RGBA": ("png", "tif", "webp"), "1": ("png", "bmp"),
                "P": ("png", "gif", "bmp")}  # fmt: skip
    suffix = pick(rng, suffixes.get(mode, ("png", "bmp", "tif", "jpg", "webp")))
    channels = {"RGB": (3,), "RGBA": (4,), "LA": (2,), "CMYK": (4,)}.get(mode, ())
    values = _values(rng, (*size, *channels), {"I;16": "u2", "F": "f4"}.get(mode, "u1"))
    if channels:
        picture = Image.frombytes(mode, size[::-1], values.tobytes())
    else:
        picture = Image.fromarray(values)
    if mode == "P":
        picture = picture.convert("P")
        picture.putpalette(rng.integers(0, 256, 768, np.uint8).tobytes())
    if mode == "1":
        picture = picture.convert("1")
    buffer = io.BytesIO()
    lossless = {"lossless": True} if suffix == "webp" else {}
    picture.save(buffer, {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()), **lossless)
    exact = mode in ("L", "RGB", "RGBA") and suffix in ("png", "bmp", "tif")
    expected = values[..., :3] if mode == "RGBA" else values
    judge = _equal(expected) if exact else _plausible(size)
    return Case(f"{mode} {size} in {suffix}", suffix, buffer.getvalue(), _native, judge, exact)


def _labels(rng: np.random.Generator) -> Case:
    from PIL import Image

    size = pick(rng, SIZES)
    count = int(pick(rng, (1, 2, 21, 255, 256, 300, 60000)))
    labels = rng.integers(0, count, size)
    way = pick(rng, ("ours", "ours", "npy", "picture"))
    if way == "npy":
        values = _values(rng, size, pick(rng, KINDS))
        return _array(values)
    if way == "picture":
        values = _values(rng, (*size, *pick(rng, ((), (3,), (4,)))), "u1")
        buffer = io.BytesIO()
        Image.fromarray(values).save(buffer, "PNG")
        data = buffer.getvalue()
        return Case("any picture as labels", "png", data, doors.read_labels, _plausible(size))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.png"
        doors.write_labels(path, labels)
        data = path.read_bytes()
    return Case(f"{count} labels {size}", "png", data, doors.read_labels, _equal(labels), True)


def _array(values: Array) -> Case:
    numbers = values.dtype.kind in "biuf"
    return Case(f"{values.dtype}", "npy", _npy(values), doors.read_npy, _equal(values), numbers)


def _scores(rng: np.random.Generator) -> Case:
    size, count = pick(rng, SIZES), int(pick(rng, (1, 2, 3, 21)))
    first = rng.random() < 0.5
    values = _values(rng, (count, *size) if first else (*size, count), pick(rng, KINDS))
    if values.dtype.kind == "f" and rng.random() < 0.5:
        values = np.abs(np.nan_to_num(values, posinf=1)) + 1e-3
        values /= values.sum(0 if first else -1, keepdims=True)
    if rng.random() < 0.7:
        suffix, data = "npy", _npy(values)
    else:
        buffer = io.BytesIO()
        np.savez(buffer, **{pick(rng, ("probs", "logits", "unary", "other")): values})
        suffix, data = "npz", buffer.getvalue()

    def read(path: Path) -> Array:
        return np.asarray(doors.read_scores(path, shape=size).energies())

    def judge(found: Array, _: bool) -> list[str]:
        right = found.shape[1:] == size and np.isfinite(found).all()
        return [] if right else [f"energies of shape {found.shape}, or not finite"]

    words = f"scores {values.dtype} {values.shape} in {suffix}"
    return Case(words, suffix, data, read, judge)


def _npy(values: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def _equal(values: Array) -> Callable[[Array, bool], list[str]]:
    def judge(found: Array, whole: bool) -> list[str]:
        if not whole or np.array_equal(found, values, equal_nan=values.dtype.kind in "fc"):
            return []
        return [f"read as {found.dtype} {found.shape}, with other numbers"]

    return judge


def _equal_tiff(values: Array) -> Callable[[Array, bool], list[str]]:
    """Numbers of half and double precision are read in single; integers as stored."""
    stored = values.astype(np.float32) if values.dtype.kind == "f" else values

    def judge(found: Array, whole: bool) -> list[str]:
        if whole:
            return _equal(stored)(found, True)
        fine = found.dtype.kind != "f" or np.isfinite(found).all()
        return [] if fine else ["numbers that are not finite"]

    return judge


def _plausible(size: tuple[int, int]) -> Callable[[Array, bool], list[str]]:
    def judge(found: Array, whole: bool) -> list[str]:
        if whole and found.shape[:2] != size:
            return [f"read as {found.shape}"]
        fine = found.dtype.kind != "f" or np.isfinite(found).all()
        return [] if fine else ["numbers that are not finite"]

    return judge
