"""Repeated filter calls on one lattice, by Triton's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from densecrf.operators.triton import filter as engine
from densecrf.operators.triton.plans import Plans
from densecrf.operators.triton.units import Units, Wanted, in_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice


class Overlaps(NamedTuple):
    """Masses of agreeing pairs of labellings.

    Attributes
    ----------
    sums : list of Tensor
        (units,) float64 each; what is wanted is in parts, where there are many labels.
    owners : list of int
        Of each unit, its place in what was wanted.
    factors : list of float
        What each sum is to be multiplied by.
    """

    sums: list[Tensor]
    owners: list[int]
    factors: list[float]


class RepeatedFilter:
    """What the solvers ask of a lattice over and over, each kind planned the first time.

    Parameters
    ----------
    lattice : Lattice
        One for which Triton's kernels do the work.
    scales : Scales, optional
        Factors of the pixels, for overlaps in double precision.
    """

    def __init__(self, lattice: Lattice, scales: engine.Scales | None = None) -> None:
        self.lattice, self._scales = lattice, scales
        self._plans = Plans()

    def apply(self, values: Tensor, items: Sequence[int] | None = None) -> Tensor:
        """Filter (channels, n) values plainly, of all items or some."""
        values = values.contiguous()
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
        names = range(len(values))
        items = range(len(self.lattice.spans)) if items is None else items
        wanted = [Wanted(item, names) for item in items]

        def fill(rows: Tensor, units: Units) -> None:
            engine.to_rows(values, units, None, rows)

        self._filter("apply", wanted, 0, (values,), fill, out)
        return out

    def ordered(
        self,
        scores: Tensor,
        offsets: Tensor | None,
        wanted: Sequence[Wanted],
        factor: float,
        totals: Tensor,
    ) -> Tensor:
        """Filter the order of (labels, n) scores, `factor` times, without what rounding adds.

        Parameters
        ----------
        scores : Tensor
            (labels, n).
        offsets : Tensor, optional
            What is added to them.
        wanted : sequence of Wanted
            The labels to filter; the result is zero for the others.
        factor : float
            A factor of the result.
        totals : Tensor
            Sums of the lattice's mass over each item, float64; rows come out balanced, see
            `densecrf.operators.torch.pixelwise.balanced`.
        """
        scores = scores.contiguous()
        everything = sum(len(each.names) for each in wanted)
        make = torch.zeros if everything < len(scores) * len(wanted) else torch.empty
        out = make(scores.shape, dtype=torch.float32, device=scores.device)
        levels = [each.levels for each in wanted if each.levels is not None]
        ramps, hard = max(each.ramps for each in levels), levels[0].hard

        def fill(rows: Tensor, units: Units) -> None:
            engine.to_rows(scores, units, levels[0], rows, offsets)

        given: tuple[Tensor, ...] = (scores,)
        if offsets is not None:
            given = (scores, offsets.contiguous())
            offsets = given[1]
        kind = ("ordered", hard, offsets is not None)
        self._filter(kind, wanted, ramps, given, fill, out, factor, totals)
        return out

    def presence(self, labels: Tensor, wanted: Sequence[Wanted], out: Tensor) -> Tensor:
        """Filter the indicators of the labels that are wanted into the planes `out`."""
        self._filter("presence", [each._replace(plane=0) for each in wanted], 0, (), labels, out)
        return out

    def overlaps(self, labels: Tensor, wanted: Sequence[Wanted]) -> Overlaps:
        """Return masses of agreeing pairs of labellings; see `overlaps` of `filter`.

        Parameters
        ----------
        labels : Tensor
            (planes, n) int64.
        wanted : sequence of Wanted
            Labels of the planes.
        """
        lattice, scales = self.lattice, self._scales
        like = lattice.entry_weight if scales is None else scales.read
        found, owners = [], []
        slots = engine.OVERLAP_SLOTS
        for units in in_groups(lattice, wanted, 0, size=like.element_size(), slots=slots):
            work = engine.empty_work(slots, units, 0, like)
            parts = engine.empty_overlaps(units, work)
            sums = torch.empty(units.count, dtype=torch.float64, device=labels.device)

            def run(
                units: Units = units,
                work: Tensor = work,
                parts: Tensor = parts,
                sums: Tensor = sums,
            ) -> None:
                engine.overlaps(lattice, labels, units, work, parts, sums, scales)

            sizes = (units.lanes, units.pixels, units.vertices, units.segments)
            varying = (labels, units.table, work, parts, sums)
            self._plans.run(("overlaps", *sizes), varying, run)
            found.append(sums)
            lanes = units.lanes
        for place, each in enumerate(wanted):
            owners += [place] * -(-len(each.names) // lanes)
        factor = 1.0 if scales is None else scales.factor
        return Overlaps(found, owners, [factor] * len(owners))

    def _filter(
        self,
        kind: Hashable,
        wanted: Sequence[Wanted],
        ramps: int,
        given: tuple[Tensor, ...],
        fill: Callable[[Tensor, Units], None] | Tensor,
        out: Tensor,
        factor: float = 1.0,
        totals: Tensor | None = None,
    ) -> None:
        """Filter the rows that `fill` makes of what is given, or a labelling, by plans."""
        lattice = self.lattice
        mass = lattice.mass if ramps else out
        for units in in_groups(lattice, wanted, ramps):
            rows = fill if isinstance(fill, torch.Tensor) else engine.empty_rows(units, out)
            work = engine.empty_work(lattice.slots, units, ramps, out)
            varying = [*given, out, units.table, rows, work]
            if totals is not None:
                varying.append(engine.empty_parts(units, out))

            def run(
                units: Units = units,
                rows: Tensor = rows,
                work: Tensor = work,
                parts: Tensor = varying[-1],
            ) -> None:
                if not isinstance(fill, torch.Tensor):
                    fill(rows, units)
                blurred = engine.blur_rows(lattice, rows, units, ramps, work=work)
                engine.slice_rows(lattice, blurred, rows, units, ramps, out, mass, factor)
                if totals is not None:
                    engine.balance(out, units, mass, totals, parts)

            sizes = (units.lanes, units.pixels, units.vertices, units.segments)
            self._plans.run((kind, ramps, factor, *sizes), varying, run)
