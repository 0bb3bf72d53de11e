"""Lattices over different pixels as one, whose items are filtered by themselves or together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from densecrf.cached import cached_property
from densecrf.operators.torch.lattice import Lattice, Span
from densecrf.operators.torch.lattice_sum import aligned, padded
from densecrf.operators.torch.topology import SEGMENT, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, eq=False)
class LatticeBatch(Lattice):
    """Lattices side by side; `side_by_side` makes it."""

    own_spans: tuple[Span, ...] = ()
    own_scale: float = 1.0
    own_shares: tuple[tuple[int, float], ...] = ()

    @property
    def shares(self) -> Sequence[tuple[int, float]]:
        """Each lattice's."""
        return self.own_shares

    @property
    def scale(self) -> float:
        """The scale of each."""
        return self.own_scale

    @cached_property
    def spans(self) -> Sequence[Span]:
        """What belongs to each of the lattices."""
        return self.own_spans


def side_by_side(lattices: Sequence[Lattice]) -> LatticeBatch:
    """Return the lattices of several items as one, pixels one item after the other.

    Entries of each item begin at a whole segment, so that they are added in the same order, and
    give the same bits, as by the item's own lattice.

    Parameters
    ----------
    lattices : sequence of Lattice
        Of as many corners and one scale, on one device.

    Examples
    --------
    >>> from densecrf.operators.torch.lattice_sum import merge
    >>> built = [Lattice.build(torch.rand(n, 2)) for n in (4, 7)]
    >>> items = [merge([each], [1.0], normalized=True)[0] for each in built]
    >>> [span.pixels for span in side_by_side(items).spans]
    [4, 7]
    """
    spans, corner, begin, pixels, segment, neighbour = [], [], [], [], [], []
    pixel = vertex = entry = 0
    for each in lattices:
        own = each.topology
        entries = padded(len(own.entry_pixel))
        segments = entries // SEGMENT
        spans.append(Span(pixel, own.pixels, vertex, own.vertices, entry // SEGMENT, segments))
        corner.append(own.corner + vertex)
        begin.append(own.row_begin[:-1] + entry)
        fill = own.entry_pixel.new_zeros(entries - len(own.entry_pixel))
        pixels.append(torch.cat([own.entry_pixel, fill]) + pixel)
        segment.append(own.segment_vertex + vertex)
        neighbour.append((own.neighbour + vertex).masked_fill_(own.neighbour < 0, -1))
        pixel, vertex, entry = pixel + own.pixels, vertex + own.vertices, entry + entries
    first = lattices[0]
    end = torch.full((1,), entry, dtype=torch.int32, device=first.device)
    topology = Topology(
        pixel,
        first.dimension,
        vertex,
        torch.cat(corner),
        first.topology.rank[:0],
        torch.cat([*begin, end]),
        torch.cat(pixels),
        torch.cat(segment),
        torch.cat(neighbour, 2),
    )
    weights = torch.cat([each.corner_weight for each in lattices])
    entry_weight = aligned([each.entry_weight for each in lattices])
    settings = (len(lattices), first.order, first.workspace, first.triton)
    shares = tuple(share for each in lattices for share in each.shares)
    items = (tuple(spans), first.scale, shares)
    return LatticeBatch(topology, weights, entry_weight, *settings, *items)
