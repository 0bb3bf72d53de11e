"""Energies and moves of the labellings of several items at once; see `densecrf.torch.joint`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.cached import cached_property
from densecrf.problem_base import Moves
from densecrf.torch.item_steps import own_unaries
from densecrf.torch.labellings import occurring, potts_energies
from densecrf.torch.lattice_batch import side_by_side
from densecrf.torch.pixelwise import icm_moves
from densecrf.torch.triton.double_filter import DoubleFilter
from densecrf.torch.triton.units import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from densecrf.torch.spans import Spans
    from densecrf.torch.triton.plans import Plans
    from densecrf.torch.triton.repeated_filter import RepeatedFilter

__all__ = ["JointLabellings"]


class JointLabellings:
    """What a `densecrf.torch.joint.Joint` does with labellings, in the Potts model."""

    items: list[Any]
    _unary: Tensor
    _filter: RepeatedFilter
    _plans: Plans
    _runs: list[tuple[int, int]]
    _spans_of: Callable[..., Spans]
    _joined: Callable[..., Any]
    _parts: Callable[..., list[Tensor]]
    #: The labels that have occurred in each run.
    _occurring: dict[int, list[int]]

    @cached_property
    def _diagonal(self) -> Tensor:
        return torch.cat([each.diagonal for each in self.items])

    @cached_property
    def _double(self) -> DoubleFilter:
        """K in double precision, over the lattices that are stored."""
        by_item = [each.pairwise.double_terms for each in self.items]
        terms = []
        for parts in zip(*by_item, strict=True):
            weights, g, lattices = zip(*parts, strict=True)
            terms.append((weights[0], torch.cat(g), side_by_side(lattices)))
        return DoubleFilter(terms)

    def moves(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the ICM moves of every pixel in the Potts model."""

        def step(left: list[int], wanted: list[Wanted], row: Tensor) -> list[Any]:
            received = self._filter.presence(labels, wanted, torch.empty_like(self._unary))
            given = (self._unary, received, self._diagonal, row, labels)
            spans = self._spans_of(left)
            best, gain, sums = icm_moves(*given, spans=spans, plans=self._plans)
            parts = (self._parts(left, best), self._parts(left, gain), sums.tolist())
            found = zip(*parts, strict=True)
            return [None if line[-1] else (own, gained, *line) for own, gained, line in found]

        labels = self._joined(runs, [each for (each,) in asked])
        found = self._of_occurring(runs, [labels] * len(runs), step)
        return [
            Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))
            for best, gain, unary, agreeing, mass, movers, _ in found
        ]

    def energies(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return energies in the Potts model, in double precision."""
        labels = self._joined(runs, [each for (each,) in asked]).unsqueeze(0)
        return [energy for (energy,) in self._weigh(runs, labels, [1] * len(runs), self._double)]

    def estimates(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return energies of some labellings of each in the Potts model, in single precision."""
        given = {run: labellings for run, (labellings,) in zip(runs, asked, strict=True)}
        counts = [len(labellings) for labellings in given.values()]
        planes = []
        for place in range(max(counts)):
            some = [run for run in runs if len(given[run]) > place]
            planes.append(self._joined(some, [given[run][place] for run in some]))
        return self._weigh(runs, torch.stack(planes), counts, self._filter)

    def _weigh(
        self,
        runs: Sequence[int],
        labels: Tensor,
        counts: Sequence[int],
        engine: RepeatedFilter | DoubleFilter,
    ) -> list[list[float]]:
        """Return the energies of the first planes of `labels` (planes, n), so many of each run."""
        planes = dict(zip(runs, counts, strict=True))

        def step(left: list[int], wanted: list[Wanted], row: Tensor) -> list[Any]:
            each = [
                (run, place, plane)
                for place, run in enumerate(left)
                for plane in range(planes[run])
            ]
            if len(each) == len(left):  # the first plane of each
                spans, rows = self._spans_of(left), row
            else:
                numbers = [(float(plane), 0.0) for _, _, plane in each]
                spans = self._spans_of([run for run, _, _ in each], numbers)
                rows = row[[place for _, place, _ in each]]
            own = own_unaries(self._unary, rows, labels, spans)
            given = [wanted[place]._replace(plane=plane) for _, place, plane in each]
            mass = [self.items[run]._pairs_in_all for run, _, _ in each]
            found = iter(potts_energies(own, engine.overlaps(labels, given), mass))
            lines = [list(islice(found, planes[run])) for run in left]
            return [None if None in line else line for line in lines]

        given = [labels[: planes[run]] for run in runs]
        return self._of_occurring(runs, given, step)

    def _of_occurring(
        self, runs: Sequence[int], labels: Sequence[Tensor], step: Callable[..., list[Any]]
    ) -> list[Any]:
        """Return what `step` finds with the labels that occur in labellings (..., n) of each run.

        Those that did before are taken on trust. The step finds None where others occur, since
        looking first would wait for the device.
        """
        found: dict[int, Any] = {}
        given = dict(zip(runs, labels, strict=True))
        left = list(runs)
        unknown = [run for run in runs if run not in self._occurring]
        while left:
            if unknown:
                self._find_occurring({run: given[run] for run in unknown})
            wanted = [Wanted(run, self._occurring[run]) for run in left]
            row = np.full((len(left), len(self._unary)), -1, np.int32)
            for line, each in zip(row, wanted, strict=True):
                line[each.names] = each.names
            there = torch.from_numpy(row).to(self._unary.device, non_blocking=True)
            answers = zip(left, step(left, wanted, there), strict=True)
            found |= {run: answer for run, answer in answers if answer is not None}
            left = unknown = [run for run in left if run not in found]
        return [found[run] for run in runs]

    def _expect(self, run: int, labels: Iterable[int]) -> None:
        """Let labels be among those that occur in a run."""
        self._occurring[run] = sorted({*self._occurring.get(run, ()), *labels})

    def _find_occurring(self, labels: dict[int, Tensor]) -> None:
        """Look which labels occur in labellings (..., n) of some runs."""
        count, found = len(self._unary), []
        for run, planes in labels.items():
            first, pixels = self._runs[run]
            found.append(occurring(planes[..., first : first + pixels].reshape(-1), count))
        for run, there in zip(labels, torch.stack(found).cpu().numpy(), strict=True):
            self._expect(run, np.flatnonzero(there).tolist())
