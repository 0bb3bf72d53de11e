r"""Gradients: of the filter, of its features, of mean field's update, of the simplex projection.

The filter is :math:`K = S B S^T`, with S the barycentric weights of the pixels in their simplices
and B the blur. It is linear in the values, so its backward pass is its transpose: itself if the
blur is symmetric. It is quadratic in S, and S is linear in the features within a simplex. Gradients
are therefore exact derivatives of the computed filter, except on the faces of simplices, where the
lattice's approximation has a kink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from densecrf.operators.torch.pixelwise import mean_field_update, project_simplex
from densecrf.operators.torch.topology import elevation_matrix

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice

_CHANNELS = 128  # filtered at once in the gradient of the weights


def filtered(lattice: Lattice, values: Tensor, corner_weight: Tensor | None = None) -> Tensor:
    """Filter (channels, n) values, with gradients to them and to the corners' weights.

    Parameters
    ----------
    lattice : Lattice
        The filter.
    values : Tensor
        (channels, n).
    corner_weight : Tensor, optional
        The lattice's own `corner_weight`, as a function of something that needs a gradient.

    Examples
    --------
    >>> from densecrf.torch import Lattice
    >>> lattice = Lattice.build(torch.rand(10, 2))
    >>> v = torch.ones(1, 10, requires_grad=True)
    >>> filtered(lattice, v).sum().backward()
    >>> torch.testing.assert_close(v.grad[0], lattice.mass)
    """
    out: Tensor = _Filtered.apply(values, corner_weight, lattice)  # type: ignore[no-untyped-call]
    return out


class _Filtered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        corner_weight: Tensor | None,  # noqa: ARG004 - for its gradient; the lattice holds it too
        lattice: Lattice,
    ) -> Tensor:
        ctx.lattice = lattice
        ctx.save_for_backward(values if ctx.needs_input_grad[1] else None)
        return lattice.apply(values.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        lattice: Lattice = ctx.lattice
        grad = grad.contiguous()
        (values,) = ctx.saved_tensors
        to_values = lattice.transposed.apply(grad) if ctx.needs_input_grad[0] else None
        to_weights = None if values is None else _weight_gradient(lattice, values, grad)
        return to_values, to_weights, None


def _weight_gradient(lattice: Lattice, values: Tensor, grad: Tensor) -> Tensor:
    """Gradient with respect to S_ak: grad_a (B Sᵀ values)_k + values_a (Bᵀ Sᵀ grad)_k."""
    out = torch.zeros_like(lattice.corner_weight)
    for first in range(0, len(values), _CHANNELS):
        part = slice(first, first + _CHANNELS)
        for ours, theirs, blurs in (
            (grad[part], values[part], lattice),
            (values[part], grad[part], lattice.transposed),
        ):
            blurred = blurs.blurred(theirs)
            for k in range(lattice.dimension + 1):
                out[:, k] += (ours.T * blurred[lattice.topology.corner[:, k]]).sum(1)
    return out * lattice.scale


def barycentric(features: Tensor, lattice: Lattice) -> Tensor:
    """Return the lattice's `corner_weight` as a function of the features it was built from.

    Parameters
    ----------
    features : Tensor
        (n, d) or (items, n, d), the lattice's, with gradients.
    lattice : Lattice
        Built from them, not normalised.
    """
    d = lattice.dimension
    elevated = features.reshape(-1, d).double() @ elevation_matrix(d, features.device).T / (d + 1)
    by_rank = torch.zeros_like(elevated).scatter(1, lattice.topology.rank.long(), elevated)
    first = by_rank[:, d:] - by_rank[:, :1]
    linear = torch.cat([first, (by_rank[:, :d] - by_rank[:, 1:]).flip(1)], 1)
    return lattice.corner_weight + (linear - linear.detach()).to(lattice.corner_weight.dtype)


def updated(phi: Tensor, received: Tensor, y: Tensor, own: Tensor) -> Tensor:
    """Return `mean_field_update` of `pixelwise`, with gradients to all arguments.

    Examples
    --------
    >>> phi = torch.zeros(2, 1, requires_grad=True)
    >>> updated(phi, torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(1))[0].sum().backward()
    >>> phi.grad.ravel().tolist()
    [-0.25, 0.25]
    """
    out: Tensor = _Updated.apply(phi, received, y, own)  # type: ignore[no-untyped-call]
    return out


class _Updated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, phi: Tensor, received: Tensor, y: Tensor, own: Tensor) -> Tensor:
        out = mean_field_update(phi.detach(), received.detach(), y.detach(), own.detach())
        ctx.save_for_backward(out, own, y if ctx.needs_input_grad[3] else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out, own, y = ctx.saved_tensors
        # The softmax's: out · (grad - Σ_i grad_i out_i).
        grad = torch.ops.aten._softmax_backward_data(grad, out, 0, out.dtype)
        to_phi, to_received, to_y, to_own = ctx.needs_input_grad
        return (
            -grad if to_phi else None,
            grad if to_received else None,
            grad * -own if to_y else None,
            -(grad * y).sum(0) if to_own else None,
        )


def projected(z: Tensor) -> Tensor:
    """Project columns of (labels, n) onto the simplex, with gradients.

    Around almost every point the projection is linear: it subtracts the mean over the labels above
    zero and sets the others to zero.

    Examples
    --------
    >>> z = torch.tensor([[0.9], [0.3], [-2.0]], requires_grad=True)
    >>> projected(z)[0].sum().backward()
    >>> (z.grad.ravel() + 0).tolist()
    [0.5, -0.5, 0.0]
    """
    out: Tensor = _Projected.apply(z)  # type: ignore[no-untyped-call]
    return out


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        y = project_simplex(z.detach())
        ctx.save_for_backward(y > 0)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (support,) = ctx.saved_tensors
        grad = grad * support
        out: Tensor = (grad - grad.sum(0) / support.sum(0)) * support
        return out
