r"""Label costs from a network's own output.

The Potts model charges every label the same for its border. In a labelling x, the pixels of label i
pay on average

.. math:: q_i = \frac1{N_i} \sum_{a: x_a = i}\ \sum_{b: x_b \ne i} K_{ab}

for differing from others: little for sky, most of the total kernel weight for poles, whatever
evidence there is for either. The minimiser therefore removes thin labels first. A label cost
:math:`\ell_i = \min(1, \kappa / q_i)` caps that price at κ nats per pixel, as the network draws the
label's regions: see docs/mathematics.md.
"""

import copy
import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from densecrf.compatibility import LabelTree
from densecrf.pairwise import Pairwise

if TYPE_CHECKING:
    from densecrf.model import DenseCRF

__all__ = [
    "TOLERATED",
    "BorderStatistics",
    "border_statistics",
    "sum_statistics",
    "with_label_costs",
]

Vector = npt.NDArray[np.float64]

#: Nats per pixel that a label's border may cost.
TOLERATED = 1.25
#: Share of an image that a label's pixels are weighed against: with fewer its statistics are noise.
PRIOR_SHARE = 0.002


@dataclass(frozen=True)
class BorderStatistics:
    """What labels pay for their borders; statistics of several images add up.

    Attributes
    ----------
    images : int
        How many there are.
    pixels : ndarray, (labels,)
        Pixels of each label.
    paid : ndarray, (labels,)
        What they pay together, with label costs of 1.
    """

    images: int
    pixels: Vector
    paid: Vector

    def __add__(self, other: "BorderStatistics") -> "BorderStatistics":
        """Return the statistics of both."""
        return BorderStatistics(
            self.images + other.images, self.pixels + other.pixels, self.paid + other.paid
        )

    def label_costs(self, tolerated: float | Vector) -> tuple[float, ...]:
        """Return a cost in (0, 1] for each label.

        Parameters
        ----------
        tolerated : float or ndarray, (labels,)
            Nats per pixel that a label's border may cost on average, κ.

        Examples
        --------
        >>> found = BorderStatistics(10, np.array([9e5, 1e5]), np.array([9e5, 4e5]))
        >>> [round(cost, 3) for cost in found.label_costs(2.0)]
        [1.0, 0.501]
        """
        price = self.per_pixel(self.paid)
        return tuple((tolerated / np.maximum(price, tolerated)).tolist())

    def per_pixel(self, sums: Vector) -> Vector:
        """Return the mean of each label's pixels from their sum.

        A label of few pixels is drawn towards the average label, one without any is the average
        label.
        """
        total = float(self.pixels.sum())
        prior = PRIOR_SHARE * total / self.images
        return np.asarray((sums + prior * sums.sum() / total) / (self.pixels + prior))


def sum_statistics(found: Iterable[BorderStatistics]) -> BorderStatistics:
    """Return the statistics of all images together."""
    return functools.reduce(operator.add, found)


def border_statistics(
    crf: "DenseCRF", threads: int = 0, pixels: Any = slice(None)
) -> BorderStatistics:
    """Return what the labels of the unaries' own labelling pay for their borders.

    Parameters
    ----------
    crf : DenseCRF
        The model; its compatibility does not matter.
    threads : int
        Number of threads; 0 for all.
    pixels : ndarray of int, optional
        The pixels that count, all by default.
    """
    labels = crf.unary.argmin(0)
    present, x = np.unique(labels, return_inverse=True)
    inside = (x[None, :] == np.arange(len(present))[:, None]).astype(np.float32)
    received = np.take_along_axis(crf.pairwise.apply(inside, threads), x[None, :], 0)[0]
    outside = np.maximum(crf.pairwise.mass - received, 0).astype(np.float64)
    count = len(crf.unary)
    labels, outside = labels[pixels], outside[pixels]
    return BorderStatistics(
        1,
        np.bincount(labels, minlength=count).astype(np.float64),
        np.bincount(labels, outside, minlength=count).astype(np.float64),
    )


def with_label_costs(crf: "DenseCRF", costs: Sequence[float]) -> "DenseCRF":
    """Return a Potts model with costs for each label; both share the filters.

    Parameters
    ----------
    crf : DenseCRF
        The Potts model.
    costs : sequence of float
        One for each label, trusted.
    """
    other = copy.copy(crf)
    built = vars(crf).get("pairwise")  # filters that are not needed, as on a GPU, are not built
    if len(costs) == 2:  # the mean is all that two labels have: a Potts model with other weights
        mean = sum(costs) / 2
        other.kernels = tuple(
            replace(cast("Any", kernel), weight=mean * kernel.weight) for kernel in crf.kernels
        )
        if built is not None:
            parts = [(mean * weight, part) for weight, part in built.parts]
            other.pairwise = Pairwise(parts, crf.n, "none")
    else:
        if built is not None:
            vars(other)["pairwise"] = built
        other.tree = LabelTree(len(costs), leaf=costs)
        other.compatibility = other.tree.matrix().astype(np.float32)
    return other
