"""Several lattice filters at once: each pixel's sum is taken while its values are at hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from densecrf.filters.base import Doubles, Filter, Levels
from densecrf.filters.lattice import LatticeFilter
from densecrf.native import core
from densecrf.validation import FloatArray, IntArray

__all__ = ["LatticeSum"]


class LatticeSum:
    r"""The sum :math:`\sum_c w_c k_c` of lattice filters, over trusted planes (channels, n).

    Where the lattices are small beside the planes, their values for all channels are held at once
    (in no more memory than the planes take), and what is done with the sum is done pixel by pixel,
    without writing it down; otherwise one filter after the other.
    """

    def __init__(self, parts: Sequence[tuple[float, LatticeFilter]]) -> None:
        self._parts = parts
        self._sum = core().LatticeSum(
            tuple(part.native for _, part in parts),
            [float(weight) for weight, _ in parts],
            parts[0][1].symmetric,
        )
        self._terms = [part.native for _, part in parts], [float(weight) for weight, _ in parts]

    def __reduce__(self) -> tuple[Any, ...]:
        return LatticeSum, (self._parts,)

    @staticmethod
    def of(parts: Sequence[tuple[float, Filter]]) -> "LatticeSum | None":
        """Return the sum of these, or None where they are not all lattices of one kind."""
        lattices = [(weight, part) for weight, part in parts if isinstance(part, LatticeFilter)]
        one_kind = len({part.symmetric for _, part in lattices}) == 1
        return LatticeSum(lattices) if one_kind and len(lattices) == len(parts) else None

    def apply(self, planes: FloatArray, out: FloatArray, threads: int = 0) -> None:
        """Set `out` to the filtered planes."""
        self._sum.apply(planes, out, threads)

    def mass_double(self, n: int, threads: int = 0) -> Doubles:
        r"""Return the row sums of the symmetrised K in double precision, (n,)."""
        out = np.empty((1, n))
        core().apply_double(*self._terms, np.ones((1, n)), out, threads)
        return np.asarray(out[0])

    def ordered_double(
        self,
        mass: Doubles,
        scores: FloatArray,
        offsets: FloatArray | None,
        extents: FloatArray,
        levels: Levels,
        threads: int = 0,
    ) -> Doubles:
        r"""Return :math:`\sum_b K_{ab}\, s(u_a, u_b)` in double precision, K symmetrised."""
        out = np.empty(scores.shape)
        core().ordered_double(
            *self._terms,
            mass,
            scores,
            offsets,
            extents,
            out,
            levels.count,
            levels.low,
            levels.scale,
            levels.hard,
            threads,
        )
        return out

    def pairs_double(
        self, labels: IntArray, count: int, costs: Doubles | None, threads: int = 0
    ) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)` in double precision."""
        return float(core().pairs_double(*self._terms, labels, count, costs, threads))

    def respond(
        self,
        phi: FloatArray,
        y: FloatArray,
        own: FloatArray | None,
        out: FloatArray,
        threads: int = 0,
    ) -> None:
        r"""Set `out` to softmax(K y - own · y - phi), mean field's answer; it may be `y` itself."""
        self._sum.mean_field_step(phi, y, own, out, threads)

    def mass(self, n: int) -> FloatArray:
        r"""Return the row sums :math:`\sum_b K_{ab}`, (n,)."""
        out = np.empty(n, np.float32)
        self._sum.mass(out, 0)
        return out

    def potts_alternatives(
        self,
        phi: FloatArray,
        labels: IntArray,
        mass: FloatArray,
        own: FloatArray,
        best: IntArray,
        gain: FloatArray,
        threads: int = 0,
    ) -> tuple[float, float, float]:
        """Set each pixel's `best` label given all others and its `gain`.

        Returns the labelling's unary and pairwise costs and the number of pixels that gain.
        """
        unary, pairs, movers = self._sum.potts_icm_moves(
            phi, labels, mass=mass, own=own, best=best, gain=gain, threads=threads
        )
        return unary, pairs, movers
