"""Energies and moves of labellings on tensors, by filtering the labels that occur in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from densecrf.problem_base import Moves, ProblemBase
from densecrf.torch.item_steps import energies, undecided
from densecrf.torch.pixelwise import icm_moves
from densecrf.torch.spans import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from densecrf.torch.pairwise import Pairwise
    from densecrf.torch.triton.plans import Plans

__all__ = ["LabellingSteps"]


class LabellingSteps(ProblemBase):
    """What a `densecrf.torch.problem.TorchProblem` does with labellings (n,)."""

    pairwise: Pairwise
    _indices: dict[tuple[int, ...], Tensor]
    _plans: Plans
    #: The labels that occurred last, and for each label itself, or -1 where it did not.
    _occurring: Any
    #: The labelling that was estimated to be the best, and the moves from it.
    _estimated: Any

    @property
    def _triton(self) -> bool:
        return self.pairwise.merged is not None and self.pairwise.merged.triton

    def energy(self, labels: Tensor) -> float:
        """Return the energy of a labelling (n,), in double precision."""
        if not (self.potts and self._triton):
            return super().energy(labels)
        self.calls.plain += 1
        energy: float = self._of_occurring(self._potts_energy, labels)
        return energy

    def _potts_energy(self, labels: Tensor) -> float | None:
        """Return the energy in the Potts model; None if some label was not filtered."""
        names, row = self._occurring
        received = self.pairwise.presence_double(labels, names)
        given = (self.unary, received, self.mass_double, row, labels)
        unary, pairs, missing = energies(*given, whole(self.n, labels.device))[0].tolist()
        return None if missing else unary + 0.5 * pairs

    def estimate(self, labels: Tensor) -> float:
        """Return the energy in single precision, by one filter call of all kernels."""
        return self.icm_moves(labels).energy

    def estimates(self, labellings: Sequence[Tensor]) -> list[float]:
        """Return the labellings' estimates, which wait for the device once.

        The moves from the best of them are kept for the next call of `icm_moves`.
        """
        if self._occurring is None or not (self.potts and self._triton):
            return super().estimates(labellings)
        self.calls.plain += len(labellings)
        launched = [self._launch_moves(labels) for labels in labellings]
        lines = torch.stack([sums for _, _, sums in launched]).tolist()
        found = [
            _moves(best, gain, line) for (best, gain, _), line in zip(launched, lines, strict=True)
        ]
        moves = [
            self.icm_moves(labels) if own is None else own
            for labels, own in zip(labellings, found, strict=True)
        ]
        least = min(range(len(moves)), key=lambda place: moves[place].energy)
        self._estimated = labellings[least], moves[least]
        return [each.energy for each in moves]

    def icm_moves(self, labels: Tensor) -> Moves:
        """Return the ICM move of every pixel, with one filter call.

        See `densecrf.problem.Problem.icm_moves`.
        """
        if self._estimated is not None and self._estimated[0] is labels:
            kept: Moves = self._estimated[1]
            self._estimated = None
            return kept
        self.calls.plain += 1
        if self.compatibility is not None:
            return self._any_moves(labels)
        answer: Moves = self._of_occurring(self._potts_moves, labels)
        return answer

    def _of_occurring(self, step: Callable[[Tensor], Any], labels: Tensor) -> Any:
        """Return what `step` finds by filtering only the labels that occur.

        They rarely change: those of the last time are taken on trust, which the kernels check,
        since looking first would wait for the device.
        """
        answer = None if self._occurring is None else step(labels)
        if answer is None:
            self._occurring = self._find_occurring(labels)
            answer = step(labels)
        assert answer is not None
        return answer

    def _potts_moves(self, labels: Tensor) -> Moves | None:
        """Return the moves in the Potts model; None if some label was not filtered."""
        best, gain, sums = self._launch_moves(labels)
        return _moves(best, gain, sums.tolist())

    def _launch_moves(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moves' labels, gains and sums (5,), which are still on the device."""
        names, row = self._occurring
        received = self._presence(labels, names)
        best, gain, sums = icm_moves(
            self.unary, received, self.diagonal, row, labels, plans=self._plans
        )
        return best, gain, sums[0].clone()  # a plan writes to the same sums again

    def _presence(self, labels: Tensor, names: list[int]) -> Tensor:
        """Filter the indicators of the labels named; the other labels' planes are meaningless."""
        out = torch.empty_like(self.unary)
        if self.pairwise.repeated is not None:
            from densecrf.torch.triton.units import Wanted

            return self.pairwise.repeated.presence(labels, [Wanted(0, names)], out)
        own = (labels == self._index(names).unsqueeze(1)).to(self.unary.dtype)
        out[names] = self.pairwise.apply(own)
        return out

    def _find_occurring(self, labels: Tensor) -> tuple[list[int], Tensor]:
        """Return the labels that occur, and for each label itself, or -1 where it does not."""
        counts = torch.bincount(labels, minlength=self.n_labels).tolist()
        names = [label for label in range(self.n_labels) if counts[label] > 0]
        row = [label if counts[label] > 0 else -1 for label in range(self.n_labels)]
        return names, torch.tensor([row], dtype=torch.int32, device=labels.device)

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


def _moves(best: Tensor, gain: Tensor, sums: Sequence[float]) -> Moves | None:
    """Return the moves of some sums; None if some label was not filtered."""
    unary, agreeing, mass, movers, missing = sums
    if missing:
        return None
    return Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))
