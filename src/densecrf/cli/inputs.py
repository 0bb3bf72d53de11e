"""Find images, their companion files and data sets, and make the energies of images."""

import glob
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import typer

from densecrf.cli.options import ModelOptions, input_option
from densecrf.cli.reports import describe, reporting_errors
from densecrf.io import Dataset, FileFormatError, read_image, read_labels, read_npy
from densecrf.io.images import IMAGE_SUFFIXES, shown_colors
from densecrf.io.opening import by_numbers
from densecrf.io.unaries import SCORE_SUFFIXES, read_known
from densecrf.model.activation_maps import with_background
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import color_range
from densecrf.model.reading import layout_of, picked
from densecrf.model.scribbles import scribble_crf
from densecrf.model.specification import Specification
from densecrf.model.unaries import VOID, whole_numbers

__all__ = [
    "Classes",
    "Data",
    "DataKind",
    "ImageFiles",
    "Loaded",
    "Sources",
    "Split",
    "find_image",
    "find_images",
    "load",
    "open_dataset",
    "read_labelling",
]

LABEL_SUFFIXES = (".png", ".npy", ".tif", ".tiff", ".bmp")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources of unaries: files, folders or patterns; fields as the options."""

    probs: Annotated[
        str | None,
        input_option(
            help="Network output: probabilities, logits or energies (.npy, .npz or .unary). For "
            "several images: a folder with one file per image, or a pattern with {name}."
        ),
    ] = None
    labels: Annotated[
        str | None,
        input_option(
            help="Hard labels (.png or .npy) instead of --probs: a file, folder or pattern."
        ),
    ] = None
    scribbles: Annotated[
        str | None,
        input_option(
            help="Strokes (.png or .npy; --void elsewhere): a file, folder or pattern. With "
            "--probs they fix pixels; alone, a colour model labels the other pixels."
        ),
    ] = None

    def check(self) -> None:
        """Refuse contradictory options."""
        if self.probs and self.labels:
            raise typer.BadParameter("give --probs or --labels, not both")
        if not (self.probs or self.labels or self.scribbles):
            raise typer.BadParameter("no scores: give --probs, --labels or --scribbles")


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


class Loaded(NamedTuple):
    """An image for display, (H, W) or (H, W, 3) uint8, and its energy."""

    image: npt.NDArray[np.uint8]
    crf: DenseCRF


def find_images(
    images: Sequence[str], sources: Sources, leave_out: Collection[Path] = ()
) -> list[ImageFiles]:
    """Return the files of each image; missing ones are reported when they are read.

    Images in `leave_out`, earlier results in the same folder, are skipped.
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
    """Return the files with unique names: their paths below a given folder."""
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
    """Read an image and its companions, and make the energy; errors name the file or option."""
    for path in files.paths:  # so that a missing file is reported before any is read
        path.stat()
    asked = options.specification
    # --image-range is in stored values.
    native = asked.image_range is not None
    image = read_image(files.image, page=options.page, bands=options.band_numbers, native=native)
    # The fourth band of a file is not alpha.
    asked = replace(asked, channel_axis=-1 if image.ndim == 3 else None)
    no_stroke = (-1, VOID) if asked.void == "auto" else asked.void
    strokes = None
    if files.scribbles is not None:
        strokes = read_labelling(files.scribbles, options.palette)
        if strokes.shape != (grid := image.shape[:2]):
            reason = f"has shape {strokes.shape}, the image has {grid}"
            raise FileFormatError(str(files.scribbles), reason)
    known = files.probs or files.labels
    if known is not None:
        given, kind = _known(files, options)
        asked = replace(asked, kind=kind, axis=asked.axis if files.labels is None else None)
        if strokes is not None:
            strokes = np.where(np.isin(strokes, no_stroke), -1, whole_numbers("seeds", strokes))
    maps = options.background is not None or options.background_power is not None
    if maps and files.probs is None:
        raise ValueError("--background and --background-power are for activation maps in --probs")
    try:
        if maps:
            given, asked = _with_background(image, given, asked, options)
        if known is None:
            crf = scribble_crf(asked, image, strokes, void=no_stroke)
        else:
            crf = asked.crf(image, given, seeds=strokes)
    except ValueError as error:
        raise ValueError(f"{known or files.scribbles}: {describe(error)}") from error
    return Loaded(shown_colors(color_range(image, asked.image_range)[0]), crf)


def _known(files: ImageFiles, options: ModelOptions) -> tuple[npt.NDArray[Any], str | None]:
    """Read the probabilities or labels; return them and their kind, if known."""
    if files.labels is not None:
        return read_labelling(files.labels, options.palette), "labels"
    path = cast("Path", files.probs)  # one of the two is given, unless there are only scribbles
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise FileFormatError(path, "is an image; for label images use --labels")
    return read_known(path, options.specification.kind)


def _with_background(
    image: npt.NDArray[Any], maps: npt.NDArray[Any], asked: Specification, options: ModelOptions
) -> tuple[npt.NDArray[Any], Specification]:
    """Return activation maps as probabilities, labels first, and their reading."""
    layout = layout_of(
        image.shape,
        maps.shape,
        maps.dtype,
        kind="probabilities",
        axis=asked.axis,
        channel_axis=asked.channel_axis,
        adds_up=lambda _axes, _total: False,
        fractions=lambda: True,
    )
    stack = picked(maps, layout.axes)
    stack = stack[None] if layout.content == "map" else stack
    added = with_background(stack, threshold=options.background, power=options.background_power)
    return added, replace(asked, kind="probabilities", axis=0)


def read_labelling(path: Path, palette: str | None) -> npt.NDArray[Any]:
    """Read one label per pixel from an image or a ``.npy`` file."""
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    return read_labels(path, palette)


Data = Annotated[
    Path, typer.Option(help="Folder of images/, labels/ and logits/, probs/ or unaries/.")
]
Split = Annotated[str | None, typer.Option(help="Only the images of this split.")]
DataKind = Annotated[
    str | None,
    typer.Option(help="Scores to use, if there are several: logits, probabilities, energies."),
]
Classes = Annotated[
    str | None, typer.Option(help="Built-in classes (msrc, voc, camvid), if there is no meta.json.")
]


def open_dataset(data: Path, kind: str | None, classes: str | None) -> Dataset:
    """Open a data set, or end the command with the reason."""
    with reporting_errors():
        return Dataset.open(data, kind=kind, classes=classes)  # type: ignore[arg-type]
