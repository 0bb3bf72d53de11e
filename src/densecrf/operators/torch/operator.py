r"""The matrix K as an operator of problems on tensors; see `densecrf.backend.Operator`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from densecrf.backend import Moves
from densecrf.cached import cached_property
from densecrf.operators.levels import Levels, ordered_by_ramps
from densecrf.operators.torch.pixelwise import icm_moves
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from densecrf.backend import QuadraticStep
    from densecrf.operators.levels import Doubles
    from densecrf.operators.torch.pairwise import TensorPairwise
    from densecrf.validation import FloatArray, IntArray

__all__ = ["TorchOperator"]

WIDENED, AT_ONCE = 32, 1 << 26  # labels, and numbers, that are in double precision at once


class TorchOperator:
    """The matrix K by plain torch operations.

    Parameters
    ----------
    pairwise : TensorPairwise
        The weighted, normalised kernels.
    """

    built, exact_estimates = True, False

    def __init__(self, pairwise: TensorPairwise) -> None:
        self.pairwise = pairwise
        self.labels_at_once = max(1, min(WIDENED, AT_ONCE // pairwise.n))
        self._indices: dict[tuple[int, ...], Tensor] = {}

    @property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        return self.pairwise.diagonal

    @property
    def mass_double(self) -> Tensor:
        """Row sums in double precision, (n,)."""
        return self.pairwise.mass_double

    @property
    def diagonal_double(self) -> Tensor:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double

    @property
    def total_double(self) -> float:
        """The sum of all of K, summed in double precision."""
        return float(self.mass_double.sum())

    def apply(self, y: Tensor) -> Tensor:
        """Return K y."""
        return self.pairwise.apply(y)

    def ordered(self, nodes: Tensor, levels: Levels, order: str) -> Tensor:
        """Return the ordered sums of each row of potentials."""
        _check_order(order)
        return 2 * self.pairwise.ordered(nodes, levels)

    def half_ordered(
        self,
        nodes: Tensor,
        offsets: Tensor | None,
        extents: FloatArray,
        levels: Levels,
        order: str,
    ) -> Tensor:
        """Return half the ordered sums, balanced; gradients hold the order fixed."""
        _check_order(order)
        if levels.scale == 0:
            return 0 * nodes
        # Most labels are zero everywhere after a while: without an order, r is zero.
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        if not varied and not torch.is_grad_enabled():
            return torch.zeros_like(nodes)
        everything = len(varied) == len(nodes) or torch.is_grad_enabled()
        return self._half_ordered(nodes, levels, None if everything else varied, offsets)

    def _half_ordered(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
    ) -> Tensor:
        """Return half the ordered sums of the rows named, of all without names."""
        return self.pairwise.ordered(nodes, levels, names, offsets)

    def apply_double(self, y: Tensor) -> Tensor:
        """Return K y in double precision."""
        return self.pairwise.apply_double(y.double())

    def ordered_double(
        self, nodes: Tensor, offsets: Tensor | None, extents: FloatArray, levels: Levels
    ) -> Tensor:
        """Return the ordered sums in double precision."""
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        mass = self.mass_double
        out = torch.zeros(len(nodes), len(mass), dtype=mass.dtype, device=mass.device)
        for first in range(0, len(varied) if levels.scale else 0, self.labels_at_once):
            rows = self._index(varied[first : first + self.labels_at_once])
            u = nodes[rows].double()
            if offsets is not None:
                u += offsets[rows]
            out[rows] = self._ordered_double(u, levels)
        return out

    def _ordered_double(self, u: Tensor, levels: Levels) -> Tensor:
        return self.pairwise.ordered_double(u, levels, self.mass_double)

    def pairs_double(self, labels: Tensor, count: int, costs: Doubles | None) -> float:
        """Return the cost of all ordered pairs, a pixel with itself among them."""
        present = torch.bincount(labels, minlength=count).nonzero()[:, 0]
        own = (present[:, None] == labels).double()
        if costs is None:
            mixed = 1 - own
        else:
            chosen = present.cpu().numpy()
            among = np.ascontiguousarray(costs[np.ix_(chosen, chosen)])
            mixed = torch.from_numpy(among).to(labels.device) @ own
        return float((own * self.apply_double(mixed)).sum())

    def restricted(self, pixels: IntArray) -> TorchOperator:
        """Return the submatrix of some pixels."""
        return _Submatrix(self, pixels)

    def give_back_free_memory(self) -> None:
        """Do nothing: the allocator keeps released memory for the next tensors."""

    def potts_moves(self, phi: Tensor, labels: Tensor) -> Moves[Tensor]:
        """Return the ICM move of every pixel in the Potts model, by filtering what occurs."""
        there = torch.bincount(labels, minlength=len(phi)).tolist()
        names = [label for label, pixels in enumerate(there) if pixels]
        own = (labels == self._index(names).unsqueeze(1)).to(phi.dtype)
        received = torch.empty_like(phi)
        received[names] = self.apply(own)
        row = torch.full((1, len(phi)), -1, dtype=torch.int32)
        row[0, names] = torch.tensor(names, dtype=torch.int32)
        best, gain, sums = icm_moves(phi, received, self.diagonal, row.to(phi.device), labels)
        unary, agreeing, mass, movers, _ = sums[0].tolist()
        return Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))

    def potts_energies(
        self, phi: Tensor, labellings: Sequence[Tensor], *, double: bool
    ) -> list[float] | None:
        """Return None: energies are evaluated one by one."""
        del phi, labellings, double
        return None

    def potts_responses(
        self, phi: Tensor, y: Tensor, own: Tensor | None, count: int
    ) -> Iterator[Tensor] | None:
        """Return None: updates are composed of a filter call and a step."""
        del phi, y, own, count
        return None

    def potts_quadratic_step(
        self,
        phi: Tensor,
        y: Tensor,
        strength: Tensor,
        c: Tensor | None,
        before: Tensor | None,
        share: float,
    ) -> QuadraticStep[Tensor] | None:
        """Return None: the step is composed of a filter call and others."""
        del phi, y, strength, c, before, share
        return None

    def _index(self, rows: list[int]) -> Tensor:
        """Return a list of rows as a tensor, kept: sending it to the device takes time."""
        key = tuple(rows)
        if key not in self._indices:
            self._indices[key] = torch.tensor(rows, device=self.mass.device)
        return self._indices[key]


class _Submatrix(TorchOperator):
    """Some rows and columns of K, by filtering zeros at all other pixels."""

    def __init__(self, whole: TorchOperator, pixels: IntArray) -> None:
        super().__init__(whole.pairwise)
        self._pixels = pixels

    def _embedded(self, y: Tensor) -> Tensor:
        out = torch.zeros(len(y), self.pairwise.n, dtype=y.dtype, device=y.device)
        out[:, self._pixels] = y
        return out

    def _ones(self, dtype: torch.dtype) -> Tensor:
        like = self.pairwise.mass
        return torch.ones(1, len(self._pixels), dtype=dtype, device=like.device)

    @cached_property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        return self.apply(self._ones(self.pairwise.mass.dtype))[0]

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        return self.pairwise.diagonal[self._pixels]

    @cached_property
    def mass_double(self) -> Tensor:
        """Row sums in double precision, (n,)."""
        return self.apply_double(self._ones(torch.float64))[0]

    @property
    def diagonal_double(self) -> Tensor:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double[self._pixels]

    def apply(self, y: Tensor) -> Tensor:
        """Return K y."""
        return self.pairwise.apply(self._embedded(y))[:, self._pixels]

    def apply_double(self, y: Tensor) -> Tensor:
        """Return K y in double precision."""
        return self.pairwise.apply_double(self._embedded(y.double()))[:, self._pixels]

    def ordered(self, nodes: Tensor, levels: Levels, order: str) -> Tensor:
        """Return the ordered sums of each row of potentials."""
        u = levels.of(nodes, torch)
        whole = Levels(levels.count, 0.0, 1.0, levels.hard)
        out: Tensor = ordered_by_ramps(torch, self.apply, self.mass, u, whole)
        return out

    def _half_ordered(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
    ) -> Tensor:
        return 0.5 * self.ordered(nodes if offsets is None else nodes + offsets, levels, "")

    def _ordered_double(self, u: Tensor, levels: Levels) -> Tensor:
        out: Tensor = ordered_by_ramps(torch, self.apply_double, self.mass_double, u, levels)
        return out


def _check_order(order: str) -> None:
    if order not in ("soft", "hard"):
        raise ArgumentError("order", order, "must be 'soft' or 'hard' on tensors")
