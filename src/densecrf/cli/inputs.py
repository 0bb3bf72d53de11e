"""Find the images and what belongs to each, and make their models."""

import glob
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import typer

from densecrf.cli.options import ModelOptions
from densecrf.cli.reports import describe
from densecrf.hard_labels import VOID, whole_numbers
from densecrf.io import FileFormatError, read_image, read_labels, read_npy
from densecrf.io.images import IMAGE_SUFFIXES, shown_colors
from densecrf.io.opening import by_numbers, open_regular
from densecrf.io.unaries import SCORE_SUFFIXES, read_known
from densecrf.kernels import color_range
from densecrf.model import DenseCRF
from densecrf.refinement import build
from densecrf.scribbles import scribble_unary

__all__ = ["Job", "Loaded", "Sources", "find_job", "find_jobs", "load", "read_labelling"]

LABEL_SUFFIXES = (".png", ".npy", ".tif", ".tiff", ".bmp")


@dataclass(frozen=True)
class Sources:
    """Where unaries come from, as given: files, folders or patterns."""

    probs: str | None = None
    labels: str | None = None
    scribbles: str | None = None

    def check(self) -> None:
        """Refuse combinations that make no sense."""
        if self.probs and self.labels:
            raise typer.BadParameter("give --probs or --labels, not both")
        if not (self.probs or self.labels or self.scribbles):
            raise typer.BadParameter(
                "nothing is known of the pixels: give --probs, --labels or --scribbles"
            )


@dataclass(frozen=True)
class Job:
    """One image with its companions."""

    name: str
    image: Path
    probs: Path | None
    labels: Path | None
    scribbles: Path | None

    @property
    def files(self) -> list[Path]:
        """All files that are read."""
        return [p for p in (self.image, self.probs, self.labels, self.scribbles) if p is not None]


@dataclass(frozen=True)
class Loaded:
    """An image for display, (H, W) or (H, W, 3) uint8, and its model."""

    image: npt.NDArray[np.uint8]
    crf: DenseCRF


def find_jobs(
    images: Sequence[str], sources: Sources, leave_out: Collection[Path] = ()
) -> list[Job]:
    """Return a job for each image; what is missing is found when the job is done.

    Parameters
    ----------
    images : sequence of str
        Files, folders and patterns.
    sources : Sources
        What is known of their pixels.
    leave_out : collection of Path
        Images that are not meant, as folders and patterns name them.
    """
    sources.check()
    found = [(path, name) for path, name in _expand(images) if path not in leave_out]
    if not found:
        raise typer.BadParameter("no image files, or none but earlier results", param_hint="IMAGE")
    alone = len(found) == 1
    return [
        Job(
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


def find_job(image: Path, sources: Sources) -> Job:
    """Return the job of the only image that a command takes."""
    if not image.is_file():
        raise typer.BadParameter(f"give one file, not {image}", param_hint="IMAGE")
    (job,) = find_jobs([str(image)], sources)
    return job


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
        return path / f"{name}{{{','.join(suffixes)}}}"  # reading it says what is missing
    if not alone:
        raise typer.BadParameter(
            f"{given} is one file, but there are several images; give a folder, or a pattern with "
            "{name}",
            param_hint=option,
        )
    return path


def load(job: Job, options: ModelOptions) -> Loaded:
    """Read an image and its companions, and make the model.

    Raises
    ------
    OSError, ValueError, MemoryError
        With the file or argument, and the reason.
    """
    for path in job.files:  # what is missing is named before anything is read
        open_regular(path).close()
    # Black and white of --image-range are values as stored.
    image = read_image(
        job.image,
        page=options.page,
        bands=options.bands,
        native=options.image_range is not None,
    )
    pixels, _ = color_range(image, options.image_range)
    crf = _model(job, options, image)
    return Loaded(shown_colors(pixels), crf)


def _model(job: Job, options: ModelOptions, image: npt.NDArray[Any]) -> DenseCRF:
    strokes = None if job.scribbles is None else read_labelling(job.scribbles, options.palette)
    if strokes is not None and strokes.shape != image.shape[:2]:
        raise FileFormatError(
            str(job.scribbles), f"has shape {strokes.shape}, the image has {image.shape[:2]}"
        )
    no_stroke = (-1, VOID) if options.void == "auto" else options.void
    channels = -1 if image.ndim == 3 else None  # four bands of a file are no colours with alpha
    if job.probs is None and job.labels is None:
        try:
            unary = scribble_unary(
                image, strokes, options.n_labels, void=no_stroke, image_range=options.image_range
            )
        except ValueError as error:
            raise ValueError(f"{job.scribbles}: {describe(error)}") from error
        return build(
            image,
            unary,
            **options.model_keywords(),
            kind="energies",
            axis=0,
            channel_axis=channels,
            image_range=options.image_range,
        )
    given, kind = _known(job, options)
    if strokes is not None:
        strokes = np.where(np.isin(strokes, no_stroke), -1, whole_numbers("seeds", strokes))
    try:
        return build(
            image,
            given,
            **options.model_keywords(),
            kind=kind,
            axis=options.axis if job.labels is None else None,
            channel_axis=channels,
            n_labels=options.n_labels,
            void=options.void,
            seeds=strokes,
            image_range=options.image_range,
        )
    except ValueError as error:
        raise ValueError(f"{job.probs or job.labels}: {describe(error)}") from error


def _known(job: Job, options: ModelOptions) -> tuple[npt.NDArray[Any], str | None]:
    """Read the probabilities or labels; return them and what they are, where that is known."""
    if job.labels is not None:
        return read_labelling(job.labels, options.palette), "labels"
    path = cast("Path", job.probs)  # a job has one of the two, or scribbles alone
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise FileFormatError(path, "is an image; for label images use --labels")
    return read_known(path, options.kind)


def read_labelling(path: Path, palette: str | None) -> npt.NDArray[Any]:
    """Read one label per pixel from an image or a ``.npy`` file."""
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    return read_labels(path, palette)
