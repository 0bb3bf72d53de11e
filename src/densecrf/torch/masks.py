r"""Masks of one image on a device: the unsettled pixels of all masks, as one problem.

As on the CPU (`densecrf.problem.remainder`), a pixel whose evidence outweighs its pairwise mass has
its label in an optimal mask, and sends its messages once: those of all masks by one filter call of
the image's lattice. The pixels that are left are the blocks of one problem of two labels, whose K
is block-diagonal. So one run solves all masks, with as many launches as one image takes. Energy and
bound of a mask are its block's share of those of the problem, and the constant of its settled
pixels; masks whose gap is too large when the run ends go on without the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import softplus

from densecrf.model.masks import evidence_near_border
from densecrf.model.unaries import FORBIDDEN
from densecrf.problem.certificate import Potentials, gamma
from densecrf.problem.remainder import SURE
from densecrf.solvers.changes import CONFIDENT, Changes, Tally
from densecrf.solvers.loop import ROUNDING
from densecrf.solvers.parts import Before, iterate, reduced
from densecrf.torch.problem import checked_device, computed, problem_on, torch_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from densecrf.model.crf import DenseCRF
    from densecrf.operators.torch.pairwise import TensorPairwise
    from densecrf.solvers.loop import Limits

__all__ = ["Found", "Given", "minimise_masks"]

BYTES, BYTES_OF_ALL = 1 << 10, 1 << 13  # for each pixel of a mask that is held, and that is not
HOST = 1 << 31  # bytes of memory to use on the CPU
LESS = 1e-5  # by which self terms in single precision are lowered, relatively: more than rounding
CLOSER = 0.25  # what the asked gap is multiplied by for masks that have not reached it
MOST_STEPS = 1000  # iterations of a run


class Found(NamedTuple):
    """What was found for one mask: see `densecrf.masks.RefinedMask`."""

    mask: npt.NDArray[np.bool_]
    energy: float
    bound: float
    iterations: int
    changes: Changes


@dataclass(frozen=True, eq=False)
class Given:
    """Evidence of masks.

    Attributes
    ----------
    masks : ndarray, (count, H, W)
        Hard masks, or log-odds.
    scores : ndarray, (count,), optional
        What evidence is multiplied by.
    border : float, optional
        How far from a mask's border evidence reaches; other pixels are held.
    margin : float
        Log-odds of hard masks without a border.
    """

    masks: npt.NDArray[Any]
    scores: npt.NDArray[np.float64] | None = None
    border: float | None = None
    margin: float = 1.0

    def on(self, device: torch.device, some: slice) -> Tensor:
        """Return the log-odds of some masks, (count, pixels); infinite where labels are held."""
        values = torch.from_numpy(self.masks[some]).to(device)
        weight: Any = 1.0
        if self.scores is not None:
            weight = torch.from_numpy(self.scores[some]).to(device, torch.float32)[:, None, None]
        hard = values.dtype == torch.bool
        odds: Tensor
        if self.border is not None:
            soft = None if hard else weight * values
            mask = values if hard else values > 0
            odds = evidence_near_border(mask, soft, weight, self.border, torch)
        else:
            odds = weight * (torch.where(values, self.margin, -self.margin) if hard else values)
        return odds.flatten(1)


def minimise_masks(crf: DenseCRF, given: Given, device: Any, limits: Limits) -> list[Found]:
    """Solve masks of a model's image on a device, as many together as its memory has room for."""
    where = checked_device(device)
    count, asked = len(given.masks), limits.gap or 0.0
    memory = HOST if where.type != "cuda" else torch.cuda.get_device_properties(where).total_memory
    size = max(1, memory // ((BYTES if given.border is not None else BYTES_OF_ALL) * crf.n))

    def attempt(workspace: int | None) -> list[Found]:
        whole: Any = problem_on(crf, where, workspace).pairwise
        found: list[Found] = []
        for first in range(0, count, size):
            odds = given.on(where, slice(first, first + size)).clamp_(-FORBIDDEN, FORBIDDEN)
            found += _found(odds, _Blocks(whole.pairwise, odds).solved(limits, asked), crf.shape)
        return found

    with torch.no_grad():
        return computed(attempt, where, 2, f"{count} masks of {crf.n} pixels")


class _Solved(NamedTuple):
    """Masks (masks, pixels), and for each its energy, its bound and its iterations."""

    masks: Tensor
    energy: Tensor
    bound: Tensor
    iterations: Tensor

    def improve(self, some: Tensor, further: _Solved) -> None:
        """Take over what was found later for some masks."""
        better = further.energy < self.energy[some]
        place = some[better]
        self.masks[place] = further.masks[better]
        self.energy[place] = further.energy[better]
        self.bound[some] = torch.maximum(self.bound[some], further.bound)
        self.iterations[some] += further.iterations


class _Blocks:
    """The pixels that are not settled in masks of `odds` (masks, pixels), each mask's a block."""

    def __init__(self, whole: TensorPairwise, odds: Tensor) -> None:
        self._whole, self._odds = whole, odds
        mass = whole.mass_double
        others = mass - (1 - LESS) * whole.diagonal.double()
        settled = odds.abs() >= (1 + SURE) * others + SURE * mass
        self._ones = settled & (odds > 0)
        sent = self._ones.double()
        if bool(self._ones.any()):
            sent = whole.apply_double(sent)
        self._block, self._pixel = block, pixel = (~settled).nonzero(as_tuple=True)
        self._lengths = torch.bincount(block, minlength=len(odds))
        against = sent[block, pixel]
        own = torch.where(settled, softplus(-odds.abs()).double(), 0.0).sum(1)
        pairs = torch.where(self._ones, mass - sent, 0.0).sum(1)
        self._constant = own + pairs - self._sum(against)
        sizes = own + 4 * (torch.where(self._ones, mass, 0.0).sum(1) + self._sum(mass[pixel]))
        self._rounding = 2 * gamma(whole.n) * sizes
        if len(block):
            self._pairwise = whole.blocks(block, pixel, len(odds))
            rest = mass[pixel] - against - self._pairwise.mass_double  # of pixels settled as 0
            z = odds[block, pixel].double()
            phi = torch.stack([softplus(z), softplus(-z)])
            self._unary = phi + torch.stack([against, rest.clamp_(min=0)])

    def _sum(self, values: Tensor) -> Tensor:
        """Sum the values of each block's pixels."""
        if not len(values):
            return self._odds.new_zeros(len(self._odds), dtype=torch.float64)
        return torch.segment_reduce(values, "sum", lengths=self._lengths, initial=0)

    def solved(self, limits: Limits, gap: float, before: Before[Tensor] | None = None) -> _Solved:
        """Solve all masks together to a gap, then those whose own is larger than the asked one."""
        made = self._lengths.new_zeros(len(self._odds))
        if not len(self._block):
            return _Solved(self._ones, self._constant, self._constant, made)
        problem = torch_problem(self._unary.float(), self._pairwise)
        most = MOST_STEPS if limits.max_iterations is None else limits.max_iterations
        own = replace(limits, gap=gap, max_iterations=most)
        outcome = iterate(problem, own, before, certified=False)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.dual is None:
            outcome.prove(problem)
        masks = self._ones.clone()
        masks[self._block, self._pixel] = outcome.labels == 1
        energy = self._energies(outcome.labels)
        dual = outcome.dual
        r = problem.dual_point_double(dual) if isinstance(dual, Potentials) else None
        bound = self._bounds(problem.costs.reach, r)
        del r  # large
        found = _Solved(masks, energy, bound, made + outcome.iterations)
        asked = max(limits.gap or 0.0, ROUNDING)
        todo = (energy - bound > asked * energy.abs().clamp(min=1)).nonzero().squeeze(1)
        if outcome.converged and len(todo) and gap > CLOSER * ROUNDING:
            some = torch.isin(self._block, todo)
            rest = _Blocks(self._whole, self._odds[todo])
            left = replace(limits, max_iterations=most - outcome.iterations)
            further = rest.solved(left, CLOSER * gap, reduced(problem, outcome, some))
            found.improve(todo, further)
        return found

    def _energies(self, labels: Tensor) -> Tensor:
        """Return the masks' energies in double precision."""
        ones = (labels == 1).double()
        pairs = ones * (self._pairwise.mass_double - self._pairwise.apply_double(ones[None])[0])
        unary = torch.where(labels == 1, self._unary[1], self._unary[0])
        return self._constant + self._sum(unary + pairs)

    def _bounds(self, reach: float, r: Tensor | None) -> Tensor:
        """Return what no energy of each mask is below, by a dual point (2, pixels left)."""
        bound = self._sum(self._unary.amin(0))  # without pairs
        if r is not None:
            least = (self._unary + r).amin(0)
            sizes = self._sum(reach * self._pairwise.mass_double + least.abs())
            bound = torch.maximum(bound, self._sum(least) - 2 * gamma(self._whole.n) * sizes)
        return self._constant + bound - self._rounding


def _found(odds: Tensor, solved: _Solved, shape: Sequence[int]) -> list[Found]:
    """Return what was found on the host."""
    masks = solved.masks.cpu().numpy().reshape(-1, *shape)
    energy, bound = (values.tolist() for values in (solved.energy, solved.bound))
    columns = (masks, energy, bound, solved.iterations.tolist(), _changes(odds, solved.masks))
    return [
        Found(mask, e, min(e, b), made, changes)
        for mask, e, b, made, changes in zip(*columns, strict=True)
    ]


def _changes(odds: Tensor, masks: Tensor) -> list[Changes]:
    """Return what changed in each mask; see `densecrf.solvers.changes.compare`."""
    before, certainty = odds > 0, torch.sigmoid(odds.abs())
    known = odds.abs() > 0
    confident, changed = certainty > CONFIDENT, known & (before != masks)
    p = torch.where(before, certainty, 1 - certainty) * known  # of the mask

    def by_label(
        ones: Tensor, where: Tensor, values: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Sum over the pixels of both labels, (masks, 2)."""
        parts = (where & ~ones, where & ones)
        if values:
            parts = (parts[0] * values[0], parts[1] * values[1])
        return torch.stack([part.sum(1, dtype=torch.float64) for part in parts], 1)

    shares = ((1 - p) * known, p)
    everywhere = torch.ones_like(known)
    tables = [
        by_label(before, known),
        by_label(masks, everywhere),
        by_label(masks, known),
        by_label(before, confident),
        by_label(before, confident & changed),
        torch.stack([share.sum(1, dtype=torch.float64) for share in shares], 1),
        by_label(before, known, shares),
        by_label(masks, known, shares),
    ]
    lines = torch.stack(tables, 1).cpu().numpy()
    counts = changed.sum(1).tolist()
    return [
        Changes.of(Tally(odds.shape[1], count, *line))
        for count, line in zip(counts, lines, strict=True)
    ]
