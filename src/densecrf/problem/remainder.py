r"""What is left of a problem when some pixels' labels are settled, with bounds on the whole.

A pixel whose best label is better than all others by no less than its pairwise mass with others,
:math:`m_a = \sum_{b \ne a} K_{ab}`, has that label in an optimal labelling of the Potts model: to
give it that label, whatever the others have, costs at most :math:`m_a`. Settled pixels send their
messages once, to the unaries of those that are left:

.. math:: \phi'_{ai} = \phi_{ai} + \sum_{b \text{ settled}} K_{ab} [x_b \ne i] .

The problem may be given on a *window* of the image. All pixels outside have label 0, which is their
best: either it is settled, or their pairs with the window are left out of the bound, which only
lowers it, and counted in the energy.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.operators.pairwise import Pairwise, PairwiseOnThreads
from densecrf.problem.certificate import gamma
from densecrf.problem.problem import Problem
from densecrf.steps.native import NativeSteps
from densecrf.validation import FloatArray, IntArray

__all__ = ["Remainder", "margins"]

Doubles = npt.NDArray[np.float64]
SURE = 1e-6  # by which a margin exceeds the mass, relatively, to settle a label


class Remainder:
    """The pixels of a window whose labels are not settled.

    Parameters
    ----------
    pairwise : Pairwise
        The matrix K of the whole image.
    unary : ndarray, (labels, pixels of the window)
        Their energies.
    window : ndarray of int
        The window's pixels, ascending.
    settled_outside : bool
        Whether label 0 is settled outside the window.
    constant : float
        The least unary energies of all pixels outside, which are those of label 0.
    known : ndarray of int, optional
        Labels of the window's pixels that every optimal labelling has, -1 for the others.
    threads : int
        0 for all.

    Attributes
    ----------
    labels : ndarray of int, (pixels of the window)
        Labels that are settled, -1 for the others.
    left : ndarray of int
        The others, as indices into the window.
    """

    def __init__(
        self,
        pairwise: Pairwise,
        unary: FloatArray,
        window: IntArray,
        *,
        settled_outside: bool,
        constant: float = 0.0,
        known: IntArray | None = None,
        threads: int = 0,
    ) -> None:
        self._inside = pairwise.restricted(window)
        self._diagonal = pairwise.diagonal_double[window]
        mass = pairwise.mass_double[window]
        margin = margins(unary)
        others = (1 + SURE) * (mass - self._diagonal) + SURE * mass
        self.labels: IntArray = np.where(margin >= others, unary.argmin(0), -1)
        if known is not None:
            self.labels = np.where(known >= 0, known, self.labels)
        self.left = np.flatnonzero(self.labels < 0)
        settled = np.flatnonzero(self.labels >= 0)
        here = self.labels[settled]

        planes = np.ones((len(unary) + 1, len(window)))
        planes[:-1] = np.arange(len(unary))[:, None] == self.labels
        sent = self._sent(planes, threads)
        self._outside = np.maximum(mass - sent[-1], 0.0)
        total = sent[:-1].sum(0)
        other = total - sent[:-1]  # what settled pixels send against each label
        if settled_outside:
            other[1:] += self._outside
            self._outside = np.zeros(len(window))
        self.unary = unary[:, self.left] + other[:, self.left]
        pairs = other[here, settled]
        own = unary[here, settled].astype(np.float64)
        # Pairs of two settled pixels are met from both ends, those with the outside from one.
        both = pairs - (mass - sent[-1])[settled] * (here > 0) * settled_outside
        self._constant = constant + float(own.sum() + pairs.sum() - 0.5 * both.sum())
        sizes = float(own.sum()) + abs(constant) + 4 * float(mass.sum())
        self._rounding = 2 * gamma(pairwise.n) * sizes
        self._rounded = np.ascontiguousarray(self.unary, np.float32)

    def _sent(self, planes: Doubles, threads: int) -> Doubles:
        """Filter the planes that are not zero."""
        out, used = np.zeros_like(planes), planes.any(1)
        out[used] = self._inside.apply_double(planes[used], threads)
        return out

    def problem(self, threads: int = 0) -> Problem[npt.NDArray[Any]]:
        """Return the problem of the pixels that are left."""
        parts = [(weight, part.restricted(self.left)) for weight, part in self._inside.parts]
        inside = Pairwise(parts, len(self.left), "none", self._diagonal[self.left])
        operator = PairwiseOnThreads(lambda: inside, inside.n, threads)
        return Problem(self._rounded, operator, NativeSteps(threads))

    def completed(self, labels: IntArray) -> IntArray:
        """Return the labelling of the window, given that of the pixels that are left."""
        out: IntArray = self.labels.copy()
        out[self.left] = labels
        return out

    def leaking(self, labels: IntArray) -> float:
        """Return the energy of a window's pairs with the outside, where that is not settled."""
        return float(self._outside[labels > 0].sum())

    def whole_energy(self, labels: IntArray, energy: float) -> float:
        """Return the energy of the image, given the labelling of those left and its energy."""
        lost = np.take_along_axis(self.unary - self._rounded, labels[None], 0)
        return self._constant + energy + float(lost.sum()) + self.leaking(self.completed(labels))

    def whole_bound(self, bound: float) -> float:
        """Return a bound on the image's energies, given one on those of the pixels left."""
        lost = (self.unary - self._rounded).min(0)
        return self._constant + bound + float(lost.sum()) - self._rounding

    @property
    def constant(self) -> float:
        """What the settled pixels contribute to every energy."""
        return self._constant


def margins(unary: FloatArray) -> FloatArray:
    """Return by how much each pixel's best label is better than the next, (n,).

    Examples
    --------
    >>> margins(np.array([[1.0, 5.0], [3.0, 1.0]], np.float32))
    array([2., 4.], dtype=float32)
    """
    if len(unary) == 2:
        return np.asarray(np.abs(unary[0] - unary[1]))
    two = np.partition(unary, 1, 0)
    return np.asarray(two[1] - two[0])
