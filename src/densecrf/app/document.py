"""One image's strokes, labels and settings: edits, their history, and their JSON form."""

import re
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from densecrf.app.strokes import MAX_LABELS, VOID, Canvas, Raster, Stroke
from densecrf.io import Palette
from densecrf.model.presets import PRESETS
from densecrf.plotting import label_colors

__all__ = ["Document", "Label", "ModelSettings", "default_labels"]

FORMAT, VERSION = "densecrf.strokes", 1
SLIDERS = ("strength", "color", "reach")
LARGEST_FACTOR = 8.0  # of a slider, and its inverse
KEPT_IDS = 512  # of edits, so that one that is sent twice counts once


@dataclass(frozen=True)
class Label:
    """A label's name, colour (``#rrggbb``), and whether strokes may change it."""

    name: str
    color: str
    locked: bool = False

    @classmethod
    def parse(cls, value: Any) -> "Label":
        """Return a label that came as JSON, or raise ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a label is a JSON object")
        name, color, locked = value.get("name"), value.get("color"), value.get("locked", False)
        if not isinstance(name, str) or not 0 < len(name.strip()) <= 80:
            raise ValueError(f"label name {name!r} must have 1 to 80 characters")
        if not isinstance(color, str) or not re.fullmatch("#[0-9a-fA-F]{6}", color):
            raise ValueError(f"colour {color!r} must be #rrggbb")
        return cls(name.strip(), color.lower(), locked is True)

    @property
    def rgb(self) -> tuple[int, int, int]:
        """The colour as three numbers from 0 to 255."""
        red, green, blue = bytes.fromhex(self.color[1:])
        return red, green, blue


@dataclass(frozen=True)
class ModelSettings:
    """The model: a preset (or ``file``, the one given at the start) and factors of its numbers.

    Attributes
    ----------
    preset : str
        A name of `densecrf.model.presets.PRESETS`, or ``"file"``.
    strength : float
        Factor of both weights.
    color : float
        Colour sensitivity: the divisor of the colours' standard deviation.
    reach : float
        Factor of the bilateral kernel's standard deviation of positions.
    compare : bool
        Whether mean field is solved as well.
    """

    preset: str = "default"
    strength: float = 1.0
    color: float = 1.0
    reach: float = 1.0
    compare: bool = False

    def changed(self, value: Any) -> "ModelSettings":
        """Return the settings with the numbers that came as JSON, or raise ValueError."""
        if not isinstance(value, dict):
            raise ValueError("settings are a JSON object")
        if unknown := set(value) - set(asdict(self)):
            raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
        for name in SLIDERS:
            number = value.get(name, 1)
            real = isinstance(number, (int, float)) and not isinstance(number, bool)
            if not real or not 1 / LARGEST_FACTOR <= number <= LARGEST_FACTOR:
                raise ValueError(f"{name} {number!r} is not between 1/8 and 8")
        if value.get("preset", "default") not in (*PRESETS, "file"):
            raise ValueError(f"preset {value['preset']!r} is none of {', '.join(PRESETS)}")
        return replace(self, **{**value, "compare": value.get("compare", self.compare) is True})


def default_labels(count: int = 4) -> list[Label]:
    """Return labels in colours that colour-blind people can tell apart."""
    colors = (255 * label_colors(count)).round().astype(int)
    names = ["background", "object"] if count == 2 else [f"label {i + 1}" for i in range(count)]
    return [Label(n, "#{:02x}{:02x}{:02x}".format(*c)) for n, c in zip(names, colors, strict=True)]


@dataclass
class Document:
    """The strokes, labels and settings of one image; every edit is one `apply`."""

    name: str
    shape: tuple[int, ...]  # (H, W), or (depth, H, W)
    labels: list[Label] = field(default_factory=default_labels)
    settings: ModelSettings = field(default_factory=ModelSettings)
    strokes: list[Stroke] = field(default_factory=list)
    undone: list[Stroke] = field(default_factory=list)
    applied: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_IDS))
    revision: int = 0

    def __post_init__(self) -> None:
        self.canvas = Canvas(self.shape)

    def apply(self, edit: Any) -> bool:
        """Make an edit that came as JSON; False when it changes nothing or was made before.

        ValueError says why it makes no sense; nothing is changed then.
        """
        if not isinstance(edit, dict) or not isinstance(edit.get("id"), str):
            raise ValueError("an edit is a JSON object with an id")
        if edit["id"] in self.applied:
            return False
        changed = self._make(edit)
        self.applied.append(edit["id"][:64])
        self.revision += changed
        return changed

    def _make(self, edit: dict[str, Any]) -> bool:
        kind = edit.get("kind")
        if kind == "stroke":
            stroke = Stroke.parse(edit.get("stroke"))
            if stroke.label >= len(self.labels):
                raise ValueError(f"label {stroke.label} of {len(self.labels)}")
            self.strokes.append(stroke)
            self.undone.clear()
            return True
        if kind in ("undo", "redo"):
            stacks = (self.strokes, self.undone)
            source, target = stacks if kind == "undo" else stacks[::-1]
            if source:
                target.append(source.pop())
                return True
            return False
        if kind == "labels":
            return self._relabel(edit.get("labels"))
        if kind == "settings":
            before, self.settings = self.settings, self.settings.changed(edit.get("settings"))
            return self.settings != before
        raise ValueError(f"edit of unknown kind {kind!r}")

    def _relabel(self, value: Any) -> bool:
        if not isinstance(value, list) or not 2 <= len(value) <= MAX_LABELS:
            raise ValueError(f"there are 2 to {MAX_LABELS} labels")
        labels = [Label.parse(each) for each in value]
        if self.last_label >= len(labels):
            name = self.labels[self.last_label].name
            raise ValueError(f"{name!r} has strokes: it cannot be removed")
        before, self.labels = self.labels, labels
        return labels != before

    @property
    def last_label(self) -> int:
        """The last label with strokes, or -1."""
        return max((stroke.label for stroke in [*self.strokes, *self.undone]), default=-1)

    def replace_strokes(self, strokes: list[Stroke]) -> None:
        """Take other strokes for those that there are, without a history."""
        self.strokes, self.undone = list(strokes), []
        self.revision += 1

    def raster(self) -> Raster:
        """Return a copy of the label raster of all strokes."""
        return self.canvas.raster(self.strokes)

    @property
    def palette(self) -> Palette:
        """The labels' names and colours."""
        names, colors = [x.name for x in self.labels], [x.rgb for x in self.labels]
        return Palette("app", tuple(names), tuple(colors), void=VOID)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "image": self.name,
            "depth": 1 if len(self.shape) == 2 else self.shape[0],
            "height": self.shape[-2],
            "width": self.shape[-1],
            "labels": [asdict(label) for label in self.labels],
            "settings": asdict(self.settings),
            "strokes": [stroke.to_json() for stroke in self.strokes],
            "undone": [stroke.to_json() for stroke in self.undone],
            "applied": list(self.applied),
        }

    @classmethod
    def from_json(cls, value: Any, name: str, shape: tuple[int, ...]) -> "Document":
        """Return a document that `to_json` wrote, or raise ValueError."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError("is not a file of strokes")
        if value.get("version") != VERSION:
            raise ValueError(f"has version {value.get('version')!r}; this densecrf reads {VERSION}")
        size = (value.get("depth", 1), value.get("height"), value.get("width"))
        if size != (1, *shape)[-3:]:
            raise ValueError(f"is for an image of {size[2]} × {size[1]} × {size[0]} pixels")
        try:
            document = cls(
                name,
                shape,
                [Label.parse(label) for label in value["labels"]],
                ModelSettings().changed(value["settings"]),
                [Stroke.parse(stroke) for stroke in value["strokes"]],
                [Stroke.parse(stroke) for stroke in value["undone"]],
                deque(map(str, value.get("applied", [])), maxlen=KEPT_IDS),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"is damaged ({error!r})") from error
        count, most = len(document.labels), document.last_label
        if not max(2, most + 1) <= count <= MAX_LABELS:
            raise ValueError(f"has {count} labels and strokes of label {most}")
        return document
