r"""The costs :math:`\mu_{ij}` of pairs of labels, on the arrays of a back end."""

from typing import Generic

import numpy as np

from densecrf.backend import Array, Steps
from densecrf.cached import cached_property
from densecrf.model.compatibility import LabelTree
from densecrf.operators.levels import Doubles
from densecrf.validation import IntArray

__all__ = ["LabelCosts"]


class LabelCosts(Generic[Array]):
    r"""Potts, a tree metric or any symmetric matrix.

    A tree's costs are :math:`\mu_{ij} = \tfrac12 \sum_T \ell_T |[i \in T] - [j \in T]|` over its
    nodes T, sets of labels with lengths; in the Potts model the nodes are the labels.

    Parameters
    ----------
    count : int
        Number of labels.
    steps : Steps
        For conversions of arrays.
    matrix : array, (labels, labels), optional
        The costs; Potts by default.
    members, lengths : array, (nodes, labels) and (nodes,), optional
        The tree's, in the problem's floating dtype.

    Attributes
    ----------
    matrix : array, (labels, labels), or None
        The costs; None for Potts.
    """

    matrix: Array | None
    _steps: Steps[Array]
    _members: Array | None
    _lengths: Array | None

    def __init__(
        self,
        count: int,
        steps: Steps[Array],
        matrix: Array | None = None,
        members: Array | None = None,
        lengths: Array | None = None,
    ) -> None:
        self.count, self._steps, self.matrix = count, steps, matrix
        self._members, self._lengths = members, lengths

    @staticmethod
    def of(
        count: int, steps: Steps[Array], matrix: Array | None, tree: LabelTree | None
    ) -> "LabelCosts[Array]":
        """Return the costs of a matrix, and of the tree whose metric it is."""
        if tree is None:
            return LabelCosts(count, steps, matrix)
        used = tree.lengths > 0
        members, lengths = (steps.from_numpy(each[used]) for each in (tree.members, tree.lengths))
        return LabelCosts(count, steps, matrix, members, lengths)

    @property
    def potts(self) -> bool:
        """Whether every two different labels cost 1."""
        return self.matrix is None

    @property
    def tree(self) -> bool:
        """Whether the costs are a tree metric (or Potts)."""
        return self.potts or self._members is not None

    @property
    def by_labels(self) -> bool:
        """Whether the LP orders the labels' scores themselves, not sums below nodes of a tree."""
        return self._members is None

    def nodes(self, y: Array) -> Array:
        """Return the scores that the LP orders: the labels', or their sums below tree nodes."""
        return y if self._members is None else self._steps.floats(self._members @ y)

    def leaves(self, r: Array) -> Array:
        """Return the labels' r for the nodes' r."""
        if self._members is None or self._lengths is None:
            return r
        return self._steps.floats(self._members.T @ (self._lengths[:, None] * r))

    def leaves_double(self, r: Array) -> Array:
        """Return the labels' r for the nodes' r in double precision."""
        if self._members is None:
            return r
        members, lengths = (self._steps.double_from_numpy(array) for array in self.nodes_double)
        leaves: Array = members.T @ (lengths[:, None] * r)
        return leaves

    def expected(self, y: Array) -> Array:
        r"""Return :math:`\sum_j \mu_{ij} y_{aj}`: the expected cost of each label beside `y`."""
        costs: Array = y.sum(0) - y if self.matrix is None else self.matrix @ y
        return costs

    @cached_property
    def nodes_double(self) -> tuple[Doubles, Doubles]:
        """The nodes' members and lengths in double precision; for Potts the labels'."""
        if self._members is None or self._lengths is None:
            return np.eye(self.count), np.ones(self.count)
        members, lengths = (self._steps.to_numpy(each) for each in (self._members, self._lengths))
        return members.astype(np.float64), lengths.astype(np.float64)

    @cached_property
    def double(self) -> Doubles | None:
        """The costs in double precision, or None for Potts.

        Of a tree they are those of the lengths without rounding, with which bounds are computed.
        """
        if self.matrix is None:
            return None
        if self._members is None:
            return self._steps.to_numpy(self.matrix).astype(np.float64)
        members, lengths = self.nodes_double
        apart = abs(members[:, :, None] - members[:, None, :])
        return np.ascontiguousarray(0.5 * np.einsum("t,tij->ij", lengths, apart))

    @cached_property
    def reach(self) -> float:
        """The largest sum of the lengths of a label's nodes; 1 for Potts."""
        members, lengths = self.nodes_double
        return float((members.T @ lengths).max())

    @cached_property
    def spectrum(self) -> float:
        """The largest eigenvalue of the tree's incidence; 1 for Potts."""
        if self._members is None:
            return 1.0
        members, lengths = self.nodes_double
        return float(np.linalg.eigvalsh(members.T @ (lengths[:, None] * members))[-1])

    @cached_property
    def eigenvalues(self) -> tuple[float, float]:
        r"""The extreme eigenvalues of :math:`-\mu` on vectors that add up to 0."""
        if self.double is None:
            return 1.0, 1.0
        centre = np.eye(self.count) - 1 / self.count
        basis = np.linalg.svd(centre)[0][:, :-1]
        values = np.linalg.eigvalsh(basis.T @ -self.double @ basis)
        return float(values[0]), float(values[-1])

    def restricted(self, keep: IntArray) -> "LabelCosts[Array]":
        """Return the costs of some labels; nodes without any of them go."""
        matrix = None if self.matrix is None else self.matrix[keep][:, keep]
        if self._members is None or self._lengths is None:
            return LabelCosts(len(keep), self._steps, matrix)
        below = self._members[:, keep]
        used = np.flatnonzero(self._steps.to_numpy(below).any(1))
        used = used if len(used) else np.arange(1)  # labels without a node: one that is 0 for all
        lengths = self._lengths[used]
        return LabelCosts(len(keep), self._steps, matrix, below[used], lengths)
