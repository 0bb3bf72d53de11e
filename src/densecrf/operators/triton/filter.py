"""The lattice filter by Triton kernels: splat, blur, slice.

A call works on units, blocks of labels of one item each, that a table lists for the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from densecrf.operators.torch.pixelwise import ADD_UP
from densecrf.operators.torch.topology import SEGMENT
from densecrf.operators.triton import filter_kernels as kernels
from densecrf.operators.triton.launch import launch, launch_each
from densecrf.operators.triton.pixelwise_kernels import add_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from densecrf.operators.levels import Levels
    from densecrf.operators.torch.lattice import Lattice

LANES = (1, 4, 8)  # labels of a unit
PLAIN_LANES = (*LANES, 32)  # and of plain values, whose rows are short
RUNS = (4, 8, 12)  # ramps that one program of the splat sums
FIELDS, NAMES = 44, 12  # columns of the table, and where the labels' names begin
MOST_KEPT = 256  # tables of a lattice
# Sizes of the kernels' tiles, measured on an H200.
SPLAT, SPLAT_ENTRIES, SPLAT_WARPS = 128, 32, 1  # entries x lanes of 4 bytes, most entries
OCTET = 8  # labels that lie along a tile of the splat; others are further tiles
JOIN = {"SEGMENT": SEGMENT, "TILE": 8, "BLOCK": 64}
BLUR, LONG, SHORT, BLUR_WARPS = 512, 32, 8, 1  # rows x channels; channels, where rows are short
SLICE, SLICE_WARPS = 256, 4  # pixels x lanes
CORNERS = (3, 9)  # that a slice reads at once: the least that is enough, else the most
SUMMED, SUMS = 4096, 64  # pixels of a block of row sums; sums that a balance adds at once
OVERLAP_SLOTS, OVERLAPPED = 4, 1024  # arrays of vertex rows of an overlap; numbers of a tile


class Scales(NamedTuple):
    """Factors of the pixels, (n,): of what they give, in float32, and of what they receive.

    The latter are the former times `factor`.
    """

    g: Tensor
    read: Tensor
    factor: float


# --- units --------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """Labels of one item to be filtered, and their levels (None: plain values).

    Where their indicators are filtered, `plane` is the labelling's number among those given.
    """

    item: int
    names: Sequence[int]
    levels: Levels | None = None
    plane: int | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """Units that are worked on at once.

    The table, (count, FIELDS) int32, has first pixel and pixels, first vertex and vertices, first
    segment and segments of the item; the unit's first row among all rows of pixels (where
    indicators are filtered: the first pixel of its labelling) and of vertices; the item; its
    levels' low, scale and top as float32; the labels, -1 where there is none.
    """

    table: Tensor
    count: int
    lanes: int  # room for labels in each
    labels: int  # the most labels of one
    pixels: int  # the most that an item has, as the next two
    vertices: int
    segments: int
    rows: int  # of pixels, of all units
    work: int  # rows of vertices and segments, of all units

    @property
    def sizes(self) -> tuple[int, ...]:
        """What the grids of launches depend on, beside the shapes of tensors."""
        return self.lanes, self.pixels, self.vertices, self.segments

    def empty_rows(self, dtype: torch.dtype) -> Tensor:
        """Return rows of pixels to fill."""
        return torch.empty(self.rows, self.lanes, dtype=dtype, device=self.table.device)

    def empty_work(self, slots: int, ramps: int, dtype: torch.dtype) -> Tensor:
        """Return a workspace: slots of rows of vertices."""
        shape = (slots, self.work, width(self.labels, self.lanes, ramps))
        return torch.empty(shape, dtype=dtype, device=self.table.device)

    def empty_sums(self) -> Tensor:
        """Return the scratch memory of `balance`."""
        shape = (self.count * self.lanes, -(-self.pixels // SUMMED))
        return torch.empty(shape, dtype=torch.float64, device=self.table.device)


def split_ramps(ramps: int) -> tuple[int, int]:
    """Return how many ramps a program sums, and how many such runs there are; 0: plain values.

    Examples
    --------
    >>> split_ramps(0), split_ramps(3), split_ramps(9), split_ramps(13), split_ramps(48)
    ((0, 1), (4, 1), (12, 1), (8, 2), (12, 4))
    """
    if ramps == 0:
        return 0, 1
    counts = [(run, -(-ramps // run)) for run in RUNS]
    return min(counts, key=lambda each: each[0] * each[1] + 2 * each[1])


def width(labels: int, lanes: int, ramps: int) -> int:
    """Return the channels of a row of so many labels, rounded up to whole quads.

    Examples
    --------
    >>> width(21, 32, 0), width(5, 8, 9)
    (24, 72)
    """
    return -(-(lanes * ramps if ramps else labels) // 4) * 4


def in_groups(
    lattice: Lattice,
    wanted: Sequence[Wanted],
    ramps: int,
    size: int = 4,
    slots: int | None = None,
) -> list[Units]:
    """Return the units of what is wanted, as many at once as the lattice's workspace has room for.

    They are kept, since making and sending their tables takes time. There are at most so many
    `ramps` (0: the plain filter), numbers of `size` bytes, and `slots` of vertex rows, if others
    than the lattice's.
    """
    kept: dict[Any, list[Units]] = vars(lattice).setdefault("_units", {})
    asked = [(each.item, tuple(each.names), each.levels, each.plane) for each in wanted]
    key = (ramps, size, slots, *asked)
    found = kept.get(key)
    if found is None:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        groups = _grouped(lattice, wanted, ramps, size, lattice.slots if slots is None else slots)
        found = kept[key] = [_units(lattice, group, lanes) for group, lanes in groups]
    return found


def _grouped(
    lattice: Lattice, wanted: Sequence[Wanted], ramps: int, size: int, slots: int
) -> Iterator[tuple[list[Wanted], int]]:
    """Yield the units of each group, and their lanes."""
    count = max(len(each.names) for each in wanted)
    sizes = LANES if ramps else PLAIN_LANES
    place = sum(lanes < count for lanes in sizes[:-1])
    room = [slots * (span.vertices + span.segments) * size for span in lattice.spans]
    most = max(room[each.item] for each in wanted)
    while (
        place > 0
        and most * width(min(count, sizes[place]), sizes[place], ramps) > lattice.workspace
    ):
        place -= 1
    lanes = sizes[place]
    channels = width(min(count, lanes), lanes, ramps)
    group: list[Wanted] = []
    used = 0
    for each in wanted:
        own = room[each.item] * channels
        for first in range(0, len(each.names), lanes):
            if group and used + own > lattice.workspace:
                yield group, lanes
                group, used = [], 0
            group.append(each._replace(names=each.names[first : first + lanes]))
            used += own
    if group:
        yield group, lanes


def _units(lattice: Lattice, group: Sequence[Wanted], lanes: int) -> Units:
    """Return the units of a group."""
    table = np.empty((len(group), FIELDS), np.int32)
    numbers = table.view(np.float32)
    rows = work = 0
    spans = [lattice.spans[each.item] for each in group]
    for line, own, span, (item, names, levels, plane) in zip(
        table, numbers, spans, group, strict=True
    ):
        line[:9] = (*span, rows if plane is None else plane * lattice.n, work, item)
        if levels is not None:
            own[9:NAMES] = levels.low, levels.scale, levels.ramps
        line[NAMES:] = -1
        line[NAMES : NAMES + len(names)] = names
        rows += span.pixels
        work += span.vertices + span.segments
    there = torch.from_numpy(table).to(lattice.device, non_blocking=True)
    return Units(
        table=there,
        count=len(group),
        lanes=lanes,
        labels=max(len(each.names) for each in group),
        pixels=max(span.pixels for span in spans),
        vertices=max(span.vertices for span in spans),
        segments=max(span.segments for span in spans),
        rows=rows,
        work=work,
    )


# --- filters ------------------------------------------------------------------------------


def filter_planes(
    lattice: Lattice,
    planes: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float = 1.0,
    *,
    add: bool = False,
    ramps: int = 0,
    mass: Tensor | None = None,
    scales: Scales | None = None,
) -> None:
    """Write (or add) `factor` times the filtered planes (labels, n) to the planes `out`.

    With `scales`, planes are of float64: plain values, or levels in [0, `ramps`] with the `mass`
    of all kernels.
    """
    planes = planes if planes.stride(1) == 1 else planes.contiguous()
    if levels is not None:
        ramps, mass = levels.ramps, lattice.mass
    wanted = [Wanted(item, range(len(planes)), levels) for item in range(len(lattice.spans))]
    for units in in_groups(lattice, wanted, ramps, out.element_size()):
        rows = units.empty_rows(out.dtype)
        to_rows(planes, None, units, levels, rows)
        work = units.empty_work(lattice.slots, ramps, out.dtype)
        slot = blur_rows(lattice, rows, units, ramps, work, scales)
        blurred = (work, slot, rows, units, ramps)
        slice_rows(lattice, *blurred, out, mass, factor, add=add, scales=scales)


def blurred_planes(lattice: Lattice, planes: Tensor) -> Tensor:
    """Splat and blur planes (channels, n); returns them at the vertices, (vertices, channels)."""
    out = torch.empty(lattice.vertices, len(planes), device=planes.device)
    dtype = torch.float64 if planes.dtype == torch.float64 else torch.float32
    first = 0
    for units in in_groups(lattice, [Wanted(0, range(len(planes)))], 0):
        rows = units.empty_rows(dtype)
        to_rows(planes.contiguous(), None, units, None, rows)
        work = units.empty_work(lattice.slots, 0, dtype)
        slot = blur_rows(lattice, rows, units, 0, work)
        by_unit = work[slot].view(units.count, -1, work.shape[2])
        blurred = by_unit[:, : lattice.vertices, : units.lanes].transpose(0, 1)
        part = out[:, first : first + units.count * units.lanes]
        part.copy_(blurred.reshape(lattice.vertices, -1)[:, : part.shape[1]])
        first += units.count * units.lanes
    return out


def to_rows(
    planes: Tensor, offsets: Tensor | None, units: Units, levels: Levels | None, rows: Tensor
) -> None:
    """Transpose planes (labels, n), with offsets added, to rows of levels, or of plain values."""
    kind = 0 if levels is None else 1 + levels.hard
    constants = row_constants(units.lanes)
    grid = (-(-units.pixels // constants["BLOCK"]), units.count)
    given = planes if offsets is None else offsets
    arguments = (planes, given, rows, units.table, planes.stride(0))
    constants = {"LEVELS": kind, "OFFSETS": offsets is not None, **constants}
    launch(kernels.to_rows, grid, arguments, constants)


def row_constants(lanes: int) -> dict[str, int]:
    """Return the constants of the kernels that make rows of pixels."""
    return {"LANES": lanes, "BLOCK": 2048 // lanes}


def blur_rows(
    lattice: Lattice,
    rows: Tensor,
    units: Units,
    ramps: int,
    work: Tensor,
    scales: Scales | None = None,
) -> int:
    """Splat rows of pixels, or indicators of labels (…, n), onto the vertices and blur.

    Returns the slot of the workspace with the result.
    """
    _splat(lattice, rows, units, ramps, work, scales)
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
    lattice: Lattice, rows: Tensor, units: Units, ramps: int, work: Tensor, scales: Scales | None
) -> None:
    """Sum the rows of pixels into slot 0 of the workspace."""
    topology = lattice.topology
    run, runs = split_ramps(ramps)
    quads = work.shape[2] // 4
    weight = lattice.entry_weight
    g = weight if scales is None else scales.g
    begin, segments = topology.row_begin, topology.segment_vertex
    kind = {"scaled": scales is not None, "labelled": not rows.is_floating_point()}
    launch(
        kernels.splat,
        (units.segments, units.count, runs),
        (rows, topology.entry_pixel, weight, g, begin, segments, work, units.table, quads, 1),
        splat_constants(units.lanes, run, work.dtype, **kind),
        SPLAT_WARPS,
    )
    blocks = -(-4 * quads // JOIN["BLOCK"])
    grid = (units.segments, units.count, blocks)
    launch(kernels.join, grid, (work, begin, segments, units.table, quads), JOIN, warps=1)


def splat_constants(
    lanes: int, run: int, dtype: torch.dtype, *, scaled: bool, labelled: bool
) -> dict[str, int]:
    """Return the constants of the splat of `run` ramps at once."""
    tile = min(SPLAT_ENTRIES, SPLAT * 4 // dtype.itemsize // min(lanes, OCTET))
    kind = {"RAMPS": run, "SEGMENT": SEGMENT, "SCALED": scaled, "LABELLED": labelled}
    return {**kind, "TILE": tile, "LANES": lanes}


def _blur_tiles(
    lattice: Lattice, units: Units, work: Tensor
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    """Return two axes of the grid, the first arguments, and the constants of the blurs."""
    quads = work.shape[2] // 4
    constants = blur_constants(short=4 * quads <= SHORT)
    blocks = -(-4 * quads // constants["BLOCK"])
    tiles = (-(-units.vertices // constants["ROWS"]), units.count * blocks)
    sizes = (lattice.vertices, work.shape[1], quads, blocks)
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
    ramps: int,
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
    kind = {"ordered": ramps > 0, "scaled": scales is not None}
    constants = slice_constants(units.lanes, CORNERS[corners > CORNERS[0]], **kind)
    read = lattice.corner_weight if scales is None else scales.read
    _, slot_rows, channels = work.shape
    sizes = (channels // 4, ramps, corners, slot * slot_rows)
    factors = (factor * lattice.scale, factor if scales is None else float(not add))
    tensors = (lattice.topology.corner, lattice.corner_weight, read, out if mass is None else mass)
    launch(
        kernels.slice_rows,
        (-(-units.pixels // constants["BLOCK"]), units.count),
        (
            *(work, rows if ramps else work, *tensors, out, units.table, *sizes),
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
    grid = (-(-units.pixels // SUMMED), units.count * units.lanes)
    constants = sum_constants(units.lanes)
    launch(kernels.row_sums, grid, (out, parts, units.table, out.stride(0)), constants)
    tensors = (out, mass, totals, parts, units.table, out.stride(0))
    launch(kernels.balance, grid, tensors, {**constants, "TILE": SUMS})


def sum_constants(lanes: int) -> dict[str, int]:
    """Return the constants of the row sums."""
    return {"LANES": lanes, "BLOCK": SUMMED}


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
    read at the pixels. With `scales`, their factor is left out. `labels` are (planes, n) int64,
    `sums` (units,) float64; scratch memory are `work`, of `OVERLAP_SLOTS` slots, and `parts`, see
    `empty_overlaps`.
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
    launch(add_up, (units.count,), (parts, sums, blocks * tiles[0], 1), ADD_UP)


def empty_overlaps(units: Units, channels: int) -> Tensor:
    """Return the scratch memory of `overlaps` in a workspace of so many channels."""
    _, (tiles, rows), _ = _overlap_tiles(units, channels)
    return torch.empty(rows * tiles, dtype=torch.float64, device=units.table.device)


def _overlap_tiles(units: Units, channels: int) -> tuple[dict[str, int], tuple[int, int], int]:
    """Return constants, grid and blocks of channels of an overlap."""
    constants = overlap_constants(short=channels <= SHORT)
    blocks = -(-channels // constants["BLOCK"])
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
