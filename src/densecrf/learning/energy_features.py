r"""The energy of a labelling as a linear function of the model's numbers.

With label costs :math:`\mu_{ij} = (\ell_i + \ell_j)/2` for :math:`i \ne j`,

.. math:: E(x) = \sum_a \phi_a(x_a) + \sum_i o_i\, N_i(x)
          + \sum_c w_c \sum_i \ell_i\, C_{ci}(x), \qquad
          C_{ci}(x) = \tfrac12 \sum_{a: x_a = i}\ \sum_{b: x_b \ne i} \tilde k_c(a, b),

so the unary sum, the areas and the cuts of a labelling are all that its energy depends on, for
every choice of kernel weights :math:`w`, label costs :math:`\ell`, energies :math:`o` added by
label and scale of the unaries.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.operators.pairwise import Pairwise
from densecrf.validation import FloatArray

__all__ = ["EnergyFeatures", "energy_features"]


@dataclass(frozen=True)
class EnergyFeatures:
    """What the energy of a labelling is linear in.

    Attributes
    ----------
    unary : float
        The sum of the unaries of its labels.
    areas : ndarray, (labels,)
        Pixels of each label; those without unaries do not count.
    cuts : ndarray, (kernels, labels)
        Half the weight, in each unit-weight kernel, of the pairs with one pixel in the label.
    """

    unary: float
    areas: npt.NDArray[np.float64]
    cuts: npt.NDArray[np.float64]

    def __sub__(self, other: "EnergyFeatures") -> "EnergyFeatures":
        """Return the difference, whose energy is the difference of energies."""
        return EnergyFeatures(
            self.unary - other.unary, self.areas - other.areas, self.cuts - other.cuts
        )

    def __truediv__(self, pixels: float) -> "EnergyFeatures":
        """Return the features per pixel."""
        return EnergyFeatures(self.unary / pixels, self.areas / pixels, self.cuts / pixels)


def energy_features(
    unary: FloatArray, pairwise: Pairwise, labels: npt.NDArray[np.integer[Any]], threads: int = 0
) -> EnergyFeatures:
    """Return the unary sum, the areas and the cuts of a labelling.

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
    energies = unary.reshape(len(unary), -1)
    chosen = np.take_along_axis(energies, x[None, :], 0)
    known = energies.max(0) > energies.min(0)
    areas = np.bincount(x, known, minlength=len(unary)).astype(np.float64)
    present = np.unique(x)
    inside = (x[None, :] == present[:, None]).astype(np.float32)
    cuts = np.zeros((len(pairwise.parts), len(unary)))
    for kernel, (_, part) in enumerate(pairwise.parts):
        filtered = part.apply_planes(inside, threads=threads)
        outside = np.einsum("ia,ia->i", inside, part.mass - filtered, dtype=np.float64)
        cuts[kernel, present] = 0.5 * outside
    return EnergyFeatures(float(chosen.sum(dtype=np.float64)), areas, cuts)
