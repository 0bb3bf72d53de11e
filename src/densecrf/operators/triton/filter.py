"""The lattice filter by Triton kernels: splat, blur, slice.

A call works on units, labels of one item each (`densecrf.operators.triton.units`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch.pixelwise import ADD_UP
from densecrf.operators.torch.topology import SEGMENT
from densecrf.operators.triton import filter_kernels as kernels
from densecrf.operators.triton.launch import launch, launch_each
from densecrf.operators.triton.pixelwise_kernels import add_up
from densecrf.operators.triton.units import LONG, SHORT, SUMMED, Units, Wanted, in_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.operators.levels import Bands, Levels
    from densecrf.operators.torch.lattice import Lattice

# Sizes of the kernels' tiles, measured on an H200.
SPLAT, SPLAT_ENTRIES, SPLAT_WARPS = 128, 32, 1  # entries x lanes of 4 bytes, most entries
OCTET = 8  # channels that lie along a tile of the splat; others are further tiles
ORDERED_LANES = (8, 32)  # channels of a program of the splat, in order
JOIN = {"SEGMENT": SEGMENT, "TILE": 8, "BLOCK": 64}
BLUR, BLUR_WARPS = 512, 1  # rows x channels
SLICE, SLICE_WARPS = 256, 4  # pixels x lanes
CORNERS = (3, 9)  # that a slice reads at once: the least that is enough, else the most
SUMS = 64  # sums of blocks that a balance adds at once
ROW_SUMS = {"BLOCK": SUMMED}
BALANCE = {**ROW_SUMS, "TILE": SUMS}
OVERLAP_SLOTS, OVERLAPPED = 4, 1024  # arrays of vertex rows of an overlap; numbers of a tile


class Scales(NamedTuple):
    """Factors of the pixels, (n,): of what they give, in float32, and of what they receive.

    The latter are the former times the factor of their item.
    """

    g: Tensor
    read: Tensor
    factors: Sequence[float]

    @staticmethod
    def of(lattice: Lattice, g: Tensor, weights: Sequence[float]) -> Scales:
        """Return those of a kernel with a weight for each item."""
        factors = [weight * lattice.scale for weight in weights]
        read = g.double()
        for span, factor in zip(lattice.spans, factors, strict=True):
            read[span.pixel : span.pixel + span.pixels] *= factor
        return Scales(g, read, factors)


# --- filters ------------------------------------------------------------------------------


def filter_planes(
    lattice: Lattice,
    planes: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float = 1.0,
    *,
    add: bool = False,
    bands: Bands | None = None,
    mass: Tensor | None = None,
    scales: Scales | None = None,
) -> None:
    """Write (or add) `factor` times the filtered planes (labels, n) to the planes `out`.

    With `scales`, planes are of float64, and `mass` that of all kernels.
    """
    planes = planes if planes.stride(1) == 1 else planes.contiguous()
    if levels is not None and mass is None:
        mass = lattice.mass
    names = range(len(planes))
    wanted = [Wanted(item, names, levels, bands) for item in range(len(lattice.spans))]
    for units in in_groups(lattice, wanted, out.element_size()):
        rows = units.empty_rows(out.dtype)
        to_rows(planes, None, units, levels, rows)
        work = units.empty_work(lattice.slots, out.dtype)
        slot = blur_rows(lattice, rows, units, work, scales)
        slice_rows(lattice, work, slot, rows, units, out, mass, factor, add=add, scales=scales)


def blurred_planes(lattice: Lattice, planes: Tensor) -> Tensor:
    """Splat and blur planes (channels, n); returns them at the vertices, (vertices, channels)."""
    dtype = torch.float64 if planes.dtype == torch.float64 else torch.float32
    out: list[Tensor] = []
    left, (span,) = len(planes), lattice.spans
    for units in in_groups(lattice, [Wanted(0, range(len(planes)))]):
        rows = units.empty_rows(dtype)
        to_rows(planes.contiguous(), None, units, None, rows)
        work = units.empty_work(lattice.slots, dtype)
        slot = blur_rows(lattice, rows, units, work)
        for place in range(units.count):  # all but the last of one width
            rows = work[slot, place * (span.vertices + span.segments) * units.width :]
            own = min(left, units.labels)
            width = -(-own // 4) * 4
            out.append(rows[: span.vertices * width].view(-1, width)[:, :own])
            left -= own
    return torch.cat(out, 1).float()


def to_rows(
    planes: Tensor, offsets: Tensor | None, units: Units, levels: Levels | None, rows: Tensor
) -> None:
    """Transpose planes (labels, n), with offsets added, to rows of levels, or of plain values."""
    kind = 0 if levels is None else 1 + levels.hard
    constants = row_constants(units.lanes)
    grid = (-(-units.pixels // constants["BLOCK"]), units.count, units.lane_blocks)
    given = planes if offsets is None else offsets
    arguments = (planes, given, rows, units.table, planes.stride(0), units.stride)
    constants = {"LEVELS": kind, "OFFSETS": offsets is not None, **constants}
    launch(kernels.to_rows, grid, arguments, constants)


def row_constants(lanes: int) -> dict[str, int]:
    """Return the constants of the kernels that make rows of pixels."""
    return {"LANES": lanes, "BLOCK": 2048 // lanes}


def blur_rows(
    lattice: Lattice,
    rows: Tensor,
    units: Units,
    work: Tensor,
    scales: Scales | None = None,
) -> int:
    """Splat rows of pixels, or indicators of labels (…, n), onto the vertices and blur.

    Returns the slot of the workspace with the result.
    """
    _splat(lattice, rows, units, work, scales)
    last = lattice.topology.dimension
    tiles, common, constants = _blur_tiles(lattice, units, work)
    if lattice.order == "forward":
        steps = [2 * (axis % 2, 1 - axis % 2, axis) for axis in range(last + 1)]
        launch_each(kernels.blur, (*tiles, 1), common, steps, constants, BLUR_WARPS)
        return (last + 1) % 2
    # Both orders at once: they share the first source, then go to and fro between pairs of slots.
    sources, steps = (0, 0), []
    for axis in range(last):
        targets = (1, 2) if axis % 2 == 0 else (0, 3)
        steps.append((sources[0], targets[0], axis, sources[1], targets[1], last - axis))
        sources = targets
    launch_each(kernels.blur, (*tiles, 2), common, steps, constants, BLUR_WARPS)
    result = 0 if sources == (1, 2) else 1
    ends = (sources[0], result, last, sources[1], result, 0)
    launch(kernels.blur, tiles, (*common, *ends), {**constants, "MEAN": True}, BLUR_WARPS)
    return result


def _splat(
    lattice: Lattice, rows: Tensor, units: Units, work: Tensor, scales: Scales | None
) -> None:
    """Sum the rows of pixels into slot 0 of the workspace."""
    topology = lattice.topology
    weight = lattice.entry_weight
    g = weight if scales is None else scales.g
    begin, segments = topology.row_begin, topology.segment_vertex
    lanes = ORDERED_LANES[units.width > ORDERED_LANES[0]] if units.ordered else units.lanes
    kind = {"scaled": scales is not None, "labelled": not rows.is_floating_point()}
    tensors = (rows, topology.entry_pixel, weight, g, begin, segments, work)
    launch(
        kernels.splat,
        (units.segments, units.count, -(-units.width // lanes) if units.ordered else 1),
        (*tensors, units.table, units.channels, units.stride, units.width, 1),
        splat_constants(lanes, work.dtype, ordered=units.ordered, **kind),
        SPLAT_WARPS,
    )
    grid = (units.segments, units.count, -(-units.width // JOIN["BLOCK"]))
    launch(kernels.join, grid, (work, begin, segments, units.table), JOIN, warps=1)


def splat_constants(
    lanes: int, dtype: torch.dtype, *, ordered: bool, scaled: bool, labelled: bool
) -> dict[str, int]:
    """Return the constants of the splat of so many channels at once."""
    tile = min(SPLAT_ENTRIES, SPLAT * 4 // dtype.itemsize // min(lanes, OCTET))
    kind = {"ORDERED": ordered, "SEGMENT": SEGMENT, "SCALED": scaled, "LABELLED": labelled}
    return {**kind, "TILE": tile, "LANES": lanes}


def _blur_tiles(
    lattice: Lattice, units: Units, work: Tensor
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    """Return two axes of the grid, the first arguments, and the constants of the blurs."""
    constants = blur_constants(short=units.width <= SHORT)
    blocks = -(-units.width // constants["BLOCK"])
    tiles = (-(-units.vertices // constants["ROWS"]), units.count * blocks)
    sizes = (lattice.vertices, units.quads, blocks)
    return tiles, (work, lattice.topology.neighbour, units.table, *sizes), constants


def blur_constants(*, short: bool, mean: bool = False) -> dict[str, int]:
    """Return the constants of the blurs."""
    block = SHORT if short else LONG
    return {"MEAN": mean, "ROWS": BLUR // block, "BLOCK": block}


def slice_rows(
    lattice: Lattice,
    work: Tensor,
    slot: int,
    rows: Tensor,
    units: Units,
    out: Tensor,
    mass: Tensor | None,
    factor: float = 1.0,
    *,
    add: bool = False,
    scales: Scales | None = None,
) -> None:
    """Write (or add) what the pixels read of a slot's vertices to the planes `out` (labels, n).

    With `scales`, what a pixel receives is multiplied by its own factor in the place of `factor`
    and the lattice's scale, and `mass` is in what is written, not in what is added.
    """
    corners = lattice.topology.corner.shape[1]
    kind = {"ordered": units.ordered, "scaled": scales is not None}
    constants = slice_constants(units.lanes, CORNERS[corners > CORNERS[0]], **kind)
    read = lattice.corner_weight if scales is None else scales.read
    sizes = (units.stride, corners, slot, units.quads)
    factors = (factor * lattice.scale, factor if scales is None else float(not add))
    tensors = (lattice.topology.corner, lattice.corner_weight, read, out if mass is None else mass)
    launch(
        kernels.slice_rows,
        (-(-units.pixels // constants["BLOCK"]), units.count, units.lane_blocks),
        (
            *(work, rows if units.ordered else work, *tensors, out, units.table, *sizes),
            *(out.stride(0), *factors, int(add), 1),
        ),
        constants,
        SLICE_WARPS,
    )


def slice_constants(lanes: int, corners: int, *, ordered: bool, scaled: bool) -> dict[str, int]:
    """Return the constants of the slice."""
    fixed = {"CORNERS": corners, "LANES": lanes, "BLOCK": SLICE // lanes}
    return {"ORDERED": ordered, "SCALED": scaled, **fixed}


def balance(out: Tensor, units: Units, mass: Tensor, totals: Tensor, parts: Tensor) -> None:
    """Subtract a multiple of `mass` from each of the units' planes so that it sums to zero.

    `parts` is scratch memory, see `Units.empty_sums`; `totals` are the sums of `mass` of all items.
    """
    grid = (-(-units.pixels // SUMMED), units.count, units.labels)
    launch(kernels.row_sums, grid, (out, parts, units.table, out.stride(0)), ROW_SUMS)
    tensors = (out, mass, totals, parts, units.table, out.stride(0))
    launch(kernels.balance, grid, tensors, BALANCE)


# --- masses of agreeing pairs ---------------------------------------------------------------


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
    read at the pixels. With `scales`, the items' factors are left out. `labels` are (planes, n)
    int64, `sums` (units,) float64; scratch memory are `work`, of `OVERLAP_SLOTS` slots, and
    `parts`, see `empty_overlaps`.
    """
    _splat(lattice, labels, units, work, scales)
    left, right = _blur_halves(lattice, units, work)
    constants, tiles, blocks = _overlap_tiles(units)
    weighted = scales is None
    weight = lattice.vertex_weight if weighted else work
    sizes = (units.quads, blocks, left, right)
    launch(
        kernels.overlap,
        tiles,
        (work, weight, parts, units.table, *sizes),
        {"WEIGHTED": weighted, **constants},
    )
    launch(add_up, (units.count,), (parts, sums, blocks * tiles[0], 1), ADD_UP)


def empty_overlaps(units: Units) -> Tensor:
    """Return the scratch memory of `overlaps`."""
    _, (tiles, rows), _ = _overlap_tiles(units)
    return torch.empty(rows * tiles, dtype=torch.float64, device=units.table.device)


def _overlap_tiles(units: Units) -> tuple[dict[str, int], tuple[int, int], int]:
    """Return constants, grid and blocks of channels of an overlap."""
    constants = overlap_constants(short=units.width <= SHORT)
    blocks = -(-units.width // constants["BLOCK"])
    return constants, (-(-units.vertices // constants["ROWS"]), units.count * blocks), blocks


def overlap_constants(*, short: bool) -> dict[str, int]:
    """Return the constants of the overlaps."""
    block = SHORT if short else LONG
    return {"ROWS": OVERLAPPED // block, "BLOCK": block}


def _blur_halves(lattice: Lattice, units: Units, work: Tensor) -> tuple[int, int]:
    """Blur slot 0 along the first half of the axes, and from the last one back along the others.

    Returns the slots of both.
    """
    last = lattice.topology.dimension
    tiles, common, constants = _blur_tiles(lattice, units, work)
    half, left, right = last // 2 + 1, 0, 0
    steps = []
    for axis in range(half):
        forward = (left, 1 - axis % 2, axis)
        both = last - axis >= half
        backward = (right, 2 + axis % 2, last - axis) if both else forward
        steps.append((*forward, *backward))
        left, right = forward[1], backward[1] if both else right
    paired = last + 1 - half  # an odd axis is in the first half
    launch_each(kernels.blur, (*tiles, 2), common, steps[:paired], constants, BLUR_WARPS)
    launch_each(kernels.blur, (*tiles, 1), common, steps[paired:], constants, BLUR_WARPS)
    return left, right
