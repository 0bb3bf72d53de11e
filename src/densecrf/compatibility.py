r"""What it costs two pixels to carry two labels.

Potts (1 for different labels) is the default of a model. Mean field, QP and DC also take a vector
or a matrix; the linear programs take any tree metric, which is the route to general
compatibilities that the paper names (hierarchical Potts).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import as_real_array, check_finite, check_integer, check_non_negative

__all__ = ["LabelTree", "compatibility_matrix"]


class LabelTree:
    r"""A tree metric on labels: Potts in groups, groups of groups, …

    Two labels cost :math:`\mu(i, j) = \tfrac12\sum_T \ell_T [i \in T] \oplus [j \in T]`, the length
    of the path between them when node T hangs on an edge of length :math:`\ell_T / 2`. Leaves of
    length 1 alone are the Potts model.

    Parameters
    ----------
    labels : int
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
        labels: int,
        groups: Iterable[tuple[Sequence[int], float]] = (),
        leaf: Any = 1.0,
    ) -> None:
        self.labels = check_integer("labels", labels, at_least=2)
        leaves = np.broadcast_to(as_real_array("leaf", leaf), (self.labels,))
        lengths = [check_non_negative(f"leaf[{i}]", value) for i, value in enumerate(leaves)]
        members = [np.eye(self.labels, dtype=bool)[i] for i in range(self.labels)]
        for position, (below, length) in enumerate(groups):
            row = np.zeros(self.labels, bool)
            for label in below:
                if not 0 <= check_integer(f"groups[{position}]", label, at_least=0) < self.labels:
                    raise ValueError(
                        f"groups[{position}]: label {label} is outside 0 … {self.labels - 1}"
                    )
                row[label] = True
            for other in members:
                if (row & other).any() and (row & ~other).any() and (other & ~row).any():
                    raise ValueError(
                        f"groups[{position}]={list(below)}: overlaps another group without "
                        "containing it or lying in it; that is no tree"
                    )
            members.append(row)
            lengths.append(check_non_negative(f"groups[{position}] length", length))
        self.members: npt.NDArray[np.float32] = np.array(members, np.float32)
        self.lengths: npt.NDArray[np.float32] = np.array(lengths, np.float32)

    def matrix(self) -> npt.NDArray[np.float64]:
        """Return the costs of all pairs of labels."""
        inside = self.members.astype(np.float64)
        differs = np.abs(inside[:, :, None] - inside[:, None, :])
        half = 0.5 * self.lengths.astype(np.float64).round(7)
        return np.asarray((half[:, None, None] * differs).sum(0))


def compatibility_matrix(value: Any, labels: int) -> npt.NDArray[np.float32] | None:
    """Return the symmetric matrix of costs of pairs of labels; None stands for Potts."""
    if value is None:
        return None
    if isinstance(value, LabelTree):
        if value.labels != labels:
            raise ValueError(f"compatibility: a tree of {value.labels} labels for {labels} labels")
        return value.matrix().astype(np.float32)
    array = as_real_array("compatibility", value)
    check_finite("compatibility", array)
    if array.shape == (labels,):
        return -np.diag(array.astype(np.float32))
    if array.shape != (labels, labels):
        raise ValueError(
            f"compatibility: shape {array.shape}; give {(labels,)} (what two pixels of one label "
            f"gain), {(labels, labels)} (what two labels cost), or a LabelTree"
        )
    if not np.allclose(array, array.T, rtol=1e-5, atol=1e-8):
        raise ValueError("compatibility: the matrix is not symmetric; use (C + C.T) / 2")
    return np.ascontiguousarray(array, np.float32)
