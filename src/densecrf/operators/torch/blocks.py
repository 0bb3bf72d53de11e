"""Block-diagonal filters: among some pixels of a lattice, for each of several blocks of them.

What is filtered in a block stays in it. A block has the vertices that its pixels touch, and those
on a path of the blurs from one of these to another: what a blur passes to any other vertex never
comes back to a pixel of the block, so each block is a submatrix of the whole filter's matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from densecrf.operators.torch.topology import SEGMENT, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice

__all__ = ["block_diagonal"]


def block_diagonal(lattice: Lattice, block: Tensor, pixel: Tensor, count: int) -> Lattice:
    """Return the filter of `count` blocks, each among pixels of its own.

    Parameters
    ----------
    lattice : Lattice
        Of one kernel.
    block, pixel : Tensor
        (N,) int64: the pixels of the blocks, which are 0, 1, … and lie one after the other.
    count : int
        How many blocks there are.

    Examples
    --------
    >>> from densecrf.operators.torch.lattice import Lattice
    >>> whole = Lattice.build(torch.rand(6, 2))
    >>> parts = block_diagonal(whole, torch.tensor([0, 0, 1]), torch.tensor([1, 4, 1]), 2)
    >>> matrix, every = parts.apply(torch.eye(3)), whole.apply(torch.eye(6))
    >>> torch.testing.assert_close(matrix[:2, :2], every[[1, 4]][:, [1, 4]])
    >>> matrix[2, :2].tolist()
    [0.0, 0.0]
    """
    whole = lattice.topology
    corners = whole.corner.shape[1]
    at = whole.corner[pixel].long() + block.unsqueeze(1) * whole.vertices  # of all blocks' vertices
    kept = _between(whole, at, count)
    number = torch.cumsum(kept, 0, dtype=torch.int32) - 1
    own = kept.nonzero().squeeze(1)
    vertices = len(own)

    corner = number[at.view(-1)]
    # Vertices that no pixel touches have one entry without weight: kernels go from entry to entry.
    alone = torch.ones(vertices, dtype=torch.bool, device=own.device)
    alone[corner.long()] = False
    alone = alone.nonzero().squeeze(1)
    first = torch.searchsorted(block, own[alone] // whole.vertices)  # some pixel of the same block
    weight = lattice.corner_weight[pixel]
    sorted_vertex, order = torch.sort(torch.cat([corner, alone.int()]), stable=True)
    every = torch.arange(len(at), device=own.device).repeat_interleave(corners)
    entry_pixel = torch.cat([every, first])
    entry_weight = torch.cat([weight.view(-1), weight.new_zeros(len(alone))])
    row_begin = torch.zeros(vertices + 1, dtype=torch.int32, device=own.device)
    row_begin[1:] = torch.bincount(sorted_vertex, minlength=vertices).cumsum(0)
    topology = Topology(
        len(at),
        whole.dimension,
        vertices,
        corner.view(-1, corners),
        whole.rank[pixel],
        row_begin,
        entry_pixel[order].int(),
        sorted_vertex[::SEGMENT].contiguous(),
        _neighbours(whole, kept, number, own),
    )
    return replace(
        lattice,
        topology=topology,
        corner_weight=weight,
        entry_weight=entry_weight[order],
        shares=((vertices, lattice.scale),),
    )


def _between(topology: Topology, corner: Tensor, count: int) -> Tensor:
    """Return which vertices of all blocks lie between those that pixels touch, (count · V,) bool.

    Such a vertex is reached from a touched one by the first j axes, and from it one by the others,
    for some j. The paths of the reversed order are the same, walked backwards.
    """
    touched = torch.zeros(count * topology.vertices, dtype=torch.bool, device=corner.device)
    touched[corner.view(-1)] = True
    rows = touched.view(count, -1).T.contiguous()  # of vertices: neighbours are gathered as such
    axes = range(topology.dimension + 1)
    steps = _arrival(topology, rows, axes) + _arrival(topology, rows, reversed(axes))
    return (steps <= len(axes)).T.reshape(-1)


def _arrival(topology: Topology, touched: Tensor, axes: Iterable[int]) -> Tensor:
    """Return after how many blurs something at touched vertices reaches each, (V, count) uint8."""
    never = topology.dimension + 2
    stage = torch.where(touched, 0, never).to(torch.uint8)
    none = torch.zeros_like(touched[:1])  # the last row, where missing neighbours point
    for step, axis in enumerate(axes, 1):
        reached = torch.cat([stage < step, none])
        plus, minus = topology.neighbour[axis]
        arriving = (reached[plus] | reached[minus]) & (stage == never)
        stage.masked_fill_(arriving, step)
    return stage


def _neighbours(topology: Topology, kept: Tensor, number: Tensor, own: Tensor) -> Tensor:
    """Return the neighbours (d+1, 2, vertices) of the kept vertices of all blocks."""
    vertex = own % topology.vertices
    origin = own - vertex
    out = torch.empty(
        (*topology.neighbour.shape[:2], len(own)), dtype=torch.int32, device=own.device
    )
    for axis, sides in enumerate(topology.neighbour):
        for side, table in enumerate(sides):
            there = table[vertex]
            at = origin + there.clamp(min=0)
            out[axis, side] = torch.where((there >= 0) & kept[at], number[at], -1)
    return out
