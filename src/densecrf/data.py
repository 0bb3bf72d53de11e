"""Example photographs with strokes on them, to try the library on.

The photographs are scikit-image's (``pip install "densecrf[demo]"``), the strokes are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from densecrf.validation import check_integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from densecrf.validation import IntArray

__all__ = ["UNMARKED", "Scene", "astronaut", "coffee"]

#: The value in `Scene.scribbles` of pixels without a stroke.
UNMARKED = 255
_Points = tuple[tuple[int, int], ...]
_Strokes = tuple[tuple[int, _Points], ...]


@dataclass(frozen=True)
class Scene:
    """A photograph and the strokes that someone drew on it.

    Attributes
    ----------
    name : str
        Name of the photograph in ``skimage.data``.
    about : str
        The task, in words.
    classes, colors : tuple of str
        Name and colour of each label.
    image : ndarray, (H, W, 3) uint8
        The photograph.
    scribbles : ndarray, (H, W) int64
        The strokes' labels, 255 elsewhere.
    strokes : int
        Number of strokes.
    """

    name: str
    about: str
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    image: npt.NDArray[np.uint8]
    scribbles: IntArray
    strokes: int


def coffee(step: int = 2) -> Scene:
    """Return a cup on a table, two labels, at every `step`-th pixel.

    Examples
    --------
    >>> scene = coffee()
    >>> scene.image.shape, scene.classes
    ((200, 300, 3), ('table', 'cup'))
    """
    strokes: _Strokes = (
        (0, ((10, 60), (60, 40))),
        (0, ((20, 150), (60, 330), (200, 390))),
        (0, ((450, 20), (560, 60), (520, 200), (560, 360), (440, 385))),
        (1, ((120, 180), (110, 250), (220, 350), (400, 340), (460, 220))),
        (1, ((190, 60), (240, 30), (330, 30), (390, 80), (370, 170))),
        (1, ((205, 110), (240, 80), (350, 80), (375, 120))),
        (1, ((215, 130), (300, 115), (360, 140))),
        (1, ((230, 150), (290, 175), (340, 160))),
        (1, ((340, 285), (385, 290))),
        (1, ((230, 240), (300, 240), (380, 230))),
    )
    colors = ("#0072b2", "#ffb000")
    return _scene("coffee", "the cup from the table", ("table", "cup"), colors, strokes, step)


def astronaut(step: int = 2) -> Scene:
    """Return a portrait with six labels, at every `step`-th pixel.

    Examples
    --------
    >>> scene = astronaut(step=4)
    >>> scene.scribbles.shape, len(scene.classes)
    ((128, 128), 6)
    """
    strokes: _Strokes = (
        (0, ((110, 15), (130, 110), (110, 150))),
        (0, ((330, 60), (320, 220))),
        (0, ((440, 15), (500, 20))),
        (0, ((500, 30), (495, 250))),
        (1, ((20, 20), (30, 100), (20, 180), (80, 160))),
        (1, ((40, 260), (80, 200))),
        (1, ((15, 320), (15, 390))),
        (2, ((170, 90), (200, 40), (270, 60), (285, 100))),
        (2, ((200, 110), (230, 140), (225, 165))),
        (3, ((110, 280), (200, 320), (100, 400), (60, 480))),
        (3, ((220, 480), (300, 330))),
        (3, ((215, 470), (235, 330))),
        (4, ((190, 200), (230, 220), (270, 210))),
        (4, ((380, 290), (480, 290))),
        (4, ((320, 420), (400, 430), (440, 480))),
        (5, ((412, 10), (418, 60), (415, 110))),
        (5, ((385, 90), (388, 200))),
        (5, ((447, 60), (447, 185))),
    )
    about = "wall, flag, face and hair, suit, shuttle, black things"
    classes = ("wall", "flag", "face and hair", "suit", "black things", "shuttle")
    colors = ("#7cc4e8", "#d62728", "#2ca02c", "#ff9a1f", "#3b3b98", "#d874e0")
    return _scene("astronaut", about, classes, colors, strokes, step)


def _scene(
    name: str,
    about: str,
    classes: tuple[str, ...],
    colors: tuple[str, ...],
    strokes: _Strokes,
    step: int,
) -> Scene:
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            'example photographs need scikit-image: pip install "densecrf[demo]"', name=error.name
        ) from error
    step = check_integer("step", step, at_least=1)
    image = np.ascontiguousarray(getattr(data, name)()[::step, ::step])
    scribbles = np.full(image.shape[:2], UNMARKED, np.int64)
    y, x = np.indices(scribbles.shape)
    for label, points in strokes:
        for px, py in _along(points, step):
            scribbles[(x - px) ** 2 + (y - py) ** 2 <= 4] = label
    return Scene(name, about, classes, colors, image, scribbles, len(strokes))


def _along(points: _Points, step: int) -> Iterator[tuple[float, float]]:
    """Yield places along the line, close enough to leave no gaps."""
    scaled = np.array(points, float) / step
    for start, end in pairwise(scaled):
        for share in np.linspace(0, 1, max(2, int(np.abs(end - start).max()))):
            yield tuple(start + share * (end - start))
