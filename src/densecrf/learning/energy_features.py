r"""The energy of a labelling as a linear function of the model's numbers.

With label costs :math:`\mu_{ij} = (\ell_i + \ell_j)/2` for :math:`i \ne j`,

.. math:: E(x) = \sum_a \phi_a(x_a) + \sum_c w_c \sum_i \ell_i\, C_{ci}(x), \qquad
          C_{ci}(x) = \tfrac12 \sum_{a: x_a = i}\ \sum_{b: x_b \ne i} \tilde k_c(a, b),

so the pairs (unary sum, cuts) of a labelling are all that its energy depends on, for every choice
of kernel weights :math:`w`, label costs :math:`\ell` and scale of the unaries.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.pairwise import Pairwise
from densecrf.validation import FloatArray

__all__ = ["EnergyFeatures", "energy_features"]


@dataclass(frozen=True)
class EnergyFeatures:
    """What the energy of a labelling is linear in.

    Attributes
    ----------
    unary : float
        The sum of the unaries of its labels.
    cuts : ndarray, (kernels, labels)
        Half the weight, in each unit-weight kernel, of the pairs with one pixel in the label.
    """

    unary: float
    cuts: npt.NDArray[np.float64]

    def __sub__(self, other: "EnergyFeatures") -> "EnergyFeatures":
        """Return the difference, whose energy is the difference of energies."""
        return EnergyFeatures(self.unary - other.unary, self.cuts - other.cuts)

    def energy(self, weights: Any, label_costs: Any) -> float:
        """Return the energy for kernel weights and label costs."""
        return self.unary + float(np.asarray(weights) @ self.cuts @ np.asarray(label_costs))


def energy_features(
    unary: FloatArray, pairwise: Pairwise, labels: npt.NDArray[np.integer[Any]], threads: int = 0
) -> EnergyFeatures:
    """Return the unary sum and the cuts of a labelling.

    Parameters
    ----------
    unary : ndarray, (labels, *spatial)
        The energies.
    pairwise : Pairwise
        The kernels; their weights do not matter.
    labels : ndarray of int, (*spatial)
        The labelling, trusted.
    threads : int
        Number of threads; 0 for all.
    """
    x = labels.reshape(-1)
    chosen = np.take_along_axis(unary.reshape(len(unary), -1), x[None, :], 0)
    present = np.unique(x)
    inside = (x[None, :] == present[:, None]).astype(np.float32)
    cuts = np.zeros((len(pairwise.parts), len(unary)))
    for kernel, (_, part) in enumerate(pairwise.parts):
        filtered = part.apply_planes(inside, threads=threads)
        outside = np.einsum("ia,ia->i", inside, part.mass - filtered, dtype=np.float64)
        cuts[kernel, present] = 0.5 * outside
    return EnergyFeatures(float(chosen.sum(dtype=np.float64)), cuts)
