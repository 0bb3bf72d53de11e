"""The photographs, what someone drew on them, and the model of both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.model import DenseCRF
from densecrf.presets import Model
from densecrf.result import Result
from densecrf.scribbles import scribble_unary
from densecrf.validation import IntArray

__all__ = ["NOTHING", "SCENES", "Comparison", "Scene", "compare"]

NOTHING = 255
Points = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Scene:
    """A photograph and the strokes that someone drew on it.

    Attributes
    ----------
    name : str
        Name of the photograph in ``skimage.data``.
    about : str
        What is to be told apart.
    classes : tuple of str
        Names of the labels.
    colors : tuple of str
        A colour for each label.
    strokes : tuple of (label, points)
        Lines through (x, y) in the full photograph.
    """

    name: str
    about: str
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    strokes: tuple[tuple[int, Points], ...]
    step: int = 2  # every second pixel is plenty for a first look

    def image(self) -> npt.NDArray[np.uint8]:
        """Return the photograph, (H, W, 3)."""
        try:
            from skimage import data
        except ImportError as error:
            raise ImportError(
                'the demonstration needs scikit-image: pip install "densecrf[demo]"',
                name=error.name,
            ) from error
        photograph = getattr(data, self.name)()
        return np.ascontiguousarray(photograph[:: self.step, :: self.step])

    def scribbles(self, shape: tuple[int, int]) -> IntArray:
        """Return the strokes as labels (H, W), 255 elsewhere."""
        out = np.full(shape, NOTHING, np.int64)
        y, x = np.indices(shape)
        for label, points in self.strokes:
            for px, py in _along(points, self.step):
                out[(x - px) ** 2 + (y - py) ** 2 <= 4] = label
        return out


def _along(points: Points, step: int) -> Iterator[tuple[float, float]]:
    """Yield places along the line, close enough to leave no gaps."""
    scaled = np.array(points, float) / step
    for start, end in pairwise(scaled):
        for share in np.linspace(0, 1, max(2, int(np.abs(end - start).max()))):
            yield tuple(start + share * (end - start))


#: A problem of two labels, which the linear program solves exactly, and one of six.
SCENES: tuple[Scene, ...] = (
    Scene(
        "coffee",
        "the cup from the table",
        ("table", "cup"),
        ("#0072b2", "#ffb000"),
        (
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
        ),
    ),
    Scene(
        "astronaut",
        "wall, flag, face and hair, suit, shuttle, and what is black",
        ("wall", "flag", "face and hair", "suit", "black things", "shuttle"),
        ("#7cc4e8", "#d62728", "#2ca02c", "#ff9a1f", "#3b3b98", "#d874e0"),
        (
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
        ),
    ),
)

#: Strokes leave much to the kernels, so they are short and strong.
KERNELS = Model(sigma=3, weight=5, sigma_xy=15, sigma_color=8, bilateral_weight=15)
CERTAINTY = 0.95  # of the strokes' colours


@dataclass(frozen=True)
class Comparison:
    """A scene's answers."""

    scene: Scene
    image: npt.NDArray[np.uint8]
    scribbles: IntArray
    crf: DenseCRF
    results: tuple[Result, ...]

    def result(self, method: str) -> Result:
        """Return what one method found."""
        return next(result for result in self.results if result.method == method)


def compare(
    scene: Scene,
    methods: tuple[str, ...] = ("mf5", "mf", "lp"),
    on_method: Callable[[str], Any] = lambda _: None,
) -> Comparison:
    """Solve one scene by several methods, on one energy.

    Parameters
    ----------
    scene : Scene
        The photograph and its strokes.
    methods : tuple of str
        Names of `densecrf.METHODS`.
    on_method : callable
        Called with each method's name before it starts.
    """
    image = scene.image()
    scribbles = scene.scribbles((image.shape[0], image.shape[1]))
    unary = scribble_unary(image, scribbles, len(scene.classes), certainty=CERTAINTY)
    crf = DenseCRF(unary, KERNELS.kernels(image))
    results = []
    for method in methods:
        on_method(method)
        results.append(crf.solve(method))
    return Comparison(scene, image, scribbles, crf, tuple(results))
