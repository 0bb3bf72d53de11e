r"""The symmetrised K in double precision, by Triton's kernels over the weights that are stored.

Nothing of the lattices is copied: kernels widen the float32 weights when they load them, and
multiply by the pixels' factors in float64, since K in proofs is the exact matrix over these numbers
(the merged lattice of the iterations has their products rounded).

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
from typing import TYPE_CHECKING

import torch

from densecrf.operators.torch.lattice import on_device
from densecrf.operators.triton import filter as engine
from densecrf.operators.triton.repeated_filter import Overlaps, RepeatedFilter
from densecrf.operators.triton.units import Wanted, in_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.operators.torch.lattice import Lattice


class DoubleFilter:
    r"""The matrix :math:`\sum_c w_c g_c k_c g_c` on planes (labels, n) of float64.

    Parameters
    ----------
    terms : sequence of (float, Tensor, Lattice)
        The weight of each kernel, its normalising factors (n,), and its lattice; all in float32.
    """

    def __init__(self, terms: Sequence[tuple[float, Tensor, Lattice]]) -> None:
        self._terms = [
            (
                lattice,
                engine.Scales(g, g.double() * (weight * lattice.scale), weight * lattice.scale),
            )
            for weight, g, lattice in terms
        ]
        self._repeated = [RepeatedFilter(lattice, scales) for lattice, scales in self._terms]

    def apply(self, values: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab} v_b` for each channel."""
        return self._filter(values, 0, None)

    def ordered(self, t: Tensor, ramps: int, mass: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab}\, s(t_a, t_b)` for levels t in [0, `ramps`].

        `mass` are the row sums of K, (n,).
        """
        return self._filter(t, ramps, mass)

    def overlaps(self, labels: Tensor, wanted: Sequence[Wanted]) -> Overlaps:
        """Return masses of agreeing pairs; see `RepeatedFilter.overlaps`."""
        with on_device(labels.device):
            found = [each.overlaps(labels, wanted) for each in self._repeated]
        return Overlaps(*(list(chain(*column)) for column in zip(*found, strict=True)))

    def _filter(self, values: Tensor, ramps: int, mass: Tensor | None) -> Tensor:
        values = values.contiguous()
        out = torch.empty_like(values)
        with on_device(values.device):
            for c, (lattice, scales) in enumerate(self._terms):
                own = 0.0 if c else 1.0
                wanted = [Wanted(item, range(len(values))) for item in range(len(lattice.spans))]
                for units in in_groups(lattice, wanted, ramps, size=8):
                    rows = engine.to_rows(values, units, None)
                    blurred = engine.blur_rows(lattice, rows, units, ramps, scales)
                    given = values if mass is None else mass
                    engine.slice_rows(
                        *(lattice, blurred, rows, units, ramps, out, given),
                        mass_factor=own,
                        add=c > 0,
                        scales=scales,
                    )
        return out
