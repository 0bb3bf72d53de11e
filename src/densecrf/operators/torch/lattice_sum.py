"""Several lattices as one: sums over the same pixels, and batches over different ones.

Vertices and entries of the lattices are concatenated. The entries of each lattice begin at a
segment, so they are added in the same order, with the same bits, as by the lattice itself. In a
sum, vertices have no neighbours along axes that their lattice lacks, and blurring there leaves them
unchanged. Weights multiply the corners from which the sum is sliced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from densecrf.operators.levels import SMALLEST_MASS
from densecrf.operators.torch.lattice import Lattice, Span
from densecrf.operators.torch.topology import SEGMENT, Topology, padded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def merge(
    lattices: Sequence[Lattice],
    factors: Sequence[float],
    *,
    normalized: bool,
    g: Sequence[Tensor] | None = None,
) -> tuple[Lattice, list[Tensor]]:
    r"""Return :math:`\sum_c \text{factor}_c g_c k_c g_c` as one filter, and the :math:`g_c`.

    Parameters
    ----------
    lattices : sequence of Lattice
        Over the same pixels.
    factors : sequence of float
        One weight per lattice.
    normalized : bool
        Whether :math:`g_c = m_c^{-1/2}`, with the row sums m of each; else 1.
    g : sequence of Tensor, optional
        The :math:`g_c`, where they are others.

    Examples
    --------
    >>> a, b = Lattice.build(torch.rand(9, 2)), Lattice.build(torch.rand(9, 3))
    >>> both, _ = merge([a, b], [2.0, 3.0], normalized=False)
    >>> v = torch.rand(4, 9)
    >>> torch.testing.assert_close(both.apply(v), 2 * a.apply(v) + 3 * b.apply(v))
    """
    if g is None and lattices[0].triton:
        from densecrf.operators.triton.topology import merge as merge_parts

        topology, corner_weight, entry_weight, found = merge_parts(lattices, factors, normalized)
    else:
        parts = _merge_by_torch(lattices, factors, normalized, g)
        topology, corner_weight, entry_weight, found = parts
    shares = [
        (each.vertices, factor * each.scale) for each, factor in zip(lattices, factors, strict=True)
    ]
    merged = replace(
        lattices[0],
        topology=topology,
        corner_weight=corner_weight,
        entry_weight=entry_weight,
        scale=1.0,  # theirs are in the corners' weights
        shares=tuple(shares),
    )
    return merged, found


def _merge_by_torch(
    lattices: Sequence[Lattice],
    factors: Sequence[float],
    normalized: bool,
    given: Sequence[Tensor] | None = None,
) -> tuple[Topology, Tensor, Tensor, list[Tensor]]:
    g = list(given or ()) or [
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
    topology, _ = _joined([each.topology for each in lattices], batch=False)
    return topology, torch.cat(read, 1), torch.cat([_filled(each) for each in entries]), g


def side_by_side(lattices: Sequence[Lattice]) -> Lattice:
    """Return the lattices of several items as one, pixels one item after the other.

    Parameters
    ----------
    lattices : sequence of Lattice
        Of as many corners and one scale, on one device.

    Examples
    --------
    >>> built = [Lattice.build(torch.rand(n, 2)) for n in (4, 7)]
    >>> items = [merge([each], [1.0], normalized=True)[0] for each in built]
    >>> [span.pixels for span in side_by_side(items).spans]
    [4, 7]
    """
    topology, spans = _joined([each.topology for each in lattices], batch=True)
    return replace(
        lattices[0],
        topology=topology,
        corner_weight=torch.cat([each.corner_weight for each in lattices]),
        entry_weight=torch.cat([_filled(each.entry_weight) for each in lattices]),
        items=len(lattices),
        shares=tuple(share for each in lattices for share in each.shares),
        own_spans=tuple(spans),
    )


def _joined(parts: Sequence[Topology], *, batch: bool) -> tuple[Topology, list[Span]]:
    """Return concatenated topologies, over one item's pixels or a batch's, and their offsets."""
    dimension = max(part.dimension for part in parts)
    spans, corner, begin, entry_pixel, segment, neighbour = [], [], [], [], [], []
    pixel = vertex = entry = 0
    for part in parts:
        entries = padded(len(part.entry_pixel))
        spans.append(
            Span(pixel, part.pixels, vertex, part.vertices, entry // SEGMENT, entries // SEGMENT)
        )
        corner.append(part.corner + vertex)
        begin.append(part.row_begin[:-1] + entry)
        # Padding at the end of a lattice's entries falls to its last vertex, without weight.
        entry_pixel.append(_filled(part.entry_pixel) + pixel)
        segment.append(part.segment_vertex + vertex)
        there = (part.neighbour + vertex).masked_fill_(part.neighbour < 0, -1)
        missing = dimension - part.dimension
        neighbour.append(pad(there, (0, 0, 0, 0, 0, missing), value=-1) if missing else there)
        vertex, entry = vertex + part.vertices, entry + entries
        pixel += part.pixels if batch else 0
    first = parts[0]
    begin.append(first.row_begin.new_full((1,), entry))
    topology = Topology(
        pixel if batch else first.pixels,
        dimension,
        vertex,
        torch.cat(corner, 0 if batch else 1),
        first.rank[:0],
        torch.cat(begin),
        torch.cat(entry_pixel),
        torch.cat(segment),
        torch.cat(neighbour, 2),
    )
    return topology, spans


def _filled(column: Tensor) -> Tensor:
    """Fill up the last segment of a column of entries with zeros."""
    return pad(column, (0, padded(len(column)) - len(column)))
