"""The energy of a tiled run: its inputs, its numbers, how it is cut. The same on every worker.

`plan` makes it from the arguments of `densecrf.large.refine`: axes found, sizes compared, numbers
checked, as for `densecrf.refine`.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from densecrf.io.errors import FileFormatError
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
from densecrf.large.store import WorkingFiles
from densecrf.large.tiles import Box, Tiling, around, flat, inside, lattice_reach, shape_of
from densecrf.model.compatibility import LabelTree
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import black_and_white, color_range, position_dtype
from densecrf.model.label_prior import plus_offsets
from densecrf.model.parameters import Parameters
from densecrf.model.reading import Content, Reading, enlargement, layout_of, sums_to_one
from densecrf.model.resolution import REACH, Measured, measure_parts, windows
from densecrf.model.specification import Specification
from densecrf.model.unaries import energies
from densecrf.operators import LatticeFilter
from densecrf.operators.pairwise import Pairwise
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    check_choice,
    check_integer,
    check_non_negative,
    check_positive,
    sigmas,
    warn,
)

__all__ = [
    "Inputs",
    "Kernel",
    "Local",
    "TiledEnergy",
    "check_memory",
    "declared",
    "label_count",
    "plan",
    "scratch_of",
    "settings_of",
    "worthwhile_sides",
]

GRANTED = 2**30  # bytes of memory that are taken for granted: what fits is not cut
WORTH = 0.5  # share of the image's pixels that a tile with its margin has at most
LEAST_BYTES, LEAST_BYTES_OF_A_LABEL = 100, 16  # of a pixel: lattices; marginals, potentials, costs
STEP = 1.25  # by which the sides of tiles grow
MEASURED_FRAMES = 5  # of a clip, for its model
REACH_IN_CLIPS = 5  # of the default model, in grains: the frames around have similar pixels, too
SCANNED = 1024  # sides of what is looked at where two layouts fit


class Kernel(NamedTuple):
    """A Gaussian kernel of positions, and of colours or other features where they count.

    Attributes
    ----------
    weight : float
        Its weight.
    positions : float or tuple of float
        Standard deviations along the axes, in pixels or in the unit of the points; one for all, or
        one for each axis.
    colors : float or tuple of float, optional
        Standard deviations of the image's channels or of the points' features, likewise.
    """

    weight: float
    positions: Any
    colors: Any = None

    def checked(self, axes: int, channels: int) -> "Kernel":
        """Return the kernel with a standard deviation for each axis and channel."""
        positions = sigmas("positions", self.positions, axes, "axes")
        colors = None
        if self.colors is not None:
            if not channels:
                raise ArgumentError("colors", self.colors, "there is nothing but positions")
            colors = tuple(map(float, sigmas("colors", self.colors, channels, "channels")))
        weight = check_non_negative("weight", self.weight)
        return Kernel(weight, tuple(map(float, positions)), colors)


class Local(NamedTuple):
    """A tile with the margin that its sums need.

    Attributes
    ----------
    box, outer : Box
        The tile, and the tile with its margin.
    pixels : ndarray of int
        The pixels of the model, flat within `outer`: all, or those inside the mask.
    core : ndarray of int
        Which of these lie in the tile.
    """

    box: Box
    outer: Box
    pixels: IntArray
    core: IntArray

    @property
    def whole(self) -> bool:
        """Whether all pixels belong to the model."""
        return len(self.pixels) == math.prod(shape_of(self.outer))

    def gather(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array (channels, *outer) at the model's pixels, (channels, n)."""
        rows = np.ascontiguousarray(values.reshape(len(values), -1))
        return rows if self.whole else np.ascontiguousarray(rows[:, self.pixels])

    def scatter(self, values: npt.NDArray[Any], fill: float = 0) -> npt.NDArray[Any]:
        """Return values (channels, core) as an array (channels, *box); `fill` outside the mask."""
        sides = shape_of(self.box)
        if self.whole:
            return values.reshape(len(values), *sides)
        out = np.full((len(values), math.prod(sides)), fill, values.dtype)
        whole = flat(self.box, self.outer)
        out[:, np.searchsorted(whole, self.pixels[self.core])] = values
        return out.reshape(len(values), *sides)


@dataclass(frozen=True)
class TiledEnergy:
    """A run.

    Attributes
    ----------
    folder : Path
        Of the working files.
    tiling : Tiling
        How the grid is cut.
    image : Source or None
        The image, (*grid, channels).
    scores : Source
        What is known of the pixels: (labels, *grid), or (*grid) for labels and maps.
    mask : Source or None
        Which pixels belong to the model.
    content, kind
        As for `densecrf.model.reading.Reading` and `densecrf.model.unaries.energies`; a kind that
        was not named is None until the pixels are scanned.
    n_labels : int
        Number of labels; of hard labels None until the pixels are scanned.
    kernels : tuple of Kernel
        The kernels.
    settings : dict
        Options of the unaries: void, confidence, clip.
    image_range : (float, float) or None
        Black and white; None until the pixels are scanned.
    method : str
        ``"lp"``, ``"mf"`` or ``"mf5"``.
    inner : int
        Iterations of a tile before its neighbours' are read again.
    threads : int
        Of the compiled core, for each task.
    label_costs : tuple of float or None
        The costs of labels; None: Potts.
    missing_chunks : {"error", "fill"}
        What chunks that the image or the scores lack mean.
    opaque : bool
        Whether the image has a fourth channel that must be opaque alpha.
    offsets : tuple of float or None
        What the model's prior adds to the unaries, by label.
    found : ndarray or None
        All values of hard labels, ascending: whether some mean "could be anything" depends on all.
    flow : Source or None
        Of a clip (frames, height, width): how pixels move to the next frame, (frames, height,
        width, 2). Positions within a frame are then those of the stage "positions".
    extent : tuple of int or None
        Of such positions: what sides of a grid they need.
    """

    folder: Path
    tiling: Tiling
    image: Source | None
    scores: Source
    mask: Source | None
    content: Any
    kind: str | None
    n_labels: Any
    kernels: tuple[Kernel, ...]
    settings: dict[str, Any]
    image_range: tuple[float, float] | None
    normalization: str
    method: str
    inner: int
    threads: int = 0
    label_costs: tuple[float, ...] | None = None
    missing_chunks: str = "error"
    opaque: bool = False
    offsets: tuple[float, ...] | None = None
    found: npt.NDArray[Any] | None = None
    flow: Source | None = None
    extent: tuple[int, ...] | None = None

    @property
    def store(self) -> WorkingFiles:
        """The working files."""
        return WorkingFiles(self.folder, self.tiling)

    @property
    def alone(self) -> bool:
        """Whether one tile holds all."""
        return len(self.tiling.tiles(0)) == 1

    @cached_property
    def margin(self) -> tuple[int, ...]:
        """How far sums reach along each axis."""
        reaches = [lattice_reach(kernel.positions) for kernel in self.kernels]
        none = (0,) * len(self.tiling.shape)
        return tuple(max(axis) for axis in zip(none, *reaches, strict=True))

    def local(self, box: Box, reaches: int = 1) -> Local:
        """Return a tile with its margin, as wide as sums reach, or some times that."""
        margin = tuple(reaches * wide for wide in self.margin)
        outer = around(box, margin, self.tiling.shape)
        core = flat(box, outer)
        if self.mask is None:
            return Local(box, outer, np.arange(math.prod(shape_of(outer))), core)
        held = np.asarray(self.mask.read("mask", outer)).ravel().astype(bool)
        pixels = np.flatnonzero(held)
        return Local(box, outer, pixels, np.searchsorted(pixels, core[held[core]]))

    def features(self, local: Local) -> list[npt.NDArray[Any]]:
        """Return the features of each kernel, with the whole grid's positions.

        The same numbers as those of `densecrf.model.kernels` for the whole grid.
        """
        colors = None
        if any(kernel.colors is not None for kernel in self.kernels):
            colors = self._colors(local)
        sides, d = shape_of(local.outer), len(local.outer)
        lines: list[npt.NDArray[Any]] = [
            np.arange(part.start, part.stop).reshape(-1, *[1] * (d - 1 - axis))
            for axis, part in enumerate(local.outer)
        ]
        if self.flow is not None:
            lines[1:] = self.store.read("positions", local.outer)
        out = []
        for kernel in self.kernels:
            channels = 0 if kernel.colors is None else len(kernel.colors)
            dtype = position_dtype(self.extent or self.tiling.shape, kernel.positions)
            grid = np.empty((*sides, d + channels), dtype)
            for axis, (line, sigma) in enumerate(zip(lines, kernel.positions, strict=True)):
                grid[..., d - 1 - axis] = line / sigma
            features = grid.reshape(-1, d + channels)
            features = features if local.whole else features[local.pixels]
            if kernel.colors is not None and colors is not None:
                features[:, d:] = (colors / kernel.colors).astype(np.float32)
            out.append(features)
        return out

    def _colors(self, local: Local) -> npt.NDArray[np.float64]:
        if self.image is None:
            raise ArgumentError("image", ..., "is needed by a kernel of colours")
        given = self.pixels_of_image(local)[:, : 3 if self.opaque else None]
        return np.asarray(color_range(given, self.image_range)[0], np.float64)

    def pixels_of_image(self, local: Local) -> npt.NDArray[Any]:
        """Read the image at the model's pixels, (n, channels)."""
        source = cast("Source", self.image)
        bands = slice(0, source.shape[-1])
        values = source.read("image", (*local.outer, bands))
        self.check_complete("image", source, local, (), (bands,))
        given = values.reshape(-1, values.shape[-1])
        return given if local.whole else given[local.pixels]

    def check_complete(
        self, name: str, source: Source, local: Local, before: Box, after: Box
    ) -> None:
        """Refuse pixels of the model whose chunk is missing: nobody knows them.

        After they were read, as a store may lose them meanwhile.
        """
        if self.missing_chunks == "fill":
            return
        absent = source.absent((*before, *local.outer, *after))
        if not absent:
            return
        held = np.zeros(shape_of(local.outer), bool)
        held.ravel()[local.pixels] = True
        axes = slice(len(before), len(before) + held.ndim)
        lost = [key for key, part in absent if held[inside(part[axes], local.outer)].any()]
        if lost:
            raise FileFormatError(
                source.place,
                f"{name}: chunk {lost[0]} is missing, and {len(lost) - 1} more of those around "
                f"pixel {tuple(part.start for part in local.box)}; it would be read as the fill "
                "value. If the copy is incomplete, complete it and call again; if empty chunks "
                "were left out on purpose, give missing_chunks='fill' (--fill-missing), or a mask "
                "without them",
            )

    def filters(self, local: Local) -> list[LatticeFilter]:
        """Return the filters without weights and normalisation."""
        return [LatticeFilter(each, threads=self.threads or None) for each in self.features(local)]

    def unary(self, local: Local) -> FloatArray:
        """Return the energies (labels, n) of the model's pixels in tile and margin."""
        values, known = self.values(local)
        if known.all():
            unary = self.energies(values)
        else:
            unary = np.zeros((self.n_labels, values.shape[-1]), np.float32)
            unary[:, known] = self.energies(values[..., known])
        if self.offsets is None:
            return unary
        return plus_offsets(unary, np.array(self.offsets, np.float32))

    def values(self, local: Local) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Read what is given of the model's pixels, (labels, n) or (n,), and where it is data."""
        named = (slice(0, self.n_labels),) if self.content == "scores" else ()
        values = self.scores.read("probabilities", (*named, *local.outer))
        self.check_complete("probabilities", self.scores, local, named, ())
        values = values.reshape(*values.shape[: len(named)], -1)
        values = values if local.whole else values[..., local.pixels]
        return values, holds_data(values, self.scores.nodata, tuple(range(len(named))))

    def energies(self, values: npt.NDArray[Any]) -> FloatArray:
        """Return the energies of some pixels, as they are among all of the image."""
        if values.size == 0:
            return np.zeros((self.n_labels, values.shape[-1]), np.float32)
        if self.found is not None and values is not self.found:
            return self.energies(self.found)[:, np.searchsorted(self.found, values)]
        reading = Reading.of(self.content, values)
        return energies(reading, kind=self.kind, n_labels=self.n_labels, **self.settings)

    def crf(self, local: Local) -> DenseCRF:
        """Return the model of tile and margin, normalised as in the whole image."""
        unary = self.unary(local)
        costs, factor = self.label_costs, 1.0
        if costs is not None and len(costs) == 2:  # a Potts model with other weights
            factor, costs = sum(costs) / 2, None
        tree = None if costs is None else LabelTree(self.n_labels, leaf=costs)
        parts, normalization, own = self.filters(local), self.normalization, None
        if not self.alone:
            *scales, own = local.gather(self.store.read("masses", local.outer))
            if normalization == "symmetric":
                parts = [part.rescaled(scale) for part, scale in zip(parts, scales, strict=True)]
            normalization, own = "none", factor * own.astype(np.float64)
        weights = [factor * kernel.weight for kernel in self.kernels]
        filters = list(zip(weights, parts, strict=True))
        pairwise = Pairwise(filters, len(local.pixels), normalization, own)
        return DenseCRF.from_checked(unary, (), compatibility=tree, pairwise=pairwise)

    def with_costs(self, costs: Sequence[float] | None) -> "TiledEnergy":
        """Return the run with costs of labels."""
        return replace(self, label_costs=None if costs is None else tuple(costs))


def plan(
    image: Any, probs: Any, specification: Specification, **options: Any
) -> tuple[TiledEnergy, Parameters]:
    """Return the run of `densecrf.large.refine`, and its numbers; the options are of `declared`."""
    picture = open_source("image", image, native=specification.image_range is not None)
    inputs = _read(picture, open_source("probabilities", probs), specification)
    return declared(inputs, specification, **options)


class Inputs(NamedTuple):
    """What an energy is made from.

    Attributes
    ----------
    image : Source
        (*grid, channels).
    scores : Source
        (labels, *grid), or (*grid) for labels and maps.
    content : str
        As for `densecrf.model.reading.Reading`.
    enlarged : float
        The factor by which scores were enlarged; infinite where it is not known.
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

    Where `sigma_t` is given, the first axis is time: the numbers of the model are those of a frame.
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
    """Return the sides of tiles: those asked for, or larger ones where these cost less.

    A tile of which most is margin is computed again and again, as part of its neighbours. Tiles
    are as large as the kernels reach at least, and as large as the memory that is taken for
    granted holds; and where a tile with its margin is most of the image, the image is not cut.

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
    """Return the parts of a clip that are measured: those of some of its frames.

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
    """Measure the resolution of the scores of an image or of frames, on some windows."""
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
    except ArgumentError:  # said where all of it is read
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
    """Read a source in parts along its last axes, all of its first one at a time."""
    sides = source.shape
    tile = [SCANNED] * (len(sides) - 1)
    for box in Tiling.of(sides[1:], tile).tiles(0):
        yield source.read("probabilities", (slice(0, sides[0]), *box))


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


def settings_of(job: TiledEnergy, model: Parameters, gap: float) -> dict[str, Any]:
    """Return all that the files of a run depend on."""
    from densecrf import __version__

    sources = {"image": job.image, "probabilities": job.scores, "mask": job.mask, "flow": job.flow}
    inputs = {name: None if each is None else each.identity for name, each in sources.items()}
    return {
        "version": __version__,
        **inputs,
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
