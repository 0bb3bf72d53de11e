"""Passes of the solvers over each pixel on its own, over label-major (labels, n) tensors.

Every function runs as one fused Triton kernel where Triton is available, and as plain torch
operations elsewhere. With Triton, the pixels of a batch's items are concatenated (`spans`), and
sums are per item. `plans`, made for one problem's unaries, self terms and Lipschitz constants, make
repeated calls cheaper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from densecrf.operators.torch.dispatch import Engine, use_triton
from densecrf.operators.triton.launch import launch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    from densecrf.operators.triton.launch import Plans

ELEMENTS = 4096  # labels x pixels of a tile
ADD_UP = {"LANES": 8, "TILE": 256}

Runs = tuple[tuple[int, int], ...]
Numbers = tuple[tuple[float, float], ...]


class Spans(NamedTuple):
    """The items: first pixel, pixels and two numbers of each, (items, 4) int32."""

    table: Tensor
    items: int
    pixels: int  # of the largest item

    @staticmethod
    def of(
        runs: Sequence[tuple[int, int]],
        device: torch.device,
        numbers: Sequence[tuple[float, float]] | None = None,
    ) -> Spans:
        """Return the items of some runs of pixels, with their numbers."""
        # Cached per stream: another stream would not wait for this one's transfer.
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        return _sent(tuple(runs), device, tuple(numbers or ()), stream)


@lru_cache(maxsize=256)
def _sent(runs: Runs, device: torch.device, numbers: Numbers, stream: int) -> Spans:  # noqa: ARG001
    """Return `Spans.of`; tables are cached, since transfers take time."""
    table = np.zeros((len(runs), 4), np.int32)
    table[:, :2] = runs
    if numbers:
        table.view(np.float32)[:, 2:] = numbers
    there = torch.from_numpy(table).to(device, non_blocking=True)
    return Spans(there, len(runs), max(pixels for _, pixels in runs))


def project_simplex(z: Tensor, *, engine: Engine = "auto") -> Tensor:
    """Return the nearest points to z (labels, n) with entries ≥ 0 that sum to 1 over the labels.

    Examples
    --------
    >>> project_simplex(torch.tensor([[2.0, 0.25], [0.0, 0.25]]))
    tensor([[1.0000, 0.5000],
            [0.0000, 0.5000]])
    """
    if not use_triton(z, engine):
        return _projected(z)
    z = z.contiguous()
    out = torch.empty_like(z)
    tiles = Tiles(z)
    tiles.launch(kernels().project_simplex, (z, out, tiles.table))
    return out


def mean_field_update(
    phi: Tensor,
    received: Tensor,
    y: Tensor,
    own: Tensor,
    *,
    spans: Spans | None = None,
    engine: Engine = "auto",
    plans: Plans | None = None,
) -> Tensor:
    """Return the softmax over the labels of received - own · y - phi.

    `received` are the filtered marginals y, `own` (n,) the self terms.

    Examples
    --------
    >>> zero = torch.zeros(2, 1)
    >>> mean_field_update(zero, zero, zero, torch.ones(1))
    tensor([[0.5000],
            [0.5000]])
    """
    if not use_triton(phi, engine):
        return torch.softmax(received - own * y - phi, 0)
    phi, received, y = phi.contiguous(), received.contiguous(), y.contiguous()
    out = torch.empty_like(phi)
    tiles = Tiles(phi, spans)

    def work() -> None:
        tiles.launch(kernels().mean_field, (phi, received, y, own, out, tiles.table))

    tensors = (received, y, own, out, tiles.table)
    _run(plans, ("mean field", tiles.blocks), tensors, work)
    return out


def lower_bound(
    phi: Tensor,
    r: Tensor,
    *,
    factor: float = 1.0,
    spans: Spans | None = None,
    engine: Engine = "auto",
) -> Tensor:
    """Return Σ_a min_i (phi_ai + factor · r_ai) of each item, in float64 on the device.

    Examples
    --------
    >>> lower_bound(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.zeros(2, 2))
    tensor([1.], dtype=torch.float64)
    """
    if not use_triton(phi, engine):
        return (phi + factor * r).amin(0).double().sum().view(1)
    tensors = (phi.contiguous(), r.contiguous())
    return Tiles(phi, spans).sums(kernels().lower_bound, tensors, 1, factor)[:, 0]


def descend(
    v: Tensor,
    phi: Tensor,
    r: Tensor,
    previous: Tensor,
    step: Tensor,
    lipschitz: Tensor,
    *,
    spans: Spans | None = None,
    engine: Engine = "auto",
    plans: Plans | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the projection y of v - step · G onto the simplices, G = phi + r, and sums.

    These are (items, 3) float64: Σ_a min_i G_ai, ⟨G, v⟩, ⟨lipschitz (v - y), y - previous⟩.
    """
    if not use_triton(v, engine):
        gradient = phi + r
        y = _projected(v - step * gradient)
        turn = (lipschitz * (v - y)).double() * (y - previous).double()
        sums = [gradient.amin(0).double().sum(), (gradient.double() * v.double()).sum(), turn.sum()]
        return y, torch.stack(sums).view(1, 3)
    v, phi, r, previous = (x.contiguous() for x in (v, phi, r, previous))
    y = torch.empty_like(v)
    tiles = Tiles(v, spans)

    def work() -> Tensor:
        return tiles.sums(kernels().descend, (v, phi, r, previous, step, lipschitz, y), 3)

    tensors = (v, r, previous, step, y, tiles.table)
    return y, _run(plans, ("descend", tiles.blocks), tensors, work)


def icm_moves(
    phi: Tensor,
    received: Tensor,
    own_mass: Tensor,
    row: Tensor,
    labels: Tensor,
    *,
    spans: Spans | None = None,
    engine: Engine = "auto",
    plans: Plans | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ICM move of each pixel in the Potts model: its best label, given all others.

    Parameters
    ----------
    phi : Tensor
        (labels, n) unaries.
    received : Tensor
        (rows, n), the filtered mass of each label, self terms included.
    own_mass : Tensor
        (n,), the self terms.
    row : Tensor
        (items, labels) int32, each label's row of `received`, or -1.
    labels : Tensor
        (n,) int64.

    Returns
    -------
    best : Tensor
        (n,) int64, the best labels; the current ones where none gains.
    gain : Tensor
        (n,), the decrease of the energy.
    sums : Tensor
        (items, 5) float64: unary energy, mass of agreeing pairs, all mass received, moves, and
        pixels whose label has no row (if there are any, the rest is invalid).
    """
    if not use_triton(phi, engine):
        (row,) = row
        agreeing = torch.where((row >= 0).unsqueeze(1), received[row.long().clamp(min=0)], 0.0)
        index = labels.unsqueeze(0)
        agreeing = agreeing.scatter_add(0, index, -own_mass.unsqueeze(0))
        cost = phi - agreeing
        least, best = cost.min(0)
        gain = cost.gather(0, index)[0] - least
        best = torch.where(gain > 0, best, labels)
        own = [x.gather(0, index).sum(dtype=torch.float64) for x in (phi, agreeing)]
        counts = [(gain > 0).sum().double(), (row[labels] < 0).sum().double()]
        total = agreeing.sum(dtype=torch.float64)
        return best, gain, torch.stack([*own, total, *counts]).view(1, 5)
    received = received.contiguous()
    best, gain = torch.empty_like(labels), torch.empty_like(own_mass)
    tiles = Tiles(phi, spans)

    def work() -> Tensor:
        tensors = (phi.contiguous(), received, own_mass, row, labels, best, gain)
        return tiles.sums(kernels().alternatives, tensors, 5)

    tensors = (received, row, labels, best, gain, tiles.table)
    return best, gain, _run(plans, ("icm moves", tiles.blocks), tensors, work)


def balanced(values: Tensor, mass: Tensor, total: Tensor) -> Tensor:
    """Subtract a multiple of `mass` (n,), whose sum is `total`, so that each row sums to zero.

    Examples
    --------
    >>> balanced(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.tensor(2.0).double())
    tensor([[-1.,  1.]])
    """
    excess = values.sum(1, dtype=torch.float64) / total
    return torch.addcmul(values, excess.to(values.dtype).unsqueeze(1), mass, value=-1)


def inner(u: Tensor, v: Tensor, *, engine: Engine = "auto") -> Tensor:
    """Return the inner product, a float64 scalar on the device.

    Examples
    --------
    >>> inner(torch.ones(2, 2), torch.ones(2, 2))
    tensor(4., dtype=torch.float64)
    """
    if not use_triton(u, engine):
        return (u.double() * v.double()).sum()
    blocks = -(-u.numel() // ELEMENTS)
    parts = torch.empty(blocks, dtype=torch.float64, device=u.device)
    tensors = (u.contiguous(), v.contiguous(), parts)
    launch(kernels().inner, (blocks,), (*tensors, u.numel()), {"BLOCK": ELEMENTS})
    return parts.sum()


# --- by Triton's kernels alone ----------------------------------------------------------


def extents(nodes: Tensor, offsets: Tensor | None, spans: Spans) -> Tensor:
    """Return the minimum of each node's (nodes + offsets) and of its negative.

    Nodes and offsets are (nodes, n), contiguous; the result is (items, nodes, 2).
    """
    shape = (spans.items, len(nodes), -(-spans.pixels // ELEMENTS), 2)
    parts = torch.empty(shape, device=nodes.device)
    given = nodes if offsets is None else offsets
    by_planes(kernels().extents, (nodes, given, parts), spans, OFFSETS=offsets is not None)
    return parts.amin(2)


def compress(nodes: Tensor, offsets: Tensor | None, spans: Spans) -> Tensor:
    """Return `densecrf.problem.projections.compressed` potentials nodes + offsets.

    The items' numbers are the span and the edge.
    """
    out = torch.empty_like(nodes)
    given = nodes if offsets is None else offsets
    tensors = (nodes, given, extents(nodes, offsets, spans), out)
    by_planes(kernels().compress, tensors, spans, OFFSETS=offsets is not None)
    return out


def undecided(y: Tensor, spans: Spans) -> Tensor:
    """Return the sums of y (1 - y) of each item and label, (items, labels)."""
    shape = (spans.items, len(y), -(-spans.pixels // ELEMENTS))
    parts = torch.empty(shape, dtype=torch.float64, device=y.device)
    by_planes(kernels().undecided, (y, parts), spans)
    return parts.sum(2)


def differing(labels: Tensor, others: Tensor, spans: Spans) -> Tensor:
    """Return how many pixels of each item have different labels, (items, 1) float64."""
    blocks = -(-spans.pixels // ELEMENTS)
    parts = torch.empty(spans.items, blocks, dtype=torch.float64, device=labels.device)
    tensors = (labels, others, parts, spans.table)
    launch(kernels().differing, (blocks, spans.items), tensors, {"BLOCK": ELEMENTS})
    return parts.sum(1, keepdim=True)


def extrapolate(y: Tensor, previous: Tensor, spans: Spans) -> Tensor:
    """Return previous + s (y - previous), s the item's first number."""
    out = torch.empty_like(y)
    by_planes(kernels().extrapolate, (y, previous, out), spans)
    return out


def add_extrapolated(u: Tensor, y: Tensor, previous: Tensor, spans: Spans) -> None:
    """Add previous + 2 (y - previous) to u, in place."""
    by_planes(kernels().add_extrapolated, (u, y, previous), spans)


def raised_argmax(y: Tensor, spans: Spans) -> Tensor:
    """Return each pixel's largest label, (n,).

    The items' numbers are a label, -1 for none, and a number to add to its values.
    """
    out = torch.empty(y.shape[1], dtype=torch.int64, device=y.device)
    tiles = Tiles(y, spans)
    tiles.launch(kernels().raised_argmax, (y, out, tiles.table))
    return out


def own_unaries(phi: Tensor, row: Tensor, labels: Tensor, spans: Spans) -> Tensor:
    """Return unary energies of labellings, and the number of pixels whose label lacks a row.

    The result is (items, 2).

    `phi` and `row` are as for `icm_moves`, `labels` (planes, n) int64; an item's first number is
    its plane.
    """
    return Tiles(phi, spans).sums(kernels().own_unaries, (phi, row, labels), 2)


# --- launches -------------------------------------------------------------------------------


def kernels() -> Any:
    """Triton's kernels, which can only be imported where Triton is installed."""
    from densecrf.operators.triton import pixelwise_kernels

    return pixelwise_kernels


def _run(
    plans: Plans | None, key: Hashable, tensors: Sequence[Tensor], work: Callable[[], Any]
) -> Any:
    return work() if plans is None else plans.run(key, tensors, work)


def by_planes(kernel: Any, tensors: Sequence[Tensor], spans: Spans, **constants: bool) -> None:
    """Launch a kernel over all planes of the first tensor (planes, n)."""
    count, n = tensors[0].shape
    grid = (-(-spans.pixels // ELEMENTS), spans.items, count)
    launch(kernel, grid, (*tensors, spans.table, n), {**constants, "BLOCK": ELEMENTS})


def tile_constants(labels: int) -> tuple[dict[str, int], int]:
    """Return constants and warps of the kernels whose tiles have all labels."""
    lanes = 1 << (labels - 1).bit_length()
    block = min(256, max(16, ELEMENTS // lanes))
    warps = min(8, max(1, lanes * block // 1024))  # so that a thread's numbers fit in registers
    return {"LANES": lanes, "BLOCK": block}, warps


class Tiles:
    """A launch over all pixels of (labels, n) values, each tile of them with all labels."""

    def __init__(self, values: Tensor, spans: Spans | None = None) -> None:
        labels, n = values.shape
        self._shape, self._warps = tile_constants(labels)
        self.table, self._items, pixels = spans or Spans.of([(0, n)], values.device)
        self._sizes = (n, labels)
        self.blocks = -(-pixels // self._shape["BLOCK"])

    def launch(self, kernel: Any, tensors: Sequence[Tensor], *numbers: float) -> None:
        """Launch a kernel whose arguments are `tensors`, the sizes, and `numbers`."""
        arguments = (*tensors, *self._sizes, *numbers)
        launch(kernel, (self.blocks, self._items), arguments, self._shape, self._warps)

    def sums(self, kernel: Any, tensors: Sequence[Tensor], columns: int, *numbers: float) -> Tensor:
        """Launch a kernel that also takes memory for its tiles' sums; return them per item."""
        shape, device = (self._items, self.blocks, columns), self.table.device
        parts = torch.empty(shape, dtype=torch.float64, device=device)
        self.launch(kernel, (*tensors, parts, self.table), *numbers)
        out = torch.empty(self._items, columns, dtype=torch.float64, device=device)
        launch(kernels().add_up, (self._items,), (parts, out, *shape[1:]), ADD_UP)
        return out


def _projected(z: Tensor) -> Tensor:
    """Simplex projection by sorting."""
    z = z.nan_to_num(torch.finfo(z.dtype).min)  # of overflows
    # Minus the maximum: no cancellation for large z; entries below -1 are outside the support.
    z = (z - z.amax(0)).clamp(min=-2)
    sorted_z = torch.sort(z, 0, descending=True).values
    count = torch.arange(1, z.shape[0] + 1, device=z.device, dtype=z.dtype).unsqueeze(1)
    thresholds = (sorted_z.cumsum(0) - 1) / count
    support = (sorted_z > thresholds).sum(0, keepdim=True)
    return (z - thresholds.gather(0, support - 1)).clamp(min=0)
