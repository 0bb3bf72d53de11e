"""Lattices by Triton kernels: topology, for keys of one word, diagonals and sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch.topology import (
    FAR,
    SEGMENT,
    Digits,
    Simplices,
    SortedCorners,
    Topology,
    elevation_matrix,
    padded,
)
from densecrf.operators.triton import topology_kernels as kernels
from densecrf.operators.triton.launch import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice

BLOCK, ENTRIES, MERGED = 128, 512, 256  # of pixels or vertices, entries, and of sums' parts


def embed(features: Tensor) -> Simplices:
    """Locate each pixel's simplex, in float64."""
    n, d = features.shape
    device = features.device
    constants = embed_constants(d)
    located = (
        torch.empty(n, d, dtype=torch.int32, device=device),
        torch.empty(n, d + 1, dtype=torch.int8, device=device),
        torch.empty(n, d + 1, dtype=torch.float32, device=device),
    )
    launch(
        kernels.embed,
        (-(-n // constants["BLOCK"]),),
        (features.contiguous(), elevation_matrix(d, device), *located, n, d),
        constants,
    )
    return Simplices(*located)


def embed_constants(d: int) -> dict[str, Any]:
    """Return the constants of `embed`, the same for 1 to 3 and for 4 to 7 features."""
    width = max(4, 1 << d.bit_length())
    return {"FAR": FAR, "WIDTH": width, "BLOCK": max(16, 512 // width)}


def pack(simplices: Simplices, digits: Digits) -> tuple[Tensor, Tensor]:
    """Return the keys of the corners of all simplices, and the places of their digits."""
    base = simplices.base
    n, d = base.shape
    places, above = digits.strides(digits.groups[0])
    table = torch.tensor([*places, above, *digits.low]).to(base.device, non_blocking=True)
    fits = digits.items * above * (d + 1) < 2**31
    key_type = torch.int32 if fits else torch.int64
    keys = torch.empty(n * (d + 1), dtype=key_type, device=base.device)
    launch(
        kernels.pack,
        (-(-n // BLOCK),),
        (base, simplices.rank, table, keys, n, n // digits.items, d),
        {"BLOCK": BLOCK},
    )
    return keys, table


def index(
    simplices: Simplices,
    digits: Digits,  # noqa: ARG001  (the same signature as the plain engine's)
    corners: SortedCorners,
    vertices: int,
) -> tuple[Topology, Tensor, Tensor]:
    """Enter corners by pixel and by vertex, and find neighbours."""
    n, d = simplices.base.shape
    device = simplices.base.device
    entries = n * (d + 1)
    corner, entry_pixel = _integers(device, n, d + 1), _integers(device, entries)
    row_begin = _integers(device, vertices + 1)
    segment_vertex = _integers(device, -(-entries // SEGMENT))
    neighbour = _integers(device, d + 1, 2, vertices).fill_(-1)
    entry_weight = torch.empty(entries, dtype=torch.float32, device=device)
    unique_keys = torch.empty(vertices, dtype=corners.keys.dtype, device=device)
    launch(
        kernels.index_entries,
        (-(-entries // ENTRIES),),
        (
            *(corners.order, corners.number, corners.keys, simplices.weight, corner, entry_pixel),
            *(entry_weight, row_begin, unique_keys, segment_vertex, entries, vertices, d),
        ),
        {"SEGMENT": SEGMENT, "BLOCK": ENTRIES},
    )
    launch(
        kernels.find_neighbours,
        (-(-vertices // BLOCK), d + 1),
        (unique_keys, corners.packing, neighbour, vertices, vertices.bit_length() + 1, d),
        {"BLOCK": BLOCK},
    )
    topology = Topology(
        n, d, vertices, corner, simplices.rank, row_begin, entry_pixel, segment_vertex, neighbour
    )
    return topology, simplices.weight, entry_weight


def _integers(device: torch.device, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int32, device=device)


def pair_shares(topology: Topology) -> Tensor:
    """Return the blur between corners k <= m of each pixel, both ways, (n, pairs)."""
    n, d = topology.pixels, topology.dimension
    pairs = (d + 1) * (d + 2) // 2
    out = torch.empty(pairs, n, dtype=torch.float32, device=topology.corner.device)
    launch(
        kernels.pair_shares,
        (-(-n // BLOCK), d + 1),
        (topology.corner, topology.rank, topology.neighbour, out, n, topology.vertices, d),
        {"BLOCK": BLOCK},
    )
    return out.T


def add_diagonal(lattice: Lattice, g: Tensor, weight: float, out: Tensor, *, add: bool) -> None:
    """Add the diagonal of `weight` g k g, with factors g (n,), to `out` (n,), or write it there."""
    topology = lattice.topology
    n = topology.pixels
    launch(
        kernels.diagonal,
        (-(-n // BLOCK),),
        (
            *(topology.corner, topology.rank, topology.neighbour, lattice.corner_weight, g, out),
            *(n, topology.vertices, weight * lattice.scale, int(add)),
        ),
        {"D": topology.dimension, "BLOCK": BLOCK},
    )


def merge(
    lattices: Sequence[Lattice], factors: Sequence[float], normalized: bool
) -> tuple[Topology, Tensor, Tensor, list[Tensor]]:
    """Return the parts of `densecrf.operators.torch.lattice_sum.merge`."""
    first = lattices[0]
    places = _places([each.topology for each in lattices])
    total = places[-1]
    axes = max(each.dimension for each in lattices) + 1
    topology = Topology(
        first.n,
        axes - 1,
        total.vertex,
        _integers(first.device, first.n, total.corner),
        first.topology.rank[:0],
        _integers(first.device, total.vertex + 1),
        _integers(first.device, total.entry),
        _integers(first.device, total.segment),
        _integers(first.device, axes, 2, total.vertex),
    )
    entry_weight = torch.empty(total.entry, device=first.device)
    for each, at in zip(lattices, places, strict=False):
        part = each.topology
        entries = len(part.entry_pixel)
        sizes = (entries, padded(entries), part.vertices, len(part.segment_vertex))
        source = (part.corner, part.row_begin, part.entry_pixel, each.entry_weight)
        target = (topology.corner, topology.row_begin, topology.entry_pixel, entry_weight)
        launch(
            kernels.place,
            (-(-max(padded(entries), part.vertices + 1) // MERGED),),
            (
                *(*source, part.segment_vertex, part.neighbour),
                *(*target, topology.segment_vertex, topology.neighbour),
                *(*sizes, at.entry, at.vertex, at.segment, total.vertex),
                *(part.dimension + 1, at.corner, total.corner, topology.dimension + 1),
            ),
            {"BLOCK": MERGED},
        )
    corner_weight = torch.empty(first.n, total.corner, device=first.device)
    blurred = corner_weight  # stands in where it is not needed
    if normalized:
        raw = replace(first, topology=topology, entry_weight=entry_weight)
        blurred = raw.blurred(torch.ones(1, first.n, device=first.device))
    g = []
    for each, factor, at, after in zip(lattices, factors, places, places[1:], strict=False):
        g.append(torch.empty(first.n, device=first.device))
        launch(
            kernels.read_weights,
            (-(-first.n // MERGED),),
            (
                *(blurred, topology.corner, each.corner_weight, g[-1], corner_weight),
                *(first.n, each.dimension + 1, at.corner, total.corner),
                *(each.scale, float(factor)),
            ),
            {"NORMALIZED": normalized, "BLOCK": MERGED},
        )
        own = slice(at.entry, after.entry)
        entries = after.entry - at.entry
        weights = (topology.entry_pixel[own], entry_weight[own], g[-1], entries)
        launch(kernels.scale_entries, (-(-entries // MERGED),), weights, {"BLOCK": MERGED})
    return topology, corner_weight, entry_weight, g


class _Place(NamedTuple):
    """Where a lattice's vertices, entries, segments and corners begin among all lattices'."""

    vertex: int
    entry: int
    segment: int
    corner: int


def _places(parts: Sequence[Topology]) -> list[_Place]:
    """Return the lattices' places, and the end of the last."""
    places = [_Place(0, 0, 0, 0)]
    for part in parts:
        at = places[-1]
        entries = padded(len(part.entry_pixel))
        vertex, corner = at.vertex + part.vertices, at.corner + part.dimension + 1
        places.append(_Place(vertex, at.entry + entries, at.segment + entries // SEGMENT, corner))
    return places
