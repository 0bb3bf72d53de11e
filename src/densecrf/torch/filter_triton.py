"""Filtering on the lattice by Triton kernels: splat, blur, slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from densecrf.torch import filter_kernels as kernels
from densecrf.torch.geometry import SEGMENT

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.torch.lattice import Lattice, Levels


@dataclass
class Shapes:
    """Sizes of the kernels' tiles, measured on an H200."""

    splat_elements: int = 256  # entries x lanes that one warp holds at a time
    slice_shape: tuple[int, int] = (1024, 4)  # pixels x lanes, warps
    blur_shape: tuple[int, int, int] = (2048, 64, 4)  # rows x channels, most channels, warps


SHAPES = Shapes()


def pitch(labels: int) -> int:
    """Floats in one pixel's row: whole 32-byte sectors, or less for few labels.

    Examples
    --------
    >>> pitch(1), pitch(3), pitch(21)
    (1, 4, 24)
    """
    return _padded(labels)


def width(labels: int, levels: Levels | None) -> int:
    """Floats in one vertex's row."""
    return _padded(labels * (levels.ramps if levels else 1))


def to_rows(scores: Tensor, levels: Levels | None) -> Tensor:
    """Transpose (labels, n) scores to (n, pitch) levels, or plain values."""
    labels, n = scores.shape
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    rows = torch.empty(n, pitch(labels), dtype=torch.float32, device=scores.device)
    lanes = _power_of_two(rows.shape[1])
    block = max(16, 2048 // lanes)
    kernels.to_rows[(-(-n // block),)](
        scores,
        rows,
        n,
        scores.stride(0),
        levels.low if levels else 0.0,
        levels.scale if levels else 1.0,
        float(levels.ramps) if levels else 0.0,
        LABELS=labels,
        PITCH=rows.shape[1],
        LEVELS=levels is not None,
        HARD=levels is not None and not levels.soft,
        LANES=lanes,
        BLOCK=block,
        num_warps=4,
    )
    return rows


def filter_rows(
    lattice: Lattice,
    rows: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float,
    add: bool,
) -> None:
    """Write (or add) `factor` times the filtered rows to the (labels, n) block `out`."""
    labels = out.shape[0]
    ramps = levels.ramps if levels else 0
    row = width(labels, levels)
    work = torch.empty(
        lattice.slots, lattice.row_count, row, dtype=torch.float32, device=rows.device
    )
    _splat(lattice, rows, work, labels, ramps)
    slot = _blur(lattice, work)
    lanes = _power_of_two(labels)
    elements, warps = SHAPES.slice_shape
    block = max(16, elements // lanes)
    kernels.slice_rows[(-(-lattice.n // block),)](
        work[slot],
        rows,
        lattice.topology.corner,
        lattice.corner_weight,
        lattice.mass if levels else rows,
        out,
        lattice.n,
        out.stride(0),
        factor * lattice.scale,
        factor,
        1,
        CORNERS=lattice.dimension + 1,
        LABELS=labels,
        PITCH=rows.shape[1],
        RAMPS=ramps,
        WIDTH=row,
        ADD=add,
        LANES=lanes,
        BLOCK=block,
        num_warps=warps,
    )


def _splat(lattice: Lattice, rows: Tensor, work: Tensor, labels: int, ramps: int) -> None:
    topology = lattice.topology
    segments = topology.segment_vertex.shape[0]
    lanes = _power_of_two(rows.shape[1])
    row = work.shape[2]
    kernels.splat[(lattice.row_count,)](
        rows,
        topology.entry_pixel,
        lattice.entry_weight,
        topology.row_begin,
        topology.segment_vertex,
        work,
        topology.vertices,
        LABELS=labels,
        PITCH=rows.shape[1],
        RAMPS=ramps,
        WIDTH=row,
        SEGMENT=SEGMENT,
        TILE=max(2, SHAPES.splat_elements // lanes),
        LANES=lanes,
        num_warps=1,
    )
    block = min(64, _power_of_two(row))
    kernels.join[(segments, -(-row // block))](
        work,
        topology.row_begin,
        topology.segment_vertex,
        topology.vertices,
        SEGMENT=SEGMENT,
        WIDTH=row,
        TILE=16,
        BLOCK=block,
        num_warps=2,
    )


def _blur(lattice: Lattice, work: Tensor) -> int:
    """Blur slot 0 of the workspace along all axes; returns the slot of the result."""
    topology = lattice.topology
    vertices, last = topology.vertices, topology.dimension
    row = work.shape[2]
    elements, block, warps = SHAPES.blur_shape
    block = min(block, _power_of_two(row))
    shape = {"WIDTH": row, "ROWS": max(1, elements // block), "BLOCK": block, "num_warps": warps}
    tiles = (-(-vertices // shape["ROWS"]), -(-row // block))
    grid = (*tiles, 1 if lattice.order == "forward" else 2)
    common = (work, topology.neighbour, vertices, work.shape[1])
    if lattice.order == "forward":
        for axis in range(last + 1):
            step = (axis % 2, 1 - axis % 2, axis)
            kernels.blur[grid](*common, *step, *step, **shape)
        return (last + 1) % 2
    # Both orders at once: they share the first source, then go to and fro between pairs of slots.
    sources = (0, 0)
    for axis in range(last):
        targets = (1, 2) if axis % 2 == 0 else (0, 3)
        forward = (sources[0], targets[0], axis)
        backward = (sources[1], targets[1], last - axis)
        kernels.blur[grid](*common, *forward, *backward, **shape)
        sources = targets
    result = 0 if sources == (1, 2) else 1
    kernels.blur_mean[tiles](*common, sources[0], last, sources[1], 0, result, **shape)
    return result


def _padded(floats: int) -> int:
    """Round up to whole 32-byte sectors, or to a power of two below one."""
    return _power_of_two(floats) if floats <= 8 else -(-floats // 8) * 8


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
