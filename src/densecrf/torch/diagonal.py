"""The exact diagonal of the lattice filter's matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.torch.lattice import Lattice


def diagonal(lattice: Lattice) -> Tensor:
    """Diagonal k_aa of the filter's matrix, (n,), by following paths between corners.

    Corners k and m > k of a simplex differ by one step along each axis of rank d-m+1 .. d-k; since
    steps along all d+1 axes cancel, the complement of those axes leads back the other way. The
    forward and the reversed order have the same diagonal (they are each other's transpose), so the
    mean over both orders of each pair of corners serves either `order`.
    """
    topology = lattice.topology
    d = topology.dimension
    rank = topology.rank
    total = torch.zeros(topology.pixels, dtype=torch.float64, device=lattice.device)
    for k in range(d + 1):
        for m in range(k, d + 1):
            start, end = topology.corner[:, k], topology.corner[:, m]
            inside = (rank > d - m) & (rank <= d - k)
            blur = torch.zeros_like(total)
            for axes in (range(d + 1), range(d, -1, -1)):
                if k == m:
                    blur += 1
                    blur += _path(lattice, start, end, ~inside, 0, axes)
                    blur += _path(lattice, start, end, ~inside, 1, axes)
                else:
                    blur += _path(lattice, start, end, inside, 1, axes)
                    blur += _path(lattice, start, end, ~inside, 0, axes)
                    blur += _path(lattice, end, start, inside, 0, axes)
                    blur += _path(lattice, end, start, ~inside, 1, axes)
            total += 0.5 * blur * lattice.corner_weight[:, k] * lattice.corner_weight[:, m]
    return (total * lattice.scale).to(lattice.corner_weight.dtype)


def _path(
    lattice: Lattice, start: Tensor, end: Tensor, chosen: Tensor, direction: int, axes: range
) -> Tensor:
    """Entry (start, end) of the product of the blurs along the `chosen` axes of each pixel."""
    at = start.long()
    steps = torch.zeros_like(at)
    for axis in axes:
        table = torch.cat([lattice.topology.neighbour[axis, direction], at.new_full((1,), -1)])
        at = torch.where(chosen[:, axis], table[at].long(), at)
        steps += chosen[:, axis]
    return torch.where(at == end, 0.5 ** steps.double(), 0.0)
