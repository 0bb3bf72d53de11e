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
from densecrf.app.document import Document
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.live import GAP
from densecrf.app.strokes import VOID
from densecrf.io import overlay, write_image, write_labels
from densecrf.io.coco import box_of, run_lengths
from densecrf.model.parameters import write_parameters
from densecrf.solvers.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KINDS", "Export", "coco"]

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
    probs : Path, optional
        The network's output that the strokes correct.
    """

    def __init__(
        self,
        document: Document,
        energies: Energies,
        snapshot: Snapshot,
        result: Result | None,
        probs: Path | None = None,
    ) -> None:
        self.document, self.snapshot, self.probs = document, snapshot, probs
        self.result: Any = result  # checked before it is used
        self.picture, self.axis = energies.picture, energies.axis
        self.model = energies.model(snapshot)
        self.palette = document.palette
        self.stem = Path(document.name).stem

    def name(self, kind: str) -> str:
        """Return the file name of an export."""
        end = KINDS[kind][0]
        return f"{self.stem}.{end.replace('.png', '.npy') if self.picture.depth else end}"

    def make(self, kind: str) -> bytes:
        """Return the bytes of an export."""
        with TemporaryDirectory() as folder:
            if kind != "all":
                return self._write(kind, Path(folder)).read_bytes()
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for each in KINDS:
                    if each != "all" and not (self.picture.depth and each in PLANE):
                        path = self._write(each, Path(folder))
                        archive.write(path, path.name)
                if self.picture.factor > 1 and self.picture.depth is None:
                    reduced = Path(folder) / self._image()
                    write_image(reduced, self.picture.shown())
                    archive.write(reduced, reduced.name)
            return packed.getvalue()

    def _write(self, kind: str, folder: Path) -> Path:
        if self.picture.depth and kind in PLANE:
            raise ValueError("of volumes there are labels, arrays, strokes and the program")
        if self.result is None and kind in NEED_RESULT:
            raise ValueError("nothing is solved yet: draw with at least two labels")
        path = folder / self.name(kind)
        if kind == "result":
            self.result.save(path)
        elif kind == "model":
            write_parameters(path, self.model)
        elif kind == "overlay":
            write_image(path, overlay(self.picture.shown(), self.result.labels, self.palette))
        elif kind in ("labels", "raster"):
            labels = self.snapshot.raster if kind == "raster" else self._labels()
            if self.picture.depth is None:
                write_labels(path, labels, self.palette)
            else:
                np.save(path, labels)
        else:
            texts: dict[str, Callable[[], str]] = {
                "coco": lambda: json.dumps(
                    coco(self._labels(), list(self.palette.classes), self.document.name)
                ),
                "strokes": lambda: json.dumps(self.document.to_json(), indent=1),
                "python": self.python,
                "command": lambda: f"#!/bin/sh\n{self.command()}\n",
            }
            # A file's name may hold bytes that are no UTF-8; a shell gets them as they are.
            path.write_bytes(texts[kind]().encode("utf-8", "surrogateescape"))
        return path

    def _labels(self) -> npt.NDArray[Any]:
        return self.picture.enlarged(self.result.labels.astype(np.uint8))

    def _image(self) -> str:
        """Return the name of the image that commands read."""
        if self.picture.factor == 1 or self.picture.depth:
            return self.picture.path.name
        return f"{self.stem}.reduced.png"

    def command(self) -> str:
        """Return the command that repeats the result, in the folder of the exported files."""
        parts = ["densecrf", "segment", _argument(self._image())]
        if self.probs is not None:
            parts += ["--probs", _argument(str(self.probs))]
            parts += [] if self.axis is None else ["--axis", str(self.axis)]
        parts += ["--scribbles", _argument(self.name("raster"))]
        parts += ["--model", _argument(self.name("model"))]
        parts += ["--gap", repr(GAP), "--out", _argument(f"{self.stem}.repeated.png")]
        return " ".join(map(shlex.quote, parts))

    def python(self) -> str:
        """Return the program that repeats the result, in the folder of the exported files."""
        image, strokes, model = map(repr, (self._image(), self.name("raster"), self.name("model")))
        if self.probs is None:
            source = (
                f"unary = densecrf.model.scribbles.scribble_unary(image, strokes, void={VOID})\n"
                "crf = model.crf(unary, image)\n"
            )
        else:
            source = (
                f"scores, kind = densecrf.io.unaries.read_known({str(self.probs)!r})\n"
                "crf = densecrf.refinement.build(\n"
                f"    image, scores, kind=kind, axis={self.axis}, model=model, seeds=strokes\n"
                ")\n"
            )
        if self.picture.depth is None:
            imports = ""
            reading = f"densecrf.io.read_image({image})"
            drawn = f"densecrf.io.read_labels({strokes})"
            writing = f"densecrf.io.write_labels({self.stem + '.repeated.png'!r}, result.labels)"
        else:
            imports = "from pathlib import Path\n\nimport numpy as np\n\n"
            reading = f"densecrf.app.pictures.read_picture(Path({image}), {image}).pixels"
            drawn = f"np.load({strokes})"
            writing = f"np.save({self.stem + '.repeated.npy'!r}, result.labels)"
        settings = json.dumps(asdict(replace(self.document.settings, compare=False)))
        return (  # repr() writes a name in one line and without a quote that ends it
            f"# Repeats {self.document.name!r}, labelled with densecrf {__version__}.\n"
            f"# Run it beside {image} and the exported files.\n"
            f"# Settings: {settings}\n\n"
            f"{imports}"
            "import densecrf.app.pictures\n"
            "import densecrf.io\n"
            "import densecrf.io.unaries\n"
            "import densecrf.model.presets\n"
            "import densecrf.refinement\n"
            "import densecrf.model.scribbles\n\n"
            f"image = {reading}\n"
            f"strokes = {drawn}\n"
            f"model = densecrf.model.presets.read_parameters({model})\n"
            f"{source}"
            f'result = crf.solve("lp", gap={GAP!r})\n'
            "print(result)\n"
            f"{writing}\n"
        )


def _argument(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def coco(labels: npt.NDArray[Any], names: list[str], image: str) -> dict[str, Any]:
    """Return COCO annotations, one for each label that occurs, with run-length masks."""
    height, width = labels.shape
    annotations: list[dict[str, Any]] = []
    for label in np.unique(labels).tolist():
        mask = labels == label
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": 1,
                "category_id": label + 1,
                "iscrowd": 1,
                "area": int(mask.sum()),
                "bbox": box_of(mask),
                "segmentation": {"counts": run_lengths(mask), "size": [height, width]},
            }
        )
    return {
        "info": {"description": f"made with densecrf {__version__}"},
        "images": [{"id": 1, "file_name": image, "width": width, "height": height}],
        "categories": [{"id": i + 1, "name": name} for i, name in enumerate(names)],
        "annotations": annotations,
    }
