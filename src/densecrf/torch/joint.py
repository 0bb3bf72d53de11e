"""Problems that are solved together: one lattice space, one launch for a step of all items."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.cached import cached_property
from densecrf.deadline import check_deadline
from densecrf.torch.item_steps import (
    compress,
    extents,
    extrapolate,
    raised_argmax,
    undecided,
)
from densecrf.torch.joint_labellings import JointLabellings
from densecrf.torch.lattice_batch import side_by_side
from densecrf.torch.lockstep import Lockstep
from densecrf.torch.pixelwise import descend, mean_field_update
from densecrf.torch.problem import TorchProblem
from densecrf.torch.spans import Spans
from densecrf.torch.triton.plans import Plans
from densecrf.torch.triton.repeated_filter import RepeatedFilter
from densecrf.torch.triton.units import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from densecrf.filters.base import Levels
    from densecrf.problem_base import Moves

__all__ = ["Joint", "JointItem", "can_join"]

SIGNS = np.array([1, -1], np.float32)


def can_join(problems: Sequence[Any]) -> bool:
    """Return whether Triton's kernels can work on these problems together."""
    first = problems[0]
    return len(problems) > 1 and all(
        isinstance(each, TorchProblem)
        and each._triton
        and each.n_labels == first.n_labels
        and len(each.pairwise.kernels) == len(first.pairwise.kernels)
        for each in problems
    )


class JointItem(TorchProblem):
    """One of the problems: its heavy steps are made together with the others'."""

    def __init__(self, joint: Joint, number: int, single: TorchProblem) -> None:
        vars(self).update(vars(single))
        self._joint, self._number = joint, number

    def _ask(self, kind: Any, together: Any, *arguments: Any, late: bool = False) -> Any:
        check_deadline()
        return self._joint.steps.ask(kind, together, arguments, late=late)

    def _extents(self, nodes: Tensor, offsets: Tensor | None) -> Any:
        kind = ("extents", len(nodes), offsets is None)
        return self._ask(kind, self._joint.extents, nodes, offsets, late=True)

    def _ordered_planes(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
    ) -> Tensor:
        kind = ("ordered", len(nodes), offsets is None, levels.hard)
        names = range(len(nodes)) if names is None else names
        r: Tensor = self._ask(kind, self._joint.ordered, nodes, levels, names, offsets)
        return r

    def descend(
        self, v: Tensor, r: Tensor, step: Tensor, previous: Tensor, *, in_place: bool = False
    ) -> tuple[Tensor, float, float, float]:
        """Take a projected gradient step; see `densecrf.problem.Problem.descend`."""
        del in_place
        found = self._ask("descend", self._joint.descend, v, r, step, previous)
        y, (least, value, uphill) = found
        return y, least, value, uphill

    def update_multipliers(
        self, z: Any, y: Any, span: float, edge: float, *, in_place: bool = False
    ) -> Tensor:
        """Return the potentials z + `y`, compressed."""
        del in_place
        nodes, z = (z, None) if y is None else (self.nodes(y), z)
        kind = ("update", z is None)
        out: Tensor = self._ask(kind, self._joint.update, z, nodes, span, edge)
        return out

    def extrapolate(self, y: Tensor, previous: Tensor, share: float) -> Tensor:
        """Return `y` + `share` · (`y` - `previous`)."""
        out: Tensor = self._ask("extrapolate", self._joint.extrapolate, y, previous, 1 + share)
        return out

    def response(self, y: Tensor, *, self_term: bool = False) -> Tensor:
        """Return mean field's update of `y`."""
        if not self.potts:
            return super().response(y, self_term=self_term)
        self.calls.plain += 1
        kind = ("respond", self_term)
        out: Tensor = self._ask(kind, self._joint.respond, y, self_term, late=True)
        return out

    def icm_moves(self, labels: Tensor) -> Moves:
        """Return the ICM move of every pixel, with one filter call."""
        if not self.potts:
            return super().icm_moves(labels)
        self.calls.plain += 1
        moves: Moves = self._ask("moves", self._joint.moves, labels)
        return moves

    def energy(self, labels: Tensor) -> float:
        """Return the energy of a labelling (n,), in double precision."""
        if not self.potts:
            return super().energy(labels)
        self.calls.plain += 1
        energy: float = self._ask("energy", self._joint.energies, labels)
        return energy

    def estimates(self, labellings: Sequence[Tensor]) -> list[float]:
        """Return the labellings' energies in single precision, all by one filter call."""
        if not self.potts:
            return super().estimates(labellings)
        self.calls.plain += len(labellings)
        found: list[float] = self._ask("estimates", self._joint.estimates, labellings)
        return found

    def compare(self, y: Tensor, labels: Tensor, others: Tensor | None) -> tuple[Any, bool]:
        """Return `undecided` of `y`, and whether two labellings agree."""
        return self.undecided(y), others is not None and self.same(labels, others)

    def argmax(self, y: Tensor) -> Tensor:
        """Return the largest label of each pixel, (n,)."""
        return self.raised_argmax(y, -1, 0.0)

    def raised_argmax(self, y: Tensor, label: int, bias: float) -> Tensor:
        """Return the largest label of each pixel after the values of one label were raised."""
        labels: Tensor = self._ask("argmax", self._joint.argmax, y, label, bias)
        return labels

    def undecided(self, y: Tensor) -> Any:
        """Return the sum of y (1 - y) of each label, (labels,), NumPy's."""
        return self._ask("undecided", self._joint.undecided, y)

    def accumulate(self, total: Tensor, y: Tensor) -> None:
        """Add `y` to `total`, in place."""
        self._ask("accumulate", self._joint.accumulate, total, y)

    def same(self, labels: Tensor, others: Tensor) -> bool:
        """Whether two labellings are the same."""
        return bool(self.to_numpy((labels == others).all()))

    def to_numpy(self, array: Tensor) -> Any:
        """Return the tensor as NumPy's array."""
        return self._ask(("fetch", array.dtype), self._joint.fetch, array)


class Joint(JointLabellings):
    """The problems side by side: pixels, vertices and entries one item after the other.

    Parameters
    ----------
    problems : sequence of TorchProblem
        Those for which `can_join` holds, of one layer: with the same weights.
    """

    def __init__(self, problems: Sequence[TorchProblem]) -> None:
        self.steps = Lockstep()
        self.items = [JointItem(self, i, single) for i, single in enumerate(problems)]
        merged = [each.pairwise.merged for each in problems]
        self._lattice = side_by_side([each for each in merged if each is not None])
        self._runs = [(span.pixel, span.pixels) for span in self._lattice.spans]
        self._filter = RepeatedFilter(self._lattice)
        self._plans = Plans()
        self._unary = torch.cat([each.unary for each in problems], 1)
        self._spans: dict[tuple[int, ...], Spans] = {}
        self._occurring: dict[int, list[int]] = {}
        mass = self._double.apply(torch.ones_like(self._unary[:1], dtype=torch.float64))[0]
        masses = self._parts(range(len(problems)), mass)
        totals = torch.stack([own.sum() for own in masses]).tolist()
        for each, own, total in zip(self.items, masses, totals, strict=True):
            vars(each.pairwise)["mass_double"] = own
            vars(each)["_pairs_in_all"] = total

    def run(self, solve: Callable[[Any], Any]) -> list[Any]:
        """Return ``solve(problem)`` of each problem, all advancing together."""
        runs = [partial(solve, each) for each in self.items]
        return self.steps.run(runs, attrgetter("interrupted"))

    @cached_property
    def _lipschitz(self) -> Tensor:
        return torch.cat([each.lipschitz for each in self.items])

    @cached_property
    def _totals(self) -> Tensor:
        return torch.stack([each.pairwise.total_mass for each in self.items])

    def extents(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the least and the largest number of each node."""
        nodes, offsets = self._joined_all(runs, zip(*asked, strict=True))
        found = extents(nodes, offsets, self._spans_of(runs))
        return list(found.cpu().numpy() * SIGNS)

    def ordered(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return half the ordered filter's output."""
        scores, levels, names, shifts = zip(*asked, strict=True)
        nodes, offsets = self._joined_all(runs, (scores, shifts))
        wanted = [Wanted(*each) for each in zip(runs, names, levels, strict=True)]
        out = self._filter.ordered(nodes, offsets, wanted, 0.5, self._totals)
        return self._parts(runs, out)

    def descend(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Take projected gradient steps."""
        v, r, step, previous = self._joined_all(runs, zip(*asked, strict=True))
        given = (v, self._unary, r, previous, step, self._lipschitz)
        y, sums = descend(*given, spans=self._spans_of(runs), plans=self._plans)
        return list(zip(self._parts(runs, y), sums.tolist(), strict=True))

    def update(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return compressed potentials."""
        z, y, span, edge = zip(*asked, strict=True)
        offsets, nodes = self._joined_all(runs, (z, y))
        spans = self._spans_of(runs, list(zip(span, edge, strict=True)))
        return self._parts(runs, compress(nodes, offsets, spans))

    def extrapolate(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return extrapolated points."""
        y, previous, share = zip(*asked, strict=True)
        to, back = self._joined_all(runs, (y, previous))
        spans = self._spans_of(runs, [(each, 0.0) for each in share])
        return self._parts(runs, extrapolate(to, back, spans))

    def respond(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return mean field's updates."""
        (y,) = self._joined_all(runs, ([each for each, _ in asked],))
        own = torch.zeros_like(self._diagonal) if asked[0][1] else self._diagonal
        received = self._filter.apply(y, runs)
        spans = self._spans_of(runs)
        out = mean_field_update(self._unary, received, y, own, spans=spans, plans=self._plans)
        return self._parts(runs, out)

    def argmax(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the largest labels, of values one of which is raised."""
        y, label, bias = zip(*asked, strict=True)
        for run, raised in zip(runs, label, strict=True):
            if raised >= 0 and run in self._occurring:
                self._expect(run, [raised])
        spans = self._spans_of(runs, list(zip(label, bias, strict=True)))
        return self._parts(runs, raised_argmax(self._joined(runs, y), spans))

    def undecided(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the sums of y (1 - y)."""
        y = self._joined(runs, [each for (each,) in asked])
        return list(undecided(y, self._spans_of(runs)).cpu().numpy())

    def accumulate(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Add to totals."""
        torch._foreach_add_([total for total, _ in asked], [y for _, y in asked])
        return [None] * len(runs)

    def fetch(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        """Return tensors as NumPy's arrays, all in one copy from the device."""
        tensors = [each for (each,) in asked]
        flat = torch.cat([each.reshape(-1) for each in tensors]).cpu().numpy()
        ends = np.cumsum([each.numel() for each in tensors])[:-1]
        pieces = zip(np.split(flat, ends), tensors, strict=True)
        return [piece.reshape(tuple(each.shape)) for piece, each in pieces]

    def _spans_of(
        self, runs: Sequence[int], numbers: Sequence[tuple[float, float]] | None = None
    ) -> Spans:
        key = tuple(runs)
        if numbers is None and key in self._spans:
            return self._spans[key]
        spans = Spans.of([self._runs[run] for run in runs], self._unary.device, numbers)
        if numbers is None:
            self._spans[key] = spans
        return spans

    def _parts(self, runs: Sequence[int], joint: Tensor) -> list[Tensor]:
        """Return the runs' views of a joint tensor."""
        return [
            joint[..., first : first + count] for first, count in map(self._runs.__getitem__, runs)
        ]

    def _joined_all(self, runs: Sequence[int], columns: Any) -> list[Any]:
        return [self._joined(runs, column) for column in columns]

    def _joined(self, runs: Sequence[int], parts: Sequence[Tensor | None]) -> Any:
        """Return the joint tensor that parts are views of, or a new one with copies of them."""
        first = parts[0]
        if first is None:
            return None
        n = self._unary.shape[1]
        size = first.element_size()
        begins = {
            part.data_ptr() - size * self._runs[run][0]
            for run, part in zip(runs, parts, strict=True)
            if part is not None
        }
        strides = {part.stride() for part in parts if part is not None}
        if len(begins) == 1 and strides <= {(n, 1), (1,)} and len(strides) == 1:
            shape = (*first.shape[:-1], n)
            begin = first.storage_offset() - self._runs[runs[0]][0]
            whole = begin >= 0 and first.untyped_storage().nbytes() >= size * (
                begin + int(np.prod(shape))
            )
            if whole:
                return first.as_strided(shape, first.stride(), begin)
        out = torch.empty(*first.shape[:-1], n, dtype=first.dtype, device=first.device)
        torch._foreach_copy_(self._parts(runs, out), [part for part in parts if part is not None])
        return out
