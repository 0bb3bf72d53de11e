"""The steps of the solvers by Triton's kernels: a batch of items at once, one item a batch of one.

The items' lattices form one lattice space, their pixels lie one after the other (`Spans`), and a
step of all items is one launch. Each item is solved by an ordinary run of a solver on a problem of
its own, whose operator and steps ask the batch; runs of several items advance together
(`densecrf.steps.lockstep`), and items enter and leave meanwhile.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.backend import Moves
from densecrf.deadline import check_deadline
from densecrf.operators.torch.lattice_sum import side_by_side
from densecrf.operators.torch.pairwise import TorchOperator
from densecrf.operators.torch.pixelwise import (
    Spans,
    add_extrapolated,
    compress,
    descend,
    differing,
    extents,
    extrapolate,
    icm_moves,
    mean_field_update,
    own_unaries,
    raised_argmax,
    undecided,
)
from densecrf.operators.triton.launch import Plans
from densecrf.operators.triton.repeated_filter import DoubleFilter, Overlaps, RepeatedFilter
from densecrf.operators.triton.units import Wanted
from densecrf.steps.torch import TorchSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from densecrf.backend import Gradient
    from densecrf.operators.levels import Bands, Doubles, Levels
    from densecrf.operators.torch.pairwise import TensorPairwise
    from densecrf.steps.lockstep import Lockstep
    from densecrf.validation import FloatArray

__all__ = ["TritonBatch", "TritonOperator", "TritonSteps"]

SIGNS = np.array([1, -1], np.float32)


class TritonSteps(TorchSteps):
    """The steps of one item of a batch; see `densecrf.backend.Steps`."""

    restricts_labels = False

    def __init__(self, like: Tensor, batch: TritonBatch) -> None:
        super().__init__(like)
        self._like, self._batch = like, batch

    def _ask(self, kind: Hashable, together: Any, *arguments: Any, late: bool = False) -> Any:
        return self._batch.ask(kind, together, arguments, late=late)

    def of_pixels(self, n: int) -> TorchSteps:  # which are no item of the batch
        return TorchSteps(self._like)

    def extents(self, nodes: Tensor, offsets: Tensor | None) -> FloatArray:
        nodes = nodes.detach() if nodes.requires_grad else nodes
        kind = ("extents", len(nodes), offsets is None)
        found: FloatArray = self._ask(kind, self._batch.extents, nodes, offsets, late=True)
        return found

    def descend(
        self, at: Gradient[Tensor], *, in_place: bool
    ) -> tuple[Tensor, float, float, float]:
        given = (at.phi, at.lipschitz, at.v, at.r, at.step, at.previous)
        y, (least, value, uphill) = self._ask("descend", self._batch.descend, *given)
        return y, least, value, uphill

    def compress(
        self, nodes: Tensor, offsets: Tensor | None, span: float, edge: float, *, in_place: bool
    ) -> Tensor:
        kind = ("compress", offsets is None)
        out: Tensor = self._ask(kind, self._batch.compress, nodes, offsets, span, edge)
        return out

    def add_extrapolated(self, u: Tensor, y: Tensor, previous: Tensor) -> None:
        self._ask("add extrapolated", self._batch.add_extrapolated, u, y, previous)

    def extrapolate(self, y: Tensor, previous: Tensor, share: float) -> Tensor:
        out: Tensor = self._ask("extrapolate", self._batch.extrapolate, y, previous, 1 + share)
        return out

    def argmax(self, y: Tensor) -> Tensor:
        return self.raised_argmax(y, -1, 0.0)

    def raised_argmax(self, y: Tensor, label: int, bias: float) -> Tensor:
        labels: Tensor = self._ask("argmax", self._batch.argmax, y, label, bias)
        return labels

    def compare(self, y: Tensor, labels: Tensor, others: Tensor | None) -> tuple[Doubles, bool]:
        found: tuple[Doubles, bool]  # which waits for the device once
        found = self._ask("compare", self._batch.compare, y, labels, others)
        return found

    def same(self, labels: Tensor, others: Tensor) -> bool:
        return bool(self.to_numpy((labels == others).all()))

    def accumulate(self, total: Tensor, y: Tensor) -> None:
        self._ask("accumulate", self._batch.accumulate, total, y)

    def to_numpy(self, array: Tensor) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._ask(
            ("fetch", array.dtype), self._batch.fetch, array.detach()
        )
        return found


class TritonOperator(TorchOperator):
    """The matrix K of one item of a batch; see `densecrf.backend.Operator`."""

    def __init__(self, pairwise: TensorPairwise, batch: TritonBatch, number: int) -> None:
        super().__init__(pairwise)
        self._batch, self._number = batch, number

    @property
    def mass_double(self) -> Tensor:
        """Row sums in double precision, (n,)."""
        return self._batch.mass_double(self._number)[0]

    @property
    def total_double(self) -> float:
        """The sum of all of K, summed in double precision."""
        return self._batch.mass_double(self._number)[1]

    def _half_ordered(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
        bands: Bands,
    ) -> Tensor:
        if self.pairwise.by_kernel():
            return super()._half_ordered(nodes, levels, names, offsets, bands)
        kind = ("ordered", len(nodes), offsets is None, levels.hard)
        names = range(len(nodes)) if names is None else names
        nodes = nodes.detach() if nodes.requires_grad else nodes
        given = (nodes, offsets, names, levels, bands)
        r: Tensor = self._batch.ask(kind, self._batch.ordered, given)
        return r

    def potts_moves(self, phi: Tensor, labels: Tensor) -> Moves[Tensor]:
        """Return the ICM move of every pixel in the Potts model, by filtering what occurs."""
        given = (phi, self.diagonal, labels)
        moves: Moves[Tensor] = self._batch.ask("moves", self._batch.moves, given)
        return moves

    def potts_energies(
        self, phi: Tensor, labellings: Sequence[Tensor], *, double: bool
    ) -> list[float]:
        """Return the labellings' energies by one filter call of all."""
        given = (phi, labellings, double)
        found: list[float] = self._batch.ask(("energies", double), self._batch.energies, given)
        return found

    def potts_responses(
        self, phi: Tensor, y: Tensor, own: Tensor | None, count: int
    ) -> Iterator[Tensor] | None:
        """Yield mean field's updates, where no gradients are asked for."""
        return None if torch.is_grad_enabled() else self._responses(phi, y, own, count)

    def _responses(
        self, phi: Tensor, y: Tensor, own: Tensor | None, count: int
    ) -> Iterator[Tensor]:
        kind = ("respond", own is None)
        own = torch.zeros_like(self.diagonal) if own is None else own
        for _ in range(count):
            y = self._batch.ask(kind, self._batch.respond, (phi, own, y), late=True)
            yield y


class TritonBatch:
    """The items side by side: pixels, vertices and entries one item after the other.

    A step is a method that takes the numbers of the items that ask for it, and what each gives; it
    returns an answer for each.

    Parameters
    ----------
    pairwise : TensorPairwise, optional
        The kernels of the only item.
    lockstep : Lockstep, optional
        Without the kernels of one: what runs of items that `enter` advance by. They have one
        number of labels, and kernels of the same numbers of features.
    """

    single: RepeatedFilter

    def __init__(
        self, pairwise: TensorPairwise | None = None, lockstep: Lockstep | None = None
    ) -> None:
        self._lockstep = lockstep
        self._changed = True
        #: The items' kernels, and their pixels in the joint tensors, in the same order.
        self._pairwise: dict[int, TensorPairwise] = {}
        self._runs: dict[int, tuple[int, int]] = {}
        #: The labels that have occurred in each item, and its row sums in double precision.
        self._occurring: dict[int, list[int]] = {}
        self._masses: dict[int, tuple[Tensor, float]] = {}
        if pairwise is not None:
            self._pairwise[0] = pairwise
            self._arrange()

    def enter(
        self, number: int, unary: Tensor, pairwise: TensorPairwise
    ) -> tuple[TritonOperator, TritonSteps]:
        """Return operator and steps of an item, which is solved with others from now on."""
        self._pairwise[number] = pairwise
        self._changed = self._changed or self._lockstep is not None
        return TritonOperator(pairwise, self, number), TritonSteps(unary, self)

    def leave(self, number: int) -> None:
        """Forget an item."""
        for known in (self._pairwise, self._occurring, self._masses):
            known.pop(number, None)

    def _arrange(self) -> None:
        """Put the items' lattices side by side, where some have entered."""
        if not self._changed:
            return
        self._changed = False
        self._members = parts = list(self._pairwise.values())
        if self._lockstep is None:
            assert parts[0].repeated is not None
            self.single = parts[0].repeated
        else:
            lattice = side_by_side([each.merged for each in parts if each.merged is not None])
            self.single = RepeatedFilter(lattice)
        spans = self.single.lattice.spans
        self._device = self.single.lattice.device
        self._runs = {
            run: (span.pixel, span.pixels) for run, span in zip(self._pairwise, spans, strict=True)
        }
        self._places = {run: place for place, run in enumerate(self._runs)}
        self._n = sum(count for _, count in self._runs.values())
        self._totals = torch.stack([each.total_mass for each in parts])
        self._double: DoubleFilter | None = None
        self._plans = Plans()
        self._spans: dict[tuple[int, ...], Spans] = {}
        self._kept: dict[Hashable, tuple[Tensor, dict[int, Tensor]]] = {}
        self._rows: tuple[Hashable, Tensor] | None = None

    def ask(
        self,
        kind: Hashable,
        together: Callable[..., Sequence[Any]],
        given: Any,
        *,
        late: bool = False,
    ) -> Any:
        """Return an item's answer of a step, made for all items that ask for the same kind."""
        check_deadline()
        if self._lockstep is None:
            return together((0,), (given,))[0]
        return self._lockstep.ask((self, kind), partial(self._step, together), given, late=late)

    def _step(
        self, together: Callable[..., Sequence[Any]], runs: Sequence[int], asked: Sequence[Any]
    ) -> Sequence[Any]:
        self._arrange()
        return together(runs, asked)

    # --- linear programs ----------------------------------------------------------------------

    def extents(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the least and the largest number of each node."""
        nodes, offsets = self._joined_all(runs, asked)
        found = extents(nodes, offsets, self._spans_of(runs))
        return list(found.cpu().numpy() * SIGNS)

    def ordered(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return half the ordered filter's output."""
        nodes, offsets = self._joined_all(runs, [given[:2] for given in asked])
        places = map(self._places.__getitem__, runs)
        wanted = [Wanted(place, *given[2:]) for place, given in zip(places, asked, strict=True)]
        return self._parts(runs, self.single.ordered(nodes, offsets, wanted, 0.5, self._totals))

    def descend(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Take projected gradient steps."""
        phi, lipschitz = self._constants(runs, asked, "unary", "lipschitz")
        v, r, step, previous = self._joined_all(runs, [given[2:] for given in asked])
        spans = self._spans_of(runs)
        y, sums = descend(v, phi, r, previous, step, lipschitz, spans=spans, plans=self._plans)
        return list(zip(self._parts(runs, y), sums.tolist(), strict=True))

    def compress(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return compressed potentials."""
        nodes, offsets = self._joined_all(runs, [given[:2] for given in asked])
        spans = self._spans_of(runs, [given[2:] for given in asked])
        return self._parts(runs, compress(nodes, offsets, spans))

    def extrapolate(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return extrapolated points."""
        if len(self._runs) == 1:
            ((y, previous, share),) = asked
            return [torch.lerp(previous, y, share)]
        y, previous = self._joined_all(runs, [given[:2] for given in asked])
        spans = self._spans_of(runs, [(share, 0.0) for _, _, share in asked])
        return self._parts(runs, extrapolate(y, previous, spans))

    def add_extrapolated(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Add extrapolated points to potentials, in place."""
        u, y, previous = self._joined_all(runs, asked)
        add_extrapolated(u, y, previous, self._spans_of(runs))
        parts, given = self._parts(runs, u), [each for each, _, _ in asked]
        if parts[0].data_ptr() != given[0].data_ptr():  # those were copies
            torch._foreach_copy_(given, parts)
        return [None] * len(runs)

    def accumulate(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Add to totals."""
        torch._foreach_add_([total for total, _ in asked], [y for _, y in asked])
        return [None] * len(runs)

    # --- mean field ---------------------------------------------------------------------------

    def respond(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return mean field's updates."""
        phi, own = self._constants(runs, asked, "unary", "own")
        y = self._joined(runs, [each for _, _, each in asked])
        received = self.single.apply(y, [self._places[run] for run in runs])
        spans = self._spans_of(runs)
        out = mean_field_update(phi, received, y, own, spans=spans, plans=self._plans)
        return self._parts(runs, out)

    # --- labellings ---------------------------------------------------------------------------

    def argmax(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the largest labels, of values one of which is raised."""
        y, label, bias = zip(*asked, strict=True)
        for run, raised in zip(runs, label, strict=True):
            if raised >= 0 and run in self._occurring:
                self._expect(run, [raised])
        spans = self._spans_of(runs, list(zip(label, bias, strict=True)))
        return self._parts(runs, raised_argmax(self._joined(runs, y), spans))

    def compare(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the sums of y (1 - y), and whether labellings agree."""
        y, labels, others = zip(*asked, strict=True)
        spans = self._spans_of(runs)
        sums = undecided(self._joined(runs, y), spans)
        given = [own if other is None else other for own, other in zip(labels, others, strict=True)]
        differ = differing(self._joined(runs, labels), self._joined(runs, given), spans)
        found = torch.cat([sums, differ], 1).cpu().numpy()
        return [
            (each[:-1], other is not None and not each[-1])
            for each, other in zip(found, others, strict=True)
        ]

    def fetch(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return tensors as NumPy's arrays, all in one copy from the device."""
        tensors = [each for (each,) in asked]
        if len(tensors) == 1:
            return [tensors[0].cpu().numpy()]
        flat = torch.cat([each.reshape(-1) for each in tensors]).cpu().numpy()
        ends = np.cumsum([each.numel() for each in tensors])[:-1]
        pieces = zip(np.split(flat, ends), tensors, strict=True)
        return [piece.reshape(tuple(each.shape)) for piece, each in pieces]

    def moves(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return the ICM moves of every pixel in the Potts model."""
        phi, own = self._constants(runs, asked, "unary", "own")
        labels = self._joined(runs, [each for _, _, each in asked])

        def step(left: list[int], wanted: list[Wanted], row: Tensor) -> list[Any]:
            received = self.single.presence(labels, wanted, torch.empty_like(phi))
            spans = self._spans_of(left)
            best, gain, sums = icm_moves(
                phi, received, own, row, labels, spans=spans, plans=self._plans
            )
            parts = (self._parts(left, best), self._parts(left, gain), sums.tolist())
            found = zip(*parts, strict=True)
            return [None if line[-1] else (own, gained, *line) for own, gained, line in found]

        found = self._of_occurring(runs, [labels] * len(runs), len(phi), step)
        return [
            Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))
            for best, gain, unary, agreeing, mass, movers, _ in found
        ]

    @property
    def _in_double(self) -> DoubleFilter:
        """K in double precision, over the lattices that are stored."""
        if self._lockstep is None:
            assert self._members[0].double_filter is not None
            return self._members[0].double_filter
        if self._double is None:
            terms = []
            for parts in zip(*(each.double_terms for each in self._members), strict=True):
                weights, g, lattices = zip(*parts, strict=True)
                terms.append((weights, torch.cat(g), side_by_side(lattices)))
            self._double = DoubleFilter(terms)
        return self._double

    def mass_double(self, run: int) -> tuple[Tensor, float]:
        """Return the row sums of an item's K in double precision, and their sum."""
        if run not in self._masses:
            self._arrange()
            ones = torch.ones(1, self._n, dtype=torch.float64, device=self._device)
            masses = self._parts(list(self._runs), self._in_double.apply(ones)[0])
            totals = torch.stack([own.sum() for own in masses]).tolist()
            for number, mass, total in zip(self._runs, masses, totals, strict=True):
                if number in self._pairwise and number not in self._masses:
                    self._masses[number] = mass.clone(), total
        return self._masses[run]

    def energies(self, runs: Sequence[int], asked: Sequence[Any]) -> Sequence[Any]:
        """Return energies of some labellings of each in the Potts model."""
        (phi,) = self._constants(runs, asked, "unary")
        engine = self._in_double if asked[0][2] else self.single
        given = {run: labellings for run, (_, labellings, _) in zip(runs, asked, strict=True)}
        counts = {run: len(labellings) for run, labellings in given.items()}
        planes = []
        for place in range(max(counts.values())):
            some = [run for run in runs if counts[run] > place]
            planes.append(self._joined(some, [given[run][place] for run in some]))
        labels = torch.stack(planes)

        def step(left: list[int], wanted: list[Wanted], row: Tensor) -> list[Any]:
            each = [
                (run, place, plane)
                for place, run in enumerate(left)
                for plane in range(counts[run])
            ]
            if len(each) == len(left):  # the first plane of each
                spans, rows = self._spans_of(left), row
            else:
                numbers = [(float(plane), 0.0) for _, _, plane in each]
                spans = self._spans_of([run for run, _, _ in each], numbers)
                rows = row[[place for _, place, _ in each]]
            own = own_unaries(phi, rows, labels, spans)
            wants = [wanted[place]._replace(plane=plane) for _, place, plane in each]
            mass = [self.mass_double(run)[1] for run, _, _ in each]
            found = iter(potts_energies(own, engine.overlaps(labels, wants), mass))
            lines = [list(islice(found, counts[run])) for run in left]
            return [None if None in line else line for line in lines]

        parts = [labels[: counts[run]] for run in runs]
        return self._of_occurring(runs, parts, len(phi), step)

    # --- labels that occur --------------------------------------------------------------------

    def _of_occurring(
        self,
        runs: Sequence[int],
        labels: Sequence[Tensor],
        count: int,
        step: Callable[..., list[Any]],
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
                self._find_occurring({run: given[run] for run in unknown}, count)
            wanted = [Wanted(self._places[run], self._occurring[run]) for run in left]
            answers = zip(left, step(left, wanted, self._rows_of(wanted, count)), strict=True)
            found |= {run: answer for run, answer in answers if answer is not None}
            left = unknown = [run for run in left if run not in found]
        return [found[run] for run in runs]

    def _rows_of(self, wanted: Sequence[Wanted], count: int) -> Tensor:
        """Return for each item and label the label itself, or -1 where it has not occurred."""
        key = (count, *[(each.item, *each.names) for each in wanted])
        if self._rows is None or self._rows[0] != key:  # sending them to the device takes time
            row = np.full((len(wanted), count), -1, np.int32)
            for line, each in zip(row, wanted, strict=True):
                line[each.names] = each.names
            self._rows = key, torch.from_numpy(row).to(self._device, non_blocking=True)
        return self._rows[1]

    def _expect(self, run: int, labels: Iterable[int]) -> None:
        """Let labels be among those that occur in a run."""
        self._occurring[run] = sorted({*self._occurring.get(run, ()), *labels})

    def _find_occurring(self, labels: dict[int, Tensor], count: int) -> None:
        """Look which labels occur in labellings (..., n) of some runs."""
        found = []
        for run, planes in labels.items():
            first, pixels = self._runs[run]
            found.append(occurring(planes[..., first : first + pixels].reshape(-1), count))
        for run, there in zip(labels, torch.stack(found).cpu().numpy(), strict=True):
            self._expect(run, np.flatnonzero(there).tolist())

    # --- joint tensors ------------------------------------------------------------------------

    def _spans_of(
        self, runs: Sequence[int], numbers: Sequence[tuple[float, float]] | None = None
    ) -> Spans:
        key = tuple(runs)
        if numbers is None and key in self._spans:
            return self._spans[key]
        spans = Spans.of([self._runs[run] for run in runs], self._device, numbers)
        if numbers is None:
            self._spans[key] = spans
        return spans

    def _parts(self, runs: Sequence[int], joint: Tensor) -> list[Tensor]:
        """Return the runs' views of a joint tensor, which know it: `_joined` is quick then."""
        if len(self._runs) == 1:
            return [joint]
        every = torch.split(joint, [count for _, count in self._runs.values()], -1)
        parts = [every[self._places[run]] for run in runs]
        for part in parts:
            part.joint = joint, self._runs  # type: ignore[attr-defined]
        return parts

    def _constants(self, runs: Sequence[int], asked: Sequence[Any], *names: str) -> list[Tensor]:
        """Return the joint tensors of what is given first, which is the same in each call."""
        return [
            self._constant(name, runs, [given[place] for given in asked])
            for place, name in enumerate(names)
        ]

    def _constant(self, name: str, runs: Sequence[int], parts: Sequence[Tensor]) -> Tensor:
        key = name, parts[0].shape[:-1]
        if key not in self._kept:
            joint = parts[0]
            if len(self._runs) > 1:
                joint = joint.new_empty(*joint.shape[:-1], self._n)
            self._kept[key] = joint.contiguous(), {}
        joint, known = self._kept[key]
        for run, part in zip(runs, parts, strict=True):
            if known.get(run) is not part:
                if len(self._runs) > 1:
                    self._parts([run], joint)[0].copy_(part)
                elif run in known:  # another problem of the item: plans have the former's addresses
                    joint, self._plans = part.contiguous(), Plans()
                    self._kept[key] = joint, known
                known[run] = part
        return joint

    def _joined_all(self, runs: Sequence[int], asked: Sequence[Any]) -> list[Any]:
        return [self._joined(runs, column) for column in zip(*asked, strict=True)]

    def _joined(self, runs: Sequence[int], parts: Sequence[Tensor | None]) -> Any:
        """Return the joint tensor that parts are views of, or a new one with copies of them."""
        first = parts[0]
        if first is None:
            return None
        if len(self._runs) == 1:
            return first.contiguous()
        joint, arrangement = getattr(first, "joint", (None, None))
        if arrangement is self._runs and all(
            part is None or getattr(part, "joint", (None,))[0] is joint for part in parts
        ):
            return joint
        n, size = self._n, first.element_size()
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

    From the `own_unaries`, the masses of agreeing pairs, and the sums of K.
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
