"""The lattice filter by plain torch operations: any device, any floating dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from densecrf.operators.levels import Levels
    from densecrf.operators.torch.lattice import Lattice


def filter_planes(
    lattice: Lattice,
    planes: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float,
    *,
    add: bool,
) -> None:
    """Write (or add) `factor` times the filtered planes (labels, n) to the planes `out`."""
    block = _at_once(lattice, len(planes), levels)
    for first in range(0, len(planes), block):
        part = slice(first, first + block)
        rows = planes[part].T
        if levels is None:
            result = _plain(lattice, rows)
        else:
            result = _ordered(lattice, levels.of(rows, torch), levels)
        if add:
            out[part].add_(result.T, alpha=factor)
        else:
            torch.mul(result.T, factor, out=out[part])


def blurred_planes(lattice: Lattice, planes: Tensor) -> Tensor:
    """Splat and blur planes (channels, n); returns them at the vertices, (vertices, channels)."""
    return _blurred(lattice, planes.T)


def _at_once(lattice: Lattice, channels: int, levels: Levels | None) -> int:
    """Labels whose entries fit into the workspace together, in blocks of even size."""
    ramps = levels.ramps if levels else 1
    label = 2 * lattice.n * (lattice.dimension + 1) * ramps * lattice.corner_weight.element_size()
    fitting = max(1, min(channels, lattice.workspace // label))
    blocks = -(-channels // fitting)
    return max(1, -(-channels // blocks)) if blocks else 1


def _blurred(lattice: Lattice, rows: Tensor) -> Tensor:
    """Splat and blur rows of pixels into rows of vertices."""
    topology = lattice.topology
    entries = rows[topology.entry_pixel] * lattice.entry_weight.unsqueeze(1)
    splatted = torch.segment_reduce(entries, "sum", offsets=topology.row_begin.long(), axis=0)
    return _blur(lattice, splatted)


def _ordered(lattice: Lattice, t: Tensor, levels: Levels) -> Tensor:
    """Return mass - (1-f) C_k - C_{k+1} - f C_{k+2} with t = k + f, C_h the filtered ramp h-1."""
    n, labels = t.shape
    h = torch.arange(levels.ramps, device=t.device, dtype=t.dtype)
    ramps = (t.unsqueeze(2) - h).clamp(0, 1)
    filtered = _plain(lattice, ramps.reshape(n, -1)).view(n, labels, levels.ramps)
    k = t.floor()
    f = t - k
    above = h + 1 - k.unsqueeze(2)  # index of C_h relative to k
    f_ = f.unsqueeze(2)
    taps = (above == 0) * (1 - f_) + (above == 1) + (above == 2) * f_
    share = torch.where(k > 0, torch.ones_like(f), f)  # C_0 = mass cancels part of the mass
    return lattice.mass.unsqueeze(1) * share - (filtered * taps).sum(2)


def _plain(lattice: Lattice, rows: Tensor) -> Tensor:
    """Splat, blur and slice (n, channels) values."""
    topology = lattice.topology
    blurred = _blurred(lattice, rows)
    result = torch.zeros_like(rows)
    for k in range(topology.corner.shape[1]):
        result += lattice.corner_weight[:, k : k + 1] * blurred[topology.corner[:, k]]
    return result * lattice.scale


def _blur(lattice: Lattice, values: Tensor) -> Tensor:
    axes = range(lattice.dimension + 1)
    forward = _blur_axes(lattice, values, axes)
    if lattice.order == "forward":
        return forward
    return (forward + _blur_axes(lattice, values, reversed(axes))) / 2


def _blur_axes(lattice: Lattice, values: Tensor, axes: Iterable[int]) -> Tensor:
    # A last row of zeros: the index -1 of a missing neighbour points at it.
    padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
    for axis in axes:
        plus, minus = lattice.topology.neighbour[axis]
        blurred = padded[:-1] + 0.5 * (padded[plus] + padded[minus])
        padded = torch.cat([blurred, padded[-1:]])
    return padded[:-1]
