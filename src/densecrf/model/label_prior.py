r"""Correct the unaries by how much of each label an image shows.

A network's softmax is right on average over its data set, where label i has the share
:math:`f_i` of the pixels. An image in which it has the share :math:`q_i` instead calls, by Bayes'
rule, for the probabilities :math:`p_a(i)\, q_i / f_i` (Saerens et al. 2002), that is, for one
number per label in the unaries:

.. math:: \phi_a(i) \leftarrow \phi_a(i) + o_i - \tau_i \log \frac{q_i/f_i + c}{1 + c} .

The shares :math:`q_i` are the means of the network's own probabilities over the image. A data set
that shows the same labels in every image (a street seen from a car) has nothing to correct, and
what differences there are is noise; one where most images lack most labels has much. Hence the
trust :math:`\tau_i = \tfrac12 \min(1, 2 a_i)`, from the share :math:`a_i` of images with less than
a tenth of the label's frequency. The factor ½ is for what the pairwise term does already: it, too,
removes labels of small area. The constants :math:`o_i` are zero unless given.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.validation import FloatArray

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = [
    "LabelPrior",
    "label_shares",
    "plus_offsets",
    "prior_from_shares",
    "share_sums",
    "with_label_offsets",
    "without_label_offsets",
]

#: Trust in the shares of a label that half of the images lack or more.
MOST_TRUST = 0.5
#: Share of a data set's frequency that every image has at least, c: bounds the correction.
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class LabelPrior:
    """Energies added to the unaries of an image, by label.

    Attributes
    ----------
    frequencies : tuple of float
        The share of each label in the data set.
    trust : tuple of float
        The factor of the correction of each label.
    offsets : tuple of float
        Energies added on every image.
    """

    frequencies: tuple[float, ...]
    trust: tuple[float, ...]
    offsets: tuple[float, ...]

    def energies(self, shares: Any, log: Any = np.log) -> Any:
        """Return the energies to add to the unaries of each label, from its share in the image.

        The shares are an array or tensor (..., labels), and `log` is the logarithm of such.

        Examples
        --------
        >>> prior = LabelPrior((0.5, 0.5), (1.0, 1.0), (0.0, 0.0))
        >>> prior.energies(np.array([0.95, 0.05])).round(1).tolist()
        [-0.6, 1.7]
        """
        like = shares.new_tensor if hasattr(shares, "new_tensor") else np.asarray
        ratio = (shares / like(self.frequencies) + LEAST_SHARE) / (1 + LEAST_SHARE)
        return like(self.offsets) - like(self.trust) * log(ratio)

    def scaled(self, strength: float) -> "LabelPrior":
        """Return the prior with another strength: 0 leaves the unaries as they are."""
        return replace(
            self,
            trust=tuple(strength * each for each in self.trust),
            offsets=tuple(strength * each for each in self.offsets),
        )


def label_shares(unary: FloatArray) -> npt.NDArray[np.float64]:
    """Return the mean probability of each label, (labels,), over the pixels that have unaries.

    Pixels where all energies are alike have none.

    Examples
    --------
    >>> label_shares(np.log(np.array([[2, 3, 1.0], [2, 1, 1]])))[:1].round(3)
    array([0.25])
    """
    sums, known = share_sums(unary)
    return sums / known if known else np.full(len(unary), 1 / len(unary))


def share_sums(unary: FloatArray) -> tuple[npt.NDArray[np.float64], int]:
    """Return the sums of label probabilities over pixels with unaries, and how many these are."""
    lowest = unary.min(0)
    known = unary.max(0) > lowest
    total = np.zeros_like(lowest)
    for energies in unary:  # label by label: no second array of all labels
        total += np.exp(lowest - energies)
    weights = known / total.astype(np.float64)
    sums = [np.sum(np.exp(lowest - row) * weights, dtype=np.float64) for row in unary]
    return np.array(sums), int(known.sum())


def prior_from_shares(shares: Sequence[npt.NDArray[np.float64]]) -> LabelPrior:
    """Return the prior of a data set from the labels' shares in each image.

    Examples
    --------
    >>> prior_from_shares([np.array([0.9, 0.1]), np.array([0.88, 0.12])]).trust  # a street
    (0.0, 0.0)
    >>> prior_from_shares([np.array([0.99, 0.01]), np.array([0.01, 0.99])]).trust  # animals
    (0.5, 0.5)
    """
    each = np.asarray(shares)
    count, labels = each.shape
    # One image more, in which all labels are alike: frequencies of labels never seen stay positive.
    frequencies = (each.sum(0) + 1 / labels) / (count + 1)
    lacking = (each < LEAST_SHARE * frequencies).mean(0)
    trust = MOST_TRUST * np.where(lacking < 1, np.minimum(1, 2 * lacking), 0)
    return LabelPrior(tuple(frequencies.tolist()), tuple(trust.tolist()), (0.0,) * labels)


def with_label_offsets(crf: "DenseCRF", offsets: npt.NDArray[np.float64]) -> "DenseCRF":
    """Return the model with energies added by label; both share the filters."""
    other = copy.copy(crf)
    other.label_offsets = offsets.astype(np.float32)
    other.unary = plus_offsets(crf.unary, other.label_offsets)
    return other


def without_label_offsets(crf: "DenseCRF", offsets: FloatArray) -> FloatArray:
    """Return the unaries as they were before `with_label_offsets` added these."""
    return plus_offsets(crf.unary, -offsets)


def plus_offsets(unary: FloatArray, offsets: FloatArray) -> FloatArray:
    """Return the unaries with offsets added by label, but to pixels without unaries."""
    known = unary.max(0) > unary.min(0)
    return np.where(known, unary + offsets[:, None], unary)
