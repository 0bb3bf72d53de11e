r"""Minimise a regularised mean of convex functions, each known by supporting planes.

.. math:: J(\theta) = \tfrac\lambda2 \sum_j \Bigl(\frac{\theta_j - \theta^0_j}{s_j}\Bigr)^2
          + \frac1N \sum_n h_n(\theta), \qquad
          h_n(\theta) \ge a_{nk} + \langle b_{nk}, \theta\rangle, \qquad \theta \ge \text{floor}.

The planes are lower bounds of :math:`h_n`, so the minimum over them bounds the minimum of J: the
lower half of the certificate of `densecrf.learning.large_margin`.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Bundle", "Minimum"]

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Minimum:
    """The minimiser over the planes known so far, and a bound on the minimum of J."""

    theta: Vector
    lower_bound: float


@dataclass
class Bundle:
    """The planes of all functions.

    Attributes
    ----------
    anchor, scale, floor : ndarray, (d,)
        Where the regulariser is zero, the unit of each parameter, the least value of each (-inf:
        none).
    strength : float
        The regulariser's factor λ.
    functions : int
        How many functions the mean is over.
    """

    anchor: Vector
    scale: Vector
    floor: Vector
    strength: float
    functions: int
    _rows: list[int] = field(default_factory=list)
    _offsets: list[float] = field(default_factory=list)
    _slopes: list[Vector] = field(default_factory=list)

    def add(self, function: int, offset: float, slope: Vector) -> None:
        """Add a plane of one function."""
        self._rows.append(function)
        self._offsets.append(offset)
        self._slopes.append(slope)

    def regulariser(self, theta: Vector) -> float:
        """Return the first term of J."""
        return float(0.5 * self.strength * np.sum(((theta - self.anchor) / self.scale) ** 2))

    def minimise(self) -> Minimum:
        """Return the minimiser over the planes (functions without one are at least zero)."""
        d, count = len(self.anchor), self.functions
        # Planes in the scaled variable z = (θ - θ⁰) / s; each function also has the plane 0.
        rows = np.array([*self._rows, *range(count)])
        slopes = np.vstack([*self._slopes, np.zeros((count, d))]) * self.scale
        offsets = np.array([*self._offsets, *np.zeros(count)])
        offsets = offsets + slopes @ (self.anchor / self.scale)
        least = (self.floor - self.anchor) / self.scale
        multipliers = _multipliers(rows, slopes, offsets, least, self.strength, count)
        # Any multipliers that are non-negative and add up to 1/N for each function prove a bound,
        # whatever the accuracy of the solver.
        slope, constant = multipliers @ slopes, float(multipliers @ offsets)
        z = np.maximum(-slope / self.strength, least)
        bound = float(0.5 * self.strength * z @ z + slope @ z + constant)
        return Minimum(self.anchor + self.scale * z, bound)


def _multipliers(
    rows: npt.NDArray[np.int64],
    slopes: Vector,
    offsets: Vector,
    least: Vector,
    strength: float,
    count: int,
) -> Vector:
    r"""Return the dual solution of min λ/2 |z|² + mean ξ, ξ_n ≥ offset + ⟨slope, z⟩, z ≥ least."""
    import clarabel
    from scipy import sparse

    d, planes = len(least), len(rows)
    bounded = np.flatnonzero(np.isfinite(least))
    above = sparse.csc_matrix((-np.ones(planes), (np.arange(planes), rows)), (planes, count))
    constraints = sparse.bmat(
        [[sparse.csc_matrix(slopes), above], [-sparse.eye(d, format="csr")[bounded], None]],
        format="csc",
    )
    quadratic = sparse.diags([*np.full(d, strength), *np.zeros(count)], format="csc")
    linear = np.concatenate([np.zeros(d), np.full(count, 1 / count)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(planes + len(bounded))]
    solver = clarabel.DefaultSolver(
        sparse.triu(quadratic, format="csc"),
        linear,
        constraints,
        np.concatenate([-offsets, -least[bounded]]),
        cones,
        settings,
    )
    found = np.maximum(np.asarray(solver.solve().z)[:planes], 0)
    totals = np.bincount(rows, found, minlength=count)
    return np.asarray(found / (count * totals[rows]))
