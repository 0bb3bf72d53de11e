"""From the arguments of `densecrf.large.refine` to the energy of a tiled run.

Axes are found, sizes compared and numbers checked as for `densecrf.refine`; then the image is cut.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np

from densecrf.large.energy import Kernel, TiledEnergy
from densecrf.large.outputs import image_of
from densecrf.large.sources import (
    Source,
    coarse,
    holds_data,
    open_source,
    raster_range,
    resized,
    valid,
    with_axes,
)
from densecrf.large.tiles import Box, Tiling
from densecrf.model.kernels import black_and_white
from densecrf.model.parameters import Parameters
from densecrf.model.reading import Content, Reading, enlargement, layout_of, sums_to_one
from densecrf.model.resolution import REACH, Measured, measure_parts, windows
from densecrf.model.specification import Specification
from densecrf.model.unaries import energies
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    check_choice,
    check_integer,
    check_positive,
    sigmas,
    warn,
)

__all__ = [
    "Inputs",
    "check_memory",
    "checked_kernels",
    "declared",
    "label_count",
    "plan",
    "scratch_of",
    "settings_of",
    "worthwhile_sides",
]

GRANTED = 2**30  # bytes: an image that needs less is not cut
WORTH = 0.5  # largest share of the image's pixels in a tile with its margin
LEAST_BYTES, LEAST_BYTES_OF_A_LABEL = 100, 16  # of a pixel: lattices; marginals, potentials, costs
STEP = 1.25  # by which the sides of tiles grow
MEASURED_FRAMES = 5  # of a clip, for its model
REACH_IN_CLIPS = 5  # of the default model, in grains: the frames around have similar pixels, too
SCANNED = 1024  # sides of the part that is read if two layouts fit


def plan(
    image: Any, probs: Any, specification: Specification, **options: Any
) -> tuple[TiledEnergy, Parameters]:
    """Return the run of `densecrf.large.refine`, and its numbers; the options are of `declared`."""
    picture = open_source("image", image, native=specification.image_range is not None)
    inputs = _read(picture, open_source("probabilities", probs), specification)
    return declared(inputs, specification, **options)


class Inputs(NamedTuple):
    """The inputs of an energy.

    Attributes
    ----------
    image : Source
        (*grid, channels).
    scores : Source
        (labels, *grid), or (*grid) for labels and foreground probabilities.
    content : str
        As for `densecrf.model.reading.Reading`.
    enlarged : float
        The factor by which scores were enlarged; infinite if unknown.
    """

    image: Source
    scores: Source
    content: Content
    enlarged: float


def declared(
    inputs: Inputs,
    specification: Specification,
    *,
    folder: Path,
    tile: Any,
    mask: Any = None,
    kernels: Sequence[Kernel] | None = None,
    sigma_t: float | None = None,
    normalization: str | None = None,
    method: str = "lp",
    inner: int = 8,
    threads: int = 0,
    missing_chunks: str = "error",
) -> tuple[TiledEnergy, Parameters]:
    """Return the run on these inputs; the others are parameters of `densecrf.large.refine`.

    With `sigma_t`, the first axis is time, and the model's numbers are those of a frame.
    """
    picture, scores, content, _ = inputs
    grid = picture.shape[:-1]
    held = None if mask is None else _mask(mask, grid)
    if picture.nodata is not None:
        held = valid(picture, held)
    # or refused, when it is scanned
    opaque = specification.channel_axis is None and picture.shape[-1] == 4
    channels = 3 if opaque else picture.shape[-1]
    if specification.kind is None:
        specification = replace(specification, kind=scores.kind)
    plane = grid if sigma_t is None else grid[1:]
    found = None
    if kernels is None and specification.model.grain is not None:
        boxes = windows(grid) if sigma_t is None else windows_of_frames(grid)
        found = _measured(inputs, channels, specification, plane, boxes)
    parameters = specification.parameters(plane, found)
    if sigma_t is not None:
        near = found is not None and specification.sigma_xy is None
        parameters = _in_time(parameters, sigma_t, REACH_IN_CLIPS / REACH if near else 1.0)
    job = TiledEnergy(
        folder,
        Tiling(grid, grid),
        picture,
        scores,
        held,
        content,
        specification.kind,
        label_count(scores, content, specification.n_labels),
        _kernels(parameters, kernels, len(grid), channels),
        {
            "void": specification.void,
            "clip": specification.clip,
            "confidence": specification.confidence_of_labels,
        },
        specification.image_range,
        check_choice(
            "normalization", normalization or parameters.normalization, ("symmetric", "none")
        ),
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
    """Return the sides of tiles: the requested ones, or larger ones if these cost less.

    Margins are computed again in every neighbouring tile. Tiles are therefore at least as large as
    the kernels reach and as `GRANTED` bytes hold. If a tile with its margin is most of the image,
    the image is not cut.

    Examples
    --------
    >>> worthwhile_sides((256, 256), (700, 900), (300, 300), 3)
    (700, 900)
    >>> worthwhile_sides((2048, 2048), (30_000, 30_000), (300, 300), 3)
    (2000, 2000)
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


def check_memory(job: TiledEnergy, memory: float | None, whose: str) -> None:
    """Refuse tiles that do not fit in this memory."""
    sides = [2 * block for block in job.tiling.block]
    pixels = _pixels(sides, job.margin, job.tiling.shape)
    needed = pixels * (LEAST_BYTES + (job.n_labels or 2) * LEAST_BYTES_OF_A_LABEL)
    if memory and needed > memory:
        raise ArgumentError(
            "tile",
            sides,
            f"with its margin of {job.margin} pixels it needs {needed / 2**30:.1f} GiB at least, "
            f"and {whose} {memory / 2**30:.1f} GiB; give a smaller one or, if most of it is "
            "margin, smaller standard deviations of positions: sigma_xy and sigma, or "
            "scale_sigmas=False (--fixed-sigmas), which reads the model's in pixels",
        )


def _in_time(model: Parameters, sigma_t: float, near: float) -> Parameters:
    """Return the numbers of a frame with standard deviations for (t, y, x).

    The bilateral kernel's within a frame is multiplied by `near`.
    """
    check_positive("sigma_t", sigma_t)
    model = replace(model, sigma_xy=np.multiply(model.sigma_xy, near))

    def whole(name: str) -> tuple[float, ...]:
        given = getattr(model, name)
        if np.size(given) == 3:
            return tuple(given)
        return (sigma_t, *sigmas(name, given, 2, "axes of a frame"))

    return replace(model, sigma=whole("sigma"), sigma_xy=whole("sigma_xy"))


def windows_of_frames(grid: Sequence[int]) -> list[Box]:
    """Return the measured parts of a clip: some of its frames.

    Examples
    --------
    >>> [box[0].start for box in windows_of_frames((100, 60, 80))]
    [0, 24, 49, 74, 99]
    """
    count, *plane = grid
    some = sorted({int(t) for t in np.linspace(0, count - 1, MEASURED_FRAMES)})
    return [(slice(t, t + 1), *box) for t in some for box in windows(tuple(plane))]


def _read(image: Source, scores: Source, specification: Specification) -> Inputs:
    """Return the image, channels last, the scores, labels first, their content and enlargement."""
    layout = layout_of(
        image.shape,
        scores.shape,
        scores.dtype,
        kind=specification.kind,
        axis=specification.axis,
        channel_axis=specification.channel_axis,
        adds_up=lambda axes, total: all(
            sums_to_one(part, total=total) for part in _parts(with_axes(scores, axes))
        ),
        fractions=lambda: any((part != np.rint(part)).any() for part in _parts(scores)),
    )
    axes, grid = layout.picture.axes, layout.picture.grid
    picture = with_axes(image, (*axes, *([None] if len(axes) == len(grid) else [])))
    known, enlarged = with_axes(scores, layout.axes), math.inf
    if layout.resized:
        enlarged = enlargement(known.shape[1:], grid)
        known = resized(known, (known.shape[0], *grid))
    return Inputs(picture, known, layout.content, enlarged)


def _measured(
    inputs: Inputs,
    channels: int,
    specification: Specification,
    grid: tuple[int, ...],
    boxes: Sequence[Box],
) -> Measured | None:
    """Measure the resolution of the scores of an image or of frames on some windows."""
    image, scores, content, enlarged = inputs
    colors = [image.read("image", (*box, slice(0, channels))) for box in boxes]
    values = np.concatenate([part.reshape(-1, channels) for part in colors]).T
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    black, white = (
        specification.image_range
        or raster_range(image, values)
        or black_and_white(low, high, image.dtype, None)
        or (0.0, 255.0)
    )
    scaled = [(part - np.float64(black)) * (255.0 / (white - black)) for part in colors]
    if content == "labels":
        unaries = [np.zeros((2, *part.shape[:-1]), np.float32) for part in colors]
        return measure_parts(zip(unaries, scaled, strict=True), grid, 0.0)
    try:
        unaries = _unaries(scores, content, specification, boxes)
    except ArgumentError:  # raised again when all of it is read
        return None
    return measure_parts(zip(unaries, scaled, strict=True), grid, enlarged)


def _unaries(
    scores: Source, content: Content, specification: Specification, boxes: Sequence[Box]
) -> list[FloatArray]:
    """Return the energies of some windows, 0 where there are no data."""
    named = (slice(0, scores.shape[0]),) if content == "scores" else ()
    given = [scores.read("probabilities", (*named, *box)) for box in boxes]
    known = [holds_data(part, scores.nodata, tuple(range(len(named)))) for part in given]
    seen = np.concatenate([p[..., held] for p, held in zip(given, known, strict=True)], axis=-1)
    whole = Reading.of(content, seen)
    options = {
        "kind": whole.kind(specification.kind),
        "void": specification.void,
        "clip": specification.clip,
    }
    out = []
    for part, held in zip(given, known, strict=True):
        reading = Reading(content, part[..., held], whole.span)
        own = energies(reading, n_labels=None, confidence=None, **options)
        unary = np.zeros((len(own), *held.shape), np.float32)
        unary[:, held] = own
        out.append(unary)
    return out


def _parts(source: Source) -> Iterator[Any]:
    """Read a source in parts along its last axes, always with all of its first axis."""
    sides = source.shape
    tile = [SCANNED] * (len(sides) - 1)
    for box in Tiling.of(sides[1:], tile).tiles(0):
        yield source.read("probabilities", (slice(0, sides[0]), *box))


def label_count(scores: Source, content: str, n_labels: int | None) -> int | None:
    """Return the number of labels from the shapes, if they tell: not for hard labels."""
    own = {"scores": scores.shape[0], "map": 2}.get(content)
    if n_labels is None:
        return own
    check_integer("n_labels", n_labels, at_least=2, at_most=65534)
    if own is not None and n_labels != own:
        raise ArgumentError("n_labels", n_labels, f"the scores have {own} labels")
    return n_labels


def _mask(mask: Any, grid: tuple[int, ...]) -> Source:
    held = open_source("mask", mask)
    if len(held.shape) == len(grid) + 1 and held.shape[-1] == 1:
        held = with_axes(held, tuple(range(len(grid))))
    if held.shape == grid:
        return held
    if (fine := coarse(held, grid)) is not None:
        return fine
    remedy = (
        f"shape {held.shape} for a grid of {grid} pixels; give one of the same size, or reduced"
    )
    raise ArgumentError("mask", ..., f"{remedy} by a factor of 2 or more")


def _kernels(
    model: Parameters, kernels: Sequence[Kernel] | None, axes: int, channels: int
) -> tuple[Kernel, ...]:
    """Return the given kernels, or the model's two."""
    if kernels is None:
        kernels = (
            Kernel(model.weight, model.sigma),
            Kernel(model.bilateral_weight, model.sigma_xy, model.sigma_color),
        )
    return checked_kernels(kernels, axes, channels)


def checked_kernels(kernels: Sequence[Kernel], axes: int, channels: int) -> tuple[Kernel, ...]:
    """Return the kernels with a weight, with a standard deviation for each axis and channel."""
    whole = [kernel.checked(axes, channels) for kernel in kernels]
    return tuple(kernel for kernel in whole if kernel.weight > 0)


def _sides(name: str, given: Any, axes: int) -> tuple[int, ...]:
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given,) * axes
    if len(sides) != axes:
        raise ArgumentError(name, given, f"give one number, or one for each of {axes} axes")
    return tuple(check_integer(name, side, at_least=2 if name == "tile" else 0) for side in sides)


def settings_of(job: TiledEnergy, model: Parameters, gap: float) -> dict[str, Any]:
    """Return everything that the files of a run depend on."""
    from densecrf import __version__

    return {
        "version": __version__,
        **{name: each and each.identity for name, each in job.sources.items()},
        "kind": [job.content, job.kind, job.n_labels],
        "tile": [job.tiling.shape, job.tiling.block],
        "model": [
            list(job.kernels),
            model.label_costs,
            None if model.prior is None else asdict(model.prior),
            job.normalization,
        ],
        "unaries": {key: np.asarray(value).tolist() for key, value in job.settings.items()},
        "image_range": job.image_range,
        "method": [job.method, job.inner, gap],
    }


def scratch_of(out: Path | None, scratch: Any) -> Path:
    """Return the folder of the working files."""
    if scratch is not None:
        return Path(os.fspath(scratch))
    if out is None:
        return Path(mkdtemp(prefix="densecrf-"))
    image = image_of(out)
    if image is not None:  # not among the files of a store
        return image.with_name(f"{image.name}.{out.name}.parts")
    return out.with_name(out.name + ".parts")
