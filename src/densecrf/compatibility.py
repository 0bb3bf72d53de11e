r"""What it costs two pixels to carry two labels.

Potts (1 for different labels) is the default of a model. Mean field, QP and DC also take a vector
or a matrix; the linear programs take any tree metric, which is the route to general
compatibilities that the paper names (hierarchical Potts).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import (
    ArgumentError,
    as_float32,
    as_real_array,
    check_fits,
    check_integer,
    check_non_negative,
)

__all__ = ["LabelTree", "compatibility_matrix"]


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
        for name, below, length in _named_groups(groups):
            row = self._members_of(name, below)
            for other in members:
                if (row & other).any() and (row & ~other).any() and (other & ~row).any():
                    raise ArgumentError(
                        name,
                        list(below),
                        "overlaps another group without containing it or "
                        "lying in it; that is no tree",
                    )
            members.append(row)
            lengths.append(check_non_negative(f"{name} length", length))
        self.members: npt.NDArray[np.float32] = np.array(members, np.float32)
        self.lengths: npt.NDArray[np.float32] = np.array(lengths, np.float32)
        if not self.lengths.any():
            raise ArgumentError(
                "leaf", leaf, "all lengths are 0, so that no two labels cost anything; give some"
            )

    def _members_of(self, name: str, below: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return which labels a group holds."""
        row = np.zeros(self.n_labels, bool)
        for label in below:
            row[check_integer(name, label, at_least=0, at_most=self.n_labels - 1)] = True
        return row

    def matrix(self) -> npt.NDArray[np.float64]:
        """Return the costs of all pairs of labels."""
        inside = self.members.astype(np.float64)
        differs = np.abs(inside[:, :, None] - inside[:, None, :])
        half = 0.5 * self.lengths.astype(np.float64).round(7)
        return np.asarray((half[:, None, None] * differs).sum(0))


def _named_groups(groups: Any) -> Iterator[tuple[str, Sequence[int], Any]]:
    """Yield a name, the labels and the length of each group that a user gave."""
    try:
        for position, (below, length) in enumerate(groups):
            yield f"groups[{position}]", list(below), length
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "groups", groups, f"give pairs (labels below the node, its length) ({error})"
        ) from error


def compatibility_matrix(value: Any, n_labels: int) -> npt.NDArray[np.float32] | None:
    """Return the symmetric matrix of costs of pairs of labels; None stands for Potts."""
    if value is None:
        return None
    if isinstance(value, LabelTree):
        if value.n_labels != n_labels:
            raise ArgumentError(
                "compatibility", ..., f"a tree of {value.n_labels} labels for {n_labels} labels"
            )
        return value.matrix().astype(np.float32)
    array = as_float32("compatibility", as_real_array("compatibility", value))
    if array.shape == (n_labels,):
        return -np.diag(array)
    if array.shape != (n_labels, n_labels):
        raise ArgumentError(
            "compatibility",
            ...,
            f"shape {array.shape}; give {(n_labels,)} (what two pixels of one label "
            f"gain), {(n_labels, n_labels)} (what two labels cost), or a LabelTree",
        )
    if not np.allclose(array, array.T, rtol=1e-5, atol=1e-8):
        raise ArgumentError("compatibility", ..., "the matrix is not symmetric; use (C + C.T) / 2")
    return np.ascontiguousarray(array, np.float32)
