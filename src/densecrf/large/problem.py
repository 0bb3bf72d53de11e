r"""The problem of one tile among its neighbours.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.reach`), so that the core's sums over pixels are those of the whole
image. The methods of `densecrf.solvers` iterate core and margin together. In the first iteration
the core's numbers are those that the whole image would have; later ones depend on the margin's,
whose own sums miss what lies outside, the more the farther from the core, where its weight in the
core's sums is small. After some iterations the margin's numbers are dropped, and the core's are
stored for the neighbours' next visits.
"""

from typing import Any

import numpy as np

from densecrf.model import DenseCRF
from densecrf.problem import Problem
from densecrf.rounding import Incumbent
from densecrf.validation import FloatArray, IntArray

__all__ = ["FinalRounding", "TileProblem", "in_whole_cells"]


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

    def _extents(self, nodes: FloatArray, offsets: FloatArray | None) -> FloatArray:
        return in_whole_cells(super()._extents(nodes, offsets), self.cells)

    def update_multipliers(
        self,
        z: FloatArray | None,
        y: FloatArray,
        span: float,  # noqa: ARG002
        edge: float,  # noqa: ARG002
    ) -> FloatArray:
        """Return the potentials z + `y`; they are compressed between visits, alike in all tiles."""
        nodes = self.nodes(y)
        return nodes.copy() if z is None else z + nodes

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
        costs = self.unary + r
        self.bounds.append(float(costs.min(0)[self.core].sum(dtype=np.float64)))
        return super().descend(v, r, step, previous, in_place=in_place)

    def best_constant(self) -> tuple[int, float]:
        """Return nothing worth having: constants are compared for the whole image."""
        return 0, float("inf")


class FinalRounding(Incumbent):
    """The best labelling of a tile, looked for in the last iteration alone.

    Parameters
    ----------
    problem : TileProblem
        The tile.
    last : int
        Iterations of the visit.
    turn : int
        The number of the visit, which decides the level sets that are tried.
    """

    def __init__(self, problem: TileProblem, last: int, turn: int) -> None:
        super().__init__(problem)
        self._last, self._turn = last, turn

    def update(self, y: Any) -> None:
        """Round in the last iteration, and continue the best labelling's descent."""
        self._iteration += 1
        if self._iteration == self._last:
            self._round(y)
            self._settle()
