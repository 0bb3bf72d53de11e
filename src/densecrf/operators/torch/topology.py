"""The permutohedral lattice's topology, built by sorting: no hashing, no races.

Follows Adams, Baek and Davis (2010): features are lifted onto the plane of zero sum in d+1
dimensions, each lies in a simplex of d+1 lattice points, and only the corners of those simplices
are vertices. Sorting the packed keys of all corners gives the vertices, and the pixels that touch
each vertex, in one deterministic step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from densecrf.deadline import check_deadline
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from torch import Tensor

MAX_DIMENSION = 64
FAR = float(1 << 28)  # coordinates (divided by d+1) beyond this are refused
_MAX_ENTRIES = 2**31 - 2**16
SEGMENT = 128  # entries that one program of the splat sums


@dataclass(frozen=True)
class Topology:
    """Which vertices touch which; independent of weights, so rescaled lattices share it.

    Attributes
    ----------
    pixels, dimension, vertices : int
        Sizes n, d and V.
    corner : Tensor
        (n, d+1) int32, the vertices of each pixel's simplex, by remainder.
    rank : Tensor
        (n, d+1) int8, the order of the axes inside the simplex.
    row_begin : Tensor
        (V+1,) int32, where a vertex's entries begin.
    entry_pixel : Tensor
        (n (d+1),) int32, the pixels that touch a vertex, ascending.
    segment_vertex : Tensor
        (⌈n (d+1) / SEGMENT⌉,) int32, vertex of the first entry of each segment of entries.
    neighbour : Tensor
        (d+1, 2, V) int32, vertices one step along +axis and -axis; -1 where there is none.
    """

    pixels: int
    dimension: int
    vertices: int
    corner: Tensor
    rank: Tensor
    row_begin: Tensor
    entry_pixel: Tensor
    segment_vertex: Tensor
    neighbour: Tensor


@dataclass(frozen=True)
class Simplices:
    """Per pixel: remainder-0 point (n, d), ranks (n, d+1), barycentric weights (n, d+1)."""

    base: Tensor
    rank: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Digits:
    """Mixed-radix places of the keys' digits: (item, q_0 .. q_{d-1}, remainder).

    A corner of remainder k has coordinates (d+1) q_i + k. `groups` lists the q digits packed
    together into one int64; more than one group is needed only when all digits together exceed 62
    bits. The item goes with the first, the remainder with the last.
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


@dataclass(frozen=True)
class SortedCorners:
    """All corners in the order of their keys.

    Attributes
    ----------
    keys, order : Tensor
        (n (d+1),) sorted keys, and the corner that each belongs to.
    number : Tensor
        (n (d+1) - 1,) int32, vertices before the second, third, … of them: their own number.
    packing : object
        What the engine needs to find neighbours by key.
    """

    keys: Tensor
    order: Tensor
    number: Tensor
    packing: Any


def build_topologies(
    features: Sequence[Tensor], items: int, triton: bool, precision: torch.dtype
) -> list[tuple[Topology, Tensor, Tensor]]:
    """Build the lattices of several (n, d) features, `items` equal runs of which never mix.

    The host waits for the device twice, however many lattices there are.

    Parameters
    ----------
    features : sequence of Tensor
        (n, d) positions divided by standard deviations.
    items : int
        Number of batch items; n is a multiple of it.
    triton : bool
        Whether the Triton kernels do the work.
    precision : torch.dtype
        Of the barycentric weights.

    Returns
    -------
    list of (topology, corner_weight, entry_weight)
        With barycentric weights (n, d+1), and the same numbers in the order of `entry_pixel`.

    Raises
    ------
    ValueError
        If a feature is not finite or too far from the origin.
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
    # Triton's kernel reads single precision, in which far features lose their fractions.
    simplices = [_engine(triton and f.dtype != torch.float64).embed(f) for f in features]
    simplices = [replace(each, weight=each.weight.to(precision)) for each in simplices]
    extents = [torch.stack(torch.aminmax(s.base, dim=0)) for s in simplices]
    values = torch.cat([extent.reshape(-1) for extent in extents]).tolist()
    check_deadline()
    digits = []
    for f in features:
        d = f.shape[1]
        digits.append(_digits(f, values[:d], values[d : 2 * d], items))
        values = values[2 * d :]
    # Keys longer than one word are rare (many dimensions), and left to plain torch operations.
    engines = [_engine(triton and len(each.groups) == 1) for each in digits]
    corners = [
        engine.sort_corners(s, each)
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


def _engine(triton: bool) -> ModuleType:
    if triton:
        from densecrf.operators.triton import topology as engine

        return engine
    from densecrf.operators.torch import topology_torch

    return topology_torch


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
