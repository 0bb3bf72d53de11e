"""Steps of several items at once by Triton's kernels, over label-major (labels, n) tensors.

The pixels of the items lie one after the other (`densecrf.torch.spans`); single problems are one
item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from densecrf.torch.pixelwise import ELEMENTS, Tiles, kernels
from densecrf.torch.triton.launch import launch

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.torch.spans import Spans


def extents(nodes: Tensor, offsets: Tensor | None, spans: Spans) -> Tensor:
    """Return the least of each node's (nodes + offsets) and of their negatives.

    Parameters
    ----------
    nodes, offsets : Tensor
        (nodes, n), contiguous.
    spans : Spans
        The items.

    Returns
    -------
    Tensor
        (items, nodes, 2).
    """
    n, count = nodes.shape[1], len(nodes)
    blocks = -(-spans.pixels // ELEMENTS)
    parts = torch.empty(spans.items, count, blocks, 2, device=nodes.device)
    given = nodes if offsets is None else offsets
    launch(
        kernels().extents,
        (blocks, spans.items, count),
        (nodes, given, parts, spans.table, n),
        {"OFFSETS": offsets is not None, "BLOCK": ELEMENTS},
    )
    return parts.amin(2)


def compress(nodes: Tensor, offsets: Tensor | None, spans: Spans) -> Tensor:
    """Return `densecrf.projections.compressed` potentials nodes + offsets.

    The items' numbers are the span and the edge.
    """
    out = torch.empty_like(nodes)
    given = nodes if offsets is None else offsets
    launch(
        kernels().compress,
        (-(-spans.pixels // ELEMENTS), spans.items, len(nodes)),
        (nodes, given, extents(nodes, offsets, spans), out, spans.table, nodes.shape[1]),
        {"OFFSETS": offsets is not None, "BLOCK": ELEMENTS},
    )
    return out


def raised_argmax(y: Tensor, spans: Spans) -> Tensor:
    """Return each pixel's largest label, (n,).

    The items' numbers are a label, -1 for none, and what is added to its values.
    """
    out = torch.empty(y.shape[1], dtype=torch.int64, device=y.device)
    tiles = Tiles(y, spans)
    tiles.launch(kernels().raised_argmax, (y, out, tiles.table))
    return out


def undecided(y: Tensor, spans: Spans) -> Tensor:
    """Return the sums of y (1 - y) of each item and label, (items, labels)."""
    grid = (-(-spans.pixels // ELEMENTS), spans.items, len(y))
    shape = (spans.items, len(y), grid[0])
    parts = torch.empty(shape, dtype=torch.float64, device=y.device)
    tensors = (y, parts, spans.table, y.shape[1])
    launch(kernels().undecided, grid, tensors, {"BLOCK": ELEMENTS})
    return parts.sum(2)


def own_unaries(phi: Tensor, row: Tensor, labels: Tensor, spans: Spans) -> Tensor:
    """Return the unary energies of labellings, and how many pixels' labels have no row, (items, 2).

    Parameters
    ----------
    phi, row
        As for `icm_moves`.
    labels : Tensor
        (planes, n) int64; an item's first number is its plane.
    spans : Spans
        The items.
    """
    return Tiles(phi, spans).sums(kernels().own_unaries, (phi, row, labels), 2)


def extrapolate(y: Tensor, previous: Tensor, spans: Spans) -> Tensor:
    """Return previous + s (y - previous), s the item's first number."""
    out = torch.empty_like(y)
    grid = (-(-spans.pixels // ELEMENTS), spans.items, len(y))
    tensors = (y, previous, out, spans.table, y.shape[1])
    launch(kernels().extrapolate, grid, tensors, {"BLOCK": ELEMENTS})
    return out
