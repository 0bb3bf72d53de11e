"""Labels of many images as one data set: PNG, COCO, YOLO and Pascal VOC.

A class has the same number, its place among the folder's classes, in all of them.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from densecrf import __version__
from densecrf.app.project import Project
from densecrf.app.strokes import VOID
from densecrf.io import Palette, write_labels
from densecrf.io.coco import box_of, loops, run_lengths
from densecrf.solvers.islands import regions

__all__ = ["FORMATS", "Labelled", "coco", "objects", "one_outline", "write_dataset"]

#: Formats of a data set: the end of the file name, and the media type.
FORMATS = {
    "png": ("labels.zip", "application/zip"),
    "coco": ("coco.json", "application/json"),
    "yolo": ("yolo.zip", "application/zip"),
    "voc": ("voc.zip", "application/zip"),
}
LARGEST_COUNT = 255  # objects in one image of VOC's

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Labelled:
    """The labels of an image, (H, W): classes, or objects whose classes `classes` lists."""

    name: str
    slots: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.uint8]
    status: str = "todo"

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """The class of each pixel."""
        return np.asarray(self.classes[self.slots])


def objects(image: Labelled, project: Project) -> Iterator[tuple[int, Mask]]:
    """Yield the class and the mask of each object; the background has none.

    A class is one object, unless the user has drawn several, or each region is one.
    """
    for slot in np.unique(image.slots).tolist():
        label = int(image.classes[slot])
        if slot == VOID or label >= len(project.labels) or (project.background and label == 0):
            continue
        mask = image.slots == slot
        if not project.labels[label].things:
            yield label, mask
            continue
        number, _ = regions(mask)
        for region in np.unique(number[mask]).tolist():
            yield label, number == region


def coco(images: Iterable[Labelled], project: Project) -> dict[str, Any]:
    """Return COCO annotations with run-length masks, one for each object."""
    listed: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image in images:
        height, width = image.slots.shape
        entry = {"id": len(listed) + 1, "file_name": image.name, "width": width, "height": height}
        listed.append(entry)
        for label, mask in objects(image, project):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": entry["id"],
                    "category_id": label,
                    "iscrowd": 0,
                    "area": int(mask.sum()),
                    "bbox": box_of(mask),
                    "segmentation": {"counts": run_lengths(mask), "size": [height, width]},
                }
            )
    first = 1 if project.background else 0
    names = [label.name for label in project.labels]
    return {
        "info": {"description": f"made with densecrf {__version__}"},
        "images": listed,
        "categories": [{"id": i, "name": name} for i, name in enumerate(names)][first:],
        "annotations": annotations,
    }


@dataclass
class _Rows:
    """What the tables of a data set say: one row for each class of each image."""

    rows: list[list[Any]] = field(default_factory=list)

    def add(self, image: Labelled, project: Project) -> None:
        found, counts = np.unique(image.labels, return_counts=True)
        number_of: dict[int, int] = {}
        for label, _ in objects(image, project):
            number_of[label] = number_of.get(label, 0) + 1
        for label, pixels in zip(found.tolist(), counts.tolist(), strict=True):
            name = project.labels[label].name if label < len(project.labels) else ""
            row = [image.name, image.status, label, name, pixels, number_of.get(label, 0)]
            self.rows.append(row)

    def text(self) -> str:
        return _table(["image", "status", "number", "class", "pixels", "objects"], self.rows)


def write_dataset(
    path: Path,
    kind: str,
    images: Iterable[Labelled],
    project: Project,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the data set of a kind of `FORMATS` to a file.

    `skipped` says of other images why they are not in it.
    """
    if kind == "coco":
        whole = coco(images, project)
        whole["info"] |= {"skipped": dict(skipped)} if skipped else {}
        path.write_text(json.dumps(whole), "utf-8")
        return
    table, names = _Rows(), _Names()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for image in images:
            table.add(image, project)
            stem = names.of(image.name)
            if kind == "png":
                archive.writestr(f"labels/{stem}.png", _png(image.labels, project.palette))
            elif kind == "yolo":
                archive.writestr(f"labels/{stem}.txt", _yolo(image, project))
            else:
                for name, data in _voc(image, stem, project):
                    archive.writestr(name, data)
        numbered = [[i, x.name, x.color] for i, x in enumerate(project.labels)]
        archive.writestr("classes.csv", _table(["number", "class", "color"], numbered))
        archive.writestr("images.csv", table.text())
        if skipped:
            archive.writestr(
                "skipped.csv", _table(["image", "reason"], [*map(list, skipped.items())])
            )
        if kind == "yolo":
            lines = [f"  {i}: {json.dumps(x.name)}" for i, x in enumerate(project.labels)]
            archive.writestr("data.yaml", "\n".join(["path: .", "train: images", "names:", *lines]))
        if kind == "voc":
            archive.writestr("ImageSets/Segmentation/all.txt", "\n".join(names.all) + "\n")


class _Names:
    """Names of files without their suffix, or with it where two would be the same."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def of(self, image: str) -> str:
        stem = PurePosixPath(image).with_suffix("").as_posix()
        self.all.append(image if stem in self.all else stem)
        return self.all[-1]


def _table(head: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([head, *rows])
    return text.getvalue()


def _png(labels: npt.NDArray[Any], palette: Palette | None = None) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "labels.png"
        write_labels(path, labels, palette)
        return path.read_bytes()


def _yolo(image: Labelled, project: Project) -> str:
    """Return a line for each object: its class and the outline, in parts of the image's size."""
    height, width = image.slots.shape
    lines = []
    for label, mask in objects(image, project):
        outline = np.asarray(one_outline(mask)) / (width, height)
        lines.append(" ".join([str(label), *(f"{value:.6g}" for value in outline.ravel())]))
    return "\n".join(lines) + "\n"


def one_outline(mask: Mask) -> list[tuple[int, int]]:
    """Return the borders of a mask as one polygon, to be filled by the even-odd rule.

    Each further border, of an island or a hole, is reached and left again by the same way, which
    cancels.
    """
    outline: list[tuple[int, int]] = []
    for loop in loops(mask):
        corners = [p for i, p in enumerate(loop) if not _straight(loop[i - 1], p, loop, i)]
        outline += [*corners, corners[0]]
        if len(outline) > len(corners) + 1:
            outline.append(outline[0])
    return outline


def _straight(
    before: tuple[int, int], at: tuple[int, int], loop: list[tuple[int, int]], i: int
) -> bool:
    after = loop[(i + 1) % len(loop)]
    return (at[0] - before[0], at[1] - before[1]) == (after[0] - at[0], after[1] - at[1])


def _voc(image: Labelled, stem: str, project: Project) -> Iterator[tuple[str, str | bytes]]:
    """Yield the files of an image: its classes, its objects, and their boxes."""
    height, width = image.slots.shape
    numbered = np.zeros(image.slots.shape, np.uint8)
    boxes = []
    for at, (label, mask) in enumerate(objects(image, project)):
        if at + 1 < LARGEST_COUNT:
            numbered[mask] = at + 1
        x, y, w, h = box_of(mask)
        name = escape(project.labels[label].name)
        boxes.append(
            f"<object><name>{name}</name><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
            f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
        )
    yield f"SegmentationClass/{stem}.png", _png(image.labels, project.palette)
    yield f"SegmentationObject/{stem}.png", _png(numbered)
    head = f"<filename>{escape(image.name)}</filename><segmented>1</segmented>"
    size = f"<size><width>{width}</width><height>{height}</height></size>"
    yield f"Annotations/{stem}.xml", f"<annotation>{head}{size}{''.join(boxes)}</annotation>\n"
