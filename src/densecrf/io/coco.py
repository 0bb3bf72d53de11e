"""COCO's annotations: run-length masks, polygons and boxes, to arrays and back.

A run-length mask is ``{"size": [height, width], "counts": ...}``. Its counts are the lengths of
alternating runs of zeros and ones in column order, zeros first, as a list or as COCO's compressed
string. A polygon is a list ``[x0, y0, x1, y1, ...]``; a mask is a list of polygons. A box is
``[x, y, width, height]``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import ArgumentError, as_real_array, check_finite

__all__ = [
    "box_of",
    "decode",
    "decode_runs",
    "encode",
    "encode_runs",
    "inside",
    "loops",
    "outlines",
    "rasterise",
    "run_lengths",
]

Mask = npt.NDArray[np.bool_]

_CHUNK, _SIGN, _MORE, _ZERO = 5, 0x10, 0x20, 48  # bits of a character, and its least code


def run_lengths(mask: Mask) -> list[int]:
    """Return COCO's run lengths of a mask: column order, zeros first.

    Examples
    --------
    >>> run_lengths(np.array([[True, False], [True, True]]))
    [0, 2, 1, 1]
    """
    flat = mask.ravel(order="F")
    borders = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff(np.concatenate([[0], borders, [flat.size]])).tolist()
    return [0, *runs] if flat[0] else runs


def encode_runs(runs: Sequence[int]) -> str:
    """Return run lengths as COCO's compressed string.

    The first three runs are written as they are, each later one as its difference from the run two
    places before. Numbers are split into five-bit chunks, lowest first; the last carries the sign.

    Examples
    --------
    >>> encode_runs([6, 1, 40, 4, 5, 4, 5, 4, 21])
    '61X13mN000`0'
    """
    text = []
    for i, run in enumerate(runs):
        value = run - runs[i - 2] if i > 2 else run
        more = True
        while more:
            chunk = value & (2**_CHUNK - 1)
            value >>= _CHUNK
            more = value != (-1 if chunk & _SIGN else 0)
            text.append(chr((chunk | (_MORE if more else 0)) + _ZERO))
    return "".join(text)


def decode_runs(text: str) -> list[int]:
    """Return the run lengths of COCO's compressed string.

    Examples
    --------
    >>> decode_runs("61X13mN000`0")
    [6, 1, 40, 4, 5, 4, 5, 4, 21]
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        chunk = ord(character) - _ZERO
        if not 0 <= chunk < 2 * _MORE:
            raise ArgumentError("counts", text, "not COCO's compressed run lengths")
        value |= (chunk & (2**_CHUNK - 1)) << shift
        shift += _CHUNK
        if chunk & _MORE:
            continue
        if chunk & _SIGN:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    if shift:
        raise ArgumentError("counts", text, "ends within a run: truncated")
    return runs


def decode(segmentation: Any, shape: tuple[int, int]) -> Mask:
    """Return the mask of a segmentation: run lengths, compressed or not, or polygons.

    Parameters
    ----------
    segmentation : dict or list
        The field ``segmentation`` of an annotation.
    shape : (int, int)
        Height and width of the image.

    Examples
    --------
    >>> decode({"size": [2, 2], "counts": [0, 2, 1, 1]}, (2, 2))
    array([[ True, False],
           [ True,  True]])
    >>> decode([[0, 0, 2, 0, 2, 1, 0, 1]], (2, 3)).astype(int)
    array([[1, 1, 0],
           [0, 0, 0]])
    """
    if not isinstance(segmentation, dict):
        return rasterise(segmentation, shape)
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if not isinstance(size, (list, tuple)) or tuple(size) != tuple(shape):
        remedy = f"size {size} of a mask for an image of {shape} (height, width)"
        raise ArgumentError("segmentation", ..., remedy)
    if isinstance(counts, bytes):
        counts = counts.decode("ascii", "replace")
    runs = np.asarray(decode_runs(counts) if isinstance(counts, str) else counts)
    if runs.ndim != 1 or runs.dtype.kind not in "iu" or (runs < 0).any():
        raise ArgumentError("counts", counts, "give run lengths or COCO's compressed string")
    if int(runs.sum()) != shape[0] * shape[1]:
        remedy = f"runs of {int(runs.sum())} pixels for an image of {shape[0]} × {shape[1]}"
        raise ArgumentError("counts", ..., remedy)
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.ascontiguousarray(flat.reshape(shape, order="F"))


def encode(mask: Mask, like: Any) -> Any:
    """Return a mask as a segmentation in the format of another.

    Polygons cannot have holes: a mask with holes is returned as run lengths.

    Examples
    --------
    >>> encode(np.array([[True, True]]), {"size": [1, 2], "counts": [2]})
    {'size': [1, 2], 'counts': [0, 2]}
    >>> encode(np.array([[True, True]]), [[0, 0, 1, 0, 1, 1]])
    [[0, 0, 2, 0, 2, 1, 0, 1]]
    """
    polygons = None if isinstance(like, dict) else outlines(mask)
    if polygons is not None:
        return polygons
    runs = run_lengths(mask)
    counts = like.get("counts") if isinstance(like, dict) else ""
    coded: Any = runs
    if isinstance(counts, (str, bytes)):
        coded = encode_runs(runs)
        coded = coded.encode("ascii") if isinstance(counts, bytes) else coded
    return {"size": list(mask.shape), "counts": coded}


def rasterise(polygons: Any, shape: tuple[int, int]) -> Mask:
    """Return the pixels whose centre lies in one of the polygons (even-odd rule).

    Examples
    --------
    >>> rasterise([[0, 0, 3, 0, 3, 2, 0, 2]], (3, 4)).sum()
    np.int64(6)
    """
    if not isinstance(polygons, (list, tuple)):
        raise ArgumentError("segmentation", polygons, "give run lengths or a list of polygons")
    mask = np.zeros(shape, bool)
    for given in polygons:
        points = as_real_array("segmentation", given).astype(np.float64).ravel()
        if points.size < 6 or points.size % 2:
            remedy = f"a polygon of {points.size} numbers; give x and y of three points or more"
            raise ArgumentError("segmentation", ..., remedy)
        check_finite("segmentation", points)
        mask |= inside(points.reshape(-1, 2), shape)
    return mask


def inside(points: npt.NDArray[np.float64], shape: tuple[int, ...]) -> Mask:
    """Return the pixels whose centre has an odd number of edges of a polygon (x, y) to its left."""
    flips = np.zeros((shape[0], shape[1] + 1), np.int32)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, 0), strict=True):
        low, high = (max(0, int(np.ceil(y - 0.5))) for y in sorted((y0, y1)))
        rows = np.arange(low, min(high, shape[0]))
        if rows.size:
            x = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
            flips[rows, np.clip(np.ceil(x - 0.5), 0, shape[1]).astype(np.int64)] += 1
    return np.asarray(flips.cumsum(1)[:, :-1] % 2 == 1)


def outlines(mask: Mask) -> list[list[int]] | None:
    """Return the outlines of a mask along pixel borders, or None if it has holes.

    Examples
    --------
    >>> outlines(np.array([[True, True], [True, False]]))
    [[0, 0, 2, 0, 2, 1, 1, 1, 1, 2, 0, 2]]
    """
    polygons = []
    for loop in loops(mask):
        points = np.asarray(loop)
        x, y = points.T
        if (x * np.roll(y, -1) - y * np.roll(x, -1)).sum() < 0:
            return None
        ahead, behind = np.roll(points, -1, 0) - points, points - np.roll(points, 1, 0)
        polygons.append(points[(ahead != behind).any(1)].ravel().tolist())
    return polygons


def loops(mask: Mask) -> Iterator[list[tuple[int, int]]]:
    """Yield the closed borders of a mask, corner by corner, the mask to the right."""
    padded = np.pad(mask, 1)
    inside = padded[1:-1, 1:-1]
    # Towards x, y: above a pixel to the right, right of it down, below to the left, left of it up.
    sides = (
        (padded[:-2, 1:-1], (0, 0), (1, 0)),
        (padded[1:-1, 2:], (1, 0), (0, 1)),
        (padded[2:, 1:-1], (1, 1), (-1, 0)),
        (padded[1:-1, :-2], (0, 1), (0, -1)),
    )
    steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for beside, corner, step in sides:
        for y, x in np.argwhere(inside & ~beside).tolist():
            steps.setdefault((x + corner[0], y + corner[1]), []).append(step)
    for start in sorted(steps):
        while steps[start]:
            at, loop, last = start, [], (0, 0)
            while steps[at]:
                turn = (-last[1], last[0])  # where two borders meet, to the right
                ways = steps[at]
                last = ways.pop(ways.index(turn) if turn in ways else 0)
                loop.append(at)
                at = at[0] + last[0], at[1] + last[1]
            yield loop


def box_of(mask: Mask) -> list[int]:
    """Return the box of a mask: x, y, width, height; zeros if it is empty.

    Examples
    --------
    >>> box_of(np.array([[False, False], [False, True]]))
    [1, 1, 1, 1]
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not rows.size:
        return [0, 0, 0, 0]
    x, y = int(columns[0]), int(rows[0])
    return [x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1]
