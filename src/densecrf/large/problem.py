r"""The problem of one tile, all others held fixed.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.tiles`), so that the core's sums over pixels are those of the whole
image. The methods of `densecrf.solvers` iterate the core; the margin's marginals stay, and its
potentials advance as they would in the neighbours' own iterations, by the marginals in each. The
first iteration of a visit is then that of the whole image, and where the whole image has converged,
so are the others.
"""

import numpy as np

from densecrf.native import core
from densecrf.problem.rounding import Incumbent
from densecrf.steps.native import NativeSteps, Plain
from densecrf.validation import FloatArray, IntArray

__all__ = ["FixedExtents", "TileSteps", "Unrounded", "in_whole_cells"]


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


class TileSteps(NativeSteps):
    """The steps of a tile and its margin, with levels at the whole image's places.

    Parameters
    ----------
    unary : ndarray, (labels, n)
        The energies of tile and margin.
    core : ndarray of int
        The core's pixels, ascending.
    cells : float
        Cells per unit of potential.
    mirrored : bool
        Whether there are two labels, the order of the second the first one's reversed.
    threads : int
        0 for all.

    Attributes
    ----------
    bounds : list of float
        The core's share of the bound in each iteration so far.
    """

    def __init__(
        self, unary: FloatArray, core: IntArray, cells: float, *, mirrored: bool, threads: int = 0
    ) -> None:
        super().__init__(threads)
        self.core, self.cells, self._mirrored = core, cells, mirrored
        self.bounds: list[float] = []
        outside = np.ones(unary.shape[1], bool)
        outside[core] = False
        self._margin = np.flatnonzero(outside)
        self._unary = unary.take(self._margin, 1)
        self._y: FloatArray | None = None

    def hold(self, y: FloatArray) -> None:
        """Hold the margin's marginals, which are otherwise iterated as far as they are seen."""
        self._y = y.take(self._margin, 1)

    def extents(self, nodes: Plain, offsets: Plain | None) -> FloatArray:
        """Return extents in whole cells."""
        found = super().extents(nodes, offsets)
        if self._mirrored and len(nodes) == 2:
            found[1] = found[0]
        return in_whole_cells(found, self.cells)

    def compress(
        self, nodes: Plain, offsets: Plain | None, span: float, edge: float, *, in_place: bool
    ) -> Plain:
        """Return nodes + offsets; they are compressed between visits, alike in all tiles."""
        del span, edge
        if offsets is not None:
            return np.asarray(offsets + nodes)
        return nodes if in_place else np.array(nodes)

    def descend(
        self,
        phi: Plain,
        v: Plain,
        r: Plain,
        step: Plain,
        lipschitz: Plain,
        previous: Plain,
        *,
        in_place: bool,
    ) -> tuple[Plain, float, float, float]:
        """Take a projected gradient step, and note the core's share of the bound."""
        of_margin = core().lower_bound(self._unary, r.take(self._margin, 1), 1.0, self.threads)
        out = super().descend(phi, v, r, step, lipschitz, previous, in_place=in_place)
        self.bounds.append(out[1] - float(of_margin))
        if self._y is not None:
            out[0][:, self._margin] = self._y
        return out


class FixedExtents(NativeSteps):
    """Steps for which the extents of potentials are those of the whole image."""

    def __init__(self, extents: FloatArray, threads: int) -> None:
        super().__init__(threads)
        self._extents = extents

    def extents(self, nodes: Plain, offsets: Plain | None) -> FloatArray:
        """Return the whole image's."""
        del nodes, offsets
        return self._extents


class Unrounded(Incumbent[Plain]):
    """No labelling: those of tiles are compared for the whole image."""

    def update(self, y: Plain, bound: float) -> None:
        """Do nothing."""
