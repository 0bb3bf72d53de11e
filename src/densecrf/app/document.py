"""One image's strokes, labels and settings: edits, their history, and their JSON form."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.app.strokes import MAX_LABELS, SLOTS, VOID, Canvas, Raster, Stroke
from densecrf.io import Palette
from densecrf.model.presets import PRESETS
from densecrf.plotting import label_colors

__all__ = [
    "STATUSES",
    "Document",
    "Label",
    "ModelSettings",
    "default_labels",
    "palette_of",
    "renumber",
]

FORMAT, VERSION = "densecrf.strokes", 1
STATUSES = ("todo", "doubtful", "done")
SLIDERS = ("strength", "color", "reach")
LARGEST_FACTOR = 8.0  # of a slider, and its inverse
LARGEST_AREA = 1_000_000  # pixels of an island that goes
KEPT_IDS = 512  # of edits, so that one that is sent twice counts once


@dataclass(frozen=True)
class Label:
    """A class: its name and colour (``#rrggbb``).

    Attributes
    ----------
    locked : bool
        Whether strokes leave its pixels as they are.
    things : bool
        Whether each connected region is an object of its own.
    key : str
        The key that chooses it; without one, the digit of its place.
    uid : str
        Its identity, which a new name or place does not change.
    """

    name: str
    color: str
    locked: bool = False
    things: bool = False
    key: str = ""
    uid: str = ""

    @classmethod
    def parse(cls, value: Any) -> "Label":
        """Return a label that came as JSON, or raise ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a label is a JSON object")
        name, color = value.get("name"), value.get("color")
        key, uid = value.get("key", ""), value.get("uid", "")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= 80:
            raise ValueError(f"label name {name!r} must have 1 to 80 characters")
        if not isinstance(color, str) or not re.fullmatch("#[0-9a-fA-F]{6}", color):
            raise ValueError(f"colour {color!r} must be #rrggbb")
        if not isinstance(key, str) or len(key) > 1 or not key.strip() == key:
            raise ValueError(f"key {key!r} must be one character")
        if not isinstance(uid, str) or len(uid) > 100:
            raise ValueError(f"identity {uid!r} must have at most 100 characters")
        locked, things = (value.get(flag) is True for flag in ("locked", "things"))
        return cls(name.strip(), color.lower(), locked, things, key.lower(), uid)

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
    min_area : int
        Islands and holes of fewer pixels, of the image as it is worked on, go; 0: none.
    """

    preset: str = "default"
    strength: float = 1.0
    color: float = 1.0
    reach: float = 1.0
    compare: bool = False
    min_area: int = 0

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
        area = value.get("min_area", 0)
        if not isinstance(area, int) or isinstance(area, bool) or not 0 <= area <= LARGEST_AREA:
            raise ValueError(f"min_area {area!r} is no whole number from 0 to {LARGEST_AREA:,}")
        if value.get("preset", "default") not in (*PRESETS, "file"):
            raise ValueError(f"preset {value['preset']!r} is none of {', '.join(PRESETS)}")
        return replace(self, **{**value, "compare": value.get("compare", self.compare) is True})


def default_labels(count: int = 4) -> list[Label]:
    """Return labels in colours that colour-blind people can tell apart."""
    colors = (255 * label_colors(count)).round().astype(int)
    names = ["background", "object"] if count == 2 else [f"label {i + 1}" for i in range(count)]
    return [Label(n, "#{:02x}{:02x}{:02x}".format(*c)) for n, c in zip(names, colors, strict=True)]


def palette_of(labels: Sequence[Label]) -> Palette:
    """Return the names and colours of labels."""
    return Palette("app", tuple(x.name for x in labels), tuple(x.rgb for x in labels), void=VOID)


@dataclass
class Document:
    """The strokes, labels and settings of one image; every edit is one `apply`."""

    name: str
    shape: tuple[int, ...]  # (H, W), or (depth, H, W)
    labels: list[Label] = field(default_factory=default_labels)
    settings: ModelSettings = field(default_factory=ModelSettings)
    strokes: list[Stroke] = field(default_factory=list)
    undone: list[Stroke] = field(default_factory=list)
    status: str = "todo"
    objects: list[int] = field(default_factory=list)  # classes of the labels SLOTS[0], SLOTS[1], …
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
        if kind == "status":
            return self._mark(edit.get("status"))
        if self.status == "done":
            raise ValueError("this image is done: open it again (D) to change it")
        if kind == "stroke":
            stroke = Stroke.parse(edit.get("stroke"))
            if self.class_of(stroke.label) is None:
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
        if kind == "object":
            return self._add_object(edit.get("label"), edit.get("at"))
        if kind == "settings":
            before, self.settings = self.settings, self.settings.changed(edit.get("settings"))
            return self.settings != before
        raise ValueError(f"edit of unknown kind {kind!r}")

    def _mark(self, status: Any) -> bool:
        if status not in STATUSES:
            raise ValueError(f"status {status!r} is none of {', '.join(STATUSES)}")
        before, self.status = self.status, status
        return bool(status != before)

    def _add_object(self, label: Any, at: Any) -> bool:
        """Give a class one more object; `at` is its place among them, as the page counts."""
        if not isinstance(label, int) or not 0 <= label < len(self.labels):
            raise ValueError(f"label {label!r} of {len(self.labels)}")
        if at != len(self.objects):
            raise ValueError("another tab has added an object; try again")
        if len(self.objects) >= len(SLOTS):
            raise ValueError(f"an image has at most {len(SLOTS)} further objects")
        self.objects.append(label)
        return True

    def class_of(self, label: int) -> int | None:
        """Return the class of a stroke's label, which may be an object; None if it is unknown."""
        if label < len(self.labels):
            return label
        at = label - SLOTS.start
        return self.objects[at] if 0 <= at < len(self.objects) else None

    @property
    def classes(self) -> npt.NDArray[np.uint8]:
        """The class of each value that a raster can have."""
        table = np.arange(VOID + 1, dtype=np.uint8)
        table[SLOTS.start : SLOTS.start + len(self.objects)] = self.objects
        return table

    def relabel(self, labels: Sequence[Label], numbers: Sequence[int | None]) -> bool:
        """Replace the labels; `numbers` has the new number of each old one, None if deleted.

        True says that strokes have changed.
        """
        moved = list(numbers) != list(range(len(numbers)))
        self.revision += moved or list(labels) != self.labels
        self.labels = list(labels)
        if moved:
            table = dict(enumerate(numbers))
            kept: list[int] = []
            for slot, old in zip(SLOTS, self.objects, strict=False):
                if (new := table.get(old)) is not None:
                    table[slot] = SLOTS[len(kept)]
                    kept.append(new)
            self.objects = kept
            self.strokes = renumber(self.strokes, table)
            self.undone = renumber(self.undone, table)
        return moved

    def compact(self) -> tuple["Document", list[int]]:
        """Return the document with labels numbered without gaps, and their numbers here.

        Where a class has further objects, labels are those with strokes alone; else the same.
        """
        if not self.objects:
            return self, list(range(len(self.labels)))
        used = sorted({s.label for s in self.strokes if s.tool not in ("eraser", "clear")})
        names = [self.labels[self.class_of(label) or 0] for label in used]
        numbered = [replace(x, name=f"{x.name} {i}") for i, x in enumerate(names)]
        table = {label: number for number, label in enumerate(used)}
        strokes = renumber(self.strokes, table)
        other = Document(self.name, self.shape, numbered, self.settings, strokes)
        other.revision = self.revision
        return other, used

    @property
    def digest(self) -> str:
        """A text that differs between documents with different answers."""
        settings = {**asdict(self.settings), "compare": None}
        strokes = [stroke.to_json() for stroke in self.strokes]
        text = json.dumps([strokes, settings, self.objects, len(self.labels)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def replace_strokes(self, strokes: list[Stroke]) -> None:
        """Replace all strokes, without a history."""
        self.strokes, self.undone = list(strokes), []
        self.revision += 1

    def raster(self) -> Raster:
        """Return a copy of the label raster of all strokes."""
        return self.canvas.raster(self.strokes)

    @property
    def palette(self) -> Palette:
        """The labels' names and colours."""
        return palette_of(self.labels)

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
            "status": self.status,
            "objects": self.objects,
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
                value.get("status", "todo") if value.get("status") in STATUSES else "todo",
                list(map(int, value.get("objects", []))),
                deque(map(str, value.get("applied", [])), maxlen=KEPT_IDS),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"is damaged ({error!r})") from error
        count, used = len(document.labels), [*document.strokes, *document.undone]
        wrong = [s.label for s in used if document.class_of(s.label) is None]
        if not 2 <= count <= MAX_LABELS or len(document.objects) > len(SLOTS) or wrong:
            raise ValueError(f"has {count} labels and strokes of label {wrong}")
        if not all(0 <= each < count for each in document.objects):
            raise ValueError(f"has {count} labels and objects of {document.objects}")
        return document


def renumber(strokes: list[Stroke], table: Mapping[int, int | None]) -> list[Stroke]:
    """Return the strokes renumbered by a table, without those whose label it lacks."""
    kept = []
    for stroke in strokes:
        label = 0 if stroke.tool in ("eraser", "clear") else table.get(stroke.label)
        if label is not None:
            protected = {new for old in stroke.protected if (new := table.get(old)) is not None}
            kept.append(replace(stroke, label=label, protected=tuple(sorted(protected))))
    return kept
