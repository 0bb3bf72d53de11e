r"""The problem of one tile, all others held fixed.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.reach`), so that all sums over pixels are those of the whole image.
The methods of `densecrf.solvers` iterate the core; marginals and labels of the margin stay, and its
potentials advance as they would in the neighbours' own iterations, by the marginals in each.
"""

from typing import Any

import numpy as np

from densecrf.model import DenseCRF
from densecrf.problem import Problem
from densecrf.problem_base import Moves
from densecrf.validation import FloatArray, IntArray

__all__ = ["TileProblem", "in_whole_cells"]


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
    """A tile's energy given the labels around it, and its relaxations; see `ProblemBase`.

    Parameters
    ----------
    crf : DenseCRF
        The model of core and margin, with the whole image's normalisation.
    core : ndarray of int, (n,)
        The core's pixels, ascending.
    y : ndarray, (labels, pixels)
        Marginals of core and margin; those of the margin count.
    z : ndarray, (nodes, pixels), or None
        Potentials of core and margin.
    labels : ndarray of int, (pixels,)
        Labels of core and margin.
    cells : float
        Cells a unit of potential.
    threads : int
        0 for all.
    """

    def __init__(
        self,
        crf: DenseCRF,
        core: IntArray,
        y: FloatArray,
        z: FloatArray | None,
        labels: IntArray,
        *,
        cells: float = 1.0,
        threads: int = 0,
    ) -> None:
        super().__init__(crf, threads)
        self.whole = Problem(crf, threads)
        self.calls = self.whole.calls
        self.core, self.cells = core, cells
        self.n = len(core)
        self.unary = np.ascontiguousarray(crf.unary[:, core])
        self._y, self._x = y.copy(), np.array(labels, np.int64)
        self._v = self.nodes(y).copy()
        self._advance = self._v.copy()  # of the margin's potentials in an iteration
        self._z = np.zeros_like(self._v) if z is None else z.copy()
        outside = np.ones(crf.n, bool)
        outside[core] = False
        self._outside = np.flatnonzero(outside)

    @property
    def mass(self) -> FloatArray:
        r"""Row sums :math:`\sum_b K_{ab}` of the core, b over the whole image."""
        return self.whole.mass[self.core]

    @property
    def diagonal(self) -> FloatArray:
        """Self terms of the core."""
        return self.whole.diagonal[self.core]

    def among_neighbours(self, labels: IntArray) -> IntArray:
        """Return the labels of core and margin."""
        self._x[self.core] = labels
        return self._x

    def response(self, y: FloatArray, *, self_term: bool = False) -> FloatArray:
        """Return mean field's update of the core."""
        self._y[:, self.core] = y
        return self.whole.response(self._y, self_term=self_term)[:, self.core]

    def _extents(self, nodes: FloatArray, offsets: FloatArray | None) -> FloatArray:
        self._fill(nodes, offsets)
        return in_whole_cells(self.whole._extents(self._v, self._z), self.cells)

    def _fill(self, nodes: FloatArray, offsets: FloatArray | None) -> None:
        self._v[: len(nodes), self.core] = nodes
        self._z[: len(nodes), self.core] = 0 if offsets is None else offsets

    def _half_ordered(
        self,
        nodes: FloatArray,
        offsets: FloatArray | None,
        extents: FloatArray,
        levels: Any,
        order: str,
    ) -> FloatArray:
        self._fill(nodes, offsets)
        rows = slice(0, len(nodes))
        r = self.pairwise.ordered(
            self._v[rows], levels, order, self.threads, extents, self._z[rows]
        )
        return np.asarray(0.5 * r[:, self.core], np.float32)

    def update_multipliers(
        self,
        z: FloatArray | None,
        y: FloatArray,
        span: float,  # noqa: ARG002
        edge: float,  # noqa: ARG002
    ) -> FloatArray:
        """Return the potentials z + `y`; those of the margin advance as well."""
        self._z[:, self._outside] += self._advance[:, self._outside]
        nodes = self.nodes(y)
        return nodes.copy() if z is None else z + nodes

    def energy(self, labels: IntArray) -> float:
        """Return the energy of core and margin: only differences matter."""
        return self.whole.energy(self.among_neighbours(labels))

    def icm_moves(self, labels: IntArray) -> Moves:
        """Return the ICM move of every pixel of the core."""
        moves = self.whole.icm_moves(self.among_neighbours(labels))
        gain = moves.gain[self.core]
        return Moves(moves.labels[self.core], gain, int((gain > 0).sum()), moves.energy)

    def best_constant(self) -> tuple[int, float]:
        """Return nothing worth having: constants are compared for the whole image."""
        return 0, float("inf")
