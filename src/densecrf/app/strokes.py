"""Strokes of a user, checked, and the label raster that they make.

The page rasterises by the same rules (``static/strokes.js``), so that the server
solves for the pixels that the user sees.
"""

import math
import operator
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io.coco import inside

__all__ = ["MAX_LABELS", "SLOTS", "TOOLS", "VOID", "Canvas", "Stroke", "draw", "rasterise"]

VOID = 255  # no stroke
MAX_LABELS = 64
SLOTS = range(MAX_LABELS, VOID)  # labels of further objects of a class, see `Document.objects`
TOOLS = ("brush", "eraser", "line", "box", "fill", "polygon", "clear")
MAX_POINTS = 20_000
MAX_SIZE = 500.0
MAX_COORDINATE = 100_000.0
MAX_SLICES = 100_000
MAX_ASPECT = 1000.0

RUNS_AT_A_TIME = 1 << 18

Raster = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stroke:
    """One stroke: a tool, a label, a width in pixels and the points, x before y.

    Pixel (0, 0) covers the square from (0, 0) to (1, 1). Pixels that have a `protected` label
    when it is drawn keep it. `slice` says which slice of a volume it is in, of those across `axis`;
    x and y are along the axes that are left, the last first. Pixels of that plane are `aspect`
    times as high as they are wide.
    """

    tool: str
    label: int
    size: float
    points: tuple[tuple[float, float], ...]
    protected: tuple[int, ...] = ()
    slice: int = 0
    axis: int = 0
    aspect: float = 1.0

    @classmethod
    def parse(cls, value: Any) -> "Stroke":
        """Return a stroke that came as JSON, or raise ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a stroke is a JSON object")
        tool, label, size = value.get("tool"), value.get("label", 0), value.get("size", 1)
        if tool not in TOOLS:
            raise ValueError(f"tool {tool!r} is none of {', '.join(TOOLS)}")
        if not _label(label):
            raise ValueError(f"label {label!r} is not between 0 and {VOID - 1}")
        if not _number(size) or not 0 < size <= MAX_SIZE:
            raise ValueError(f"size {size!r} is not between 0 and {MAX_SIZE:g}")
        points = value.get("points", [])
        if not isinstance(points, list) or len(points) > MAX_POINTS:
            raise ValueError(f"a stroke has at most {MAX_POINTS} points")
        if not points and tool != "clear":
            raise ValueError("a stroke has at least one point")
        protected = value.get("protected", [])
        if not isinstance(protected, list) or not all(map(_label, protected)):
            raise ValueError(f"protected {protected!r} are not labels")
        at = value.get("slice", 0)
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < MAX_SLICES:
            raise ValueError(f"slice {at!r} is not between 0 and {MAX_SLICES - 1}")
        axis, aspect = value.get("axis", 0), value.get("aspect", 1)
        if axis not in (0, 1, 2) or isinstance(axis, (bool, float)):
            raise ValueError(f"axis {axis!r} is none of 0, 1, 2")
        if not _number(aspect) or not 1 / MAX_ASPECT <= aspect <= MAX_ASPECT:
            raise ValueError(
                f"aspect {aspect!r} is not between 1/{MAX_ASPECT:g} and {MAX_ASPECT:g}"
            )
        at_points = tuple(map(_point, points))
        place = (at, axis, float(aspect))
        return cls(tool, label, float(size), at_points, tuple(protected), *place)

    def enlarged(self, factor: float) -> "Stroke":
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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < VOID


def _point(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_number, value)):
        raise ValueError(f"{value!r} is not a point; give [x, y]")
    if max(map(abs, value)) > MAX_COORDINATE:
        raise ValueError(f"point {value!r} is too far away")
    return float(value[0]), float(value[1])


def rasterise(strokes: Iterable[Stroke], shape: tuple[int, ...]) -> Raster:
    """Return the label under each pixel or voxel, `VOID` where there is no stroke."""
    raster = np.full(shape, VOID, np.uint8)
    for stroke in strokes:
        draw(raster, stroke)
    return raster


class Canvas:
    """The raster of a list of strokes that mostly grows: it draws new ones alone, for any thread.

    Its shape is (H, W), or (depth, H, W).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._drawn: list[Stroke] = []
        self._raster: Raster = np.full(self.shape, VOID, np.uint8)

    def raster(self, strokes: Sequence[Stroke]) -> Raster:
        """Return a raster of its own for the strokes."""
        with self._lock:
            begin = strokes[: len(self._drawn)]
            if len(begin) < len(self._drawn) or any(map(operator.is_not, begin, self._drawn)):
                self._forget()
            for stroke in strokes[len(self._drawn) :]:
                draw(self._raster, stroke)
                self._drawn.append(stroke)
            return np.array(self._raster)


def draw(raster: Raster, stroke: Stroke) -> None:
    """Draw a stroke into a raster (H, W) or its plane of (depth, H, W), over earlier ones."""
    if raster.ndim == 3 and stroke.tool != "clear":
        if stroke.slice < raster.shape[stroke.axis]:
            draw(np.moveaxis(raster, stroke.axis, 0)[stroke.slice], stroke)
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
    elif stroke.tool == "polygon":
        if len(stroke.points) > 2:
            raster[inside(np.array(stroke.points), raster.shape)] = value
    else:
        points, tall = np.array(stroke.points), stroke.aspect
        if len(points) == 1:
            points = points.repeat(2, 0)
        if raster.shape[0] > raster.shape[1] and tall == 1:  # the work is by rows
            raster, points = raster.T, points[:, ::-1]
        radius = max(stroke.size / 2, math.sqrt(1 + tall**2) / 2)  # lines are connected
        rows, covered = _covered(raster.shape, points * (1, tall), radius, tall)
        raster[rows][covered] = value


def _span(low: float, high: float, length: int) -> slice:
    """Return the pixels whose centres lie between two coordinates."""
    return slice(max(0, math.ceil(low - 0.5)), min(length, math.floor(high - 0.5) + 1))


def _covered(
    shape: tuple[int, ...], points: Floats, radius: float, tall: float
) -> tuple[slice, npt.NDArray[np.bool_]]:
    """Return rows, and their pixels, as high as `tall`, with centres within a radius of a polyline.

    The pixels of one row that are near one segment are a run, as the set is convex. Each run is
    counted where it begins and where it ends; a pixel is covered where some are open.
    """
    height, width = shape
    start, end = points[:-1], points[1:]
    low, high = np.minimum(start, end)[:, 1] - radius, np.maximum(start, end)[:, 1] + radius
    first = np.clip(np.ceil(low / tall - 0.5), 0, height).astype(np.int64)
    rows = np.clip(np.floor(high / tall - 0.5) + 1 - first, 0, height - first).astype(np.int64)
    top, bottom = int(first.min()), int((first + rows).max())
    steps = np.zeros((bottom - top) * (width + 1), np.int32)
    chunk = np.cumsum(rows) // RUNS_AT_A_TIME
    for these in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(chunk)) + 1):
        number = rows[these]
        segment = np.repeat(these, number)
        row = np.arange(len(segment)) + np.repeat(first[these] + number - np.cumsum(number), number)
        centre = np.asarray((row + 0.5) * tall, np.float64)
        begin, behind = _runs(start[segment].T, (end - start)[segment].T, centre, radius)
        begin, behind = np.clip(begin, 0, width), np.clip(behind, 0, width)
        for at, step in ((begin, 1), (np.maximum(begin, behind), -1)):
            np.add.at(steps, (row - top) * (width + 1) + at, step)
    open_runs = steps.reshape(bottom - top, width + 1).cumsum(1, np.int32)
    return slice(top, bottom), open_runs[:, :-1] > 0


def _runs(start: Floats, side: Floats, centre: Floats, radius: float) -> tuple[Integers, Integers]:
    """Return the first pixel of each row that is near its segment, and the one behind the last."""
    (x0, y0), (dx, dy) = start, side
    y = centre - y0
    left = x0 - 0.5 + _leftmost(dx, dy, y, radius)
    right = x0 - 0.5 - _leftmost(-dx, dy, y, radius)
    begin, behind = np.ceil(left).astype(np.int64), np.floor(right).astype(np.int64) + 1
    for border, place, is_end in ((left, begin, False), (right, behind, True)):
        at = np.rint(border).astype(np.int64)
        doubtful = np.abs(border - at) < 1e-6  # rounding may have moved it to the wrong side
        x = (at + 0.5 - x0)[doubtful]
        inside = _is_near(x, y[doubtful], dx[doubtful], dy[doubtful], radius)
        place[doubtful] = at[doubtful] + (inside == is_end)
    return begin, behind


def _leftmost(dx: Floats, dy: Floats, y: Floats, radius: float) -> Floats:
    """Return the least x at a height y that is within a radius of the segment from 0 to (dx, dy).

    That is the minimum over t in [0, 1] of the convex function t dx - sqrt(r^2 - (y - t dy)^2),
    whose derivative is zero where y - t dy = r dx / sqrt(dx^2 + dy^2), with the sign of dy.
    """
    level = dy == 0
    slope = np.where(level, 1.0, dy)
    up = np.copysign(radius, slope)
    least, most = np.maximum(0, (y - up) / slope), np.minimum(1, (y + up) / slope)
    t = np.clip((y - up * dx / np.hypot(dx, slope)) / slope, least, np.maximum(least, most))
    t = np.where(level, dx < 0, t)
    return np.asarray(t * dx - np.sqrt(np.maximum(0, radius**2 - (y - t * dy) ** 2)))


def _is_near(x: Floats, y: Floats, dx: Floats, dy: Floats, radius: float) -> npt.NDArray[np.bool_]:
    """Return whether points are within a radius of the segment from 0 to (dx, dy)."""
    length = dx * dx + dy * dy
    t = np.clip(np.divide(x * dx + y * dy, length, where=length > 0, out=np.zeros_like(x)), 0, 1)
    return np.asarray((x - t * dx) ** 2 + (y - t * dy) ** 2 <= radius * radius)


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
