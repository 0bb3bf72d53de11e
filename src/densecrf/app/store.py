"""The folder that the app works in: its images, uploads, and the strokes on disk.

The page names an image by its place in the listing; a name that is not in the listing is refused,
so that no path of the page's is ever opened.
"""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from densecrf.app.document import Document
from densecrf.app.energy import Energies
from densecrf.app.pictures import Picture, read_picture
from densecrf.app.strokes import MAX_LABELS
from densecrf.io import Palette, atomic_writer, write_json, write_labels
from densecrf.io.images import IMAGE_SUFFIXES
from densecrf.io.opening import by_numbers, open_regular
from densecrf.io.unaries import SCORE_SUFFIXES, read_known
from densecrf.model.parameters import Parameters

__all__ = ["STATE", "ChangedElsewhere", "ImageFolder", "Stamp"]

PICTURE_SUFFIXES = (*IMAGE_SUFFIXES, ".npy")
STATE = "densecrf-app"  # the folder of strokes and uploads, inside the one that is opened
MAX_LISTED = 10_000
MAX_UPLOAD = 64 * 2**20  # bytes
LONGEST_LOCK = 10.0  # seconds to wait for another server that is writing

Stamp = tuple[int, int, int]  # of a file: each version has another


class ChangedElsewhere(Exception):  # noqa: N818 - it is no error
    """Another server has written an image's strokes since they were read or written here."""


class ImageFolder:
    """Images below a folder, or one image, and the state beside them.

    Without a target there are uploads alone, in the working directory. `scores` is a network's
    output: a file, or a folder with one of the same name for each image.
    """

    def __init__(self, target: Path | None, scores: Path | None = None) -> None:
        folder = Path.cwd() if target is None else target
        self.root = _real(folder.parent if folder.is_file() else folder)
        self.only = None if target is None or not target.is_file() else _real(target)
        self.listed, self.scores = target is not None, scores
        self.state = self.root / STATE
        self.uploads = self.state / "uploads"

    def listing(self) -> dict[str, Path]:
        """Return the images by name, those of the folder before uploads."""
        found: dict[str, Path] = {}
        if self.only is not None:
            found[_name(self.only.name)] = self.only
        elif self.listed:
            for path in sorted(self.root.rglob("*"), key=by_numbers):
                if len(found) >= MAX_LISTED:
                    break
                if self._is_image(path) and self.state not in path.parents:
                    found.setdefault(_name(path.relative_to(self.root).as_posix()), path)
        for path in sorted(self.uploads.glob("*"), key=by_numbers):
            if self._is_image(path):
                found.setdefault(_name(path.name), path)
        return found

    def _is_image(self, path: Path) -> bool:
        inside = _real(path).is_relative_to(self.root)  # links may lead elsewhere
        return path.suffix.lower() in PICTURE_SUFFIXES and inside and path.is_file()

    def _own(self, path: Path) -> Path:
        """Return a path of the state; OSError where a link takes the place of it or leads out."""
        place = _real(path.parent)
        if path.is_symlink() or not place.is_relative_to(self.root):
            where = path if path.is_symlink() else path.parent
            reason = f"is, or lies behind, a link to {_real(where)}; remove the link"
            raise OSError(errno.ELOOP, reason, str(where))
        return path

    def path(self, name: str) -> Path:
        """Return the file of a listed image."""
        try:
            return self.listing()[name]
        except KeyError:
            raise ValueError(f"no image {name!r} here; it may have been moved") from None

    def read(self, name: str) -> Picture:
        """Read an image; ValueError says why it cannot be used."""
        return read_picture(self.path(name), name)

    def probs(self, name: str) -> Path | None:
        """Return the file of a network's output for an image."""
        if self.scores is None or not self.scores.is_dir():
            return self.scores
        stem = Path(name).with_suffix("").as_posix()
        files = [self.scores / f"{stem}{suffix}" for suffix in SCORE_SUFFIXES]
        return next((path for path in files if path.is_file()), None)

    def energies(self, name: str, picture: Picture, file: Parameters | None) -> Energies:
        """Return what makes the energies of an image, from a network's output if there is one."""
        path = self.probs(name)
        if path is None:
            return Energies(picture, file=file)
        known, kind = read_known(path)
        try:
            energies = Energies(picture, known, kind, file)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
        if energies.unary is not None and (count := len(energies.unary)) > MAX_LABELS:
            raise ValueError(f"{path.name}: {count} labels are more than {MAX_LABELS}")
        return energies

    def state_path(self, name: str) -> Path:
        """Return where a listed image's strokes are kept."""
        return self.state / f"{name}.json"

    def load(self, name: str, shape: tuple[int, ...]) -> tuple[Document, str | None]:
        """Return an image's document, and a notice for the user where it could not be read.

        A file that cannot be read is put aside, not overwritten.
        """
        path = self.state_path(name)
        if not os.path.lexists(path):
            return Document(name, shape), None
        try:
            with open_regular(self._own(path)) as file:
                return Document.from_json(json.load(file), name, shape), None
        except (OSError, ValueError, RecursionError) as error:
            aside = path.with_name(f"{path.name}.unreadable")
            reason = f"The strokes in {path.name} could not be read: {error}."
            try:
                self._own(path).replace(aside)
            except OSError:
                return Document(name, shape), reason
            return Document(name, shape), f"{reason} They are kept as {aside.name}."

    def stamp(self, name: str) -> Stamp | None:
        """Return a stamp that differs between versions of an image's strokes on disk."""
        try:
            found = self.state_path(name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def save(self, name: str, state: dict[str, Any], known: Stamp | None) -> Stamp | None:
        """Write a document's JSON, whole or not at all; return its stamp.

        `ChangedElsewhere` says that the file is not the one of the stamp `known`.
        """
        with FileLock(self._own(self.state / ".lock"), timeout=LONGEST_LOCK):
            now = self.stamp(name)
            if now is not None and now != known:
                raise ChangedElsewhere(name)
            write_json(self._own(self.state_path(name)), state, indent=None)
            return self.stamp(name)

    def save_labels(self, name: str, labels: npt.NDArray[Any], palette: Palette) -> None:
        """Write an image's labels beside its strokes: a PNG, or a volume's ``.npy``."""
        if labels.ndim == 2:
            write_labels(self._own(self.state / f"{name}.labels.png"), labels, palette)
        else:
            with atomic_writer(self._own(self.state / f"{name}.labels.npy")) as file:
                np.save(file, labels)

    def upload(self, name: str, data: bytes) -> str:
        """Keep a dropped or pasted image; return its name in the listing."""
        stem, suffix = Path(_safe(name)).stem, Path(_safe(name)).suffix.lower()
        if suffix not in PICTURE_SUFFIXES:
            raise ValueError(f"{name}: not one of {', '.join(PICTURE_SUFFIXES)}")
        self._own(self.uploads / stem).parent.mkdir(parents=True, exist_ok=True)
        taken = {*self.listing(), *(path.name for path in self.uploads.iterdir())}
        number = 1
        while (chosen := f"{stem}{'' if number == 1 else f'-{number}'}{suffix}") in taken:
            number += 1
        path = self.uploads / chosen
        with path.open("xb") as file:  # never behind a link, nor onto a file
            file.write(data)
        try:
            read_picture(path, name)
        except ValueError:
            path.unlink()
            raise
        return chosen


def _real(path: Path) -> Path:
    """Return the path behind all links; unlike `Path.resolve`, a loop of links is no error."""
    return Path(os.path.realpath(path))


def _name(path: str) -> str:
    r"""Return a path as the page can name it: bytes that are no UTF-8 as their numbers.

    Examples
    --------
    >>> _name("caf\udce9.png")
    'caf\\xe9.png'
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _safe(name: str) -> str:
    """Return a file name without folders and without characters that mean something somewhere."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"[^\w. -]", "_", base)[-120:].lstrip(". ") or "image.png"
