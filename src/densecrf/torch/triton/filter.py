"""The lattice filter by Triton kernels: splat, blur, slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from densecrf.torch.topology import SEGMENT
from densecrf.torch.triton import filter_kernels as kernels
from densecrf.torch.triton import plane_kernels
from densecrf.torch.triton.launch import launch
from densecrf.torch.triton.units import Units, Wanted, in_groups, split_ramps, width

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.filters.base import Levels
    from densecrf.torch.lattice import Lattice


@dataclass
class Shapes:
    """Sizes of the kernels' tiles: elements, (most channels,) warps; measured on an H200."""

    splat: tuple[int, int, int] = (128, 32, 1)  # entries x lanes of 4 bytes, most entries
    slice: tuple[int, int] = (256, 4)  # pixels x lanes
    blur: tuple[int, int, int] = (512, 32, 1)  # rows x channels; 8 channels where rows are short


SHAPES = Shapes()
SHORT = 8  # channels of a short row
CORNERS = (3, 9)  # that a slice reads at once: the least that is enough, else the most
SUMMED = 4096  # pixels of a block of row sums
SUMS = 64  # that a balance adds at once
JOIN = {"SEGMENT": SEGMENT, "TILE": 8, "BLOCK": 64}


class Scales(NamedTuple):
    """Factors of the pixels, (n,): of what they give, in float32, and of what they receive."""

    g: Tensor
    read: Tensor


class Blurred(NamedTuple):
    """A workspace (slots, rows, channels), and the slot with the units' rows of vertices."""

    work: Tensor
    slot: int


def filter_planes(
    lattice: Lattice,
    planes: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float = 1.0,
    *,
    add: bool = False,
) -> None:
    """Write (or add) `factor` times the filtered planes (labels, n) to the planes `out`."""
    planes = planes if planes.stride(1) == 1 else planes.contiguous()
    ramps = levels.ramps if levels else 0
    wanted = [Wanted(item, range(len(planes)), levels) for item in range(len(lattice.spans))]
    mass = lattice.mass if levels else planes
    for units in in_groups(lattice, wanted, ramps):
        rows = to_rows(planes, units, levels)
        blurred = blur_rows(lattice, rows, units, ramps)
        slice_rows(lattice, blurred, rows, units, ramps, out, mass, factor, add=add)


def empty_rows(units: Units, like: Tensor) -> Tensor:
    """Return rows of pixels to fill, in the precision of `like`."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.empty(units.rows, units.lanes, dtype=dtype, device=like.device)


def to_rows(
    planes: Tensor,
    units: Units,
    levels: Levels | None,
    rows: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Transpose planes (labels, n), with offsets added, to rows of levels, or of plain values."""
    rows = empty_rows(units, planes) if rows is None else rows
    kind = 0 if levels is None else 1 + levels.hard
    constants = row_constants(units.lanes)
    grid = (-(-units.pixels // constants["BLOCK"]), units.count)
    given = planes if offsets is None else offsets
    arguments = (planes, given, rows, units.table, planes.stride(0))
    constants = {"LEVELS": kind, "OFFSETS": offsets is not None, **constants}
    launch(plane_kernels.to_rows, grid, arguments, constants)
    return rows


def indicator_rows(labels: Tensor, units: Units, rows: Tensor) -> Tensor:
    """Write the indicators of the units' labels into rows of pixels."""
    constants = row_constants(units.lanes)
    grid = (-(-units.pixels // constants["BLOCK"]), units.count)
    launch(plane_kernels.indicator_rows, grid, (labels, rows, units.table), constants)
    return rows


def row_constants(lanes: int) -> dict[str, int]:
    """Return the constants of the kernels that make rows of pixels."""
    return {"LANES": lanes, "BLOCK": 2048 // lanes}


def blur_rows(
    lattice: Lattice,
    rows: Tensor,
    units: Units,
    ramps: int,
    scales: Scales | None = None,
    work: Tensor | None = None,
) -> Blurred:
    """Splat rows of pixels onto the vertices and blur."""
    if work is None:
        work = empty_work(lattice, rows, units, ramps)
    _splat(lattice, rows, units, ramps, work, scales)
    return Blurred(work, _blur(lattice, units, work))


def empty_work(lattice: Lattice, rows: Tensor, units: Units, ramps: int) -> Tensor:
    """Return the workspace of `blur_rows`."""
    shape = (lattice.slots, units.work, width(units.lanes, ramps))
    return torch.empty(shape, dtype=rows.dtype, device=rows.device)


def slice_rows(
    lattice: Lattice,
    blurred: Blurred,
    rows: Tensor,
    units: Units,
    ramps: int,
    out: Tensor,
    mass: Tensor,
    factor: float = 1.0,
    *,
    mass_factor: float | None = None,
    add: bool = False,
    scales: Scales | None = None,
) -> None:
    """Write (or add) what the pixels read of their vertices to the planes `out` (labels, n).

    With `scales`, what a pixel receives is multiplied by its own factor in the place of `factor`
    and the lattice's scale; `mass_factor` is 0 where `mass` is left out.
    """
    corners = lattice.topology.corner.shape[1]
    kind = {"ordered": ramps > 0, "scaled": scales is not None}
    constants = slice_constants(units.lanes, CORNERS[corners > CORNERS[0]], **kind)
    read = lattice.corner_weight if scales is None else scales.read
    _, slot_rows, channels = blurred.work.shape
    run, runs = split_ramps(ramps)
    first_row = blurred.slot * slot_rows
    sizes = (channels // 4, run * runs, corners, first_row)
    factors = (factor * lattice.scale, factor if mass_factor is None else mass_factor)
    tensors = (lattice.topology.corner, lattice.corner_weight, read, mass, out, units.table)
    launch(
        plane_kernels.slice_rows,
        (-(-units.pixels // constants["BLOCK"]), units.count),
        (blurred.work, rows, *tensors, *sizes, out.stride(0), *factors, int(add), 1),
        constants,
        SHAPES.slice[1],
    )


def slice_constants(lanes: int, corners: int, *, ordered: bool, scaled: bool) -> dict[str, int]:
    """Return the constants of the slice."""
    block = SHAPES.slice[0] // lanes
    fixed = {"CORNERS": corners, "LANES": lanes, "BLOCK": block}
    return {"ORDERED": ordered, "SCALED": scaled, **fixed}


def balance(out: Tensor, units: Units, mass: Tensor, totals: Tensor, parts: Tensor) -> None:
    """Subtract a multiple of `mass` from each of the units' planes so that it sums to zero.

    `parts` is scratch memory, see `empty_parts`; `totals` are the sums of `mass` of all items.
    """
    grid = (-(-units.pixels // SUMMED), units.count * units.lanes)
    constants = sum_constants(units.lanes)
    launch(plane_kernels.row_sums, grid, (out, parts, units.table, out.stride(0)), constants)
    tensors = (out, mass, totals, parts, units.table, out.stride(0))
    launch(plane_kernels.balance, grid, tensors, {**constants, "TILE": SUMS})


def sum_constants(lanes: int) -> dict[str, int]:
    """Return the constants of the row sums."""
    return {"LANES": lanes, "BLOCK": SUMMED}


def empty_parts(units: Units, like: Tensor) -> Tensor:
    """Return the scratch memory of `balance`."""
    shape = (units.count * units.lanes, -(-units.pixels // SUMMED))
    return torch.empty(shape, dtype=torch.float64, device=like.device)


def blurred_planes(lattice: Lattice, planes: Tensor) -> Tensor:
    """Splat and blur planes (channels, n); returns them at the vertices, (vertices, channels)."""
    out = torch.empty(lattice.vertices, len(planes), device=planes.device)
    first = 0
    for units in in_groups(lattice, [Wanted(0, range(len(planes)))], 0):
        rows = to_rows(planes.contiguous(), units, None)
        work, slot = blur_rows(lattice, rows, units, 0)
        by_unit = work[slot].view(units.count, -1, work.shape[2])
        blurred = by_unit[:, : lattice.vertices, : units.lanes].transpose(0, 1)
        part = out[:, first : first + units.count * units.lanes]
        part.copy_(blurred.reshape(lattice.vertices, -1)[:, : part.shape[1]])
        first += units.count * units.lanes
    return out


def _splat(
    lattice: Lattice, rows: Tensor, units: Units, ramps: int, work: Tensor, scales: Scales | None
) -> None:
    """Sum the rows of pixels into slot 0 of the workspace."""
    topology = lattice.topology
    run, runs = split_ramps(ramps)
    quads = work.shape[2] // 4
    weight = lattice.entry_weight
    g = weight if scales is None else scales.g
    begin, segments = topology.row_begin, topology.segment_vertex
    launch(
        kernels.splat,
        (units.vertices + units.segments, units.count, runs),
        (rows, topology.entry_pixel, weight, g, begin, segments, work, units.table, quads, 1),
        splat_constants(units.lanes, run, rows.dtype, scaled=scales is not None),
        SHAPES.splat[2],
    )
    blocks = -(-4 * quads // JOIN["BLOCK"])
    grid = (units.segments, units.count, blocks)
    launch(kernels.join, grid, (work, begin, segments, units.table, quads), JOIN, warps=1)


def splat_constants(lanes: int, run: int, dtype: torch.dtype, *, scaled: bool) -> dict[str, int]:
    """Return the constants of the splat of `run` ramps at once."""
    elements, most, _ = SHAPES.splat
    tile = min(most, elements * 4 // dtype.itemsize // lanes)
    return {"RAMPS": run, "SEGMENT": SEGMENT, "SCALED": scaled, "TILE": tile, "LANES": lanes}


def _blur(lattice: Lattice, units: Units, work: Tensor) -> int:
    """Blur slot 0 of the workspace along all axes; returns the slot of the result."""
    last = lattice.topology.dimension
    quads = work.shape[2] // 4
    constants, warps = blur_constants(short=4 * quads <= SHORT), SHAPES.blur[2]
    blocks = -(-4 * quads // constants["BLOCK"])
    tiles = (-(-units.vertices // constants["ROWS"]), units.count * blocks)
    grid = (*tiles, 1 if lattice.order == "forward" else 2)
    sizes = (lattice.vertices, work.shape[1], quads, blocks)
    common = (work, lattice.topology.neighbour, units.table, *sizes)
    if lattice.order == "forward":
        for axis in range(last + 1):
            step = (axis % 2, 1 - axis % 2, axis)
            launch(kernels.blur, grid, (*common, *step, *step), constants, warps)
        return (last + 1) % 2
    # Both orders at once: they share the first source, then go to and fro between pairs of slots.
    sources = (0, 0)
    for axis in range(last):
        targets = (1, 2) if axis % 2 == 0 else (0, 3)
        forward = (sources[0], targets[0], axis)
        backward = (sources[1], targets[1], last - axis)
        launch(kernels.blur, grid, (*common, *forward, *backward), constants, warps)
        sources = targets
    result = 0 if sources == (1, 2) else 1
    ends = (sources[0], last, sources[1], 0, result)
    launch(kernels.blur_mean, tiles, (*common, *ends), constants, warps)
    return result


def blur_constants(*, short: bool) -> dict[str, int]:
    """Return the constants of the blurs."""
    elements, block, _ = SHAPES.blur
    block = SHORT if short else block
    return {"ROWS": elements // block, "BLOCK": block}
