"""Repeated filter calls on one lattice, by Triton's kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from densecrf.torch.lattice import Lattice, labels_at_once, scratch_per_label
from densecrf.torch.pixelwise import balanced
from densecrf.torch.triton import filter as engine
from densecrf.torch.triton.plans import Plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from densecrf.filters.base import Levels


_MOST_KEPT = 1 << 30  # bytes of scratch memory of a plan


class RepeatedFilter:
    """What the solvers ask of a lattice over and over, each kind planned the first time.

    Parameters
    ----------
    lattice : Lattice
        One for which Triton's kernels do the work.
    """

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self._plans = Plans()

    def apply(self, values: Tensor) -> Tensor:
        """Filter (channels, n) values plainly."""
        values = values.contiguous()
        out = torch.empty(values.shape, dtype=torch.float32, device=values.device)

        def work(part: slice) -> None:
            rows = engine.to_rows(values[part], None)
            engine.filter_rows(self.lattice, rows, None, out[part], 1.0, add=False)

        self._in_blocks("apply", len(values), None, (values, out), work)
        return out

    def ordered(
        self, scores: Tensor, names: Tensor | None, levels: Levels, factor: float, total: Tensor
    ) -> Tensor:
        """Filter the order of (labels, n) scores, `factor` times, without what rounding adds.

        Parameters
        ----------
        scores : Tensor
            (labels, n).
        names : Tensor, optional
            (some,) int64, the labels to filter; the result is zero for the others.
        levels : Levels
            How scores become levels.
        factor : float
            A factor of the result.
        total : Tensor
            Sum of the lattice's mass, a float64 scalar on the device; rows come out balanced, see
            `densecrf.torch.pixelwise.balanced`.
        """
        scores = scores.contiguous()
        make = torch.empty if names is None else torch.zeros
        out = make(scores.shape, dtype=torch.float32, device=scores.device)
        mass = self.lattice.mass

        def work(part: slice) -> None:
            if names is None:
                rows = engine.to_rows(scores[part], levels)
                engine.filter_rows(self.lattice, rows, levels, out[part], factor, add=False)
                balanced(out[part], mass, total, engine="triton")
                return
            some = names[part]
            rows = engine.to_rows(scores, levels, some)
            engine.filter_rows(self.lattice, rows, levels, out, factor, add=False, names=some)
            balanced(out, mass, total, some, engine="triton")

        count = len(scores) if names is None else len(names)
        varying = (scores, out) if names is None else (scores, out, names)
        key = (levels.ramps, levels.hard, factor)
        self._in_blocks(key, count, levels, varying, work)
        return out

    def presence(self, labels: Tensor, names: Tensor) -> Tensor:
        """Filter the indicators of the labels named; (some, n)."""
        out = torch.empty(len(names), len(labels), dtype=torch.float32, device=labels.device)

        def work(part: slice) -> None:
            rows = engine.indicator_rows(labels, names[part])
            engine.filter_rows(self.lattice, rows, None, out[part], 1.0, add=False)

        self._in_blocks("presence", len(names), None, (labels, names, out), work)
        return out

    def _in_blocks(
        self,
        key: object,
        count: int,
        levels: Levels | None,
        varying: tuple[Tensor, ...],
        work: Callable[[slice], None],
    ) -> None:
        """Work on all labels at once where the workspace is large enough, by a plan if so."""
        block = labels_at_once(self.lattice, count, levels)
        scratch = block * scratch_per_label(self.lattice, levels)
        if block < count or scratch > _MOST_KEPT:
            for first in range(0, count, block):
                work(slice(first, min(first + block, count)))
            return
        numbers = None if levels is None else (engine.LEVELS_AT, (levels.low, levels.scale))
        self._plans.run(key, varying, partial(work, slice(0, count)), numbers)
