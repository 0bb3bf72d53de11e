"""The energy of a tiled run: its kernels, its numbers, its tiles. The same on every worker."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from densecrf.io.errors import FileFormatError
from densecrf.large.sources import Source, holds_data
from densecrf.large.store import WorkingFiles
from densecrf.large.tiles import Box, Tiling, around, flat, inside, lattice_reach, shape_of
from densecrf.model.compatibility import LabelTree
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import color_range, position_dtype
from densecrf.model.label_prior import plus_offsets
from densecrf.model.reading import Reading
from densecrf.model.unaries import energies
from densecrf.operators import LatticeFilter
from densecrf.operators.pairwise import Pairwise
from densecrf.validation import ArgumentError, FloatArray, IntArray, check_non_negative, sigmas

__all__ = ["Kernel", "Local", "TiledEnergy"]


class Kernel(NamedTuple):
    """A Gaussian kernel of positions, optionally with colours or other features.

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
                raise ArgumentError("colors", self.colors, "there are only positions; leave it out")
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
        Folder of the working files.
    tiling : Tiling
        The blocks and tiles of the grid.
    image : Source or None
        The image, (*grid, channels).
    scores : Source
        (labels, *grid), or (*grid) for labels and foreground probabilities.
    mask : Source or None
        The pixels of the model.
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
        Iterations of a tile between updates of its neighbours.
    threads : int
        Of the compiled core, for each task.
    label_costs : tuple of float or None
        The costs of labels; None: Potts.
    missing_chunks : {"error", "fill"}
        Whether missing chunks of the image or the scores are errors.
    opaque : bool
        Whether the image has a fourth channel that must be opaque alpha.
    offsets : tuple of float or None
        The model's prior: costs added to the unaries, by label.
    found : ndarray or None
        All values of hard labels, ascending: they decide which ones mean void.
    flow : Source or None
        The optical flow of a clip, (frames, height, width, 2). Positions within a frame are then
        those of the stage "positions".
    extent : tuple of int or None
        The sides of a grid that contains such positions.
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
    def sources(self) -> dict[str, Source | None]:
        """The inputs, by the names of their arguments."""
        names = {"image": self.image, "probabilities": self.scores, "mask": self.mask}
        return {**names, "flow": self.flow}

    def read_by_workers(self) -> dict[str, Source | None]:
        """Return the inputs that workers open."""
        return self.sources

    def ready(self) -> "TiledEnergy":
        """Return the run, after what must precede its first stage."""
        return self

    @property
    def store(self) -> WorkingFiles:
        """The working files."""
        return WorkingFiles(self.folder, self.tiling)

    @property
    def alone(self) -> bool:
        """Whether one tile holds the whole grid."""
        return len(self.tiling.tiles(0)) == 1

    @cached_property
    def margin(self) -> tuple[int, ...]:
        """How far sums reach along each axis."""
        reaches = [lattice_reach(kernel.positions) for kernel in self.kernels]
        none = (0,) * len(self.tiling.shape)
        return tuple(max(axis) for axis in zip(none, *reaches, strict=True))

    def local(self, box: Box, reaches: int = 1) -> Local:
        """Return a tile with a margin of the reach of sums, or a multiple of it."""
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
        """Refuse pixels of the model whose chunk is missing.

        Called after reading, since a store may lose chunks meanwhile.
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
                f"{name}: chunk {lost[0]} is missing, and {len(lost) - 1} more near pixel "
                f"{tuple(part.start for part in local.box)}. If the copy is incomplete, complete "
                "it and call again; if empty chunks were omitted on purpose, give "
                "missing_chunks='fill' (--fill-missing) to read them as the fill value, or a mask "
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
        """Read the scores of the model's pixels, (labels, n) or (n,), and where they are data."""
        named = (slice(0, self.n_labels),) if self.content == "scores" else ()
        values = self.scores.read("probabilities", (*named, *local.outer))
        self.check_complete("probabilities", self.scores, local, named, ())
        values = values.reshape(*values.shape[: len(named)], -1)
        values = values if local.whole else values[..., local.pixels]
        return values, holds_data(values, self.scores.nodata, tuple(range(len(named))))

    def energies(self, values: npt.NDArray[Any]) -> FloatArray:
        """Return the energies of some pixels, as in the whole image."""
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
