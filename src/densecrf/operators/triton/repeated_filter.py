r"""Repeated filter calls on one lattice, and the symmetrised K in double precision, by Triton.

In double precision, nothing of the lattices is copied: kernels widen the float32 weights when they
load them, and multiply by the pixels' factors in float64, since K in proofs is the exact matrix
over these numbers (the merged lattice of the iterations has their products rounded).

The bound on rounding errors in docs/mathematics.md holds for any order of sums in which no number
goes through more than k roundings. Here a splat adds up the non-negative products of at most n
pixels at a vertex, in tiles, segments and trees: no leaf of a tree of n leaves is deeper than
n - 1 (zeros that fill up a tile are added without rounding), a product is at most three roundings
(weight, factor, value; a ramp t - h is exact, within [h, h + 1] and with whole h), and a fused
multiply-add is one fewer. The blur makes two roundings an axis and one for the mean, as counted
there; a slice d + 2, the three taps of the order four, the kernels' sum and the factors' product
(itself rounded twice) one each: together far fewer than n + 512.

An overlap multiplies two such sums, of half the blurs each, and adds up the products in trees. Its
splats are of segments of 128 entries, eight of which are added at a time: the depth of a sum of n
entries is below n / 1024 + 64, so that both factors and their sum, too, go through fewer than
n + 512 roundings.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch

from densecrf.operators.levels import Levels
from densecrf.operators.torch.lattice import on_device
from densecrf.operators.triton import filter as engine
from densecrf.operators.triton.filter import Scales
from densecrf.operators.triton.launch import Plans
from densecrf.operators.triton.units import Units, Wanted, in_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    from densecrf.operators.levels import Bands
    from densecrf.operators.torch.lattice import Lattice


class Overlaps(NamedTuple):
    """Masses of agreeing pairs of labellings, in parts where there are many labels."""

    sums: list[Tensor]  # (units,) float64 each
    owners: list[int]  # of each unit, its place in what was wanted
    factors: list[float]  # of each sum


class RepeatedFilter:
    """The solvers' filter calls of a lattice, each kind planned the first time.

    With `scales`, factors of the pixels, overlaps are in double precision.
    """

    def __init__(self, lattice: Lattice, scales: Scales | None = None) -> None:
        self.lattice, self._scales = lattice, scales
        self._plans = Plans()

    def apply(self, values: Tensor, items: Sequence[int] | None = None) -> Tensor:
        """Filter (channels, n) values plainly, of all items or some."""
        values = values.contiguous()
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
        items = range(len(self.lattice.spans)) if items is None else items
        wanted = [Wanted(item, range(len(values))) for item in items]

        def fill(rows: Tensor, units: Units) -> None:
            engine.to_rows(values, None, units, None, rows)

        self._filter("apply", wanted, (values,), fill, out)
        return out

    def ordered(
        self,
        scores: Tensor,
        offsets: Tensor | None,
        wanted: Sequence[Wanted],
        factor: float,
        totals: Tensor,
    ) -> Tensor:
        """Return `factor` times the ordered filter of (labels, n) scores + offsets, balanced.

        Labels that are not wanted come out zero. `totals` are the sums of the lattice's mass over
        each item, float64; see `densecrf.operators.torch.pixelwise.balanced`.
        """
        scores = scores.contiguous()
        offsets = None if offsets is None else offsets.contiguous()
        everything = sum(len(each.names) for each in wanted)
        make = torch.zeros if everything < len(scores) * len(wanted) else torch.empty
        out = make(scores.shape, dtype=torch.float32, device=scores.device)
        levels = wanted[0].levels
        assert levels is not None

        def fill(rows: Tensor, units: Units) -> None:
            engine.to_rows(scores, offsets, units, levels, rows)

        given = (scores,) if offsets is None else (scores, offsets)
        kind = ("ordered", levels.hard, offsets is not None)
        self._filter(kind, wanted, given, fill, out, factor, totals)
        return out

    def presence(self, labels: Tensor, wanted: Sequence[Wanted], out: Tensor) -> Tensor:
        """Filter the indicators of the labels that are wanted into the planes `out`."""
        self._filter("presence", [each._replace(plane=0) for each in wanted], (), labels, out)
        return out

    def overlaps(self, labels: Tensor, wanted: Sequence[Wanted]) -> Overlaps:
        """Return masses of agreeing pairs of labellings (planes, n); see `overlaps` of `filter`."""
        lattice, scales = self.lattice, self._scales
        dtype = (lattice.entry_weight if scales is None else scales.read).dtype
        found: list[Tensor] = []
        owners: list[int] = []
        slots = engine.OVERLAP_SLOTS
        for units in in_groups(lattice, wanted, size=dtype.itemsize, slots=slots):
            work = units.empty_work(slots, dtype)
            parts = engine.empty_overlaps(units)
            sums = torch.empty(units.count, dtype=torch.float64, device=labels.device)

            def run(
                units: Units = units,
                work: Tensor = work,
                parts: Tensor = parts,
                sums: Tensor = sums,
            ) -> None:
                engine.overlaps(lattice, labels, units, work, parts, sums, scales)

            varying = (labels, units.table, units.channels, work, parts, sums)
            self._plans.run(("overlaps", *units.sizes), varying, run)
            found.append(sums)
            owners += units.owners
        if scales is None:
            return Overlaps(found, owners, [1.0] * len(owners))
        return Overlaps(found, owners, [scales.factors[wanted[place].item] for place in owners])

    def _filter(
        self,
        kind: Hashable,
        wanted: Sequence[Wanted],
        given: tuple[Tensor, ...],
        fill: Callable[[Tensor, Units], None] | Tensor,
        out: Tensor,
        factor: float = 1.0,
        totals: Tensor | None = None,
    ) -> None:
        """Filter the rows that `fill` makes of what is given, or a labelling, by plans."""
        lattice = self.lattice
        mass = out if wanted[0].levels is None else lattice.mass
        for units in in_groups(lattice, wanted):
            rows = fill if isinstance(fill, torch.Tensor) else units.empty_rows(out.dtype)
            work = units.empty_work(lattice.slots, out.dtype)
            varying = [*given, out, units.table, units.channels, rows, work]
            if totals is not None:
                varying.append(units.empty_sums())

            def run(
                units: Units = units,
                rows: Tensor = rows,
                work: Tensor = work,
                parts: Tensor = varying[-1],
            ) -> None:
                if not isinstance(fill, torch.Tensor):
                    fill(rows, units)
                slot = engine.blur_rows(lattice, rows, units, work)
                engine.slice_rows(lattice, work, slot, rows, units, out, mass, factor)
                if totals is not None:
                    engine.balance(out, units, mass, totals, parts)

            self._plans.run((kind, factor, *units.sizes), varying, run)


class DoubleFilter:
    r"""The matrix :math:`\sum_c w_c g_c k_c g_c` on planes (labels, n) of float64.

    Terms are a kernel's weights, one for each item of the lattice, its normalising factors (n,) and
    its lattice, in float32.
    """

    def __init__(self, terms: Sequence[tuple[Sequence[float], Tensor, Lattice]]) -> None:
        self._terms = [(lattice, Scales.of(lattice, g, weights)) for weights, g, lattice in terms]
        self._repeated = [RepeatedFilter(lattice, scales) for lattice, scales in self._terms]

    def apply(self, values: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab} v_b` for each channel."""
        return self._filter(values, None, None, None)

    def ordered(self, t: Tensor, ramps: int, bands: Bands | None, mass: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab}\, s(t_a, t_b)` for levels t in [0, `ramps`], in bands.

        `mass` are the row sums of K, (n,).
        """
        return self._filter(t, Levels(ramps + 1, 0.0, 1.0, hard=False), bands, mass)

    def _filter(
        self, values: Tensor, levels: Levels | None, bands: Bands | None, mass: Tensor | None
    ) -> Tensor:
        values = values.contiguous()
        out = torch.empty_like(values)
        with on_device(values.device):
            for c, (lattice, scales) in enumerate(self._terms):
                engine.filter_planes(
                    *(lattice, values, levels, out),
                    add=c > 0,
                    bands=bands,
                    mass=mass,
                    scales=scales,
                )
        return out

    def overlaps(self, labels: Tensor, wanted: Sequence[Wanted]) -> Overlaps:
        """Return masses of agreeing pairs; see `RepeatedFilter.overlaps`."""
        with on_device(labels.device):
            found = [each.overlaps(labels, wanted) for each in self._repeated]
        return Overlaps(*(list(chain(*column)) for column in zip(*found, strict=True)))
