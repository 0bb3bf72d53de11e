"""The exact diagonal of the lattice filter's matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from densecrf.operators.triton.launch import launch

BLOCK = 128

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice
    from densecrf.operators.torch.topology import Topology


def diagonal(lattice: Lattice) -> Tensor:
    """Diagonal k_aa of the filter's matrix, (n,), differentiable in the corners' weights.

    A sum over pairs of a pixel's corners of their weights and the blur between them. The forward
    and the reversed order of axes have the same diagonal (they are each other's transpose), so the
    mean over both serves either `order`.
    """
    topology = lattice.topology
    if lattice.triton and not lattice.corner_weight.requires_grad:
        return _diagonal_by_triton(lattice)
    first, second = torch.triu_indices(
        topology.dimension + 1, topology.dimension + 1, device=lattice.device
    )
    weight = lattice.corner_weight
    shares = pair_shares(topology, lattice.triton).to(weight.dtype)
    return (shares * weight[:, first] * weight[:, second]).sum(1) * lattice.scale


def pair_shares(topology: Topology, triton: bool) -> Tensor:
    """Blur between corners k <= m of each pixel, both ways, (n, pairs), by following paths.

    Corners k and m > k of a simplex differ by one step along each axis of rank d-m+1 .. d-k; since
    steps along all d+1 axes cancel, the complement of those axes leads back the other way. A path
    that one order of the axes takes from m to k is one that the other takes from k to m, so paths
    from k to m, in both orders, are enough.
    """
    if triton:
        return _shares_by_triton(topology)
    d = topology.dimension
    columns = []
    for k in range(d + 1):
        for m in range(k, d + 1):
            inside = (topology.rank > d - m) & (topology.rank <= d - k)
            share = torch.full_like(topology.corner[:, k], -(k == m), dtype=torch.float64)
            for axes in (range(d + 1), range(d, -1, -1)):
                share += _path(topology, k, m, inside, 1, axes)
                share += _path(topology, k, m, ~inside, 0, axes)
            columns.append(share)
    return torch.stack(columns, 1)


def _path(
    topology: Topology, k: int, m: int, chosen: Tensor, direction: int, axes: range
) -> Tensor:
    """Weight of the path from corner k along the `chosen` axes of each pixel; 0 if not to m."""
    at = topology.corner[:, k].long()
    steps = torch.zeros_like(at)
    for axis in axes:
        table = torch.cat([topology.neighbour[axis, direction], at.new_full((1,), -1)])
        at = torch.where(chosen[:, axis], table[at].long(), at)
        steps += chosen[:, axis]
    return torch.where(at == topology.corner[:, m], 0.5 ** steps.double(), 0.0)


def _shares_by_triton(topology: Topology) -> Tensor:
    from densecrf.operators.triton import topology_kernels as kernels

    n, d = topology.pixels, topology.dimension
    pairs = (d + 1) * (d + 2) // 2
    out = torch.empty(pairs, n, dtype=torch.float32, device=topology.corner.device)
    launch(
        kernels.pair_shares,
        (-(-n // BLOCK), d + 1),
        (topology.corner, topology.rank, topology.neighbour, out, n, topology.vertices, d),
        {"BLOCK": BLOCK},
    )
    return out.T


def _diagonal_by_triton(lattice: Lattice) -> Tensor:
    out = torch.empty(lattice.n, dtype=torch.float32, device=lattice.device)
    add_diagonal(lattice, torch.ones_like(out), 1.0, out, add=False)
    return out


def add_diagonal(
    lattice: Lattice, g: Tensor, weight: float, out: Tensor, *, add: bool = True
) -> None:
    """Add the diagonal of `weight` g k g, with factors g (n,), to `out` (n,), or write it there."""
    from densecrf.operators.triton import topology_kernels as kernels

    topology = lattice.topology
    n = topology.pixels
    launch(
        kernels.diagonal,
        (-(-n // BLOCK),),
        (
            *(topology.corner, topology.rank, topology.neighbour, lattice.corner_weight, g, out),
            *(n, topology.vertices, weight * lattice.scale, int(add)),
        ),
        {"D": topology.dimension, "BLOCK": BLOCK},
    )
