"""The permutohedral lattice's topology, built by sorting: no hashing, no races.

Follows Adams, Baek and Davis (2010): features are lifted onto the plane of zero sum in d+1
dimensions, each lies in a simplex of d+1 lattice points, and only the corners of those simplices
are vertices. Sorting the packed keys of all corners gives the vertices, and the pixels that touch
each vertex, in one deterministic step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.deadline import check_deadline
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

MAX_DIMENSION = 64
FAR = float(1 << 28)  # coordinates (divided by d+1) beyond this are refused
_MAX_ENTRIES = 2**31 - 2**16
SEGMENT = 128  # entries that one program of the splat sums


@dataclass(frozen=True)
class Topology:
    """Vertices, corners and neighbours; independent of weights, so rescaled lattices share it."""

    pixels: int  # n
    dimension: int  # d
    vertices: int  # V
    corner: Tensor  # (n, d+1) int32, the vertices of each pixel's simplex, by remainder
    rank: Tensor  # (n, d+1) int8, the order of the axes inside the simplex
    row_begin: Tensor  # (V+1,) int32, where a vertex's entries begin
    entry_pixel: Tensor  # (n (d+1),) int32, the pixels that touch a vertex, ascending
    segment_vertex: Tensor  # int32, the vertex of the first entry of each SEGMENT entries
    neighbour: Tensor  # (d+1, 2, V) int32, one step along +axis and -axis; -1 for none


class Simplices(NamedTuple):
    """Per pixel: remainder-0 point (n, d), ranks (n, d+1), barycentric weights (n, d+1)."""

    base: Tensor
    rank: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Digits:
    """Mixed-radix places of the keys' digits: (item, q_0 .. q_{d-1}, remainder).

    A corner of remainder k has coordinates (d+1) q_i + k. `groups` lists the q digits packed
    together into one int64; several groups are needed only if all digits exceed 62 bits. The item
    goes with the first, the remainder with the last.
    """

    low: list[int]
    size: list[int]
    items: int
    groups: list[range]

    def strides(self, group: range) -> tuple[list[int], int]:
        """Places of the group's digits (0 outside it), and of the digit above them."""
        places = [0] * len(self.size)
        place = 1
        for i in reversed(group):
            places[i] = place
            place *= self.size[i]
        return places, place


class SortedCorners(NamedTuple):
    """All corners in the order of their keys."""

    keys: Tensor  # (n (d+1),)
    order: Tensor  # the corner of each
    number: Tensor  # (n (d+1) - 1,) int32, the vertex of the second, third, … of them
    packing: Any  # for the engine to find neighbours by key

    @staticmethod
    def of(keys: Tensor, packing: Any) -> SortedCorners:
        """Sort the corners of all simplices by key."""
        sorted_keys, order = torch.sort(keys, stable=True)
        number = torch.cumsum(sorted_keys[1:] != sorted_keys[:-1], 0, dtype=torch.int32)
        return SortedCorners(sorted_keys, order, number, packing)


def build_topologies(
    features: Sequence[Tensor], items: int, triton: bool, precision: torch.dtype
) -> list[tuple[Topology, Tensor, Tensor]]:
    """Build the lattices of several (n, d) features; their `items` equal runs never mix.

    Returns topologies, barycentric weights (n, d+1) of the given `precision`, and the same numbers
    in the order of `entry_pixel`. The host waits for the device twice for all lattices together.
    """
    for f in features:
        n, d = f.shape
        if n * (d + 1) > _MAX_ENTRIES:
            raise ArgumentError(
                "features",
                ...,
                f"shape {(n, d)} needs {n * (d + 1)} lattice entries, more than {_MAX_ENTRIES}; "
                "split the batch or tile the image",
            )
    # Triton's kernel reads float32, in which large features lose their fractions.
    simplices = [_engine(triton and f.dtype != torch.float64).embed(f) for f in features]
    simplices = [each._replace(weight=each.weight.to(precision)) for each in simplices]
    extents = [torch.stack(torch.aminmax(s.base, dim=0)) for s in simplices]
    values = torch.cat([extent.reshape(-1) for extent in extents]).tolist()
    check_deadline()
    digits = []
    for f in features:
        d = f.shape[1]
        digits.append(_digits(f, values[:d], values[d : 2 * d], items))
        values = values[2 * d :]
    # Keys longer than one word (many dimensions) are rare and use plain torch operations.
    engines = [_engine(triton and len(each.groups) == 1) for each in digits]
    corners = [
        SortedCorners.of(*engine.pack(s, each))
        for engine, s, each in zip(engines, simplices, digits, strict=True)
    ]
    counts = torch.stack([each.number[-1] for each in corners]).tolist()
    check_deadline()
    return [
        engine.index(s, each, c, count + 1)
        for engine, s, each, c, count in zip(
            engines, simplices, digits, corners, counts, strict=True
        )
    ]


@dataclass(frozen=True)
class Builder:
    """The parts of a build that differ between Triton and plain torch."""

    embed: Callable[[Tensor], Simplices]
    pack: Callable[[Simplices, Digits], tuple[Tensor, Any]]
    index: Callable[[Simplices, Digits, SortedCorners, int], tuple[Topology, Tensor, Tensor]]


def _engine(triton: bool) -> Builder:
    if not triton:
        return Builder(embed, pack, index)
    from densecrf.operators.triton import topology as engine

    return Builder(engine.embed, engine.pack, engine.index)


def padded(entries: int) -> int:
    """Round a number of entries up to whole segments."""
    return -(-entries // SEGMENT) * SEGMENT


@cache
def elevation_matrix(d: int, device: torch.device) -> Tensor:
    """(d+1, d) float64 map onto the plane of zero sum, scaled so that the blur has unit variance.

    Examples
    --------
    >>> bool(elevation_matrix(3, torch.device("cpu")).sum(0).abs().max() < 1e-12)
    True
    """
    matrix = torch.zeros(d + 1, d, dtype=torch.float64)
    for j in range(d):
        scale = math.sqrt(2 / 3) * (d + 1) / math.sqrt((j + 1) * (j + 2))
        matrix[: j + 1, j] = scale
        matrix[j + 1, j] = -(j + 1) * scale
    return matrix.to(device)


def _digits(features: Tensor, low: list[int], high: list[int], items: int) -> Digits:
    """Choose the packing from the extent of the coordinates."""
    if min(low) == -(2**31):
        _refuse(features)
    d = len(low)
    # Corners reach one below `base`, and their neighbours one further either way.
    low = [value - 2 for value in low]
    size = [top - bottom + 2 for top, bottom in zip(high, low, strict=True)]
    room = (1 << 62) // (d + 1)
    groups: list[range] = []
    first, place = 0, items
    for i in range(d):
        if place * size[i] > room:
            groups.append(range(first, i))
            first, place = i, 1
        place *= size[i]
    groups.append(range(first, d))
    return Digits(low, size, items, groups)


def _refuse(features: Tensor) -> None:
    """Raise the error that names the offending feature."""
    finite = torch.isfinite(features)
    if not bool(finite.all()):
        index = tuple(int(i) for i in (~finite).nonzero()[0])
        value = float(features[index])
        raise ArgumentError(
            f"features[{index[0]}, {index[1]}]", value, "is not finite; remove or replace it"
        )
    raise ArgumentError(
        "features",
        ...,
        f"reach {float(features.abs().max()):g} standard deviations from the origin, too far for "
        "the lattice; centre them or use larger standard deviations",
    )


# --- by plain torch operations: any device, any length of keys --------------------------------


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


def pack(simplices: Simplices, digits: Digits) -> tuple[Tensor, Any]:
    """Return the keys of the corners of all simplices, and how they are packed."""
    n = simplices.base.shape[0]
    device = simplices.base.device
    item = torch.arange(n, device=device) // (n // digits.items)
    q = simplices.base.long() - torch.tensor(digits.low, device=device)
    columns = [_pack_group(q, simplices.rank, item, digits, g) for g in range(len(digits.groups))]
    keys, levels = _combine(columns)
    return keys, (columns, levels)


def index(
    simplices: Simplices, digits: Digits, corners: SortedCorners, vertices: int
) -> tuple[Topology, Tensor, Tensor]:
    """List corners by pixel and by vertex, and find neighbours."""
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
    """Fold rows as `_combine` did; -1 for rows that it has not seen."""
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
