"""The lattice's topology by plain torch operations: any device, any length of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def embed(features: Tensor) -> Simplices:
    """Locate each pixel's simplex with plain torch operations, in float64."""
    n, d = features.shape
    elevated = features.double() @ elevation_matrix(d, features.device).T
    nearest = torch.floor(elevated / (d + 1) + 0.5)
    bad = ~(nearest.abs() < FAR).all(1, keepdim=True)
    nearest = nearest.masked_fill(bad, 0)
    delta = (elevated - nearest * (d + 1)).masked_fill(bad, 0)
    order = torch.sort(delta, dim=1, descending=True, stable=True).indices
    places = torch.arange(d + 1, device=features.device).expand(n, -1)
    rank = torch.empty_like(order).scatter_(1, order, places)
    rank += nearest.sum(1, keepdim=True).long()  # back onto the plane of zero sum
    step = (rank < 0).long() - (rank > d).long()
    rank += step * (d + 1)
    base = (nearest.long() + step).masked_fill(bad, -(2**31))[:, :d]
    delta = delta / (d + 1) - step
    by_rank = torch.empty_like(delta).scatter_(1, rank, delta)
    weight = torch.empty_like(delta)
    weight[:, 0] = 1 - by_rank[:, 0] + by_rank[:, d]
    weight[:, 1:] = (by_rank[:, :d] - by_rank[:, 1:]).flip(1)
    dtype = features.dtype if features.dtype == torch.float64 else torch.float32
    return Simplices(base.int(), rank.to(torch.int8), weight.clamp(min=0).to(dtype))


def sort_corners(simplices: Simplices, digits: Digits) -> SortedCorners:
    """Sort the corners of all simplices by key."""
    n = simplices.base.shape[0]
    device = simplices.base.device
    item = torch.arange(n, device=device) // (n // digits.items)
    q = simplices.base.long() - torch.tensor(digits.low, device=device)
    columns = [_pack_group(q, simplices.rank, item, digits, g) for g in range(len(digits.groups))]
    keys, levels = _combine(columns)
    sorted_keys, order = torch.sort(keys, stable=True)
    number = torch.cumsum(sorted_keys[1:] != sorted_keys[:-1], 0, dtype=torch.int32)
    return SortedCorners(sorted_keys, order, number, (columns, levels))


def index(
    simplices: Simplices, digits: Digits, corners: SortedCorners, vertices: int
) -> tuple[Topology, Tensor, Tensor]:
    """Enter corners by pixel and by vertex, and find neighbours."""
    n, d = simplices.base.shape
    device = simplices.base.device
    order = corners.order
    vertex_of = torch.cat([corners.number.new_zeros(1), corners.number])
    row_begin = torch.zeros(vertices + 1, dtype=torch.int32, device=device)
    row_begin[1:] = torch.bincount(vertex_of, minlength=vertices).cumsum(0)
    corner = torch.empty(n * (d + 1), dtype=torch.int32, device=device)
    corner[order] = vertex_of
    columns, levels = corners.packing
    first = order[row_begin[:-1].long()]
    topology = Topology(
        n,
        d,
        vertices,
        corner.view(n, d + 1),
        simplices.rank,
        row_begin,
        (order // (d + 1)).int(),
        vertex_of[::SEGMENT].contiguous(),
        _neighbours([column[first] for column in columns], levels, digits),
    )
    return topology, simplices.weight, simplices.weight.reshape(-1)[order]


def _pack_group(q: Tensor, rank: Tensor, item: Tensor, digits: Digits, g: int) -> Tensor:
    """Packed digits of one group for all corners, (n (d+1),) int64."""
    d = q.shape[1]
    group = digits.groups[g]
    places, above = digits.strides(group)
    stride = torch.tensor(places, device=q.device)
    total = (q * stride).sum(1)
    if g == 0:
        total = total + item * above
    last = g == len(digits.groups) - 1
    keys = []
    for k in range(d + 1):
        key = total - ((rank[:, :d] > d - k) * stride).sum(1)
        keys.append(key * (d + 1) + k if last else key)
    return torch.stack(keys, 1).reshape(-1)


def _combine(columns: Sequence[Tensor]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Fold several int64 columns into one without collisions, by ranking pairs of them.

    Returns the folded keys and, for each fold, the sorted distinct values on its left and right,
    with which `_look_up` folds other rows the same way.
    """
    keys = columns[0]
    levels = []
    for column in columns[1:]:
        left, i = torch.unique(keys, return_inverse=True)
        right, j = torch.unique(column, return_inverse=True)
        levels.append((left, right))
        keys = i * len(right) + j
    return keys, levels


def _look_up(columns: Sequence[Tensor], levels: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Fold rows as `_combine` did; -1 where a row cannot be among the folded ones."""
    keys = columns[0]
    for column, (left, right) in zip(columns[1:], levels, strict=True):
        i, j = _search(left, keys), _search(right, column)
        keys = torch.where((i >= 0) & (j >= 0), i * len(right) + j, -1)
    return keys


def _search(values: Tensor, wanted: Tensor) -> Tensor:
    """Positions of `wanted` in the sorted `values`, -1 where absent."""
    position = torch.searchsorted(values, wanted).clamp(max=len(values) - 1)
    return torch.where(values[position] == wanted, position, -1)


def _neighbours(
    columns: Sequence[Tensor], levels: Sequence[tuple[Tensor, Tensor]], digits: Digits
) -> Tensor:
    """(d+1, 2, V) neighbours of the vertices whose packed digits are `columns`."""
    d, vertices = len(digits.size), len(columns[0])
    device = columns[0].device
    own = _look_up(columns, levels)
    wraps = columns[-1] % (d + 1) == 0
    neighbour = torch.full((d + 1, 2, vertices), -1, dtype=torch.int32, device=device)
    for axis in range(d + 1):
        moved = []
        for g, group in enumerate(digits.groups):
            places, _ = digits.strides(group)
            unit = d + 1 if g == len(digits.groups) - 1 else 1
            along = unit * places[axis] if axis < d else 0
            down = unit * sum(places)
            remainder = (d, -1) if unit > 1 else (0, 0)
            shift = torch.where(wraps, remainder[0] - down, remainder[1]) + along
            moved.append(columns[g] + shift)
        found = _search(own, _look_up(moved, levels))
        here = (found >= 0).nonzero().squeeze(1)
        neighbour[axis, 0, here] = found[here].int()
        neighbour[axis, 1, found[here]] = here.int()
    return neighbour
