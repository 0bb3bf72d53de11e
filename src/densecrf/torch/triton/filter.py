"""The lattice filter by Triton kernels: splat, blur, slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from densecrf.torch.topology import SEGMENT
from densecrf.torch.triton import filter_kernels as kernels
from densecrf.torch.triton.launch import launch

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.filters.base import Levels
    from densecrf.torch.lattice import Lattice


@dataclass
class Shapes:
    """Sizes of the kernels' tiles: elements, (most channels,) warps; measured on an H200."""

    splat: tuple[int, int] = (128, 1)  # entries x lanes
    join: tuple[int, int] = (8, 256)  # segments, most channels
    slice: tuple[int, int] = (256, 4)  # pixels x lanes
    blur: tuple[int, int, int] = (512, 64, 1)  # rows x channels


SHAPES = Shapes()


def to_rows(scores: Tensor, levels: Levels | None, names: Tensor | None = None) -> Tensor:
    """Transpose (labels, n) scores, or those named, to (n, pitch) levels, or plain values."""
    n = scores.shape[1]
    labels = len(scores if names is None else names)
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    rows, sizes = _empty_rows(n, labels, scores.device)
    low, scale, top = (levels.low, levels.scale, float(levels.ramps)) if levels else (0.0, 1.0, 0.0)
    launch(
        kernels.to_rows,
        (-(-n // sizes["BLOCK"]),),
        (scores, rows, scores if names is None else names, n, scores.stride(0), low, scale, top),
        {
            "LABELS": labels,
            "PITCH": rows.shape[1],
            "LEVELS": levels is not None,
            "HARD": levels is not None and levels.hard,
            "SOME": names is not None,
            **sizes,
        },
    )
    return rows


LEVELS_AT = 5  # place of `low` and `scale` among the arguments of a filter call's first launch


def indicator_rows(labels: Tensor, names: Tensor) -> Tensor:
    """Return (n, pitch) indicators of the labels named."""
    n = len(labels)
    rows, sizes = _empty_rows(n, len(names), labels.device)
    constants = {"LABELS": len(names), "PITCH": rows.shape[1], **sizes}
    grid = (-(-n // sizes["BLOCK"]),)
    launch(kernels.indicator_rows, grid, (labels, rows, names, n), constants)
    return rows


def _empty_rows(n: int, labels: int, device: torch.device) -> tuple[Tensor, dict[str, int]]:
    """Return rows to fill, and the shape of the tiles that do it."""
    pitch = padded(labels)
    lanes = _power_of_two(pitch)
    rows = torch.empty(n, pitch, dtype=torch.float32, device=device)
    return rows, {"LANES": lanes, "BLOCK": max(16, 2048 // lanes)}


def filter_rows(
    lattice: Lattice,
    rows: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float,
    add: bool,
    names: Tensor | None = None,
) -> None:
    """Write (or add) `factor` times the filtered rows to the rows of `out`, or those named."""
    labels = len(out if names is None else names)
    ramps = levels.ramps if levels else 0
    blurred = _blurred(lattice, rows, labels, ramps)
    mass = lattice.mass if levels else rows
    factors = (factor * lattice.scale, factor)
    _slice(lattice, blurred, rows, ramps, mass, out, factors, add, names)


class Scales(NamedTuple):
    """Factors of the pixels, (n,): of what they give, in float32, and of what they receive."""

    g: Tensor
    read: Tensor


def filter_scaled(
    lattice: Lattice,
    rows: Tensor,
    ramps: int,
    mass: Tensor | None,
    scales: Scales,
    out: Tensor,
    add: bool,
) -> None:
    """Write (or add) read_a Σ_b k_ab g_b v_b to `out`, in the rows' precision.

    The filter's own scale is in `read`. With `ramps` the rows are levels, and the ordered filter
    is what is written, its first term from `mass`, or without that term.
    """
    blurred = _blurred(lattice, rows, len(out), ramps, scales)
    factors = (1.0, 0.0 if mass is None else 1.0)
    given = rows if mass is None else mass
    _slice(lattice, blurred, rows, ramps, given, out, factors, add, scales=scales)


def _slice(
    lattice: Lattice,
    blurred: Tensor,
    rows: Tensor,
    ramps: int,
    mass: Tensor,
    out: Tensor,
    factors: tuple[float, float],
    add: bool,
    names: Tensor | None = None,
    scales: Scales | None = None,
) -> None:
    labels = len(out if names is None else names)
    topology = lattice.topology
    lanes = _power_of_two(labels)
    elements, warps = SHAPES.slice
    block = max(8, elements // lanes)
    read = lattice.corner_weight if scales is None else scales.read
    sizes = (lattice.n, out.stride(0), *factors, 1)
    launch(
        kernels.slice_rows,
        (-(-lattice.n // block),),
        (
            *(blurred, rows, topology.corner, lattice.corner_weight, read, mass, out),
            *(out if names is None else names, *sizes),
        ),
        {
            "CORNERS": topology.corner.shape[1],
            "LABELS": labels,
            "PITCH": rows.shape[1],
            "RAMPS": ramps,
            "WIDTH": blurred.shape[1],
            "ADD": add,
            "SOME": names is not None,
            "SCALED": scales is not None,
            "LANES": lanes,
            "BLOCK": block,
        },
        warps,
    )


def blurred_rows(lattice: Lattice, rows: Tensor, channels: int) -> Tensor:
    """Splat and blur rows of pixels into rows of vertices."""
    return _blurred(lattice, rows, channels, 0)[: lattice.vertices, :channels]


def _blurred(
    lattice: Lattice, rows: Tensor, labels: int, ramps: int, scales: Scales | None = None
) -> Tensor:
    shape = (lattice.slots, lattice.row_count, padded(labels * max(ramps, 1)))
    work = torch.empty(shape, dtype=rows.dtype, device=rows.device)
    _splat(lattice, rows, work, labels, ramps, scales)
    return work[_blur(lattice, work)]


def _splat(
    lattice: Lattice, rows: Tensor, work: Tensor, labels: int, ramps: int, scales: Scales | None
) -> None:
    """Sum the rows of pixels into slot 0 of the workspace."""
    topology = lattice.topology
    width = work.shape[2]
    lanes = _power_of_two(labels)
    elements, warps = SHAPES.splat
    elements = elements * 4 // rows.element_size()
    weight = lattice.entry_weight
    g = weight if scales is None else scales.g
    begin, segments, vertices = topology.row_begin, topology.segment_vertex, topology.vertices
    launch(
        kernels.splat,
        (lattice.row_count,),
        (rows, topology.entry_pixel, weight, g, begin, segments, work, vertices, 1),
        {
            "LABELS": labels,
            "PITCH": rows.shape[1],
            "RAMPS": ramps,
            "WIDTH": width,
            "SEGMENT": SEGMENT,
            "SCALED": scales is not None,
            "TILE": max(2, elements // lanes),
            "LANES": lanes,
        },
        warps,
    )
    tile, most = SHAPES.join
    block = min(most, _power_of_two(width))
    launch(
        kernels.join,
        (segments.shape[0], -(-width // block)),
        (work, begin, segments, vertices),
        {"SEGMENT": SEGMENT, "WIDTH": width, "TILE": tile, "BLOCK": block},
    )


def _blur(lattice: Lattice, work: Tensor) -> int:
    """Blur slot 0 of the workspace along all axes; returns the slot of the result."""
    topology = lattice.topology
    vertices, last = topology.vertices, topology.dimension
    width = work.shape[2]
    elements, block, warps = SHAPES.blur
    block = min(block, _power_of_two(width))
    constants = {"WIDTH": width, "ROWS": max(1, elements // block), "BLOCK": block}
    tiles = (-(-vertices // constants["ROWS"]), -(-width // block))
    grid = (*tiles, 1 if lattice.order == "forward" else 2)
    common = (work, topology.neighbour, vertices, work.shape[1])
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


def padded(floats: int) -> int:
    """Round up to whole 32-byte sectors, or to a power of two below one.

    Examples
    --------
    >>> padded(1), padded(3), padded(21)
    (1, 4, 24)
    """
    return _power_of_two(floats) if floats <= 8 else -(-floats // 8) * 8


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
