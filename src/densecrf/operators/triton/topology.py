"""The lattice's topology by Triton kernels, for keys of one word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from densecrf.operators.torch.topology import (
    FAR,
    SEGMENT,
    Digits,
    Simplices,
    SortedCorners,
    Topology,
    elevation_matrix,
)
from densecrf.operators.triton import topology_kernels as kernels
from densecrf.operators.triton.launch import launch

if TYPE_CHECKING:
    from torch import Tensor

BLOCK, ENTRIES = 128, 512  # of pixels or vertices, and of entries


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


def sort_corners(simplices: Simplices, digits: Digits) -> SortedCorners:
    """Sort the corners of all simplices by key."""
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
    sorted_keys, order = torch.sort(keys, stable=True)
    number = torch.cumsum(sorted_keys[1:] != sorted_keys[:-1], 0, dtype=torch.int32)
    return SortedCorners(sorted_keys, order, number, table)


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
    corner = torch.empty(n, d + 1, dtype=torch.int32, device=device)
    entry_pixel = torch.empty(entries, dtype=torch.int32, device=device)
    entry_weight = torch.empty(entries, dtype=torch.float32, device=device)
    row_begin = torch.empty(vertices + 1, dtype=torch.int32, device=device)
    unique_keys = torch.empty(vertices, dtype=corners.keys.dtype, device=device)
    segment_vertex = torch.empty(-(-entries // SEGMENT), dtype=torch.int32, device=device)
    neighbour = torch.full((d + 1, 2, vertices), -1, dtype=torch.int32, device=device)
    launch(
        kernels.index_entries,
        (-(-entries // ENTRIES),),
        (
            corners.order,
            corners.number,
            corners.keys,
            simplices.weight,
            corner,
            entry_pixel,
            entry_weight,
            row_begin,
            unique_keys,
            segment_vertex,
            entries,
            vertices,
            d,
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
