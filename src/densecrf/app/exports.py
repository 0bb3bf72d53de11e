"""Files out of the app: labels, overlay, COCO, arrays, strokes, and how to repeat the result."""

import io
import json
import shlex
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf import __version__
from densecrf.app.dataset import Labelled, coco
from densecrf.app.document import Document
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.full_size import GAP, side_of_blocks
from densecrf.app.pictures import picture_suffix
from densecrf.app.project import Project
from densecrf.app.store import STATE
from densecrf.app.strokes import VOID
from densecrf.io import overlay, write_image, write_labels
from densecrf.io.volumes import is_dicom
from densecrf.model.parameters import write_parameters
from densecrf.solvers.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KINDS", "Export"]

#: Kinds of exports: the end of the file name, and the media type.
KINDS = {
    "labels": ("labels.png", "image/png"),
    "overlay": ("overlay.png", "image/png"),
    "coco": ("coco.json", "application/json"),
    "result": ("npz", "application/octet-stream"),
    "strokes": ("strokes.json", "application/json"),
    "raster": ("strokes.png", "image/png"),
    "model": ("model.json", "application/json"),
    "python": ("reproduce.py", "text/x-python"),
    "command": ("reproduce.sh", "text/x-shellscript"),
    "all": ("zip", "application/zip"),
}
PLANE = ("overlay", "coco", "command")  # of images, not of volumes
NEED_RESULT = ("labels", "overlay", "coco", "result", "all")


class Export:
    """One document with its settled result; `make` gives the bytes of a file.

    Parameters
    ----------
    document : Document
        The strokes, labels and settings.
    energies, snapshot
        The image or volume, at full size where it could be solved so, and the strokes on it.
    result : Result, optional
        The answer from the strokes alone; strokes can be exported without one.
    project : Project
        The folder's classes.
    slots : list of int
        The document's label of each label of the result.
    probs : Path, optional
        The network's output that the strokes correct.
    """

    def __init__(
        self,
        document: Document,
        energies: Energies,
        snapshot: Snapshot,
        result: Result | None,
        project: Project,
        slots: list[int],
        probs: Path | None = None,
    ) -> None:
        self.document, self.snapshot, self.start = document, snapshot, energies.start
        self.project, self.slots = project, np.asarray(slots, np.uint8)
        self.result: Any = result  # checked before it is used
        self.picture, self.axis = energies.picture, energies.axis
        self.model = energies.model(snapshot)
        self.palette = document.palette
        name = Path(document.name).name
        suffix = picture_suffix(self.picture.path) or ""
        ends_so = suffix and name.lower().endswith(suffix)
        self.stem = name[: -len(suffix)] if ends_so else Path(name).stem
        self.probs = probs if self.start is None else Path(f"{self.stem}.start.npy")
        self.dropped: Path | None = None  # scores that lie beside the strokes
        if self.start is None and probs is not None and STATE in probs.parts:
            self.dropped, self.probs = probs, Path(f"{self.stem}.scores{probs.suffix}")

    def name(self, kind: str) -> str:
        """Return the file name of an export."""
        end = KINDS[kind][0]
        suffix = ".npy" if kind == "raster" and self.picture.depth else self.picture.label_suffix
        return f"{self.stem}.{end.replace('.png', suffix)}"

    def make(self, kind: str) -> bytes:
        """Return the bytes of an export."""
        with TemporaryDirectory() as folder:
            if kind != "all":
                return self._write(kind, Path(folder)).read_bytes()
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for each in KINDS:
                    if each != "all" and self._refusal(each) is None:
                        path = self._write(each, Path(folder))
                        archive.write(path, path.name)
                image = self.picture.path
                if self._image() != image.name:
                    image = Path(folder) / self._image()
                    write_image(image, self.picture.shown())
                if _is_utf8(image.name) and not is_dicom(image):  # a series has many files
                    archive.write(image, image.name)
                if self.dropped is not None:
                    archive.write(self.dropped, str(self.probs))
                if self.start is not None:
                    np.save(Path(folder) / str(self.probs), self.start)
                    archive.write(Path(folder) / str(self.probs), str(self.probs))
            return packed.getvalue()

    def _refusal(self, kind: str) -> str | None:
        if self.picture.depth and kind in PLANE:
            return "of volumes there are labels, arrays, strokes and the program"
        if self.result is None and kind in NEED_RESULT:
            return "nothing is solved yet: draw with at least two labels"
        if self.start is not None and kind == "command":
            return "labels that strokes correct are repeated by the program, not by the command"
        if kind == "command" and side_of_blocks(self.picture.shape) > 1:
            return "a large image's labels are repeated by the program, not by the command"
        return None

    def _write(self, kind: str, folder: Path) -> Path:
        if reason := self._refusal(kind):
            raise ValueError(reason)
        path = folder / self.name(kind)
        if kind == "result":
            self.result.save(path)
        elif kind == "model":
            write_parameters(path, self.model)
        elif kind == "overlay":
            write_image(
                path, overlay(self.picture.shown(), self._labels(enlarged=False), self.palette)
            )
        elif kind in ("labels", "raster"):
            labels = self.snapshot.raster if kind == "raster" else self._labels()
            objects = kind == "raster" and self.document.objects  # they have numbers of their own
            if self.picture.depth is None:
                claim = self.claim() if kind == "labels" else ""
                write_labels(path, labels, None if objects else self.palette, comment=claim)
            elif kind == "labels":
                self.picture.write_labels(path, labels)
            else:
                np.save(path, labels)
        else:
            texts: dict[str, Callable[[], str]] = {
                "coco": lambda: json.dumps(coco([self.labelled()], self.project)),
                "strokes": lambda: json.dumps(self.document.to_json(), indent=1),
                "python": self.python,
                "command": lambda: f"#!/bin/sh\n{self.command()}\n",
            }
            # A file's name may hold bytes that are no UTF-8; a shell gets them as they are.
            path.write_bytes(texts[kind]().encode("utf-8", "surrogateescape"))
        return path

    def _labels(self, enlarged: bool = True) -> npt.NDArray[np.uint8]:
        classes = self.document.classes[self.slots[self.result.labels]]
        return self.picture.enlarged(classes) if enlarged else classes

    def claim(self) -> str:
        """Return what is proven of the labels, for people."""
        height, width = self.result.labels.shape
        enlarged = "" if self.picture.factor == 1 else f", enlarged {self.picture.factor} times"
        return (
            f"densecrf {__version__}: energy {self.result.energy:.6g}, proven to be at most "
            f"{100 * self.result.gap:.2g} % above the lowest of all labellings of "
            f"{width} × {height} pixels{enlarged}"
        )

    def labelled(self) -> Labelled:
        """Return the labels at the size of the file, with the objects."""
        slots = self.picture.enlarged(self.slots[self.result.labels])
        return Labelled(self.document.name, slots, self.document.classes, self.document.status)

    def _image(self) -> str:
        """Return the name of the image that commands read: the file, or what it was made into."""
        picture = self.picture
        if picture.depth or (picture.factor == 1 and picture.values is None):
            return picture.path.name
        return f"{self.stem}.{'reduced' if picture.factor > 1 else 'shown'}.png"

    def command(self) -> str:
        """Return the command that repeats the result, in the folder of the exported files."""
        parts = ["densecrf", "segment", _argument(self._image())]
        if self.probs is not None:
            parts += ["--probs", _argument(str(self.probs))]
            parts += [] if self.axis is None else ["--axis", str(self.axis)]
        parts += ["--scribbles", _argument(self.name("raster"))]
        parts += ["--model", _argument(self.name("model"))]
        if self.snapshot.min_area:
            parts += ["--min-area", str(self.snapshot.min_area)]
        parts += ["--gap", repr(GAP)]
        parts += ["--out", _argument(f"{self.stem}.repeated.png")]
        return " ".join(map(shlex.quote, parts))

    def python(self) -> str:
        """Return the program that repeats the result, in the folder of the exported files."""
        image, strokes, model = map(repr, (self._image(), self.name("raster"), self.name("model")))
        blocks = side_of_blocks(self.picture.shape)
        if self.probs is None:
            how = f"blocks={blocks}, void={VOID}"
            source = (
                f"unary = densecrf.app.full_size.unary_of_strokes(image, strokes, {how})\n"
                "crf = model.crf(unary, image)\n"
            )
        else:
            given = "kind=kind"
            if self.start is not None:
                given = f'kind="labels", n_labels={len(self.slots)}'
            source = (
                f"scores, kind = densecrf.io.unaries.read_known({str(self.probs)!r})\n"
                "crf = densecrf.refinement.build(\n"
                f"    image, scores, {given}, axis={self.axis}, model=model, seeds=strokes\n"
                ")\n"
            )
        if self.picture.depth is None:
            imports = ""
            reading = f"densecrf.io.read_image({image})"
            drawn = f"densecrf.io.read_labels({strokes})"
            writing = f"densecrf.io.write_labels({self.stem + '.repeated.png'!r}, result.labels)"
        else:
            imports = "from pathlib import Path\n\nimport numpy as np\n\n"
            chosen = f"densecrf.app.pictures.{self.picture.reading!r}"
            reading = f"densecrf.app.pictures.read_picture(Path({image}), {image}, {chosen}).pixels"
            drawn = f"np.load({strokes})"
            writing = f"np.save({self.stem + '.repeated.npy'!r}, result.labels)"
        settings = json.dumps(asdict(replace(self.document.settings, compare=False)))
        return (  # repr() writes a name in one line and without a quote that ends it
            f"# Repeats {self.document.name!r}, labelled with densecrf {__version__}.\n"
            f"# Run it beside {image} and the exported files.\n"
            f"# Settings: {settings}\n\n"
            f"{imports}"
            "import densecrf.app.full_size\n"
            "import densecrf.app.pictures\n"
            "import densecrf.io\n"
            "import densecrf.io.unaries\n"
            "import densecrf.model.presets\n"
            "import densecrf.refinement\n\n"
            f"image = {reading}\n"
            f"strokes = {drawn}\n"
            f"model = densecrf.model.presets.read_parameters({model})\n"
            f"{source}"
            f"result = densecrf.app.full_size.solve(crf, {blocks}, {self.snapshot.min_area})\n"
            "print(result)\n"
            f"{writing}\n"
        )


def _is_utf8(name: str) -> bool:
    return name.encode("utf-8", "replace").decode() == name


def _argument(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path
