"""The lattice filter by Triton kernels: splat, blur, slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch.pixelwise import ADD_UP
from densecrf.operators.torch.topology import SEGMENT
from densecrf.operators.triton import filter_kernels as kernels
from densecrf.operators.triton import pixelwise_kernels, plane_kernels
from densecrf.operators.triton.launch import launch, launch_each
from densecrf.operators.triton.units import Units, Wanted, in_groups, split_ramps, width

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.operators.levels import Levels
    from densecrf.operators.torch.lattice import Lattice


@dataclass
class Shapes:
    """Sizes of the kernels' tiles: elements, (most channels,) warps; measured on an H200."""

    splat: tuple[int, int, int] = (128, 32, 1)  # entries x lanes of 4 bytes, most entries
    slice: tuple[int, int] = (256, 4)  # pixels x lanes
    blur: tuple[int, int, int] = (512, 32, 1)  # rows x channels; 8 channels where rows are short


SHAPES = Shapes()
SHORT = 8  # channels of a short row
OCTET = 8  # labels that lie along a tile of the splat; others are further tiles
CORNERS = (3, 9)  # that a slice reads at once: the least that is enough, else the most
SUMMED = 4096  # pixels of a block of row sums
SUMS = 64  # that a balance adds at once
OVERLAP_SLOTS, OVERLAPPED = 4, 1024  # arrays of vertex rows of an overlap; numbers of a tile
JOIN = {"SEGMENT": SEGMENT, "TILE": 8, "BLOCK": 64}


class Scales(NamedTuple):
    """Factors of the pixels, (n,): of what they give, in float32, and of what they receive.

    The latter are the former times `factor`.
    """

    g: Tensor
    read: Tensor
    factor: float


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
    """Splat rows of pixels, or indicators of labels (…, n), onto the vertices and blur."""
    if work is None:
        work = empty_work(lattice.slots, units, ramps, rows)
    _splat(lattice, rows, units, ramps, work, scales)
    return Blurred(work, _blur(lattice, units, work))


def empty_work(slots: int, units: Units, ramps: int, like: Tensor) -> Tensor:
    """Return the workspace of `blur_rows`, in the precision of `like`."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    shape = (slots, units.work, width(units.labels, units.lanes, ramps))
    return torch.empty(shape, dtype=dtype, device=like.device)


def overlaps(
    lattice: Lattice,
    labels: Tensor,
    units: Units,
    work: Tensor,
    parts: Tensor,
    sums: Tensor,
    scales: Scales | None = None,
) -> None:
    r"""Write the units' masses of agreeing pairs, Σ_i 1_i' K 1_i with the labels' indicators.

    K is S' B S with splat S and blur B, the product of the axes' symmetric blurs: both of its
    halves are applied to S 1_i, and the inner product of the two is the form's value. Nothing is
    read at the pixels. With `scales`, their factor is left out.

    Parameters
    ----------
    lattice : Lattice
        The lattice.
    labels : Tensor
        (planes, n) int64.
    units : Units
        Planes and labels.
    work, parts : Tensor
        Scratch memory, `OVERLAP_SLOTS` of it: see `empty_work`, and `empty_overlaps`.
    sums : Tensor
        (units,) float64, what is written.
    scales : Scales, optional
        Factors of the pixels.
    """
    _splat(lattice, labels, units, 0, work, scales)
    left, right = _blur_halves(lattice, units, work)
    constants, tiles, blocks = _overlap_tiles(units, work.shape[2])
    weighted = scales is None
    weight = lattice.vertex_weight if weighted else work
    sizes = (work.shape[1], work.shape[2] // 4, blocks, left, right)
    launch(
        kernels.overlap,
        tiles,
        (work, weight, parts, units.table, *sizes),
        {"WEIGHTED": weighted, **constants},
    )
    count = blocks * tiles[0]
    launch(pixelwise_kernels.add_up, (units.count,), (parts, sums, count, 1), ADD_UP)


def empty_overlaps(units: Units, work: Tensor) -> Tensor:
    """Return the scratch memory of `overlaps`."""
    _, (tiles, rows), _ = _overlap_tiles(units, work.shape[2])
    return torch.empty(rows * tiles, dtype=torch.float64, device=work.device)


def _overlap_tiles(units: Units, channels: int) -> tuple[dict[str, int], tuple[int, int], int]:
    """Return constants, grid and blocks of channels of an overlap."""
    constants = overlap_constants(short=channels <= SHORT)
    blocks = -(-channels // constants["BLOCK"])
    return constants, (-(-units.vertices // constants["ROWS"]), units.count * blocks), blocks


def overlap_constants(*, short: bool) -> dict[str, int]:
    """Return the constants of the overlaps."""
    block = SHORT if short else SHAPES.blur[1]
    return {"ROWS": OVERLAPPED // block, "BLOCK": block}


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
    first_row = blurred.slot * slot_rows
    sizes = (channels // 4, ramps, corners, first_row)
    factors = (factor * lattice.scale, factor if mass_factor is None else mass_factor)
    tensors = (lattice.topology.corner, lattice.corner_weight, read, mass, out, units.table)
    launch(
        plane_kernels.slice_rows,
        (-(-units.pixels // constants["BLOCK"]), units.count),
        (
            *(blurred.work, rows if ramps else blurred.work, *tensors, *sizes),
            *(out.stride(0), *factors, int(add), 1),
        ),
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
        (units.segments, units.count, runs),
        (rows, topology.entry_pixel, weight, g, begin, segments, work, units.table, quads, 1),
        splat_constants(
            units.lanes,
            run,
            work.dtype,
            scaled=scales is not None,
            labelled=not rows.is_floating_point(),
        ),
        SHAPES.splat[2],
    )
    blocks = -(-4 * quads // JOIN["BLOCK"])
    grid = (units.segments, units.count, blocks)
    launch(kernels.join, grid, (work, begin, segments, units.table, quads), JOIN, warps=1)


def splat_constants(
    lanes: int, run: int, dtype: torch.dtype, *, scaled: bool, labelled: bool = False
) -> dict[str, int]:
    """Return the constants of the splat of `run` ramps at once."""
    elements, most, _ = SHAPES.splat
    tile = min(most, elements * 4 // dtype.itemsize // min(lanes, OCTET))
    kind = {"RAMPS": run, "SEGMENT": SEGMENT, "SCALED": scaled, "LABELLED": labelled}
    return {**kind, "TILE": tile, "LANES": lanes}


def _blur(lattice: Lattice, units: Units, work: Tensor) -> int:
    """Blur slot 0 of the workspace along all axes; returns the slot of the result."""
    last = lattice.topology.dimension
    tiles, common, constants, warps = _blur_tiles(lattice, units, work)
    if lattice.order == "forward":
        steps = [2 * (axis % 2, 1 - axis % 2, axis) for axis in range(last + 1)]
        launch_each(kernels.blur, (*tiles, 1), common, steps, constants, warps)
        return (last + 1) % 2
    # Both orders at once: they share the first source, then go to and fro between pairs of slots.
    sources, steps = (0, 0), []
    for axis in range(last):
        targets = (1, 2) if axis % 2 == 0 else (0, 3)
        steps.append((sources[0], targets[0], axis, sources[1], targets[1], last - axis))
        sources = targets
    launch_each(kernels.blur, (*tiles, 2), common, steps, constants, warps)
    result = 0 if sources == (1, 2) else 1
    ends = (sources[0], last, sources[1], 0, result)
    launch(kernels.blur_mean, tiles, (*common, *ends), constants, warps)
    return result


def _blur_halves(lattice: Lattice, units: Units, work: Tensor) -> tuple[int, int]:
    """Blur slot 0 along the first half of the axes, and from the last one back along the others.

    Returns the slots of both.
    """
    last = lattice.topology.dimension
    tiles, common, constants, warps = _blur_tiles(lattice, units, work)
    half, left, right = last // 2 + 1, 0, 0
    steps = []
    for axis in range(half):
        forward = (left, 1 - axis % 2, axis)
        both = last - axis >= half
        backward = (right, 2 + axis % 2, last - axis) if both else forward
        steps.append((*forward, *backward))
        left, right = forward[1], backward[1] if both else right
    paired = last + 1 - half  # an odd axis is in the first half
    launch_each(kernels.blur, (*tiles, 2), common, steps[:paired], constants, warps)
    launch_each(kernels.blur, (*tiles, 1), common, steps[paired:], constants, warps)
    return left, right


def _blur_tiles(lattice: Lattice, units: Units, work: Tensor) -> tuple[Any, ...]:
    """Return two axes of the grid, the first arguments, constants and warps of the blurs."""
    quads = work.shape[2] // 4
    constants, warps = blur_constants(short=4 * quads <= SHORT), SHAPES.blur[2]
    blocks = -(-4 * quads // constants["BLOCK"])
    tiles = (-(-units.vertices // constants["ROWS"]), units.count * blocks)
    sizes = (lattice.vertices, work.shape[1], quads, blocks)
    return tiles, (work, lattice.topology.neighbour, units.table, *sizes), constants, warps


def blur_constants(*, short: bool) -> dict[str, int]:
    """Return the constants of the blurs."""
    elements, block, _ = SHAPES.blur
    block = SHORT if short else block
    return {"ROWS": elements // block, "BLOCK": block}
