"""From what a user gives to a `Job`: axes found, sizes compared, numbers checked."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from densecrf.large.job import Job, Kernel
from densecrf.large.outputs import image_of
from densecrf.large.sources import Source, open_source, read
from densecrf.large.tiles import Tiling
from densecrf.large.views import Coarse, Picked, Resized, Valid
from densecrf.model.parameters import Parameters
from densecrf.model.specification import Specification
from densecrf.model.unaries import Content, layout_of, sums_to_one
from densecrf.validation import ArgumentError, check_choice, check_integer, warn

__all__ = ["check_memory", "label_count", "plan", "scratch_of", "settings_of", "worthwhile_sides"]


GRANTED = 2**30  # bytes of memory that are taken for granted: what fits is not cut
WORTH = 0.5  # share of the image's pixels that a tile with its margin has at most
LEAST_BYTES, LEAST_BYTES_OF_A_LABEL = 100, 16  # of a pixel: lattices; marginals, potentials, costs
STEP = 1.25  # by which the sides of tiles grow
SCANNED = 1024  # sides of what is looked at where two layouts fit


def plan(
    image: Any,
    probs: Any,
    specification: Specification,
    *,
    folder: Path,
    tile: Any,
    mask: Any = None,
    kernels: Sequence[Kernel] | None = None,
    normalization: str = "symmetric",
    method: str = "lp",
    inner: int = 8,
    threads: int = 0,
    missing_chunks: str = "error",
) -> tuple[Job, Parameters]:
    """Return the run of `densecrf.large.refine`, whose parameters these are, and its numbers."""
    picture = open_source("image", image, native=specification.image_range is not None)
    known = open_source("probabilities", probs)
    picture, scores, content = _read(picture, known, specification)
    grid = picture.shape[:-1]
    held = None if mask is None else _mask(mask, grid)
    nodata = getattr(picture, "nodata", None)
    if nodata is not None:
        held = Valid(picture, nodata, held)
    parameters = specification.parameters(grid)
    opaque = (
        specification.channel_axis is None and picture.shape[-1] == 4
    )  # or refused, when it is scanned
    job = Job(
        folder,
        Tiling(grid, grid),
        picture,
        scores,
        held,
        content,
        specification.kind or getattr(known, "kind", None),
        label_count(scores, content, specification.n_labels),
        _kernels(parameters, kernels, len(grid), 3 if opaque else picture.shape[-1]),
        {
            "void": specification.void,
            "clip": specification.clip,
            "confidence": parameters.confidence,
        },
        specification.image_range,
        check_choice("normalization", normalization, ("symmetric", "none")),
        check_choice("method", method, ("lp", "mf5")),
        check_integer("inner", inner, at_least=1, at_most=19),
        threads,
        missing_chunks=check_choice("missing_chunks", missing_chunks, ("error", "fill")),
        opaque=opaque,
    )
    sides = worthwhile_sides(_sides("tile", tile, len(grid)), grid, job.margin, job.n_labels or 21)
    return replace(job, tiling=Tiling.of(grid, sides)), parameters


def worthwhile_sides(
    asked: tuple[int, ...], grid: tuple[int, ...], margin: tuple[int, ...], n_labels: int
) -> tuple[int, ...]:
    """Return the sides of tiles: those asked for, or larger ones where these cost less.

    A tile of which most is margin is computed again and again, as part of its neighbours. Tiles
    are as large as the kernels reach at least, and as large as the memory that is taken for
    granted holds; and where a tile with its margin is most of the image, the image is not cut.

    Examples
    --------
    >>> worthwhile_sides((256, 256), (700, 900), (300, 300), 3)
    (700, 900)
    >>> worthwhile_sides((2048, 2048), (30_000, 30_000), (300, 300), 3)
    (2143, 2143)
    """
    sides = tuple(map(min, zip(asked, grid, strict=True)))
    bytes_of_a_pixel = LEAST_BYTES + LEAST_BYTES_OF_A_LABEL * n_labels
    while sides != grid:
        larger = tuple(math.ceil(STEP * side) for side in sides)
        if _pixels(larger, margin, grid) * bytes_of_a_pixel > GRANTED:
            break
        sides = tuple(map(min, zip(larger, grid, strict=True)))
    found = tuple(map(max, zip(sides, margin, strict=True)))
    if _pixels(found, margin, grid) >= WORTH * math.prod(grid):
        found = grid
    if found != sides:
        how = "the image is not cut" if found == grid else f"tiles are {found}"
        remedy = f"of {sides} pixels and a margin of {margin}, as far as the kernels reach, would "
        warn("tile", f"{remedy}be mostly margin: {how}")
    counts = [math.ceil(length / side) for length, side in zip(grid, found, strict=True)]
    return tuple(math.ceil(length / count) for length, count in zip(grid, counts, strict=True))


def _pixels(sides: Sequence[int], margin: Sequence[int], grid: Sequence[int]) -> int:
    """Return the pixels of a tile with its margin."""
    parts = zip(sides, margin, grid, strict=True)
    return math.prod(min(length, side + 2 * wide) for side, wide, length in parts)


def check_memory(job: Job, memory: float | None, whose: str) -> None:
    """Refuse tiles that do not fit into this memory."""
    sides = [2 * block for block in job.tiling.block]
    pixels = _pixels(sides, job.margin, job.tiling.shape)
    needed = pixels * (LEAST_BYTES + (job.n_labels or 2) * LEAST_BYTES_OF_A_LABEL)
    if memory and needed > memory:
        raise ArgumentError(
            "tile",
            sides,
            f"with its margin of {job.margin} pixels it needs {needed / 2**30:.1f} GiB at least, "
            f"and {whose} {memory / 2**30:.1f} GiB; give a smaller one, or, where the margin is "
            "most of it, smaller standard deviations of positions: scale_sigmas=False "
            "(--fixed-sigmas) takes the model's as pixels, or give sigma_xy and sigma",
        )


def _read(
    image: Source, scores: Source, specification: Specification
) -> tuple[Source, Source, Content]:
    """Return the image with channels last, the scores with labels first, and what they are."""
    layout = layout_of(
        image.shape,
        scores.shape,
        scores.dtype,
        kind=specification.kind,
        axis=specification.axis,
        channel_axis=specification.channel_axis,
        adds_up=lambda axes, total: all(
            sums_to_one(part, total=total) for part in _parts(Picked(scores, axes))
        ),
        fractions=lambda: any((part != np.rint(part)).any() for part in _parts(scores)),
    )
    grey = len(layout.image_axes) == len(layout.grid)
    picture = Picked(image, (*layout.image_axes, *([None] if grey else [])))
    known: Source = Picked(scores, layout.axes)
    if layout.resized:
        known = Resized(known, (known.shape[0], *layout.grid))
    return picture, known, layout.content


def _parts(source: Source) -> Iterator[Any]:
    """Read a source in parts along its last axes, all of its first one at a time."""
    sides = source.shape
    tile = [SCANNED] * (len(sides) - 1)
    for box in Tiling.of(sides[1:], tile).tiles(0):
        yield read("probabilities", source, (slice(0, sides[0]), *box))


def label_count(scores: Source, content: str, n_labels: int | None) -> int | None:
    """Return the number of labels, as far as shapes tell: not that of hard labels."""
    own = {"scores": scores.shape[0], "map": 2}.get(content)
    if n_labels is None:
        return own
    check_integer("n_labels", n_labels, at_least=2, at_most=65534)
    if own is not None and n_labels != own:
        raise ArgumentError("n_labels", n_labels, f"the scores are of {own} labels")
    return n_labels


def _mask(mask: Any, grid: tuple[int, ...]) -> Source:
    held = open_source("mask", mask)
    if len(held.shape) == len(grid) + 1 and held.shape[-1] == 1:
        held = Picked(held, tuple(range(len(grid))))
    if held.shape == grid:
        return held
    if Coarse.fits(held.shape, grid):
        return Coarse(held, grid)
    remedy = (
        f"shape {held.shape} for a grid of {grid} pixels; give one of the same size, or reduced"
    )
    raise ArgumentError("mask", ..., f"{remedy} by a factor of 2 or more")


def _kernels(
    model: Parameters, kernels: Sequence[Kernel] | None, axes: int, channels: int
) -> tuple[Kernel, ...]:
    """Return the kernels that count: those that were given, or the model's two."""
    if kernels is None:
        kernels = (
            Kernel(model.weight, model.sigma),
            Kernel(model.bilateral_weight, model.sigma_xy, model.sigma_color),
        )
    whole = [kernel.checked(axes, channels) for kernel in kernels]
    return tuple(kernel for kernel in whole if kernel.weight > 0)


def _sides(name: str, given: Any, axes: int) -> tuple[int, ...]:
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given,) * axes
    if len(sides) != axes:
        raise ArgumentError(name, given, f"give one number, or one for each of {axes} axes")
    return tuple(check_integer(name, side, at_least=2 if name == "tile" else 0) for side in sides)


def settings_of(job: Job, model: Parameters, gap: float) -> dict[str, Any]:
    """Return all that the files of a run depend on."""
    from densecrf import __version__

    sources = {"image": job.image, "probabilities": job.scores, "mask": job.mask}
    inputs = {name: None if each is None else each.identity for name, each in sources.items()}
    return {
        "version": __version__,
        **inputs,
        "kind": [job.content, job.kind, job.n_labels],
        "tile": [job.tiling.shape, job.tiling.block],
        "model": [
            list(job.kernels),
            model.label_costs,
            model.tolerated,
            None if model.prior is None else asdict(model.prior),
            job.normalization,
        ],
        "unaries": {key: _plain(value) for key, value in job.settings.items()},
        "image_range": job.image_range,
        "method": [job.method, job.inner, gap],
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def scratch_of(out: Path | None, scratch: Any) -> Path:
    """Return the folder of the working files."""
    if scratch is not None:
        return Path(os.fspath(scratch))
    if out is None:
        from tempfile import mkdtemp

        return Path(mkdtemp(prefix="densecrf-"))
    image = image_of(out)
    if image is not None:  # not among the files of a store
        return image.with_name(f"{image.name}.{out.name}.parts")
    return out.with_name(out.name + ".parts")
