"""The scribble canvas in a notebook; needs ``pip install "densecrf[widget]"``.

It is the canvas of the app (`densecrf.app`), in Jupyter, VS Code, Colab and marimo, by anywidget.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import numpy.typing as npt
import traitlets

from densecrf.app.document import Document, Label, ModelSettings, default_labels
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.live import Live
from densecrf.app.pictures import Picture
from densecrf.app.strokes import MAX_LABELS, Stroke
from densecrf.display import png
from densecrf.model.kernels import color_range
from densecrf.model.parameters import Parameters
from densecrf.model.presets import get_parameters
from densecrf.validation import ArgumentError, as_image

if TYPE_CHECKING:
    from densecrf.solvers.result import Result

__all__ = ["Scribble"]

STATIC = Path(__file__).parent / "app" / "static"
MODULES = (
    "planes.js",
    "strokes.js",
    "overlay.js",
    "frames.js",
    "view.js",
    "wire.js",
    "tools.js",
    "widget.js",
)


def bundle() -> str:
    """Return the page's modules as one: a notebook loads a single module, without its folder."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in MODULES)
    text = re.sub(r'^import .* from "\./.*";$', "", text, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)


class Scribble(anywidget.AnyWidget):
    """A canvas to scribble on; the certified labelling follows every stroke.

    Parameters
    ----------
    image : array_like, (H, W) or (H, W, 3)
        The image, colours from 0 to 255, or from 0 to 1 if it holds floating-point numbers.
    names : int or sequence of str
        The labels' names, or their number.
    model : str, path-like or Parameters
        The energy's parameters, as for `densecrf.refine`.
    strokes : sequence of dict
        Strokes to begin with, for example another canvas' `strokes`.

    Attributes
    ----------
    strokes : list of dict
        The strokes; set it to draw from Python.
    result : densecrf.Result or None
        The last certified result. Its labels are those with strokes, in order.
    labels : ndarray of int, (H, W), or None
        The last certified labelling, in terms of `names`.
    """

    _esm = bundle()
    _css = (STATIC / "widget.css").read_text("utf-8")
    _image = traitlets.Bytes().tag(sync=True)
    _shape: Any = traitlets.List().tag(sync=True)
    _labels: Any = traitlets.List().tag(sync=True)
    _live: Live | None = None  # until the arguments are checked
    strokes: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        image: Any,
        names: int | Sequence[str] = 4,
        *,
        model: str | Parameters = "default",
        strokes: Sequence[dict[str, Any]] = (),
    ) -> None:
        pixels = as_image("image", image)
        if pixels.ndim not in (2, 3) or min(pixels.shape[:2]) < 2:
            raise ArgumentError("image", ..., f"shape {pixels.shape}; give (H, W) or (H, W, 3)")
        picture = Picture(Path("image"), color_range(pixels, None)[0], 1, pixels.shape[:2])
        labels = _labels(names)
        chosen = get_parameters(model)
        super().__init__(
            _image=png(picture.shown()),
            _shape=list(picture.shape),
            _labels=[asdict(label) for label in labels],
        )
        self._document = Document("image", picture.shape, labels, ModelSettings(preset="file"))
        self._last: bytes | None = None
        self._live = Live(Energies(picture, file=chosen), self._from_solver)
        self.on_msg(self._heard)
        self.observe(self._drawn, "strokes")
        self.strokes = list(strokes)

    @property
    def result(self) -> "Result | None":
        """The last certified result."""
        return None if self._live is None or self._live.result is None else self._live.result[1]

    @property
    def labels(self) -> npt.NDArray[np.int64] | None:
        """The last certified labelling."""
        if self._live is None or self._live.result is None:
            return None
        _, result, present = self._live.result
        return np.asarray(present)[result.labels]

    def __repr__(self) -> str:
        size = " × ".join(map(str, self._shape))
        return f"Scribble({size} pixels, {len(self._labels)} labels, {len(self.strokes)} strokes)"

    def close(self) -> None:
        """End the solver and remove the canvas."""
        if self._live is not None:
            self._live.close()
        super().close()

    def _drawn(self, change: dict[str, Any]) -> None:
        strokes = [Stroke.parse(stroke) for stroke in change["new"]]
        most = max((stroke.label for stroke in strokes), default=0)
        if most >= len(self._document.labels):
            raise ArgumentError("strokes", ..., f"label {most} of {len(self._document.labels)}")
        self._document.replace_strokes(strokes)
        if self._live is not None:
            self._live.ask(Snapshot.of(self._document))

    def _from_solver(self, message: dict[str, Any] | bytes) -> None:
        if isinstance(message, bytes):
            self._last = message
            self.send({"type": "frame"}, [message])
        else:
            self.send(message)

    def _heard(self, _: Any, message: Any, __: Any) -> None:
        if isinstance(message, dict) and message.get("type") == "ready" and self._last is not None:
            self.send({"type": "frame"}, [self._last])


def _labels(names: int | Sequence[str]) -> list[Label]:
    count = names if isinstance(names, int) else len(names)
    if not 2 <= count <= MAX_LABELS:
        raise ArgumentError("names", names, f"there are 2 to {MAX_LABELS} labels")
    labels = default_labels(count)
    if isinstance(names, int):
        return labels
    return [Label(str(name), label.color) for name, label in zip(names, labels, strict=True)]
