r"""The problem on torch tensors: what `densecrf.problem.Problem` is on NumPy arrays.

The solvers are the same text for both. Tensors are label-major, (labels, n). Where unaries, weights
or features want gradients, the operations that mean field and the last step of the linear programs
are made of (`apply`, `messages`, `softmax`, `project`, `dual_point`) pass them on.
"""

from __future__ import annotations

from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.cached import cached_property
from densecrf.problem import Calls, Moves
from densecrf.torch.autograd import projected
from densecrf.torch.lattice import Levels
from densecrf.torch.pixelwise import (
    descend,
    icm_moves,
    inner,
    lower_bound,
    mean_field_update,
    project_simplex,
)
from densecrf.torch.quadratic import QuadraticSteps
from densecrf.torch.triton.plans import Plans

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.compatibility import LabelTree
    from densecrf.model import DenseCRF
    from densecrf.torch.pairwise import Pairwise

__all__ = ["TorchProblem"]

_RAMPS = 4  # Triton's kernels are compiled for multiples of this many ramps
_LARGEST = float(np.finfo(np.float32).max)


class TorchProblem(QuadraticSteps):
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
        self.calls = Calls()
        self._plans = Plans()
        self._indices: dict[tuple[int, ...], Tensor] = {}
        self._occurring: tuple[Tensor, Tensor] | None = None
        self._members: Tensor | None = None
        self._lengths: Tensor | None = None
        if tree is not None:
            used = tree.lengths > 0
            self._members = self.from_numpy(tree.members[used])
            self._lengths = self.from_numpy(tree.lengths[used])

    filters_built = True

    @property
    def mass(self) -> Tensor:
        r"""Row sums :math:`\sum_b K_{ab}`."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> Tensor:
        """Self terms :math:`K_{aa}`."""
        return self.pairwise.diagonal

    @property
    def potts(self) -> bool:
        """Whether every two different labels cost 1."""
        return self.compatibility is None

    @property
    def tree(self) -> bool:
        """Whether the costs of pairs of labels are a tree metric (or Potts)."""
        return self.potts or self._members is not None

    # --- filtering --------------------------------------------------------------------------

    def apply(self, y: Tensor) -> Tensor:
        r"""Return :math:`(Ky)_{ai} = \sum_b K_{ab} y_{bi}`."""
        self.calls.plain += 1
        return self.pairwise.apply(y)

    def costs(self, y: Tensor) -> Tensor:
        r"""Return :math:`\sum_j \mu_{ij} y_{aj}`: the expected cost of each label beside `y`."""
        return y.sum(0) - y if self.compatibility is None else self.compatibility @ y

    def messages(self, y: Tensor) -> Tensor:
        r"""Return :math:`\sum_{b \ne a} K_{ab} \sum_j \mu_{ij} y_{bj}`, the messages."""
        self.calls.plain += 1
        return self.costs(self._from_others(y))

    def _from_others(self, y: Tensor) -> Tensor:
        r"""Return :math:`\sum_{b \ne a} K_{ab} y_{bi}`."""
        return torch.addcmul(self.pairwise.apply(y), self.diagonal, y, value=-1)

    @property
    def _triton(self) -> bool:
        return self.pairwise.merged is not None and self.pairwise.merged.triton

    def dual_point(
        self, y: Tensor, levels: int = 10, order: str = "soft", rescale: bool = True
    ) -> Tensor:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(y_{ai}, y_{bi})`.

        See `densecrf.problem.Problem.dual_point`. Gradients hold the order fixed.
        """
        if order not in ("soft", "hard"):
            raise ValueError(f"order={order!r}: on tensors, use 'soft' or 'hard'")
        nodes = self.nodes(y)
        low, high = _extent(nodes) if rescale else (0.0, 1.0)
        if (high - low) * _LARGEST <= levels - 1:
            return self.leaves(0 * nodes)  # a range below what float32 can divide by is no order
        ramps = levels - 1
        return self._ordered(nodes, Levels(ramps, low, ramps / (high - low), order == "soft"))

    def flow(self, y: Tensor, z: Tensor | None, cells: float) -> Tensor:
        r"""Return :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})` with u = y + z.

        See `densecrf.problem.Problem.flow`.
        """
        u = self.nodes(y) if z is None else self.nodes(y) + z
        torch.aminmax(u.detach(), dim=1, out=tuple(self._ends))
        least, most = self._ends.tolist()
        low, high = min(least), max(most)
        ramps = max(1, ceil((high - low) * cells - 1e-3))
        if self._triton:
            ramps = -(-ramps // _RAMPS) * _RAMPS  # ramps above the highest potential stay empty
        # Most labels are zero everywhere after a while: without an order, r is zero.
        varied = [row for row in range(len(u)) if least[row] < most[row]]
        if self._triton:
            varied = _rounded_up(varied, len(u))
        levels = Levels(ramps, low, cells, True)
        if len(varied) == len(u):
            return self._ordered(u, levels)
        self.calls.ordered += 1
        if not varied:
            return self.leaves(torch.zeros_like(u))
        return self.leaves(self.pairwise.ordered(u, levels, self._index(varied)))

    @cached_property
    def _ends(self) -> Tensor:
        """Room for the least and the greatest potential of each node."""
        nodes = self.n_labels if self._members is None else len(self._members)
        return torch.empty(2, nodes, dtype=self.unary.dtype, device=self.unary.device)

    def _ordered(self, nodes: Tensor, levels: Levels) -> Tensor:
        self.calls.ordered += 1
        if levels.soft and self.potts and self.n_labels == 2 == len(nodes):
            r = self.pairwise.ordered(nodes[:1], levels)  # of two labels, one mirrors the other
            return torch.cat([r, -r])
        return self.leaves(self.pairwise.ordered(nodes, levels))

    def nodes(self, y: Tensor) -> Tensor:
        """Return the scores that the LP orders: the labels', or their sums below tree nodes."""
        return y if self._members is None else self._members @ y

    def leaves(self, r: Tensor) -> Tensor:
        """Return what dual points of the nodes mean for the labels."""
        if self._members is None or self._lengths is None:
            return r
        return self._members.T @ (self._lengths.unsqueeze(1) * r)

    # --- values -----------------------------------------------------------------------------

    def energy(self, labels: Tensor) -> float:
        """Return the energy of a labelling (n,)."""
        return self.icm_moves(labels).energy

    def icm_moves(self, labels: Tensor) -> Moves:
        """Return the ICM move of every pixel, with one filter call.

        See `densecrf.problem.Problem.icm_moves`.
        """
        self.calls.plain += 1
        if self.compatibility is not None:
            return self._any_moves(labels)
        # Only labels that occur are filtered. They rarely change: those of the last time are taken
        # on trust, which the kernel checks, since looking first would wait for the device.
        answer = None if self._occurring is None else self._potts_moves(labels)
        if answer is None:
            self._occurring = self._find_occurring(labels)
            answer = self._potts_moves(labels)
        assert answer is not None
        return answer

    def _potts_moves(self, labels: Tensor) -> Moves | None:
        """Return the moves in the Potts model; None if some label was not filtered."""
        assert self._occurring is not None
        names, row = self._occurring
        received = self._presence(labels, names)
        best, gain, sums = icm_moves(
            self.unary, received, self.diagonal, row, labels, plans=self._plans
        )
        unary, agreeing, mass, movers, missing = sums.tolist()
        if missing:
            return None
        return Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))

    def _presence(self, labels: Tensor, names: Tensor) -> Tensor:
        """Filter the indicators of the labels named."""
        if self.pairwise.repeated is not None:
            return self.pairwise.repeated.presence(labels, names)
        return self.pairwise.apply((labels == names.unsqueeze(1)).to(self.unary.dtype))

    def _find_occurring(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels that occur, and some more, and each label's place among them."""
        counts = torch.bincount(labels, minlength=self.n_labels).tolist()
        names = [label for label in range(self.n_labels) if counts[label] > 0]
        if self._triton:
            names = _rounded_up(names, self.n_labels)
        row = [names.index(label) if label in names else -1 for label in range(self.n_labels)]
        return self._index(names), torch.tensor(row, dtype=torch.int32, device=labels.device)

    def _index(self, rows: list[int]) -> Tensor:
        """Return a list of rows as a tensor, kept: sending it to the device takes time."""
        key = tuple(rows)
        if key not in self._indices:
            self._indices[key] = torch.tensor(rows, dtype=torch.int64, device=self.unary.device)
        return self._indices[key]

    def _any_moves(self, labels: Tensor) -> Moves:
        """Return the moves under any compatibility."""
        received = self.costs(self._from_others(self.indicator(labels)))
        costs = self.unary + received
        index = labels.unsqueeze(0)
        least, best = costs.min(0)
        gain = costs.gather(0, index)[0] - least
        best = torch.where(gain > 0, best, labels)
        energy = (self.unary + 0.5 * received).gather(0, index).sum(dtype=torch.float64)
        return Moves(best, gain, int((gain > 0).sum()), float(energy))

    def lower_bound(self, r: Tensor) -> float:
        r"""Return :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`, a bound on every energy."""
        return float(lower_bound(self.unary, r)) - self.rounding_allowance

    @cached_property
    def rounding_allowance(self) -> float:
        """What a bound gives away for the filters' rounding: half an ulp of all pairwise mass."""
        return 0.5 * float(np.finfo(np.float32).eps) * self.total_mass

    lattice_terms = None  # certificates are in single precision

    @cached_property
    def total_mass(self) -> float:
        """The sum of all pairwise weights, both orders of a pair and the pixels' own."""
        return float(self.pairwise.total_mass)

    @cached_property
    def lipschitz(self) -> Tensor:
        """Lipschitz constants of the gradient of the LP's pairwise term, smoothed over one unit."""
        spectrum = 1.0
        if self._members is not None and self._lengths is not None:
            gram = self._members.T @ (self._lengths.unsqueeze(1) * self._members)
            spectrum = float(torch.linalg.eigvalsh(gram.double().cpu())[-1])
        mass = self.mass.detach()
        return 0.5 * spectrum * torch.maximum(mass, 1e-6 * mass.max()).clamp(min=1e-12)

    def inner(self, u: Tensor, v: Tensor) -> float:
        """Return the inner product, summed in double."""
        return float(inner(u, v))

    def update_multipliers(self, z: Tensor | None, y: Tensor, span: float, edge: float) -> Tensor:
        """Return the potentials z + `y`, compressed into `span`.

        See `densecrf.problem.Problem.update_multipliers`.
        """
        z = self.nodes(y) if z is None else z + self.nodes(y)
        z = z - z.amin(1, keepdim=True)
        top = z.amax(1, keepdim=True)
        slope = (span - 2 * edge) / (top - 2 * edge).clamp(min=1e-6)
        middle = edge + (z - edge) * slope
        folded = torch.where(z >= top - edge, z - (top - span), middle)
        return torch.where((top <= span) | (z <= edge), z, folded)

    def best_constant(self) -> tuple[int, float]:
        """Return the best constant labelling's label and energy."""
        energies = self.unary.sum(1, dtype=torch.float64)
        if self.compatibility is not None and not self.tree:
            pairs = 0.5 * (self.mass - self.diagonal).sum(dtype=torch.float64)
            energies = energies + self.compatibility.diagonal().double() * pairs
        least, label = energies.min(0)
        return int(label), float(least)

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
        least, value, uphill = sums.tolist()
        return y, least - self.rounding_allowance, value, uphill

    def unary_marginals(self) -> Tensor:
        """Return softmax(-unary), the marginals without pairwise terms."""
        return torch.softmax(-self.unary, 0)

    def response(self, y: Tensor, *, self_term: bool = False) -> Tensor:
        """Return mean field's update of `y`; see `densecrf.problem.Problem.response`."""
        if self.compatibility is None and not torch.is_grad_enabled():
            # The softmax does not see what all labels receive alike.
            own = torch.zeros_like(self.diagonal) if self_term else self.diagonal
            return mean_field_update(self.unary, self.apply(y), y, own, plans=self._plans)
        messages = self.costs(self.apply(y)) if self_term else self.messages(y)
        return torch.softmax(-self.unary - messages, 0)

    def extrapolate(self, y: Tensor, previous: Tensor, share: float) -> Tensor:
        """Return `y` + `share` · (`y` - `previous`)."""
        return torch.lerp(previous, y, 1 + share)

    def argmax(self, y: Tensor) -> Tensor:
        """Return the largest label of each pixel, (n,)."""
        return y.argmax(0)

    def indicator(self, labels: Tensor) -> Tensor:
        """Return the labelling as a vertex of the product of simplices."""
        names = torch.arange(self.n_labels, device=labels.device).unsqueeze(1)
        return (names == labels).to(self.unary.dtype)

    def apply_moves(self, labels: Tensor, moves: Moves, most: int) -> Tensor:
        """Return `labels` after the `most` moves that gain most."""
        movers = torch.argsort(moves.gain, descending=True, stable=True)[:most]
        out = labels.clone()
        out[movers] = moves.labels[movers]
        return out

    def constant(self, label: int) -> Tensor:
        """Return the labelling of one label everywhere."""
        return torch.full((self.n,), label, device=self.unary.device)

    def to_numpy(self, array: Tensor) -> Any:
        """Return the tensor as NumPy's array."""
        return array.detach().cpu().numpy()

    def from_numpy(self, array: Any) -> Tensor:
        """Return NumPy's array as a tensor of the problem's."""
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self.unary.device)
        return tensor.to(self.unary.dtype) if tensor.is_floating_point() else tensor


def _extent(values: Tensor) -> tuple[float, float]:
    """Return the least and the greatest value, waiting for the device once."""
    low, high = torch.stack(torch.aminmax(values.detach())).tolist()
    return low, high


def _rounded_up(chosen: list[int], of: int) -> list[int]:
    """Return `chosen` and some others below `of`: Triton's kernels are compiled for a few counts.

    Examples
    --------
    >>> _rounded_up([1, 4, 5], 9)
    [1, 4, 5, 0]
    """
    count = len(chosen)
    wanted = 1 << (count - 1).bit_length() if 0 < count <= 8 else -(-count // 8) * 8
    others = (i for i in range(of) if i not in chosen)
    return [*chosen, *islice(others, wanted - count)]
