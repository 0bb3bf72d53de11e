"""The folder that the app works in: its images, uploads, and the strokes on disk.

The page names an image by its place in the listing; a name that is not in the listing is refused,
so that no path of the page's is ever opened.
"""

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from densecrf.app.document import Document, Label, default_labels
from densecrf.app.energy import Energies
from densecrf.app.pictures import (
    PICTURE_SUFFIXES,
    Picture,
    Reading,
    picture_suffix,
    read_picture,
)
from densecrf.app.project import Project
from densecrf.app.strokes import MAX_LABELS, VOID
from densecrf.io import Palette, atomic_writer, read_labels, read_npz, write_json, write_labels
from densecrf.io.opening import by_numbers, open_regular
from densecrf.io.unaries import KEYS, SCORE_SUFFIXES, read_known
from densecrf.io.volumes import one_of_each_series
from densecrf.model.parameters import Parameters

__all__ = ["STATE", "ChangedElsewhere", "ImageFolder", "Stamp", "stamp_of"]

STATE = "densecrf-app"  # the folder of strokes and uploads, inside the one that is opened
MAX_LISTED = 10_000
MAX_UPLOAD = 64 * 2**20  # bytes
DROPPED = (".npz", ".npy")  # arrays that can be dropped on an image: scores, or labels
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
        self._project: tuple[Stamp | None, Project] | None = None

    def listing(self) -> dict[str, Path]:
        """Return the images by name, those of the folder before uploads."""
        found: dict[str, Path] = {}
        if self.only is not None:
            found[_name(self.only.name)] = self.only
        elif self.listed:
            below = sorted(self.root.rglob("*"), key=by_numbers)
            images = (x for x in below if self.state not in x.parents and self._is_image(x))
            for path in one_of_each_series(islice(images, MAX_LISTED)):
                found.setdefault(_name(path.relative_to(self.root).as_posix()), path)
        uploads = sorted(self.uploads.glob("*"), key=by_numbers)
        for path in one_of_each_series(filter(self._is_image, uploads)):
            found.setdefault(_name(path.name), path)
        return found

    def _is_image(self, path: Path) -> bool:
        inside = _real(path).is_relative_to(self.root)  # links may lead elsewhere
        return inside and path.is_file() and picture_suffix(path) is not None

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
        """Read an image as was chosen for it; ValueError says why it cannot be used."""
        return read_picture(self.path(name), name, self.reading(name))

    def reading_path(self, name: str) -> Path:
        """Return the file that says how an image is to be read."""
        return self.state / f"{name}.reading.json"

    def reading(self, name: str) -> Reading:
        """Return how an image is to be read; the default where nothing usable is kept."""
        try:
            with open_regular(self._own(self.reading_path(name))) as file:
                return Reading.parse(json.load(file))
        except (OSError, ValueError, RecursionError):
            return Reading()

    def choose(self, name: str, value: Any) -> None:
        """Store how an image is to be read, from JSON values; ValueError if it cannot be."""
        reading = Reading.parse(value)
        read_picture(self.path(name), name, reading)
        write_json(self._own(self.reading_path(name)), reading.to_json())

    def probs(self, name: str) -> Path | None:
        """Return the file of a network's output for an image, one that was dropped on it first."""
        for suffix in DROPPED:
            if (path := self.state / f"{name}.scores{suffix}").is_file():
                return self._own(path)
        if self.scores is None or not self.scores.is_dir():
            return self.scores
        stem = Path(name).with_suffix("").as_posix()
        files = [self.scores / f"{stem}{suffix}" for suffix in SCORE_SUFFIXES]
        return next((path for path in files if path.is_file()), None)

    def energies(self, name: str, picture: Picture, file: Parameters | None) -> Energies:
        """Return what makes the energies of an image, from a network's output if there is one."""
        start = self.start(name, picture)
        if start is not None:
            return Energies(picture, file=file, start=start, n_labels=len(self.project().labels))
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

    @property
    def project_path(self) -> Path:
        """Where the folder's classes are kept."""
        return self.state / "project.json"

    def project(self) -> Project:
        """Return the folder's classes on disk; ValueError where they are damaged."""
        now = stamp_of(self.project_path)
        if self._project is None or self._project[0] != now:
            try:
                project = Project() if now is None else self._read_project()
            except (OSError, ValueError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ValueError(
                    f"The classes in {self.project_path} cannot be read: {reason}. Mend the file, "
                    "or move it away."
                ) from error
            self._project = now, project
        return self._project[1]

    def _read_project(self) -> Project:
        with open_regular(self._own(self.project_path)) as file:
            return Project.from_json(json.load(file))

    def change_project(self, change: Callable[[Project], Project]) -> Project:
        """Change the folder's classes, whole or not at all, and return them."""
        with FileLock(self._own(self.state / ".lock"), timeout=LONGEST_LOCK):
            before = self.project()
            after = change(before)
            if after != before or not self.project_path.exists():
                write_json(self._own(self.project_path), after.to_json())
        return self.project()

    def _extend_project(self, change: Callable[[Project], Project]) -> Project:
        """Change the folder's classes, for this run alone where they cannot be written."""
        try:
            return self.change_project(change)
        except OSError:
            after = change(self.project())
            self._project = stamp_of(self.project_path), after
            return after

    def _having(self, project: Project, labels: list[Label]) -> Project:
        """Return the folder's classes with the labels of an image that came from elsewhere."""
        unknown = [x for x in labels if x.uid not in project.merged and project.number(x) is None]
        if not unknown:
            return project
        if not self.project_path.exists():  # strokes of a version without classes of the folder
            return self._extend_project(lambda _: Project.of(labels))
        return self._extend_project(lambda now: now.extended(labels))

    def have_labels(self, count: int) -> None:
        """Let the folder have labels for a network's output."""
        fresh = Project(
            tuple(replace(x, uid=f"output-{i}") for i, x in enumerate(default_labels(count)))
        )

        def change(before: Project) -> Project:
            return before.with_at_least(count) if self.project_path.exists() else fresh

        if len(self.project().labels) < count or not self.project_path.exists():
            self._extend_project(change)

    def use_classes(self, given: Project) -> None:
        """Replace the folder's classes by those of a file, if they agree with its strokes.

        Labels of the folder are found by name; the file must have those that images use.
        """

        def change(before: Project) -> Project:
            if not self.project_path.exists():
                return given.in_place_of_first()
            by_name = {label.name: label.uid for label in before.labels}
            labels = [
                {**asdict(label), "uid": by_name.get(label.name, label.uid)}
                for label in given.labels
            ]
            missing = by_name.keys() - {label["name"] for label in labels}
            if missing:
                raise ValueError(
                    f"the folder has labels that the file of classes lacks: "
                    f"{', '.join(sorted(missing))}; merge or delete them in the app first"
                )
            return before.changed({"labels": labels, "background": given.background})

        self.change_project(change)

    def state_path(self, name: str) -> Path:
        """Return where a listed image's strokes are kept."""
        return self.state / f"{name}.json"

    def load(self, name: str, shape: tuple[int, ...]) -> tuple[Document, str | None]:
        """Return an image's document, and a notice for the user where it could not be read.

        A file that cannot be read is put aside, not overwritten.
        """
        path, project = self.state_path(name), self.project()
        empty = Document(name, shape, list(project.labels))
        if not os.path.lexists(path):
            return empty, None
        try:
            with open_regular(self._own(path)) as file:
                document = Document.from_json(json.load(file), name, shape)
        except (OSError, ValueError, RecursionError) as error:
            aside = path.with_name(f"{path.name}.unreadable")
            reason = f"The strokes in {path.name} could not be read: {error}."
            try:
                self._own(path).replace(aside)
            except OSError:
                return empty, reason
            return empty, f"{reason} They are kept as {aside.name}."
        project = self._having(project, document.labels)
        document.relabel(project.labels, project.numbers(document.labels))
        return document, None

    def stamp(self, name: str) -> Stamp | None:
        """Return a stamp that differs between versions of an image's strokes on disk."""
        return stamp_of(self.state_path(name))

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

    def save_labels(
        self,
        name: str,
        labels: npt.NDArray[Any],
        palette: Palette,
        objects: npt.NDArray[np.uint8] | None = None,
        about: dict[str, Any] | None = None,
        picture: Picture | None = None,
    ) -> None:
        """Write an image's labels beside its strokes: a PNG, or a volume's NIfTI or ``.npy``.

        `objects` are labels that tell objects of a class apart; `about` is kept with them.
        """
        if picture is None or picture.depth is None:
            write_labels(self._own(self.state / f"{name}.labels.png"), labels, palette)
        else:
            path = self._own(self.state / f"{name}.labels{picture.label_suffix}")
            picture.write_labels(path, labels)
        place = self._own(self.state / f"{name}.objects.png")
        if objects is not None and objects.ndim == 2:
            write_labels(place, objects)
        else:
            place.unlink(missing_ok=True)
        if about is not None:
            write_json(self._own(self.state / f"{name}.labels.json"), about, indent=None)

    def about_labels(self, name: str) -> dict[str, Any]:
        """Return what is kept with an image's labels, if anything."""
        try:
            with open_regular(self._own(self.state / f"{name}.labels.json")) as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def digest(self, name: str, document: Document) -> str:
        """Return a text that differs between states of an image with different answers."""
        start = stamp_of(self.state / f"{name}.start.npz")
        for suffix in DROPPED:
            start = start or stamp_of(self.state / f"{name}.scores{suffix}")
        return f"{document.digest} {start} {self.reading(name).to_json() or ''}".rstrip()

    def kept_labels(self, name: str, document: Document) -> npt.NDArray[np.uint8] | None:
        """Return the labels on disk, objects told apart, where they belong to the document."""
        if self.about_labels(name).get("digest") != self.digest(name, document):
            return None
        kind = "objects" if document.objects else "labels"
        try:
            return read_labels(self._own(self.state / f"{name}.{kind}.png")).astype(np.uint8)
        except (OSError, ValueError):
            return None

    def save_start(self, name: str, labels: npt.NDArray[Any]) -> None:
        """Keep labels (H, W) at the size of the file, which strokes then correct."""
        text = json.dumps([label.uid for label in self.project().labels])
        uids = np.frombuffer(text.encode(), np.uint8)
        with atomic_writer(self._own(self.state / f"{name}.start.npz")) as file:
            np.savez_compressed(
                file, labels=labels.astype(np.uint8), uids=np.frombuffer(uids, np.uint8)
            )

    def start(self, name: str, picture: Picture) -> npt.NDArray[np.uint8] | None:
        """Return the labels that an image begins with, at the size that is worked on."""
        path = self.state / f"{name}.start.npz"
        if not path.exists():
            return None
        try:
            kept = read_npz(self._own(path), ["labels", "uids"])
            known = [Label("", "", uid=uid) for uid in json.loads(kept["uids"].tobytes())]
            table = np.full(256, VOID, np.uint8)
            for old, new in enumerate(self.project().numbers(known)):
                table[old] = VOID if new is None else new
            labels = table[kept["labels"]][:: picture.factor, :: picture.factor]
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{path.name}: cannot be read ({error}); remove it") from error
        if labels.shape != picture.shape:
            raise ValueError(f"{path.name}: is not of the image's size; remove it")
        return np.ascontiguousarray(labels)

    def image_of_mask(self, file_name: str) -> str:
        """Return the image that a mask belongs to: the one with its name, but for the suffix."""
        stem = Path(file_name.replace("\\", "/")).name
        for end in (".png", ".labels", ".mask", "_mask", "_labels", "_gt"):
            stem = stem.removesuffix(end)
        names = [n for n in self.listing() if stem in (Path(n).name, Path(n).stem)]
        if len(names) != 1:
            many = "no image" if not names else f"{len(names)} images"
            raise ValueError(f"{file_name}: {many} here called {stem!r}")
        return names[0]

    def read_mask(self, file_name: str, data: bytes, size: tuple[int, int]) -> npt.NDArray[Any]:
        """Return the labels of a mask for an image of a size: numbers of the folder's classes."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "mask.png"
            path.write_bytes(data)
            try:
                labels = read_labels(path)
            except (ValueError, OSError) as error:
                reason = getattr(error, "reason", None) or error
                raise ValueError(f"{file_name}: {reason}") from error
        return self._checked(file_name, labels, size)

    def _checked(
        self, file_name: str, labels: npt.NDArray[Any], size: tuple[int, int]
    ) -> npt.NDArray[Any]:
        """Return labels of an image of a size and of the folder's classes, or raise ValueError."""
        if labels.shape != size:
            shape = " × ".join(map(str, labels.shape[::-1]))
            raise ValueError(f"{file_name}: {shape} pixels, the image has {size[1]} × {size[0]}")
        most = len(self.project().labels) - 1
        wrong = np.unique(labels[(labels > most) & (labels != VOID)])
        if wrong.size:
            raise ValueError(f"{file_name}: has label {wrong[0]}; the folder's are 0 to {most}")
        return labels

    def drop(
        self, name: str, file_name: str, data: bytes, picture: Picture
    ) -> npt.NDArray[Any] | None:
        """Keep a network's output for an image; return labels, where the file has labels.

        ValueError says why it is neither.
        """
        suffix = Path(file_name).suffix.lower()
        if suffix not in DROPPED:
            raise ValueError(f"{file_name}: not one of {', '.join(DROPPED)}")
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"dropped{suffix}"
            path.write_bytes(data)
            try:
                arrays = read_npz(path, ["labels", *KEYS]) if suffix == ".npz" else {}
                known, kind = (arrays["labels"], None) if "labels" in arrays else read_known(path)
                if known.ndim == 2 and known.dtype.kind in "bui":
                    labels = np.where(known.astype(np.int64) < 0, VOID, known)
                    return self._checked(file_name, labels, picture.full)
                Energies(picture, known, kind)
            except ValueError as error:
                reason = str(getattr(error, "reason", None) or error).removeprefix(f"{file_name}: ")
                raise ValueError(f"{file_name}: {reason}") from error
        with atomic_writer(self._own(self.state / f"{name}.scores{suffix}")) as file:
            file.write(data)
        for other in (f"{name}.scores{each}" for each in DROPPED if each != suffix):
            self._own(self.state / other).unlink(missing_ok=True)
        self._own(self.state / f"{name}.start.npz").unlink(missing_ok=True)
        return None

    def upload(self, name: str, data: bytes) -> str:
        """Keep a dropped or pasted image; return its name in the listing."""
        safe = _safe(name) + (".dcm" if data[128:132] == b"DICM" else "")
        suffix = picture_suffix(Path(safe))
        if suffix is None:
            raise ValueError(f"{name}: not one of {', '.join(PICTURE_SUFFIXES)}")
        stem = safe[: -len(suffix)].removesuffix(suffix)
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


def stamp_of(path: Path) -> Stamp | None:
    """Return a stamp that differs between versions of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


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
