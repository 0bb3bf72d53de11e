r"""The problem of one tile, all others held fixed.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.reach`), so that the core's sums over pixels are those of the whole
image. The methods of `densecrf.solvers` iterate the core; marginals and labels of the margin stay,
and its potentials advance as they would in the neighbours' own iterations, by the marginals in
each. The first iteration of a visit is then that of the whole image, and where the whole image has
converged, so are the others.
"""

from typing import Any

import numpy as np

from densecrf.model import DenseCRF
from densecrf.problem import Problem
from densecrf.problem_base import Moves
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
        outside = np.ones(crf.n, bool)
        outside[core] = False
        self._margin = np.flatnonzero(outside)

    def hold(self, y: FloatArray, labels: IntArray) -> None:
        """Hold the margin's marginals and labels."""
        self._y, self._x = y[:, self._margin], labels[self._margin]

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
        out = super().descend(v, r, step, previous, in_place=in_place)
        out[0][:, self._margin] = self._y
        return out

    def argmax(self, y: FloatArray) -> IntArray:
        """Return the largest label of each pixel of the core, and the margin's labels."""
        labels = super().argmax(y)
        labels[self._margin] = self._x
        return labels

    def icm_moves(self, labels: IntArray) -> Moves:
        """Return the ICM move of every pixel of the core."""
        moves = super().icm_moves(labels)
        moves.labels[self._margin], moves.gain[self._margin] = self._x, 0
        return moves._replace(movers=int((moves.gain > 0).sum()))

    def best_constant(self) -> tuple[int, float]:
        """Return nothing worth having: constants are compared for the whole image."""
        return 0, float("inf")


class FinalRounding(Incumbent):
    """The best labelling of a tile, looked for in the last iteration alone, or not at all.

    Parameters
    ----------
    problem : TileProblem
        The tile.
    labels : ndarray of int, (n,), or None
        The best labelling so far.
    last : int or None
        The iteration that rounds.
    turn : int
        How many roundings there were, which decides the level sets that are tried.
    """

    def __init__(self, problem: TileProblem, labels: Any, last: int | None, turn: int) -> None:
        super().__init__(problem)
        self._last, self._turn = last, turn
        if labels is None:
            return
        if last is None:
            self.labels = labels
        else:
            self.consider(labels)

    def update(self, y: Any, bound: float) -> None:  # noqa: ARG002 - its last iteration is known
        """Round where it is this iteration's turn."""
        self._iteration += 1
        if self._iteration == self._last:
            self._round(y)
            self._settle()
