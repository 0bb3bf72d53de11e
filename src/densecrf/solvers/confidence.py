"""How sure a labelling is of each pixel: what its other labels cost while all others stay."""

from typing import TYPE_CHECKING

import numpy as np

from densecrf.problem.problem import problem_of
from densecrf.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["conditionals"]

CERTAIN = 2.0**-24  # confidences are so far from 0 and 1 at least
SHARE = 0.5  # of the messages that counts for confidences: a pair's cost belongs to both its pixels


def conditionals(crf: "DenseCRF", labels: IntArray) -> tuple[FloatArray, FloatArray]:
    r"""Return the cost of the best single change of each pixel, and how sure its label is.

    One filter call has the messages :math:`m_{ai} = \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`. Where all
    other pixels keep their labels, the best change costs
    :math:`\min_{i \ne x_a} (\phi_{ai} + m_{ai}) - (\phi_{a x_a} + m_{a x_a})`. The confidence is
    the label's probability in :math:`\operatorname{softmax}(-\phi_a - \tfrac12 m_a)`, of the
    pixel's share of the energy: with all of the messages, as in mean field, it is above how often
    labels are right; experiments/records has the comparison.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    labels : ndarray of int, (*spatial)
        The labelling x.

    Examples
    --------
    >>> from densecrf import DenseCRF
    >>> crf = DenseCRF([[0.0, 0.0, 0.0], [2.0, 0.5, 2.0]])
    >>> cost, confidence = conditionals(crf, np.array([0, 0, 0]))
    >>> cost.tolist(), (100 * confidence).astype(int).tolist()
    ([2.0, 0.5, 2.0], [88, 62, 88])
    """
    problem = problem_of(crf)
    x = labels.reshape(-1)
    messages = problem.messages(problem.indicator(x))
    cost = _relative(crf.unary + messages, x).min(0)
    energies = _relative(crf.unary + np.float32(SHARE) * messages, x)
    with np.errstate(over="ignore"):
        others = np.exp(-energies.astype(np.float64)).sum(0)
    confidence = np.clip(1 / (1 + others), CERTAIN, 1 - CERTAIN).astype(np.float32)
    return cost.reshape(labels.shape), confidence.reshape(labels.shape)


def _relative(costs: FloatArray, labels: IntArray) -> FloatArray:
    """Return what each label costs more than the pixel's own, which is infinite."""
    pixels = np.arange(len(labels))
    relative = costs - costs[labels, pixels]
    relative[labels, pixels] = np.inf
    return relative
