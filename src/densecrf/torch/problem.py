r"""The problem on torch tensors: what `densecrf.problem.Problem` is on NumPy arrays.

The solvers are the same text for both. Tensors are label-major, (labels, n). Where unaries, weights
or features need gradients, the operations that mean field and the last step of the linear programs
are made of (`apply`, `messages`, `softmax`, `project`, `dual_point`) pass them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.problem_base import Calls, Moves
from densecrf.torch.autograd import projected, updated
from densecrf.torch.item_steps import compress, extents, raised_argmax
from densecrf.torch.labellings import LabellingSteps
from densecrf.torch.pixelwise import (
    descend,
    inner,
    lower_bound,
    mean_field_update,
    project_simplex,
)
from densecrf.torch.spans import Spans, whole
from densecrf.torch.triton.plans import Plans
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.compatibility import LabelTree
    from densecrf.filters.base import Levels
    from densecrf.model import DenseCRF
    from densecrf.torch.pairwise import Pairwise

__all__ = ["TorchProblem"]

WIDENED, AT_ONCE = 32, 1 << 26  # labels, and numbers, that are in double precision at once


class TorchProblem(LabellingSteps):
    """A model's energy and its relaxations, on the device of its tensors.

    Parameters
    ----------
    unary : Tensor
        (labels, n) energies, float32 or float64.
    pairwise : Pairwise
        The matrix K over the same pixels.
    compatibility : Tensor, optional
        (labels, labels) costs; Potts by default.
    tree : LabelTree, optional
        The tree whose metric `compatibility` is.
    crf : DenseCRF, optional
        The model on NumPy arrays that this one came from.

    Examples
    --------
    >>> from densecrf.torch.pairwise import Pairwise
    >>> unary = torch.tensor([[0.0, 0.6, 0.0], [1.0, 0.5, 1.0]])
    >>> features = torch.arange(3.0).reshape(3, 1)
    >>> problem = TorchProblem(unary, Pairwise([features], [1.0], unary))
    >>> round(problem.energy(torch.tensor([0, 0, 0])), 3)
    0.6
    """

    def __init__(
        self,
        unary: Tensor,
        pairwise: Pairwise,
        compatibility: Tensor | None = None,
        tree: LabelTree | None = None,
        crf: DenseCRF | None = None,
    ) -> None:
        self.unary, self.pairwise, self.compatibility, self.crf = (
            unary,
            pairwise,
            compatibility,
            crf,
        )
        self.n_labels, self.n = int(unary.shape[0]), int(unary.shape[1])
        self.labels_at_once = max(1, min(WIDENED, AT_ONCE // self.n))
        self.calls = Calls()
        self._plans = Plans()
        self._indices: dict[tuple[int, ...], Tensor] = {}
        self._occurring = None
        self._constant: tuple[Tensor, tuple[int, float]] | None = None
        self._where = {"device": unary.device}
        self._use_tree(tree)

    xp = torch

    @property
    def mass(self) -> Tensor:
        r"""Row sums :math:`\sum_b K_{ab}`."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> Tensor:
        """Self terms :math:`K_{aa}`."""
        return self.pairwise.diagonal

    # --- filters ----------------------------------------------------------------------------

    def apply(self, y: Tensor) -> Tensor:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""
        self.calls.plain += 1
        return self.pairwise.apply(y)

    def messages(self, y: Tensor) -> Tensor:
        """Return the messages; see `ProblemBase.messages`."""
        others = torch.addcmul(self.apply(y), self.diagonal, y, value=-1)
        messages: Tensor = self.costs(others)
        return messages

    def dual_point(
        self, y: Tensor, levels: int = 10, order: str = "soft", rescale: bool = True
    ) -> Tensor:
        """Return the dual point of `y`; gradients hold the order fixed."""
        if order not in ("soft", "hard"):
            raise ArgumentError("order", order, "must be 'soft' or 'hard' on tensors")
        r: Tensor = super().dual_point(y, levels, order, rescale)
        return r

    def _extents(self, nodes: Tensor, offsets: Tensor | None) -> Any:
        nodes = nodes.detach()
        if self._triton:
            given = None if offsets is None else offsets.contiguous()
            found = extents(nodes.contiguous(), given, whole(self.n, nodes.device))
            return found[0].cpu().numpy() * np.array([1, -1], np.float32)
        u = nodes if offsets is None else nodes + offsets
        return torch.stack(torch.aminmax(u, dim=1), 1).cpu().numpy()

    def _half_ordered(
        self,
        nodes: Tensor,
        offsets: Tensor | None,
        extents: Any,
        levels: Levels,
        order: str,  # noqa: ARG002 - the levels say whether it is soft or hard
    ) -> Tensor:
        if levels.scale == 0:
            return 0 * nodes
        # Most labels are zero everywhere after a while: without an order, r is zero.
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        if not varied and not torch.is_grad_enabled():
            return torch.zeros_like(nodes)
        everything = len(varied) == len(nodes) or torch.is_grad_enabled()
        return self._ordered_planes(nodes, levels, None if everything else varied, offsets)

    def _ordered_planes(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
    ) -> Tensor:
        return self.pairwise.ordered(nodes, levels, names, offsets)

    # --- double precision -------------------------------------------------------------------

    @property
    def mass_double(self) -> Tensor:
        """Row sums of the symmetrised K in double precision, (n,)."""
        return self.pairwise.mass_double

    @property
    def diagonal_double(self) -> Tensor:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double

    def apply_double(self, y: Tensor) -> Tensor:
        """Return Ky in double precision, for the symmetrised K."""
        return self.pairwise.apply_double(y.double())

    def _ordered_double(
        self, nodes: Tensor, offsets: Tensor | None, extents: Any, levels: Levels
    ) -> Tensor:
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        out = self.zeros_like(self.mass_double, len(nodes))
        for first in range(0, len(varied) if levels.scale else 0, self.labels_at_once):  # else 0
            rows = self._index(varied[first : first + self.labels_at_once])
            u = nodes[rows].double()
            if offsets is not None:
                u += offsets[rows]
            out[rows] = self.pairwise.ordered_double(u, levels)
        return out

    def pairs_double(self, labels: Tensor) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too, in double precision."""
        present = torch.bincount(labels, minlength=self.n_labels).nonzero()[:, 0]
        own = (present[:, None] == labels).double()
        if self.costs_double is None:
            mixed = 1 - own
        else:
            chosen = present.cpu().numpy()
            mixed = self.double_from_numpy(self.costs_double[np.ix_(chosen, chosen)]) @ own
        return float((own * self.pairwise.apply_double(mixed)).sum())

    # --- values -----------------------------------------------------------------------------

    def lower_bound(self, r: Tensor) -> float:
        r"""Return :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`, a bound on every energy."""
        return float(lower_bound(self.unary, r))

    def inner(self, u: Tensor, v: Tensor) -> float:
        """Return the inner product, summed in double."""
        return float(inner(u, v))

    def best_constant(self) -> tuple[int, float]:
        """Return the best constant labelling's label and energy, which are kept."""
        if self._constant is None or self._constant[0] is not self.unary:
            self._constant = self.unary, super().best_constant()
        return self._constant[1]

    # --- pixelwise --------------------------------------------------------------------------

    def project(self, z: Tensor) -> Tensor:
        """Return the nearest point in the product of simplices."""
        if torch.is_grad_enabled() and z.requires_grad:
            return projected(z)
        return project_simplex(z)

    def descend(
        self,
        v: Tensor,
        r: Tensor,
        step: Tensor,
        previous: Tensor,
        *,
        in_place: bool = False,  # noqa: ARG002 - the allocator keeps what is let go
    ) -> tuple[Tensor, float, float, float]:
        """Take a projected gradient step; see `densecrf.problem.Problem.descend`."""
        y, sums = descend(v, self.unary, r, previous, step, self.lipschitz, plans=self._plans)
        least, value, uphill = sums[0].tolist()
        return y, least, value, uphill

    def unary_marginals(self) -> Tensor:
        """Return softmax(-unary), the marginals without pairwise terms."""
        return torch.softmax(-self.unary, 0)

    def response(self, y: Tensor, *, self_term: bool = False) -> Tensor:
        """Return mean field's update of `y`; see `densecrf.problem.Problem.response`."""
        if self.compatibility is None:
            # The softmax does not see what all labels receive alike.
            own = torch.zeros_like(self.diagonal) if self_term else self.diagonal
            if torch.is_grad_enabled():
                return updated(self.unary, self.apply(y), y, own)
            return mean_field_update(self.unary, self.apply(y), y, own, plans=self._plans)
        messages = self.costs(self.apply(y)) if self_term else self.messages(y)
        return torch.softmax(-self.unary - messages, 0)

    def log_response(self, y: Tensor) -> Tensor:
        """Return the logarithms of mean field's update, also of what rounds to zero."""
        if self.compatibility is None:
            received = self.apply(y) - self.unary
            return torch.log_softmax(torch.addcmul(received, self.diagonal, y, value=-1), 0)
        return torch.log_softmax(-self.unary - self.messages(y), 0)

    def extrapolate(self, y: Tensor, previous: Tensor, share: float) -> Tensor:
        """Return `y` + `share` · (`y` - `previous`)."""
        return torch.lerp(previous, y, 1 + share)

    def raised_argmax(self, y: Tensor, label: int, bias: float) -> Tensor:
        """Return the largest label of each pixel after the values of one label were raised."""
        if not self._triton:
            labels: Tensor = super().raised_argmax(y, label, bias)
            return labels
        if self._occurring is not None:
            self._expect([label])
        return raised_argmax(y.contiguous(), Spans.of([(0, self.n)], y.device, [(label, bias)]))

    def update_multipliers(
        self,
        z: Any,
        y: Any,
        span: float,
        edge: float,
        *,
        in_place: bool = False,  # noqa: ARG002
    ) -> Tensor:
        """Return the potentials z + `y`, compressed; see `ProblemBase.update_multipliers`."""
        if not self._triton:
            potentials: Tensor = super().update_multipliers(z, y, span, edge)
            return potentials
        spans = Spans.of([(0, self.n)], self.unary.device, [(span, edge)])
        nodes, z = (z, None) if y is None else (self.nodes(y), z)
        return compress(nodes.contiguous(), z, spans)

    def apply_moves(self, labels: Tensor, moves: Moves, most: int) -> Tensor:
        """Return `labels` after the `most` moves that gain most."""
        movers = torch.argsort(moves.gain, descending=True, stable=True)[:most]
        out = labels.clone()
        out[movers] = moves.labels[movers]
        return out

    def floats(self, array: Tensor) -> Tensor:
        """Return a tensor of the problem's floating dtype."""
        return array.to(self.unary.dtype)

    def double(self, array: Tensor) -> Tensor:
        """Return a tensor in double precision."""
        return array.double()

    def contiguous(self, array: Tensor) -> Tensor:
        """Return the tensor, row after row in memory."""
        return array.contiguous()

    def copy(self, array: Tensor) -> Tensor:
        """Return a copy."""
        return array.clone()

    def zeros_like(self, array: Tensor, rows: int) -> Tensor:
        """Return zeros of the tensor's dtype, (rows, n)."""
        return torch.zeros(rows, self.n, dtype=array.dtype, device=array.device)

    def double_from_numpy(self, array: Any) -> Tensor:
        """Return NumPy's array as a tensor of the problem's device, in double precision."""
        return torch.from_numpy(np.ascontiguousarray(array, np.float64)).to(self.unary.device)

    def to_numpy(self, array: Tensor) -> Any:
        """Return the tensor as NumPy's array."""
        return array.detach().cpu().numpy()

    def from_numpy(self, array: Any) -> Tensor:
        """Return NumPy's array as a tensor of the problem's."""
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self.unary.device)
        return tensor.to(self.unary.dtype) if tensor.is_floating_point() else tensor
