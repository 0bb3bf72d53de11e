"""Several lattices over the same pixels as one: a weighted sum of filters in a single pass.

Vertices, entries and corners of the lattices lie side by side, and along axes that a lattice does
not have, its vertices have no neighbours: blurring there leaves them as they are. Weights go into
the corners that the sum is read from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from densecrf.operators.levels import SMALLEST_MASS
from densecrf.operators.torch.lattice import Lattice
from densecrf.operators.torch.topology import SEGMENT, Topology
from densecrf.operators.triton.launch import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

BLOCK = 256


@dataclass(frozen=True, eq=False)
class MergedLattice(Lattice):
    """A sum of lattices; `merge` makes it. Its scales are in the corners' weights."""

    own_shares: tuple[tuple[int, float], ...] = ()

    @property
    def shares(self) -> Sequence[tuple[int, float]]:
        """Each lattice's."""
        return self.own_shares

    @property
    def scale(self) -> float:
        """One: each lattice has its own."""
        return 1.0


def merge(
    lattices: Sequence[Lattice], factors: Sequence[float], *, normalized: bool
) -> tuple[MergedLattice, list[Tensor]]:
    r"""Return :math:`\sum_c \text{factor}_c g_c k_c g_c` as one filter, and the :math:`g_c`.

    Parameters
    ----------
    lattices : sequence of Lattice
        Over the same pixels.
    factors : sequence of float
        A weight for each.
    normalized : bool
        Whether :math:`g_c = m_c^{-1/2}`, with the row sums m of each; else 1.

    Examples
    --------
    >>> a, b = Lattice.build(torch.rand(9, 2)), Lattice.build(torch.rand(9, 3))
    >>> both, _ = merge([a, b], [2.0, 3.0], normalized=False)
    >>> v = torch.rand(4, 9)
    >>> torch.testing.assert_close(both.apply(v), 2 * a.apply(v) + 3 * b.apply(v))
    """
    first = lattices[0]
    engine = _merge_by_triton if first.triton else _merge_by_torch
    topology, corner_weight, entry_weight, g = engine(lattices, factors, normalized)
    settings = (first.items, first.order, first.workspace, first.triton)
    shares = [
        (each.vertices, factor * each.scale) for each, factor in zip(lattices, factors, strict=True)
    ]
    return MergedLattice(topology, corner_weight, entry_weight, *settings, tuple(shares)), g


Parts = tuple[Topology, "Tensor", "Tensor", "list[Tensor]"]


def _merge_by_torch(
    lattices: Sequence[Lattice], factors: Sequence[float], normalized: bool
) -> Parts:
    g = [
        each.mass.clamp(min=SMALLEST_MASS).rsqrt() if normalized else torch.ones_like(each.mass)
        for each in lattices
    ]
    entries = [
        each.entry_weight * own[each.topology.entry_pixel]
        for each, own in zip(lattices, g, strict=True)
    ]
    read = [
        each.corner_weight * (own * (factor * each.scale)).unsqueeze(1)
        for each, own, factor in zip(lattices, g, factors, strict=True)
    ]
    topology = _topology([each.topology for each in lattices])
    return topology, torch.cat(read, 1), aligned(entries), g


def _merge_by_triton(
    lattices: Sequence[Lattice], factors: Sequence[float], normalized: bool
) -> Parts:
    from densecrf.operators.triton import lattice_sum_kernels as kernels

    first = lattices[0]
    places = _places([each.topology for each in lattices])
    total = places[-1]
    topology, entry_weight = _empty(first, places)
    for each, at in zip(lattices, places, strict=False):
        part = each.topology
        entries = len(part.entry_pixel)
        sizes = (entries, padded(entries), part.vertices, len(part.segment_vertex))
        source = (part.corner, part.row_begin, part.entry_pixel, each.entry_weight)
        target = (topology.corner, topology.row_begin, topology.entry_pixel, entry_weight)
        launch(
            kernels.place,
            (-(-max(padded(entries), part.vertices + 1) // BLOCK),),
            (
                *(*source, part.segment_vertex, part.neighbour),
                *(*target, topology.segment_vertex, topology.neighbour),
                *(*sizes, at.entry, at.vertex, at.segment, total.vertex),
                *(part.dimension + 1, at.corner, total.corner, topology.dimension + 1),
            ),
            {"BLOCK": BLOCK},
        )
    corner_weight = torch.empty(first.n, total.corner, device=first.device)
    settings = (first.items, first.order, first.workspace, first.triton)
    raw = MergedLattice(topology, corner_weight, entry_weight, *settings)
    blurred = corner_weight  # stands in where it is not needed
    if normalized:
        blurred = raw.blurred(torch.ones(1, first.n, device=first.device))
    g = []
    for each, factor, at, after in zip(lattices, factors, places, places[1:], strict=False):
        g.append(torch.empty(first.n, device=first.device))
        launch(
            kernels.read_weights,
            (-(-first.n // BLOCK),),
            (
                *(blurred, topology.corner, each.corner_weight, g[-1], corner_weight),
                *(first.n, each.dimension + 1, at.corner, total.corner),
                *(each.scale, float(factor)),
            ),
            {"NORMALIZED": normalized, "BLOCK": BLOCK},
        )
        own = slice(at.entry, after.entry)
        weights = (topology.entry_pixel[own], entry_weight[own], g[-1], after.entry - at.entry)
        blocks = -(-(after.entry - at.entry) // BLOCK)
        launch(kernels.scale_entries, (blocks,), weights, {"BLOCK": BLOCK})
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


def _empty(like: Lattice, places: Sequence[_Place]) -> tuple[Topology, Tensor]:
    """Return tensors for the incidence of all lattices, and for the entries' weights."""
    total = places[-1]
    axes = max(after.corner - at.corner for at, after in pairwise(places))

    def integers(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=like.device)

    topology = Topology(
        like.n,
        axes - 1,
        total.vertex,
        integers(like.n, total.corner),
        like.topology.rank[:0],
        integers(total.vertex + 1),
        integers(total.entry),
        integers(total.segment),
        integers(axes, 2, total.vertex),
    )
    return topology, torch.empty(total.entry, device=like.device)


def _topology(parts: Sequence[Topology]) -> Topology:
    device = parts[0].corner.device
    vertices = sum(part.vertices for part in parts)
    dimension = max(part.dimension for part in parts)
    neighbour = torch.full((dimension + 1, 2, vertices), -1, dtype=torch.int32, device=device)
    corner, begin, segment = [], [], []
    vertex = entry = 0
    for part in parts:
        after = vertex + part.vertices
        there = part.neighbour + vertex
        place = neighbour[: part.dimension + 1, :, vertex:after]
        place.copy_(there.masked_fill_(part.neighbour < 0, -1) if vertex else part.neighbour)
        corner.append(part.corner + vertex if vertex else part.corner)
        begin.append(part.row_begin[:-1] + entry if entry else part.row_begin[:-1])
        segment.append(part.segment_vertex + vertex if vertex else part.segment_vertex)
        vertex = after
        entry += padded(len(part.entry_pixel))
    # The padding at the end of a lattice's entries falls to its last vertex, without weight.
    begin.append(torch.full((1,), entry, dtype=torch.int32, device=device))
    return Topology(
        parts[0].pixels,
        dimension,
        vertices,
        torch.cat(corner, 1),
        torch.empty(0, dtype=torch.int8, device=device),
        torch.cat(begin),
        aligned([part.entry_pixel for part in parts]),
        torch.cat(segment),
        neighbour,
    )


def padded(entries: int) -> int:
    """Round up to whole segments."""
    return -(-entries // SEGMENT) * SEGMENT


def aligned(columns: Sequence[Tensor]) -> Tensor:
    """Concatenate, each column beginning at a whole segment; zeros in between."""
    zeros = torch.zeros(SEGMENT, dtype=columns[0].dtype, device=columns[0].device)
    pieces = []
    for column in columns:
        pieces.append(column)
        if len(column) % SEGMENT:
            pieces.append(zeros[: padded(len(column)) - len(column)])
    return torch.cat(pieces)
