"""Data sets in one documented folder layout, read lazily, one item at a time.

::

    FOLDER/
      meta.json            name, classes, void, splits, axis
      images/NAME.png      RGB or grey (also .jpg, .bmp, .tif)
      labels/NAME.png      class indices, or colours of a built-in palette; void = 255
      logits/NAME.npz      key "logits", (h, w, L), possibly at a lower resolution;
                           or probs/ with key "probs", or unaries/ with key "unary" (energies);
                           also .npy, .unary and .c_unary

Instead of ``images/`` and score folders, a folder may hold one ``NAME.npz`` an image with the
arrays ``image`` and ``logits``, ``probs`` or ``unary``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from densecrf.io.arrays import read_npz
from densecrf.io.errors import FileFormatError
from densecrf.io.images import read_image, read_labels
from densecrf.io.palettes import PALETTES, Palette, get_palette
from densecrf.io.unaries import SCORE_SUFFIXES, Kind, Scores, read_scores
from densecrf.validation import mention

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Dataset", "Item", "ItemError", "Sample"]

PathLike = str | os.PathLike[str]
Axis = Literal["first", "last"]

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
_SCORE_FOLDERS: dict[str, Kind] = {
    "logits": "logits",
    "probs": "probabilities",
    "unaries": "energies",
}


class ItemError(ValueError):
    """An item that cannot be used: its name, the file and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[ItemError], tuple[str, str]]:
        """Pickle with both arguments, so that worker processes can return the error."""
        return type(self), (self.name, self.reason)


@dataclass(frozen=True)
class Sample:
    """A loaded item: the image, the ground truth or None, the scores at the image's size."""

    name: str
    image: NDArray[Any]
    labels: NDArray[np.int32] | None
    scores: Scores


@dataclass(frozen=True)
class Item:
    """One image of a data set; its files are read when a method is called."""

    name: str
    palette: Palette
    image_path: Path
    labels_path: Path | None
    scores_path: Path | None
    kind: Kind | None
    axis: Axis = "last"

    def image(self) -> NDArray[Any]:
        """Read the image, ``(H, W, 3)`` or ``(H, W)``."""
        if self.image_path.suffix != ".npz":
            return read_image(self.image_path)
        image = read_npz(self.image_path, ["image"])["image"]
        if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3):
            raise FileFormatError(
                self.image_path, f"image has shape {image.shape}, not (H, W) or (H, W, 3)"
            )
        return image

    def labels(self) -> NDArray[np.int32] | None:
        """Read the ground truth ``(H, W)``, or return None when the data set has none."""
        return None if self.labels_path is None else read_labels(self.labels_path, self.palette)

    def scores(self, shape: Sequence[int] | None = None) -> Scores:
        """Read the scores, resized to ``shape`` if it is given."""
        if self.scores_path is None:
            raise FileFormatError(
                self.image_path, "the data set has no logits/, probs/ or unaries/ for its images"
            )
        scores = read_scores(
            self.scores_path, labels=len(self.palette), axis=self.axis, kind=self.kind
        )
        if scores.values.ndim != 3:
            raise FileFormatError(
                self.scores_path, f"scores have shape {scores.values.shape}, not (L, h, w)"
            )
        return scores if shape is None else scores.resized(shape)

    def load(self) -> Sample:
        """Read everything and check that the sizes fit.

        Raises
        ------
        ItemError
            With the item's name, the file and the reason.
        """
        try:
            image = self.image()
            shape = image.shape[:2]
            labels = self.labels()
            if labels is not None and labels.shape != shape:
                raise FileFormatError(
                    str(self.labels_path), f"has shape {labels.shape}, the image has {shape}"
                )
            return Sample(self.name, image, labels, self.scores(shape))
        except OSError as error:
            raise ItemError(self.name, f"{error.filename}: {error.strerror or error}") from error
        except (ValueError, MemoryError) as error:
            raise ItemError(self.name, str(error) or "out of memory") from error


@dataclass(frozen=True)
class Dataset:
    """A folder of images with ground truth and scores; see the module for the layout.

    Attributes
    ----------
    path, name
        The folder and the name of the data set.
    palette
        Classes, void label and colours.
    splits
        Names of items by split.
    items
        All items, by name.
    """

    path: Path
    name: str
    palette: Palette
    items: Mapping[str, Item]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        kind: Kind | None = None,
        classes: str | Palette | Sequence[str] | None = None,
    ) -> Dataset:
        """Open a folder: read its meta.json and list its files, nothing more.

        Parameters
        ----------
        path
            The folder.
        kind
            The scores to use if there are several: ``"logits"``, ``"probabilities"`` or
            ``"energies"``.
        classes
            Class names or a built-in palette, for a folder without meta.json.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            When there is no such folder.
        FileFormatError
            A ValueError that names the file or folder: no images, a broken meta.json, ...
        """
        folder = Path(path)
        listing = _files(folder)
        meta = _read_meta(folder, classes)
        items = _items(folder, listing, meta, kind)
        if not items:
            raise FileFormatError(folder, "holds no images (neither images/NAME.png nor NAME.npz)")
        return cls(folder, meta.name, meta.palette, items, meta.splits)

    def names(self, split: str | None = None) -> tuple[str, ...]:
        """Return the names of a split, or of all items."""
        if split is None:
            return tuple(self.items)
        if split not in self.splits:
            raise ValueError(
                f"split {split!r} is not in {self.path}; choose one of "
                f"{', '.join(self.splits) or '(none: meta.json lists no splits)'}"
            )
        return self.splits[split]

    def files(self) -> Iterator[Path]:
        """Yield every file of the data set, read or not."""
        yield self.path / "meta.json"
        for item in self.items.values():
            for path in (item.image_path, item.labels_path, item.scores_path):
                if path is not None:
                    yield path


@dataclass(frozen=True)
class _Meta:
    name: str
    palette: Palette
    splits: dict[str, tuple[str, ...]]
    axis: Axis


def _files(folder: Path) -> list[Path]:
    return sorted(
        (p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")),
        key=lambda p: p.name,
    )


def _by_stem(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """Map names to files; refuse two files of one name."""
    found: dict[str, Path] = {}
    for path in _files(folder) if folder.is_dir() else []:
        if path.suffix.lower() in suffixes:
            if path.stem in found:
                raise FileFormatError(
                    path, f"has the same name as {found[path.stem].name}; keep one"
                )
            found[path.stem] = path
    return found


def _items(folder: Path, listing: list[Path], meta: _Meta, kind: Kind | None) -> dict[str, Item]:
    """Return the items of ``images/``, or of one ``NAME.npz`` each."""
    labels_in = folder / "labels"
    labels = _by_stem(labels_in, _IMAGE_SUFFIXES)
    if (folder / "images").is_dir():
        images = _by_stem(folder / "images", _IMAGE_SUFFIXES)
        scores_in, kind = _score_folder(folder, kind)
        scores = _by_stem(scores_in, SCORE_SUFFIXES) if scores_in else {}
        # A name that only a split lists stays an item: loading it reports the missing file.
        listed = [name for names in meta.splits.values() for name in names] if images else []
    else:
        images = scores = {path.stem: path for path in listing if path.suffix == ".npz"}
        scores_in, listed = folder, []
    return {
        name: Item(
            name,
            meta.palette,
            images.get(name, folder / "images" / f"{name}.png"),
            labels.get(name, labels_in / f"{name}.png") if labels_in.is_dir() else None,
            scores.get(name, scores_in / f"{name}.npz") if scores_in else None,
            kind,
            meta.axis,
        )
        for name in dict.fromkeys([*images, *listed])
    }


def _score_folder(folder: Path, kind: Kind | None) -> tuple[Path | None, Kind | None]:
    present = {
        meaning: folder / sub
        for sub, meaning in _SCORE_FOLDERS.items()
        if (folder / sub).is_dir() and kind in (None, meaning)
    }
    if len(present) > 1:
        raise FileFormatError(
            folder,
            "has several kinds of scores; choose "
            + " or ".join(mention("kind", meaning) for meaning in present),
        )
    if kind is not None and not present:
        raise FileFormatError(folder, f"has no folder of {kind}")
    for meaning, scores_in in present.items():
        return scores_in, meaning
    return None, None


def _read_meta(folder: Path, classes: str | Palette | Sequence[str] | None) -> _Meta:
    path = folder / "meta.json"
    if not path.exists():
        if classes is None:
            raise FileFormatError(
                path,
                'is missing; write {"name": ..., "classes": [...], "void": 255, "splits": {}}, '
                f"or name the classes by {mention('classes')}",
            )
        return _Meta(folder.name, _palette(path, classes, None), {}, "last")
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise FileFormatError(path, "must hold one JSON object")
    axis = raw.get("axis", "last")
    if axis not in ("first", "last"):
        raise FileFormatError(path, f"axis is {axis!r}; it must be 'first' or 'last'")
    palette = _palette(path, classes or raw.get("classes"), raw.get("void", 255))
    return _Meta(str(raw.get("name", folder.name)), palette, _splits(path, raw), axis)


def _palette(path: Path, classes: Any, void: Any) -> Palette:
    if void is not None and (not isinstance(void, int) or isinstance(void, bool)):
        raise FileFormatError(path, f"void is {void!r}; it must be an integer")
    if isinstance(classes, (str, Palette)):
        palette = get_palette(classes)
        return palette if void is None else palette.with_void(void)
    if (
        not isinstance(classes, Sequence)
        or len(classes) < 2
        or not all(isinstance(name, str) and name for name in classes)
        or len(set(classes)) != len(classes)
    ):
        raise FileFormatError(
            path, "classes must be a built-in palette or at least two different names"
        )
    void = 255 if void is None else void
    try:
        for known in PALETTES.values():
            if known.classes == tuple(classes):
                return known.with_void(void)
        return Palette.generic(tuple(classes), void)
    except ValueError as error:
        raise FileFormatError(path, str(error)) from error


def _splits(path: Path, raw: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    splits = raw.get("splits", {})
    if not isinstance(splits, dict):
        raise FileFormatError(path, "splits must map names to lists of images")
    for split, names in splits.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FileFormatError(path, f"split {split!r} must be a list of image names")
        for name in names:
            # Names become parts of paths that are read and written.
            if not name or name != Path(name).name or "\\" in name or "\0" in name:
                raise FileFormatError(path, f"split {split!r}: {name!r} is not a plain file name")
    return {split: tuple(names) for split, names in splits.items()}
