"""Energies and moves of labellings on tensors, by filtering the labels that occur in them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from densecrf.cached import cached_property
from densecrf.certificates import gamma
from densecrf.problem_base import Moves, ProblemBase
from densecrf.torch.item_steps import own_unaries, undecided
from densecrf.torch.pixelwise import icm_moves
from densecrf.torch.spans import Spans, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from densecrf.torch.pairwise import Pairwise
    from densecrf.torch.triton.plans import Plans
    from densecrf.torch.triton.repeated_filter import Overlaps

__all__ = ["LabellingSteps"]


class LabellingSteps(ProblemBase):
    """What a `densecrf.torch.problem.TorchProblem` does with labellings (n,)."""

    pairwise: Pairwise
    _indices: dict[tuple[int, ...], Tensor]
    _plans: Plans
    #: The labels that have occurred, and for each label itself, or -1 where it has not.
    _occurring: Any
    #: The labelling whose moves were found last, and these.
    _last_moves: tuple[Tensor, Moves] | None = None

    @property
    def _triton(self) -> bool:
        return self.pairwise.merged is not None and self.pairwise.merged.triton

    def energy(self, labels: Tensor) -> float:
        """Return the energy of a labelling (n,), in double precision."""
        if not (self.potts and self._triton):
            return super().energy(labels)
        self.calls.plain += 1
        return self._potts_energies(labels.unsqueeze(0), double=True)[0]

    def estimate(self, labels: Tensor) -> float:
        """Return the energy in single precision, by one filter call of all kernels."""
        return self.estimates([labels])[0]

    def estimates(self, labellings: Sequence[Tensor]) -> list[float]:
        """Return the labellings' energies in single precision, all by one filter call."""
        if not (self.potts and self._triton):
            return [self.icm_moves(labels).energy for labels in labellings]
        self.calls.plain += len(labellings)
        return self._potts_energies(torch.stack(list(labellings)), double=False)

    def _potts_energies(self, labels: Tensor, *, double: bool) -> list[float]:
        """Return the energies of labellings (planes, n) in the Potts model."""
        energies: list[float] = self._of_occurring(partial(self._weigh, double=double), labels)
        return energies

    def _weigh(self, labels: Tensor, *, double: bool) -> list[float] | None:
        """Return `_potts_energies`; None if some label was not filtered."""
        names, row = self._occurring
        count = len(labels)
        planes = [(float(plane), 0.0) for plane in range(count)]
        spans = Spans.of([(0, self.n)] * count, labels.device, planes)
        rows = row if count == 1 else row.expand(count, -1).contiguous()
        own = own_unaries(self.unary, rows, labels, spans)
        overlaps = self.pairwise.overlaps(labels, names, double=double)
        found = potts_energies(own, overlaps, [self._pairs_in_all] * count)
        return None if None in found else found

    @cached_property
    def _pairs_in_all(self) -> float:
        """The sum of all of K, in double precision."""
        return float(self.mass_double.sum())

    @cached_property
    def total_mass_double(self) -> float:
        """No less than the sum of all of K."""
        return self._pairs_in_all * (1 + gamma(self.n))

    def icm_moves(self, labels: Tensor) -> Moves:
        """Return the ICM move of every pixel, with one filter call.

        See `densecrf.problem.Problem.icm_moves`.
        """
        if self._last_moves is not None and self._last_moves[0] is labels:
            return self._last_moves[1]  # a descent that goes on
        self.calls.plain += 1
        if self.compatibility is not None:
            return self._any_moves(labels)
        answer: Moves = self._of_occurring(self._potts_moves, labels)
        self._last_moves = labels, answer
        return answer

    def _of_occurring(self, step: Callable[[Tensor], Any], labels: Tensor) -> Any:
        """Return what `step` finds by filtering only the labels that occur.

        Those that did before are taken on trust, which the kernels check, since looking first would
        wait for the device.
        """
        answer = None if self._occurring is None else step(labels)
        if answer is None:
            there = occurring(labels.reshape(-1), self.n_labels).tolist()
            self._expect(label for label, occurs in enumerate(there) if occurs)
            answer = step(labels)
        assert answer is not None
        return answer

    def _potts_moves(self, labels: Tensor) -> Moves | None:
        """Return the moves in the Potts model; None if some label was not filtered."""
        names, row = self._occurring
        received = self._presence(labels, names)
        best, gain, sums = icm_moves(
            self.unary, received, self.diagonal, row, labels, plans=self._plans
        )
        unary, agreeing, mass, movers, missing = sums[0].tolist()
        if missing:
            return None
        return Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))

    def _presence(self, labels: Tensor, names: list[int]) -> Tensor:
        """Filter the indicators of the labels named; the other labels' planes are meaningless."""
        out = torch.empty_like(self.unary)
        if self.pairwise.repeated is not None:
            from densecrf.torch.triton.units import Wanted

            return self.pairwise.repeated.presence(labels, [Wanted(0, names)], out)
        own = (labels == self._index(names).unsqueeze(1)).to(self.unary.dtype)
        out[names] = self.pairwise.apply(own)
        return out

    def _expect(self, labels: Iterable[int]) -> None:
        """Let labels be among those that occur."""
        known = set() if self._occurring is None else {*self._occurring[0]}
        names = sorted(known.union(labels))
        if len(names) > len(known):
            row = [label if label in names else -1 for label in range(self.n_labels)]
            there = torch.tensor([row], dtype=torch.int32, device=self.unary.device)
            self._occurring = names, there

    def _index(self, rows: list[int]) -> Tensor:
        """Return a list of rows as a tensor, kept: sending it to the device takes time."""
        key = tuple(rows)
        if key not in self._indices:
            self._indices[key] = torch.tensor(rows, dtype=torch.int64, device=self.unary.device)
        return self._indices[key]

    def _any_moves(self, labels: Tensor) -> Moves:
        """Return the moves under any compatibility."""
        self.calls.plain -= 1  # counted below
        received = self.messages(self.indicator(labels))
        costs = self.unary + received
        index = labels.unsqueeze(0)
        least, best = costs.min(0)
        gain = costs.gather(0, index)[0] - least
        best = torch.where(gain > 0, best, labels)
        energy = (self.unary + 0.5 * received).gather(0, index).sum(dtype=torch.float64)
        return Moves(best, gain, int((gain > 0).sum()), float(energy))

    def compare(self, y: Tensor, labels: Tensor, others: Tensor | None) -> tuple[Any, bool]:
        """Return `undecided` and `same`, which wait for the device once."""
        if others is None or not self._triton:
            return super().compare(y, labels, others)
        sums = undecided(y.contiguous(), whole(self.n, y.device))[0]
        differ = (labels != others).any().to(sums.dtype)
        found = torch.cat([sums, differ.view(1)]).cpu().numpy()
        return found[:-1], not found[-1]

    def undecided(self, y: Tensor) -> Any:
        """Return the sum of y (1 - y) of each label, (labels,), NumPy's."""
        if not self._triton:
            return super().undecided(y)
        return undecided(y.contiguous(), whole(self.n, y.device))[0].cpu().numpy()


def occurring(labels: Tensor, count: int) -> Tensor:
    """Return which of `count` labels occur, (count,) bool; the device is not waited for.

    Examples
    --------
    >>> occurring(torch.tensor([2, 0, 2]), 4).tolist()
    [True, False, True, False]
    """
    out = torch.zeros(count, dtype=torch.bool, device=labels.device)
    return out.scatter_(0, labels, True)


def potts_energies(own: Tensor, overlaps: Overlaps, pairs: Sequence[float]) -> list[Any]:
    """Return energies, None where some label had no row; waits for the device once.

    Parameters
    ----------
    own : Tensor
        Of `densecrf.torch.item_steps.own_unaries`.
    overlaps : Overlaps
        Masses of agreeing pairs.
    pairs : sequence of float
        The sum of K of each.
    """
    flat = torch.cat([own.view(-1), *overlaps.sums]).tolist()
    count = len(own)
    agreeing = [0.0] * count
    for place, factor, mass in zip(
        overlaps.owners, overlaps.factors, flat[2 * count :], strict=True
    ):
        agreeing[place] += factor * mass
    unary, missing = flat[: 2 * count : 2], flat[1 : 2 * count : 2]
    return [
        None if lost else own + 0.5 * (mass - same)
        for own, lost, mass, same in zip(unary, missing, pairs, agreeing, strict=True)
    ]
