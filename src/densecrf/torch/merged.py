"""Several lattices over the same pixels as one: a weighted sum of filters in a single pass.

Vertices, entries and corners of the lattices lie side by side, and along axes that a lattice does
not have, its vertices have no neighbours: blurring there leaves them as they are. Weights go into
the corners that the sum is read from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from densecrf.torch.geometry import SEGMENT, Topology
from densecrf.torch.lattice import SMALLEST_MASS, Lattice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class MergedLattice(Lattice):
    """A sum of lattices; `merge` makes it. Its scales are in the corners' weights."""

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
    raw = MergedLattice(
        _topology([each.topology for each in lattices]),
        torch.cat([each.corner_weight for each in lattices], 1),
        _aligned([each.entry_weight for each in lattices]),
        first.items,
        first.order,
        first.workspace,
        first.triton,
    )
    corners = [each.corner_weight.shape[1] for each in lattices]
    if normalized:
        ones = torch.ones(1, first.n, dtype=raw.corner_weight.dtype, device=raw.device)
        at_corners = raw.blurred(ones)[:, 0][raw.topology.corner.long()]
        shares = torch.split(at_corners * raw.corner_weight, corners, 1)
        g = [
            (share.sum(1) * each.scale).clamp(min=SMALLEST_MASS).rsqrt()
            for share, each in zip(shares, lattices, strict=True)
        ]
        entry = [
            each.entry_weight * factor[each.topology.entry_pixel]
            for each, factor in zip(lattices, g, strict=True)
        ]
    else:
        g = [torch.ones_like(first.corner_weight[:, 0]) for _ in lattices]
        entry = [each.entry_weight for each in lattices]
    read = [
        each.corner_weight * (own * (factor * each.scale)).unsqueeze(1)
        for each, own, factor in zip(lattices, g, factors, strict=True)
    ]
    return replace(raw, corner_weight=torch.cat(read, 1), entry_weight=_aligned(entry)), g


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
        entry += _padded(len(part.entry_pixel))
    # The padding at the end of a lattice's entries falls to its last vertex, without weight.
    begin.append(torch.full((1,), entry, dtype=torch.int32, device=device))
    return Topology(
        parts[0].pixels,
        dimension,
        vertices,
        torch.cat(corner, 1),
        torch.empty(0, dtype=torch.int8, device=device),
        torch.cat(begin),
        _aligned([part.entry_pixel for part in parts]),
        torch.cat(segment),
        neighbour,
    )


def _padded(entries: int) -> int:
    """Round up to whole segments."""
    return -(-entries // SEGMENT) * SEGMENT


def _aligned(columns: Sequence[Tensor]) -> Tensor:
    """Concatenate, each column beginning at a whole segment; zeros in between."""
    zeros = torch.zeros(SEGMENT, dtype=columns[0].dtype, device=columns[0].device)
    pieces = []
    for column in columns:
        pieces.append(column)
        if len(column) % SEGMENT:
            pieces.append(zeros[: _padded(len(column)) - len(column)])
    return torch.cat(pieces)
