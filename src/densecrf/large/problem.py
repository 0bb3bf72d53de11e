r"""The problem of one tile, all others held fixed.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.reach`), so that the core's sums over pixels are those of the whole
image. The methods of `densecrf.solvers` iterate the core; the margin's marginals stay, and its
potentials advance as they would in the neighbours' own iterations, by the marginals in each. The
first iteration of a visit is then that of the whole image, and where the whole image has converged,
so are the others.
"""

from typing import Any

import numpy as np

from densecrf.model import DenseCRF
from densecrf.native import core
from densecrf.problem import Problem
from densecrf.rounding import Incumbent
from densecrf.validation import FloatArray, IntArray

__all__ = ["TileProblem", "Unrounded", "in_whole_cells"]


def in_whole_cells(extents: FloatArray, cells: float) -> FloatArray:
    """Return extents (nodes, 2) enlarged to whole cells.

    What lies between two levels is rounded off, so that tiles must have theirs at the same places.

    Examples
    --------
    >>> in_whole_cells(np.array([[0.3, 2.0]], np.float32), 0.5)
    array([[0., 2.]], dtype=float32)
    """
    low, high = np.floor(extents[:, 0] * cells), np.ceil(extents[:, 1] * cells)
    return np.asarray(np.stack([low, high], 1) / cells, np.float32)


class TileProblem(Problem):
    """The energy of a tile and its margin, and its relaxations; see `ProblemBase`.

    Parameters
    ----------
    crf : DenseCRF
        The model of core and margin, with the whole image's normalisation.
    core : ndarray of int, (n,)
        The core's pixels, ascending.
    cells : float
        Cells a unit of potential.
    threads : int
        0 for all.

    Attributes
    ----------
    bounds : list of float
        The core's share of the bound in each iteration so far.
    """

    def __init__(self, crf: DenseCRF, core: IntArray, cells: float, threads: int = 0) -> None:
        super().__init__(crf, threads)
        self.core, self.cells = core, cells
        self.bounds: list[float] = []
        outside = np.ones(crf.n, bool)
        outside[core] = False
        self._margin = np.flatnonzero(outside)
        self._unary = self.unary.take(self._margin, 1)
        self._y: FloatArray | None = None

    def hold(self, y: FloatArray) -> None:
        """Hold the margin's marginals, which are otherwise iterated as far as they are seen."""
        self._y = y.take(self._margin, 1)

    def _extents(self, nodes: FloatArray, offsets: FloatArray | None) -> FloatArray:
        found = super()._extents(nodes, offsets)
        if self._mirrored(nodes):  # the second one's order is the first one's reversed
            found[1] = found[0]
        return in_whole_cells(found, self.cells)

    def update_multipliers(
        self, z: Any, y: Any, span: float, edge: float, *, in_place: bool = False
    ) -> FloatArray:
        """Return the potentials z + `y`; they are compressed between visits, alike in all tiles."""
        del span, edge
        if y is None:
            return np.asarray(z) if in_place else np.array(z)
        nodes = self.nodes(y)
        return nodes.copy() if z is None else np.asarray(z + nodes)

    def descend(
        self,
        v: FloatArray,
        r: FloatArray,
        step: FloatArray,
        previous: FloatArray,
        *,
        in_place: bool = False,
    ) -> tuple[FloatArray, float, float, float]:
        """Take a projected gradient step, and note the core's share of the bound."""
        of_margin = core().lower_bound(self._unary, r.take(self._margin, 1), 1.0, self.threads)
        out = super().descend(v, r, step, previous, in_place=in_place)
        self.bounds.append(out[1] - float(of_margin))
        if self._y is not None:
            out[0][:, self._margin] = self._y
        return out


class Unrounded(Incumbent):
    """No labelling: those of tiles are compared for the whole image."""

    def update(self, y: Any, bound: float) -> None:
        """Do nothing."""
