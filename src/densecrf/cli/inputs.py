"""Find the images and their companion files, and make their models."""

import glob
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import typer

from densecrf.cli.options import Labels, ModelOptions, Probs, Scribbles, with_options
from densecrf.cli.reports import describe
from densecrf.io import FileFormatError, read_image, read_labels, read_npy
from densecrf.io.images import IMAGE_SUFFIXES, shown_colors
from densecrf.io.opening import by_numbers, open_regular
from densecrf.io.unaries import SCORE_SUFFIXES, read_known
from densecrf.model.crf import DenseCRF
from densecrf.model.hard_labels import VOID, whole_numbers
from densecrf.model.kernels import color_range
from densecrf.model.presets import PRESETS
from densecrf.model.scribbles import scribble_unary

__all__ = [
    "ImageFiles",
    "Loaded",
    "Sources",
    "find_image",
    "find_images",
    "load",
    "read_labelling",
    "with_sources",
]

LABEL_SUFFIXES = (".png", ".npy", ".tif", ".tiff", ".bmp")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where unaries come from, as given: files, folders or patterns; fields as the options."""

    probs: Probs = None
    labels: Labels = None
    scribbles: Scribbles = None

    def check(self) -> None:
        """Refuse combinations that make no sense."""
        if self.probs and self.labels:
            raise typer.BadParameter("give --probs or --labels, not both")
        if not (self.probs or self.labels or self.scribbles):
            raise typer.BadParameter(
                "nothing is known of the pixels: give --probs, --labels or --scribbles"
            )


def with_sources(
    command: Callable[..., None], without: tuple[str, ...] = ()
) -> Callable[..., None]:
    """Let a command have these options, but for some, and get the `Sources` as `sources`."""
    return with_options(command, "sources", Sources, Sources, without)


@dataclass(frozen=True)
class ImageFiles:
    """One image with its companions."""

    name: str
    image: Path
    probs: Path | None
    labels: Path | None
    scribbles: Path | None

    @property
    def paths(self) -> list[Path]:
        """All files that are read."""
        return [p for p in (self.image, self.probs, self.labels, self.scribbles) if p is not None]


@dataclass(frozen=True)
class Loaded:
    """An image for display, (H, W) or (H, W, 3) uint8, and its model."""

    image: npt.NDArray[np.uint8]
    crf: DenseCRF


def find_images(
    images: Sequence[str], sources: Sources, leave_out: Collection[Path] = ()
) -> list[ImageFiles]:
    """Return the files of each image; those that are missing are found when they are read.

    Parameters
    ----------
    images : sequence of str
        Files, folders and patterns.
    sources : Sources
        Where their unaries come from.
    leave_out : collection of Path
        Images that are not meant, as folders and patterns name them.
    """
    sources.check()
    found = [(path, name) for path, name in _expand(images) if path not in leave_out]
    if not found:
        raise typer.BadParameter("no image files, or none but earlier results", param_hint="IMAGE")
    alone = len(found) == 1
    return [
        ImageFiles(
            name,
            path,
            _companion(sources.probs, "--probs", name, SCORE_SUFFIXES, alone),
            _companion(sources.labels, "--labels", name, LABEL_SUFFIXES, alone),
            _companion(sources.scribbles, "--scribbles", name, LABEL_SUFFIXES, alone),
        )
        for path, name in found
    ]


def _expand(images: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the files, with the names that tell them apart (below a folder: with its folders)."""
    found: list[tuple[Path, str]] = []
    for given in images:
        path = Path(given)
        if path.is_dir():
            images_below = (p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
            inside = sorted(images_below, key=by_numbers)
            if not inside:
                raise typer.BadParameter(f"no images in folder {given}", param_hint="IMAGE")
            found += [(p, p.relative_to(path).with_suffix("").as_posix()) for p in inside]
        elif path.is_file():
            found.append((path, path.stem))
        else:
            matching = glob.glob(given, recursive=True)  # noqa: PTH207
            matches = sorted((Path(match) for match in matching), key=by_numbers)
            if not matches:
                raise typer.BadParameter(
                    f"no such file, folder or match: {given}", param_hint="IMAGE"
                )
            found += [(p, p.stem) for p in matches if p.is_file()]
    return found


def find_image(image: Path, sources: Sources) -> ImageFiles:
    """Return the files of the only image that a command takes."""
    if not image.is_file():
        raise typer.BadParameter(f"give one file, not {image}", param_hint="IMAGE")
    (files,) = find_images([str(image)], sources)
    return files


def _companion(
    given: str | None, option: str, name: str, suffixes: Sequence[str], alone: bool
) -> Path | None:
    if given is None:
        return None
    if "{name}" in given:
        return Path(given.replace("{name}", name))
    path = Path(given)
    if path.is_dir():
        for suffix in suffixes:
            if (candidate := path / f"{name}{suffix}").exists():
                return candidate
        return path / f"{name}{{{','.join(suffixes)}}}"  # reading it names the missing file
    if not alone:
        raise typer.BadParameter(
            f"{given} is one file, but there are several images; give a folder, or a pattern with "
            "{name}",
            param_hint=option,
        )
    return path


def load(files: ImageFiles, options: ModelOptions) -> Loaded:
    """Read an image and its companions, and make the model.

    Raises
    ------
    OSError, ValueError, MemoryError
        With the file or argument, and the reason.
    """
    for path in files.paths:  # a missing one is named before any is read
        open_regular(path).close()
    # Black and white of --image-range are values as stored.
    image = read_image(
        files.image,
        page=options.page,
        bands=options.bands,
        native=options.specification.image_range is not None,
    )
    pixels, _ = color_range(image, options.specification.image_range)
    crf = _model(files, options, image)
    return Loaded(shown_colors(pixels), crf)


def _model(files: ImageFiles, options: ModelOptions, image: npt.NDArray[Any]) -> DenseCRF:
    strokes = None if files.scribbles is None else read_labelling(files.scribbles, options.palette)
    if strokes is not None and strokes.shape != image.shape[:2]:
        raise FileFormatError(
            str(files.scribbles), f"has shape {strokes.shape}, the image has {image.shape[:2]}"
        )
    # Four bands of a file are no colours with alpha.
    asked = replace(options.specification, channel_axis=-1 if image.ndim == 3 else None)
    no_stroke = (-1, VOID) if asked.void == "auto" else asked.void
    if files.probs is None and files.labels is None:
        try:
            unary = scribble_unary(
                image, strokes, asked.n_labels, void=no_stroke, image_range=asked.image_range
            )
        except ValueError as error:
            raise ValueError(f"{files.scribbles}: {describe(error)}") from error
        if asked.model.grain is not None:  # strokes speak for objects, not for cells of scores
            asked = replace(asked, model=PRESETS["scribbles"])
        return replace(asked, kind="energies", axis=0, n_labels=None).crf(image, unary)
    given, kind = _known(files, options)
    if strokes is not None:
        strokes = np.where(np.isin(strokes, no_stroke), -1, whole_numbers("seeds", strokes))
    asked = replace(asked, kind=kind, axis=asked.axis if files.labels is None else None)
    try:
        return asked.crf(image, given, seeds=strokes)
    except ValueError as error:
        raise ValueError(f"{files.probs or files.labels}: {describe(error)}") from error


def _known(files: ImageFiles, options: ModelOptions) -> tuple[npt.NDArray[Any], str | None]:
    """Read the probabilities or labels; return them and their kind, where that is known."""
    if files.labels is not None:
        return read_labelling(files.labels, options.palette), "labels"
    path = cast("Path", files.probs)  # there is one of the two, or scribbles alone
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise FileFormatError(path, "is an image; for label images use --labels")
    return read_known(path, options.specification.kind)


def read_labelling(path: Path, palette: str | None) -> npt.NDArray[Any]:
    """Read one label per pixel from an image or a ``.npy`` file."""
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    return read_labels(path, palette)
