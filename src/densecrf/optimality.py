r"""Which labels an optimal labelling can have, by reduced costs.

With the dual point r of some potentials and :math:`c = \phi + r`, every labelling x with
:math:`x_a = i` has

.. math:: E(x) \ge \sum_b \min_j c_{bj} + \bigl(c_{ai} - \min_j c_{aj}\bigr).

Where that is above the energy of a known labelling, no optimal labelling has label i at pixel a.
A pixel with one label left is proven: every optimal labelling has it there.

Lattice filters are evaluated in double precision, and a bound on the rounding error of every
computed number is given away. With u = 2⁻⁵³ a sum of k non-negative products is exact to a factor
of 1 ± γ, γ = k u / (1 - k u), in whatever order it is taken. An entry of r is a difference of such
sums, none above the pixel's mass :math:`m_a = \sum_b K_{ab}`, over at most n + (levels) + 1000
terms, so its error is below :math:`4 \gamma m_a`. Other filters, and those of torch, work in single
precision; there the allowance of `Problem.lower_bound` is given away for each number instead.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from densecrf.native import core
from densecrf.problem import Problem

__all__ = ["Proof", "prove"]

UNIT = 2.0**-53
CHAIN = (
    1000  # more operations than a filter makes on a number beside summing over pixels and levels
)


class Proof(NamedTuple):
    """What is known of all optimal labellings.

    Attributes
    ----------
    energy : float
        Energy of the labelling.
    lower_bound : float
        No labelling has an energy below this.
    possible : ndarray of int, (n,)
        How many labels are left at each pixel.
    """

    energy: float
    lower_bound: float
    possible: npt.NDArray[np.int32]


def prove(problem: Problem, labels: Any, potentials: Any) -> Proof:
    """Evaluate a labelling and a dual point, and count the labels that are left.

    Parameters
    ----------
    problem : Problem
        The problem, Potts or a tree metric.
    labels : array of int, (n,)
        The labelling.
    potentials : array, (nodes, n)
        Potentials with cells of one unit: those of `Problem.flow` with ``cells=1``.
    """
    double = _in_double(problem, labels, potentials)
    energy, costs, error = double or _in_single(problem, labels, potentials)
    least = costs.min(0)
    bound = float(least.sum()) - error
    # The energy, the bound and the two costs of a difference: each may be off by the error.
    slack = energy + error - bound + 2 * error
    possible = np.count_nonzero(costs - least <= slack, axis=0).astype(np.int32)
    return Proof(energy, min(bound, energy), possible)


def _in_single(
    problem: Problem, labels: Any, potentials: Any
) -> tuple[float, npt.NDArray[np.float64], float]:
    r = problem.flow(0 * problem.unary, potentials, 1.0)
    costs = problem.to_numpy(problem.unary + r).astype(np.float64)
    return problem.energy(labels), costs, problem.rounding_allowance


def _in_double(
    problem: Problem, labels: Any, potentials: Any
) -> tuple[float, npt.NDArray[np.float64], float] | None:
    """Return the energy, φ + r and what all sums of them may be off by; None without lattices."""
    terms = problem.lattice_terms
    if terms is None:
        return None
    lattices, weights = terms
    n, threads = problem.n, problem.threads
    mass = np.empty((1, n))
    core().apply_double(lattices, weights, np.ones((1, n)), mass, threads)
    mirrored = problem.potts and problem.n_labels == 2  # as in `Problem.flow`
    u = potentials[:1] if mirrored else potentials
    extents = np.stack([u.min(1), u.max(1)], 1)
    low, high = float(extents.min()), float(extents.max())
    levels = max(2, int(np.ceil(high - low)) + 1)
    r = np.empty(u.shape)
    core().ordered_double(
        lattices, weights, mass[0], u, None, extents, r, levels, low, 1.0, False, threads
    )
    r *= 0.5
    costs = problem.unary + (np.concatenate([r, -r]) if mirrored else problem.leaves(r))
    compatibility = problem.compatibility
    pairs = core().pairs_double(lattices, weights, labels, problem.n_labels, compatibility, threads)
    unary = np.take_along_axis(problem.unary, labels[None, :], 0)[0].astype(np.float64)
    energy = float(unary.sum()) + 0.5 * pairs
    steps = n + levels + CHAIN
    gamma = steps * UNIT / (1 - steps * UNIT)
    scale = 1.0 if problem.potts else float(problem.leaves(np.ones_like(r)).max(initial=1.0))
    size = 4 * scale * float(mass.sum()) + float(np.abs(costs.min(0)).sum() + np.abs(unary).sum())
    return energy, costs, gamma * size
