"""Strokes: what a user draws, checked, and the label raster that they make.

The page rasterises by the same rules (``static/strokes.js``), so that what is seen is what is
solved.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_LABELS", "TOOLS", "VOID", "Stroke", "draw", "rasterise"]

VOID = 255  # no stroke
MAX_LABELS = 64
TOOLS = ("brush", "eraser", "line", "box", "fill", "clear")
MAX_POINTS = 20_000
MAX_SIZE = 500.0
MAX_COORDINATE = 100_000.0
MAX_SLICES = 100_000

Raster = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Stroke:
    """One stroke: a tool, a label, a width in pixels and the points, x before y.

    Pixel (0, 0) covers the square from (0, 0) to (1, 1). Pixels that have a `protected` label
    when it is drawn keep it. `slice` says which slice of a volume it is in.
    """

    tool: str
    label: int
    size: float
    points: tuple[tuple[float, float], ...]
    protected: tuple[int, ...] = ()
    slice: int = 0

    @classmethod
    def parse(cls, value: Any) -> "Stroke":
        """Return a stroke that came as JSON, or raise ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a stroke is a JSON object")
        tool, label, size = value.get("tool"), value.get("label", 0), value.get("size", 1)
        if tool not in TOOLS:
            raise ValueError(f"tool {tool!r} is none of {', '.join(TOOLS)}")
        if not _label(label):
            raise ValueError(f"label {label!r} is not between 0 and {MAX_LABELS - 1}")
        if not _number(size) or not 0 < size <= MAX_SIZE:
            raise ValueError(f"size {size!r} is not between 0 and {MAX_SIZE:g}")
        points = value.get("points", [])
        if not isinstance(points, list) or len(points) > MAX_POINTS:
            raise ValueError(f"a stroke has at most {MAX_POINTS} points")
        if not points and tool != "clear":
            raise ValueError("a stroke has at least one point")
        protected = value.get("protected", [])
        if not isinstance(protected, list) or not all(map(_label, protected)):
            raise ValueError(f"protected {protected!r} are no labels")
        at = value.get("slice", 0)
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < MAX_SLICES:
            raise ValueError(f"slice {at!r} is not between 0 and {MAX_SLICES - 1}")
        return cls(tool, label, float(size), tuple(map(_point, points)), tuple(protected), at)

    def enlarged(self, factor: int) -> "Stroke":
        """Return the same stroke on an image that is larger by a factor."""
        points = tuple((factor * x, factor * y) for x, y in self.points)
        return replace(self, size=factor * self.size, points=points)

    def to_json(self) -> dict[str, Any]:
        """Return the stroke as JSON values."""
        points, protected = [list(point) for point in self.points], list(self.protected)
        return {**asdict(self), "points": points, "protected": protected}


def _number(value: Any) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and math.isfinite(value)


def _label(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_LABELS


def _point(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_number, value)):
        raise ValueError(f"{value!r} is no point; give [x, y]")
    if max(map(abs, value)) > MAX_COORDINATE:
        raise ValueError(f"point {value!r} is too far away")
    return float(value[0]), float(value[1])


def rasterise(strokes: Iterable[Stroke], shape: tuple[int, ...]) -> Raster:
    """Return the label under each pixel or voxel, `VOID` where there is no stroke."""
    raster = np.full(shape, VOID, np.uint8)
    for stroke in strokes:
        draw(raster, stroke)
    return raster


def draw(raster: Raster, stroke: Stroke) -> None:
    """Draw a stroke into a raster (H, W) or its slice of (depth, H, W), over what is there."""
    if raster.ndim == 3 and stroke.tool != "clear":
        if stroke.slice < len(raster):
            draw(raster[stroke.slice], stroke)
        return
    before = raster.copy() if stroke.protected else raster
    _draw(raster, stroke)
    if stroke.protected:
        kept = np.isin(before, stroke.protected)
        raster[kept] = before[kept]


def _draw(raster: Raster, stroke: Stroke) -> None:
    value = VOID if stroke.tool == "eraser" else stroke.label
    if stroke.tool == "clear":
        raster[...] = VOID
    elif stroke.tool == "fill":
        _fill(raster, stroke.points[0], value)
    elif stroke.tool == "box":
        (x0, y0), (x1, y1) = stroke.points[0], stroke.points[-1]
        rows = _span(min(y0, y1), max(y0, y1), raster.shape[0])
        columns = _span(min(x0, x1), max(x0, x1), raster.shape[1])
        raster[rows, columns] = value
    else:
        points = stroke.points if len(stroke.points) > 1 else stroke.points * 2
        for start, end in itertools.pairwise(points):
            _capsule(raster, start, end, stroke.size / 2, value)


def _span(low: float, high: float, length: int) -> slice:
    """Return the pixels whose centres lie between two coordinates."""
    return slice(max(0, math.ceil(low - 0.5)), min(length, math.floor(high - 0.5) + 1))


def _capsule(
    raster: Raster,
    start: tuple[float, float],
    end: tuple[float, float],
    radius: float,
    value: int,
) -> None:
    """Set the pixels whose centres are within a radius of a segment, or that hold its start."""
    radius = max(radius, math.sqrt(0.5))  # a line is connected, however thin
    (x0, y0), (x1, y1) = start, end
    rows = _span(min(y0, y1) - radius, max(y0, y1) + radius, raster.shape[0])
    columns = _span(min(x0, x1) - radius, max(x0, x1) + radius, raster.shape[1])
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return
    px = np.arange(columns.start, columns.stop) + 0.5 - x0
    py = (np.arange(rows.start, rows.stop) + 0.5 - y0)[:, None]
    dx, dy = x1 - x0, y1 - y0
    length = dx * dx + dy * dy
    t = np.clip((px * dx + py * dy) / length, 0, 1) if length else np.zeros((1, 1))
    inside = (px - t * dx) ** 2 + (py - t * dy) ** 2 <= radius * radius
    raster[rows, columns][inside] = value


def _fill(raster: Raster, point: tuple[float, float], value: int) -> None:
    """Set the pixels that are connected, by sides, to the one at a point and have its value."""
    x, y = math.floor(point[0]), math.floor(point[1])
    height, width = raster.shape
    if not (0 <= x < width and 0 <= y < height) or raster[y, x] == value:
        return
    same = raster == raster[y, x]
    todo = [(x, y)]
    while todo:  # one run of a row at a time
        x, y = todo.pop()
        row = same[y]
        if not row[x]:
            continue
        before = np.flatnonzero(~row[:x])
        behind = np.flatnonzero(~row[x:])
        left = int(before[-1]) + 1 if before.size else 0
        right = x + int(behind[0]) if behind.size else width
        row[left:right] = False
        raster[y, left:right] = value
        for other in (y - 1, y + 1):
            if 0 <= other < height:
                run = same[other, left:right]
                starts = np.flatnonzero(run & ~np.concatenate([[False], run[:-1]]))
                todo += [(left + int(start), other) for start in starts]
