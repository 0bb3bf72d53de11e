"""Strokes: what is refused, and which pixels each tool sets."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from densecrf.app import strokes as module
from densecrf.app.strokes import VOID, Canvas, Stroke, draw, rasterise

SHAPE = (20, 30)


def stroke(tool, *points, label=1, size=5.0, protected=()):
    return Stroke(tool, label, size, tuple((float(x), float(y)) for x, y in points), protected)


def test_brush_sets_the_pixels_within_half_its_width():
    raster = rasterise([stroke("brush", (5, 10), (20, 10), size=6)], SHAPE)
    y, x = np.mgrid[:20, :30] + 0.5
    t = np.clip(x, 5, 20)
    inside = (x - t) ** 2 + (y - 10) ** 2 <= 9
    np.testing.assert_array_equal(raster == 1, inside)
    assert set(np.unique(raster)) == {1, VOID}


@given(st.integers(0, 2**32 - 1))
def test_a_polyline_sets_the_pixels_near_any_of_its_segments(seed):
    """By the formula of ``static/strokes.js``, pixels on the border included."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-10, 40, (rng.integers(1, 6), 2))
    if seed % 2:
        points = np.rint(points * 2) / 2  # level, upright and repeated segments, and ties
    size = float(rng.choice([1, 3, 4, 10, rng.uniform(0.1, 40)]))
    y, x = np.mgrid[:20, :30] + 0.5
    radius = max(size / 2, math.sqrt(0.5))
    inside = np.zeros(SHAPE, bool)
    for (x0, y0), (x1, y1) in itertools.pairwise([*points, points[-1]]):
        px, py, dx, dy = x - x0, y - y0, x1 - x0, y1 - y0
        length = dx * dx + dy * dy
        t = np.clip((px * dx + py * dy) / length, 0, 1) if length else 0
        inside |= (px - t * dx) ** 2 + (py - t * dy) ** 2 <= radius * radius
    drawn = rasterise([stroke("brush", *points, size=size)], SHAPE)
    np.testing.assert_array_equal(drawn == 1, inside)
    upright = rasterise([stroke("brush", *points[:, ::-1], size=size)], SHAPE[::-1])
    np.testing.assert_array_equal(upright == 1, inside.T)


def test_a_canvas_draws_each_stroke_once(monkeypatch):
    strokes = [stroke("brush", (x, 5)) for x in range(4)]
    canvas = Canvas(SHAPE)
    for known in (strokes[:2], strokes, strokes[:3], [*strokes[:2], strokes[3]]):
        np.testing.assert_array_equal(canvas.raster(known), rasterise(known, SHAPE))
    drawn = []
    monkeypatch.setattr(
        module, "draw", lambda raster, each: drawn.append(each) or draw(raster, each)
    )
    canvas.raster([*strokes[:2], strokes[3], strokes[2]])
    assert drawn == [strokes[2]]


def test_a_thin_line_is_connected():
    raster = rasterise([stroke("line", (0.5, 0.5), (29.5, 19.5), size=1)], SHAPE)
    assert (raster[:, :-1] == 1).any(0).all()
    rows = [np.flatnonzero(column == 1) for column in raster.T]
    for left, right in itertools.pairwise(rows):
        assert left.min() <= right.max() + 1
        assert right.min() <= left.max() + 1


def test_eraser_box_fill_and_clear():
    raster = rasterise([stroke("box", (2, 3), (10, 8), label=0)], SHAPE)
    assert (raster == 0).sum() == 8 * 5
    draw(raster, stroke("eraser", (4.5, 5.5), size=2))
    assert raster[5, 4] == VOID
    draw(raster, stroke("fill", (3.5, 4.5), label=2))
    assert raster[4, 3] == 2
    assert raster[15, 20] == VOID
    draw(raster, stroke("fill", (20.5, 15.5), label=3))
    assert not (raster[10:] == VOID).any()
    draw(raster, stroke("clear"))
    assert (raster == VOID).all()


@given(st.integers(0, 2**32 - 1))
def test_fill_reaches_what_is_connected_by_sides_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 2, (9, 11)).astype(np.uint8)
    x, y = int(rng.integers(11)), int(rng.integers(9))
    after = before.copy()
    draw(after, stroke("fill", (x + 0.5, y + 0.5), label=7))
    reached = np.zeros(before.shape, bool)
    reached[y, x] = True
    while True:
        grown = reached.copy()
        grown[1:] |= reached[:-1]
        grown[:-1] |= reached[1:]
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown &= before == before[y, x]
        if (grown == reached).all():
            break
        reached = grown
    np.testing.assert_array_equal(after, np.where(reached, 7, before))


def test_protected_labels_stay():
    raster = rasterise([stroke("box", (0, 0), (30, 20), label=4)], SHAPE)
    draw(raster, stroke("brush", (10, 10), label=1, protected=(4,)))
    assert (raster == 4).all()
    draw(raster, stroke("brush", (10, 10), label=1))
    assert (raster == 1).any()


def test_strokes_outside_the_image_do_nothing():
    far = [(-500.0, -500.0), (900.0, 3.0)]
    for tool in ("box", "fill", "brush"):
        assert (rasterise([stroke(tool, far[0])], SHAPE) == VOID).all()
        rasterise([stroke(tool, *far)], SHAPE)


def test_json_there_and_back():
    given_ = stroke("brush", (1.25, 2.5), (3, 4), protected=(2, 3))
    assert Stroke.parse(given_.to_json()) == given_


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "spray"},
        {"label": -1},
        {"label": 255},
        {"label": True},
        {"label": 1.5},
        {"size": 0},
        {"size": float("nan")},
        {"size": 1e9},
        {"points": []},
        {"points": [[1]]},
        {"points": [[1, float("inf")]]},
        {"points": [[1, "2"]]},
        {"points": [[1e9, 0]]},
        {"points": [[0, 0]] * 20_001},
        {"points": "no"},
        {"protected": [255]},
        {"protected": 3},
    ],
)
def test_what_is_no_stroke_is_refused(change):
    with pytest.raises(ValueError, match=r"\w"):
        Stroke.parse({**stroke("brush", (1, 1)).to_json(), **change})
    with pytest.raises(ValueError, match="JSON object"):
        Stroke.parse([change])
