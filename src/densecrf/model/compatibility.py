r"""The costs of pairs of labels.

Potts (1 for different labels) is the default of a model. Mean field, QP and DC also take a vector
or a matrix; the linear programs take any tree metric (the paper's hierarchical Potts).

**Label costs** are a tree of leaves alone: labels i and j cost :math:`\tfrac12(\ell_i + \ell_j)`.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from densecrf.operators.pairwise import Pairwise
from densecrf.validation import (
    ArgumentError,
    as_float32,
    as_real_array,
    check_fits,
    check_integer,
    check_non_negative,
)

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["LabelTree", "compatibility_matrix", "with_label_costs"]


class LabelTree:
    r"""A tree metric on labels: Potts in groups, and in groups of groups.

    Two labels cost :math:`\mu(i, j) = \tfrac12\sum_T \ell_T [i \in T] \oplus [j \in T]`, the length
    of the path between them when node T hangs on an edge of length :math:`\ell_T / 2`. Leaves of
    length 1 alone are the Potts model.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    groups : iterable of (sequence of int, float)
        Inner nodes: the labels below a node, and its length. Any two groups must be nested or
        disjoint.
    leaf : float or sequence of float
        Length of each label's own node.

    Examples
    --------
    Cat and dog are cheap to confuse (0.4), either with sky is not (1):

    >>> LabelTree(3, [([0, 1], 1.0)], leaf=[0.4, 0.4, 0.6]).matrix()
    array([[0. , 0.4, 1. ],
           [0.4, 0. , 1. ],
           [1. , 1. , 0. ]])
    """

    def __init__(
        self,
        n_labels: int,
        groups: Iterable[tuple[Sequence[int], float]] = (),
        leaf: Any = 1.0,
    ) -> None:
        self.n_labels = check_integer("n_labels", n_labels, at_least=2)
        check_fits("n_labels", (self.n_labels, self.n_labels))
        leaves = as_real_array("leaf", leaf)
        if leaves.shape not in ((), (self.n_labels,)):
            raise ArgumentError("leaf", leaf, "give one number, or one for each label")
        lengths = [
            check_non_negative(f"leaf[{i}]", value)
            for i, value in enumerate(np.broadcast_to(leaves, (self.n_labels,)))
        ]
        members = list(np.eye(self.n_labels, dtype=bool))
        try:
            nodes = [(list(below), length) for below, length in groups]
        except (TypeError, ValueError) as error:
            remedy = f"give pairs (labels below the node, its length) ({error})"
            raise ArgumentError("groups", groups, remedy) from error
        for position, (below, length) in enumerate(nodes):
            name, row = f"groups[{position}]", np.zeros(self.n_labels, bool)
            for label in below:
                row[check_integer(name, label, at_least=0, at_most=self.n_labels - 1)] = True
            for other in members:
                if (row & other).any() and (row & ~other).any() and (other & ~row).any():
                    remedy = "overlaps another group without containing it or lying in it; that is "
                    raise ArgumentError(name, below, remedy + "no tree")
            members.append(row)
            lengths.append(check_non_negative(f"{name} length", length))
        self.members: npt.NDArray[np.float32] = np.array(members, np.float32)
        self.lengths: npt.NDArray[np.float32] = np.array(lengths, np.float32)
        if not self.lengths.any():
            remedy = "all lengths are 0, so that no pair of labels has a cost; give positive ones"
            raise ArgumentError("leaf", leaf, remedy)

    @classmethod
    def of_metric(cls, costs: npt.NDArray[Any]) -> "LabelTree | None":
        """Return the tree with this matrix of costs, or None if they are not a tree metric.

        Parameters
        ----------
        costs : ndarray, (labels, labels)
            Symmetric costs of pairs of labels, zero for equal ones.

        Examples
        --------
        >>> line = np.abs(np.subtract.outer(range(4), range(4)))
        >>> np.array_equal(LabelTree.of_metric(line).matrix(), line)
        True
        >>> LabelTree.of_metric(line**2) is None
        True
        """
        count = len(costs)
        # Seen from label 0, the paths to i and j part at this depth (their Gromov product).
        depth = 0.5 * (costs[:1] + costs[:, :1] - costs)
        near = 1e-6 * float(np.abs(costs).max())
        leaf, groups = np.zeros(count), []
        subtrees = [(np.arange(1, count), 0.0)]  # their labels, the depth at which they begin
        while subtrees:
            below, begin = subtrees.pop()
            least = float(depth[np.ix_(below, below)].min())
            length = 2 * max(least - begin, 0.0)
            if len(below) == count - 1:  # all but label 0: its own edge
                leaf[0] = length
            elif len(below) == 1:
                leaf[below] = length
            elif length > near:
                groups.append((below.tolist(), length))
            rest = below
            while len(rest):
                together = depth[rest[0], rest] > least + near
                if together.sum() == len(below):
                    return None  # in a tree, labels of the least depth are apart
                if together.any():
                    subtrees.append((rest[together], least))
                rest = rest[~together & (rest != rest[0])]
        if not leaf.any() and not groups:
            return None
        tree = cls(count, groups, leaf)
        return tree if np.allclose(tree.matrix(), costs, 1e-5, near) else None

    def matrix(self) -> npt.NDArray[np.float64]:
        """Return the costs of all pairs of labels."""
        inside = self.members.astype(np.float64)
        differs = np.abs(inside[:, :, None] - inside[:, None, :])
        half = 0.5 * self.lengths.astype(np.float64).round(7)
        return np.asarray((half[:, None, None] * differs).sum(0))


def compatibility_matrix(value: Any, n_labels: int) -> npt.NDArray[np.float32] | None:
    """Return the symmetric matrix of costs of pairs of labels; None stands for Potts."""
    if value is None:
        return None
    if isinstance(value, LabelTree):
        if value.n_labels != n_labels:
            remedy = f"a tree of {value.n_labels} labels for {n_labels} labels"
            raise ArgumentError("compatibility", ..., remedy)
        return value.matrix().astype(np.float32)
    array = as_float32("compatibility", as_real_array("compatibility", value))
    if array.shape == (n_labels,):
        return -np.diag(array)
    if array.shape != (n_labels, n_labels):
        raise ArgumentError(
            "compatibility",
            ...,
            f"shape {array.shape}; give {(n_labels,)} (rewards of equal labels), "
            f"{(n_labels, n_labels)} (costs of pairs of labels), or a LabelTree",
        )
    if not np.allclose(array, array.T, rtol=1e-5, atol=1e-8):
        raise ArgumentError("compatibility", ..., "the matrix is not symmetric; use (C + C.T) / 2")
    # Bounds rely on the symmetry, to the last bit.
    return np.asarray(0.5 * (array + array.T.astype(np.float64)), np.float32)


def with_label_costs(crf: "DenseCRF", costs: Sequence[float]) -> "DenseCRF":
    """Return a Potts model with costs for each label, which are trusted; both share the filters."""
    other = copy.copy(crf)
    built = crf.pairwise if crf.filters_built else None  # as on a GPU, where they are not needed
    if len(costs) == 2:  # the mean is all that two labels have: a Potts model with other weights
        mean = sum(costs) / 2
        other.kernels = tuple(
            replace(cast("Any", kernel), weight=mean * kernel.weight) for kernel in crf.kernels
        )
        if built is not None:
            parts = [(mean * weight, part) for weight, part in built.parts]
            other = other.with_pairwise(Pairwise(parts, crf.n, "none"))
    else:
        other.tree = LabelTree(len(costs), leaf=costs)
        other.compatibility = other.tree.matrix().astype(np.float32)
    return other
