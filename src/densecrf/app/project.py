"""The classes of a folder: one file beside the images' strokes, the same for every image.

A label's number is its place in the list, in every file that the app writes. Labels keep an
identity of their own (`Label.uid`), so that an image whose strokes were written under another order
is renumbered when it is read: reordering, merging and deleting change one file alone.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from densecrf.app.document import Label, default_labels, palette_of
from densecrf.app.strokes import MAX_LABELS
from densecrf.io import Palette
from densecrf.io.opening import open_regular

__all__ = ["Project", "read_classes"]

FORMAT, VERSION = "densecrf.project", 1
GONE = ""  # what a deleted label is merged into
MAX_MERGED = 10_000
LARGEST_CLASSES = 2**20  # bytes of a file of classes


def _first_labels() -> tuple[Label, ...]:
    return tuple(replace(each, uid=f"label-{i}") for i, each in enumerate(default_labels()))


@dataclass(frozen=True)
class Project:
    """The labels of a folder, whether the first is the background, and what became of others.

    Attributes
    ----------
    labels : tuple of Label
        In the order of their numbers.
    background : bool
        Whether label 0 is no class: it is then left out of COCO's and YOLO's annotations.
    merged : dict
        The identity that a former label's strokes have now, `GONE` where they are deleted.
    """

    labels: tuple[Label, ...] = field(default_factory=_first_labels)
    background: bool = False
    merged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        uids = [label.uid for label in self.labels]
        names = [label.name for label in self.labels]
        keys = [label.key for label in self.labels if label.key]
        if not 2 <= len(self.labels) <= MAX_LABELS:
            raise ValueError(f"there are 2 to {MAX_LABELS} labels, not {len(self.labels)}")
        for what, values in (("identity", uids), ("name", names), ("key", keys)):
            if twice := {value for value in values if values.count(value) > 1}:
                raise ValueError(f"two labels have the {what} {twice.pop()!r}")

    @classmethod
    def of(cls, labels: Iterable[Label]) -> "Project":
        """Return a project of the labels that an image's strokes were made with."""
        by_name = {label.name: replace(label, uid=f"name-{label.name}") for label in labels}
        return cls(tuple(by_name.values())) if len(by_name) > 1 else cls()

    def changed(self, value: Any) -> "Project":
        """Return the project with the labels that came as JSON, or raise ValueError.

        ``value["merged"]`` says of each label that is missing which one has its strokes now, or
        that they are deleted (`GONE`).
        """
        if not isinstance(value, dict) or not isinstance(value.get("labels"), list):
            raise ValueError("the labels are a list")
        labels = tuple(map(Label.parse, value["labels"]))
        merged, background = value.get("merged", {}), value.get("background", self.background)
        if not isinstance(merged, dict) or len(self.merged) + len(merged) > MAX_MERGED:
            raise ValueError(f"merged {str(merged)[:80]!r} is not a mapping of labels")
        now = {label.uid for label in labels}
        for label in self.labels:
            if label.uid not in now and merged.get(label.uid) not in (now | {GONE}):
                raise ValueError(f"{label.name!r} is missing: merge or delete it")
        news = {
            uid: into for uid, into in merged.items() if uid not in now and into in now | {GONE}
        }
        followed = {uid: news.get(into, into) for uid, into in self.merged.items()}
        return Project(labels, background is True, {**followed, **news})

    def extended(self, others: Iterable[Label]) -> "Project":
        """Return the project with those labels appended that it has not, by identity or name."""
        labels = list(self.labels)
        for label in others:
            if self.number(label) is None and label.uid not in self.merged:
                if len(labels) >= MAX_LABELS:
                    raise ValueError(f"there are more than {MAX_LABELS} labels")
                labels.append(replace(label, key="", uid=label.uid or f"name-{label.name}"))
        return self if len(labels) == len(self.labels) else replace(self, labels=tuple(labels))

    def with_at_least(self, count: int) -> "Project":
        """Return the project with labels for a network's output of `count` labels."""
        taken = {label.name for label in self.labels}
        missing = [
            replace(x, name=x.name + " (output)" * (x.name in taken), uid=f"output-{i}")
            for i, x in enumerate(default_labels(max(count, 3)))
        ]
        return replace(self, labels=(*self.labels, *missing[len(self.labels) : count]))

    def number(self, label: Label) -> int | None:
        """Return a label's present number, by its identity or else by its name."""
        if not label.uid:
            return next((i for i, x in enumerate(self.labels) if x.name == label.name), None)
        uid = self.merged.get(label.uid, label.uid)
        return next((i for i, each in enumerate(self.labels) if each.uid == uid), None)

    def in_place_of_first(self) -> "Project":
        """Return the project for images drawn with the labels of a folder without classes."""
        merged = {old.uid: new.uid for old, new in zip(_first_labels(), self.labels, strict=False)}
        return replace(self, merged=merged)

    def numbers(self, labels: Sequence[Label]) -> list[int | None]:
        """Return the number of each label of an image's, None where its strokes are deleted."""
        return [self.number(label) for label in labels]

    @property
    def palette(self) -> Palette:
        """The labels' names and colours."""
        return palette_of(self.labels)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {"format": FORMAT, "version": VERSION, **self.shown(), "merged": self.merged}

    def shown(self) -> dict[str, Any]:
        """Return what a page shows."""
        labels = [asdict(label) for label in self.labels]
        return {"labels": labels, "background": self.background}

    @classmethod
    def from_json(cls, value: Any) -> "Project":
        """Return a project that `to_json` wrote, or raise ValueError."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError("is not a file of classes of the app")
        if value.get("version") != VERSION:
            raise ValueError(f"has version {value.get('version')!r}; this densecrf reads {VERSION}")
        labels, merged = value.get("labels"), value.get("merged")
        if not isinstance(labels, list) or not isinstance(merged, dict):
            raise ValueError("is damaged: it has no labels")
        texts = {str(uid): str(into) for uid, into in merged.items()}
        return cls(tuple(map(Label.parse, labels)), value.get("background") is True, texts)


def read_classes(path: Path) -> Project:
    """Read a file of classes: names in lines, or JSON.

    In a text file each line is a name, with its colour ``#rrggbb`` behind it or not. JSON is a list
    of names or of objects with ``name``, ``color`` and ``key``, or an object with such a list as
    ``labels`` and with ``background``. A first class called background is the background.
    """
    with open_regular(path) as file:
        data = file.read(LARGEST_CLASSES + 1)
    if len(data) > LARGEST_CLASSES:
        raise ValueError(
            f"{path.name}: larger than {LARGEST_CLASSES} bytes; is it a file of classes?"
        )
    try:
        text = data.decode("utf-8-sig")
        value: Any = json.loads(text) if path.suffix.lower() == ".json" else _lines(text)
        if isinstance(value, list):
            value = {"labels": value}
        if not isinstance(value, dict) or not isinstance(value.get("labels"), list):
            raise ValueError("give a list of names")
        given = [{"name": x} if isinstance(x, str) else x for x in value["labels"]]
        colors = [label.color for label in default_labels(max(2, len(given)))]
        labels = [
            Label.parse({"color": color, "uid": f"name-{x.get('name')}", **x})
            for x, color in zip(given, colors, strict=False)
        ]
        first = labels[0].name.strip("_ ").lower() == "background" if labels else False
        return Project(tuple(labels), value.get("background", first) is True)
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error}; give one class per line, or JSON") from error


def _lines(text: str) -> list[dict[str, str]]:
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, color = line.rpartition("#")
        code = color.strip().lower()
        colored = name.strip() and len(code) == 6 and set(code) <= set("0123456789abcdef")
        found.append({"name": name.strip(), "color": f"#{code}"} if colored else {"name": line})
    return found
