"""The steps of the solvers on torch tensors.

Where unaries, weights or features need gradients, the steps that mean field and the last step of
the linear programs are made of (`messages`, `softmax`, `mean_field_update`, `project`) pass them
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.backend import Moves
from densecrf.operators.torch.autograd import projected, updated
from densecrf.operators.torch.pixelwise import (
    descend,
    inner,
    lower_bound,
    mean_field_update,
    project_simplex,
)
from densecrf.problem.projections import compressed

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt
    from torch import Tensor

    from densecrf.backend import Gradient
    from densecrf.operators.levels import Doubles
    from densecrf.validation import FloatArray

__all__ = ["TorchSteps"]


class TorchSteps:
    """Passes over pixels; see `densecrf.backend.Steps`. The allocator keeps what is let go.

    Parameters
    ----------
    like : Tensor
        Of the problem's floating dtype and device.
    """

    restricts_labels = True

    def __init__(self, like: Tensor) -> None:
        self._dtype, self._device = like.dtype, like.device

    @property
    def xp(self) -> ModuleType:
        return torch

    def of_pixels(self, n: int) -> TorchSteps:
        return self

    # --- linear programs ----------------------------------------------------------------------

    def extents(self, nodes: Tensor, offsets: Tensor | None) -> FloatArray:
        nodes = nodes.detach()
        u = nodes if offsets is None else nodes + offsets
        found: FloatArray = torch.stack(torch.aminmax(u, dim=1), 1).cpu().numpy()
        return found

    def descend(
        self, at: Gradient[Tensor], *, in_place: bool
    ) -> tuple[Tensor, float, float, float]:
        y, sums = descend(at.v, at.phi, at.r, at.previous, at.step, at.lipschitz)
        least, value, uphill = sums[0].tolist()
        return y, least, value, uphill

    def compress(
        self, nodes: Tensor, offsets: Tensor | None, span: float, edge: float, *, in_place: bool
    ) -> Tensor:
        u = nodes if offsets is None else offsets + nodes
        u = u - torch.amin(u, 1)[:, None]
        potentials: Tensor = compressed(torch, u, torch.amax(u, 1)[:, None], span, edge)
        return potentials

    def add_extrapolated(self, u: Tensor, y: Tensor, previous: Tensor) -> None:
        self.accumulate(u, self.extrapolate(y, previous, 1.0))

    def extrapolate(self, y: Tensor, previous: Tensor, share: float) -> Tensor:
        return torch.lerp(previous, y, 1 + share)

    def project(self, z: Tensor) -> Tensor:
        if torch.is_grad_enabled() and z.requires_grad:
            return projected(z)
        return project_simplex(z)

    def projected_step(self, phi: Tensor, centre: Tensor, r: Tensor, step: float) -> Tensor:
        return self.project(centre - step * (phi + r))

    def lower_bound(self, phi: Tensor, r: Tensor) -> float:
        return float(lower_bound(phi, r))

    def least_costs(self, phi: Tensor, r: Tensor) -> tuple[Tensor, float]:
        least = torch.amin(phi + r, 0)
        return least, float(least.sum(dtype=torch.float64))

    def shortfalls(self, rows: Tensor, least: Tensor) -> Doubles:
        return self.to_numpy(torch.clamp(least - rows, min=0).sum(1, dtype=torch.float64))

    def price_step(
        self, costs: Tensor, least: Tensor, step: Tensor, twice: float, y: Tensor, z: Tensor
    ) -> None:
        after = torch.clamp(y - step * (costs - least), 0, 1)
        z += twice * after - y
        y.copy_(after)

    def least_others(self, rows: Tensor, labels: Tensor) -> Tensor:
        index = labels.clamp(0, len(rows) - 1).unsqueeze(0)
        own = rows.gather(0, index)
        rows.scatter_(0, index, torch.where(index == labels, torch.inf, own))
        least = torch.amin(rows, 0)
        rows.scatter_(0, index, own)
        return least

    # --- quadratic relaxations and mean field -------------------------------------------------

    def messages(self, filtered: Tensor, y: Tensor, own: Tensor, costs: Tensor | None) -> Tensor:
        others = torch.addcmul(filtered, own, y, value=-1)
        return others.sum(0) - others if costs is None else costs @ others

    def softmax(self, energies: Tensor) -> Tensor:
        return torch.softmax(-energies, 0)

    def response_logits(
        self, phi: Tensor, filtered: Tensor, y: Tensor, own: Tensor, costs: Tensor | None
    ) -> Tensor:
        if costs is None:
            return torch.addcmul(filtered - phi, own, y, value=-1)
        return -phi - self.messages(filtered, y, own, costs)

    def mean_field_update(
        self, phi: Tensor, filtered: Tensor, y: Tensor, own: Tensor | None
    ) -> Tensor:
        if own is None:
            own = torch.zeros_like(phi[0])
        if torch.is_grad_enabled():
            return updated(phi, filtered, y, own)
        return mean_field_update(phi, filtered, y, own)

    def lmo(
        self, linear: Tensor, received: Tensor, diagonal: Tensor, y: Tensor
    ) -> tuple[Tensor, float, float]:
        product = received + diagonal * y
        gradient = linear + product
        least = torch.amin(gradient, 0).sum(dtype=torch.float64)
        gap = self.inner(gradient, y) - float(least)
        objective = self.inner(linear, y) + 0.5 * self.inner(product, y)
        return gradient.argmin(0), gap, objective

    def step_to_vertex(self, labels: Tensor, y: Tensor, step: float) -> Tensor:
        return y + step * (self.indicator(labels, len(y)) - y)

    # --- labellings -----------------------------------------------------------------------------

    def argmax(self, y: Tensor) -> Tensor:
        return y.argmax(0)

    def raised_argmax(self, y: Tensor, label: int, bias: float) -> Tensor:
        row = y[label].clone()
        y[label] += bias
        labels = y.argmax(0)
        y[label] = row
        return labels

    def indicator(self, labels: Tensor, count: int) -> Tensor:
        names = torch.arange(count, device=self._device)[:, None]
        return self.floats(names == labels)

    def constant(self, label: int, n: int) -> Tensor:
        return torch.full((n,), label, dtype=torch.int64, device=self._device)

    def moves(self, phi: Tensor, received: Tensor, labels: Tensor) -> Moves[Tensor]:
        costs = phi + received
        index = labels.unsqueeze(0)
        least, best = costs.min(0)
        gain = costs.gather(0, index)[0] - least
        best = torch.where(gain > 0, best, labels)
        energy = (phi + 0.5 * received).gather(0, index).sum(dtype=torch.float64)
        return Moves(best, gain, int((gain > 0).sum()), float(energy))

    def apply_moves(self, labels: Tensor, moves: Moves[Tensor], most: int) -> Tensor:
        movers = torch.argsort(moves.gain, descending=True, stable=True)[:most]
        out = labels.clone()
        out[movers] = moves.labels[movers]
        return out

    def same(self, labels: Tensor, others: Tensor) -> bool:
        return bool((labels == others).all())

    def compare(self, y: Tensor, labels: Tensor, others: Tensor | None) -> tuple[Doubles, bool]:
        undecided = self.to_numpy((y * (1 - y)).sum(1))
        return undecided, others is not None and self.same(labels, others)

    # --- sums -----------------------------------------------------------------------------------

    def inner(self, u: Tensor, v: Tensor) -> float:
        return float(inner(u, v))

    def difference(self, u: Tensor, v: Tensor) -> tuple[float, float]:
        distance = abs(u - v)
        return float(distance.sum()), float(distance.max())

    def sum_at(self, u: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
        own = self.at(u, labels)
        return float((own if weights is None else weights * own).sum())

    def at(self, u: Tensor, labels: Tensor) -> Tensor:
        return u[labels, torch.arange(len(labels), device=labels.device)].double()

    def accumulate(self, total: Tensor, y: Tensor) -> None:
        total += y

    # --- arrays ---------------------------------------------------------------------------------

    def floats(self, array: Tensor) -> Tensor:
        return array.to(self._dtype)

    def double(self, array: Tensor) -> Tensor:
        return array.double()

    def contiguous(self, array: Tensor) -> Tensor:
        return array.contiguous()

    def copy(self, array: Tensor) -> Tensor:
        return array.clone()

    def zeros_like(self, array: Tensor, rows: int, n: int) -> Tensor:
        return torch.zeros(rows, n, dtype=array.dtype, device=array.device)

    def to_numpy(self, array: Tensor) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = array.detach().cpu().numpy()
        return found

    def from_numpy(self, array: npt.NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def double_from_numpy(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.float64)).to(self._device)
