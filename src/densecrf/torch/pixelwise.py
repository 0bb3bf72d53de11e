"""What the solvers do to each pixel on its own, over label-major (labels, n) tensors.

Every function runs as one fused Triton kernel where Triton serves, and as plain torch operations
elsewhere. A batch lies as `items` equal runs of pixels; sums come out per item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from densecrf.torch.engine import Engine, use_triton
from densecrf.torch.launch import launch

if TYPE_CHECKING:
    from torch import Tensor

_ELEMENTS = 4096  # labels x pixels of a tile


def project_simplex(z: Tensor, *, engine: Engine = "auto") -> Tensor:
    """Project each pixel's labels onto the probability simplex.

    Parameters
    ----------
    z : Tensor
        (labels, n).

    Returns
    -------
    Tensor
        (labels, n), nearest points with entries ≥ 0 that sum to 1 over the labels.

    Examples
    --------
    >>> project_simplex(torch.tensor([[2.0, 0.25], [0.0, 0.25]]))
    tensor([[1.0000, 0.5000],
            [0.0000, 0.5000]])
    """
    if not use_triton(z, engine):
        return _projected(z)
    from densecrf.torch import pixel_kernels as kernels

    z = z.contiguous()
    out = torch.empty_like(z)
    grid, tile, warps = _tiles(z, 1)
    launch(kernels.project_simplex, grid, (z, out, z.shape[1], z.shape[1]), tile, warps)
    return out


def mean_field_update(
    phi: Tensor, message: Tensor, *, factor: float = 1.0, engine: Engine = "auto"
) -> Tensor:
    """Softmax over the labels of factor · message - phi.

    Examples
    --------
    >>> mean_field_update(torch.zeros(2, 1), torch.zeros(2, 1))
    tensor([[0.5000],
            [0.5000]])
    """
    if not use_triton(phi, engine):
        return torch.softmax(factor * message - phi, 0)
    from densecrf.torch import pixel_kernels as kernels

    phi, message = phi.contiguous(), message.contiguous()
    out = torch.empty_like(phi)
    grid, tile, warps = _tiles(phi, 1)
    sizes = (phi.shape[1], phi.shape[1], factor)
    launch(kernels.softmax, grid, (phi, message, out, *sizes), tile, warps)
    return out


def lower_bound(
    phi: Tensor, r: Tensor, *, factor: float = 1.0, items: int = 1, engine: Engine = "auto"
) -> Tensor:
    """Σ_a min_i (phi_ai + factor · r_ai) of each item, in float64 on the device.

    Examples
    --------
    >>> lower_bound(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.zeros(2, 2))
    tensor([1.], dtype=torch.float64)
    """
    if not use_triton(phi, engine):
        return _bound(phi + factor * r, items)
    from densecrf.torch import pixel_kernels as kernels

    phi, r = phi.contiguous(), r.contiguous()
    n = phi.shape[1]
    grid, tile, warps = _tiles(phi, items)
    parts = torch.empty(items, grid[0], dtype=torch.float64, device=phi.device)
    launch(kernels.lower_bound, grid, (phi, r, parts, n, n // items, factor), tile, warps)
    return parts.sum(1)


def proximal_step(
    centre: Tensor,
    previous: Tensor,
    phi: Tensor,
    r: Tensor,
    step: Tensor,
    momentum: Tensor,
    *,
    factor: float = 1.0,
    engine: Engine = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of accelerated projected gradient (FISTA) on all pixels.

    With the gradient G = phi + factor · r at `centre`:
    y = P_Δ(centre - step · G), next centre = y + momentum · (y - previous), bound = Σ_a min_i G_ai.

    Parameters
    ----------
    centre, previous : Tensor
        (labels, n), where the gradient was taken, and the last y.
    phi, r : Tensor
        (labels, n), unary and pairwise part of the gradient.
    step : Tensor
        (n,), each pixel's step.
    momentum : Tensor
        (items,), each item's momentum.

    Returns
    -------
    y, next_centre : Tensor
        (labels, n).
    bound : Tensor
        (items,) float64, the certificate of r.
    """
    items = momentum.shape[0]
    if not use_triton(centre, engine):
        gradient = phi + factor * r
        y = _projected(centre - step * gradient)
        beta = momentum.repeat_interleave(centre.shape[1] // items)
        return y, y + beta * (y - previous), _bound(gradient, items)
    from densecrf.torch import pixel_kernels as kernels

    centre, previous, phi, r = (x.contiguous() for x in (centre, previous, phi, r))
    n = centre.shape[1]
    y, ahead = torch.empty_like(centre), torch.empty_like(centre)
    grid, tile, warps = _tiles(centre, items)
    parts = torch.empty(items, grid[0], dtype=torch.float64, device=centre.device)
    tensors = (centre, previous, phi, r, step, momentum, y, ahead, parts)
    launch(kernels.proximal_step, grid, (*tensors, n, n // items, factor), tile, warps)
    return y, ahead, parts.sum(1)


def _tiles(values: Tensor, items: int) -> tuple[tuple[int, int], dict[str, int], int]:
    """Grid, tile shape and warps for (labels, n) values."""
    labels, n = values.shape
    lanes = 1 << (labels - 1).bit_length()
    block = min(256, max(16, _ELEMENTS // lanes))
    warps = 1 if lanes <= 32 else min(8, max(4, lanes * block // 4096))
    tile = {"LABELS": labels, "LANES": lanes, "BLOCK": block}
    return (-(-(n // items) // block), items), tile, warps


def _projected(z: Tensor) -> Tensor:
    """Simplex projection by sorting."""
    z = z - z.amax(0)  # relative: no cancellation for large z
    sorted_z = torch.sort(z, 0, descending=True).values
    count = torch.arange(1, z.shape[0] + 1, device=z.device, dtype=z.dtype).unsqueeze(1)
    thresholds = (sorted_z.cumsum(0) - 1) / count
    support = (sorted_z > thresholds).sum(0, keepdim=True)
    return (z - thresholds.gather(0, support - 1)).clamp(min=0)


def _bound(values: Tensor, items: int) -> Tensor:
    return values.amin(0).double().view(items, -1).sum(1)
