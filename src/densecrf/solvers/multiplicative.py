r"""The block (β, γ) of PROX-LP by multiplicative updates (Appendix A.2; Xiao and Chen 2014)."""

import numpy as np
import numpy.typing as npt

from densecrf.deadline import check_deadline
from densecrf.validation import FloatArray

__all__ = ["MultiplicativeBlock"]

Array = npt.NDArray[np.float64]

SMALL = 1e-12  # the constant c of the update
START = 1e-3  # smallest λγ to start from: an update never leaves zero
TOLERANCE = 3e-6  # of the optimality conditions
MOST_STEPS = 1_000_000


class MultiplicativeBlock:
    r"""Finds :math:`\tilde y = \lambda(v + B\beta + \gamma) + y^k` for the best β and γ.

    For each pixel, with :math:`Q = \lambda(I - \mathbf 1/m)` and :math:`h = -Qv - y^k`, γ solves
    :math:`\min_{\gamma\ge0} \tfrac12\gamma^TQ\gamma - \langle\gamma, h\rangle` (Eq. 11), and
    :math:`\beta = -B^T(v + \gamma)/m` (Eq. 10, whose sign is lost in print) makes
    :math:`\tilde y = Q\gamma - h`, the gradient of that problem.

    A second call starts from the γ of the first.

    Parameters
    ----------
    centre : ndarray, (labels, n)
        The centre :math:`y^k`; columns add up to 1.
    lam : float
        The proximal constant λ.
    steps : int, optional
        Number of updates a call; by default until the optimality conditions hold.

    Examples
    --------
    >>> block = MultiplicativeBlock(np.full((2, 1), 0.5, np.float32), lam=0.5)
    >>> block(np.array([[0.0], [-4.0]], np.float32)).round(3)
    array([[1.],
           [0.]], dtype=float32)
    """

    def __init__(self, centre: FloatArray, lam: float, steps: int | None = None) -> None:
        self._centre, self._lam, self._steps = centre, lam, steps
        self._gamma: Array | None = None

    def __call__(self, v: FloatArray) -> FloatArray:
        r"""Return :math:`\tilde y` for `v` = :math:`A\alpha - \phi`."""
        lam = self._lam
        h: Array = -lam * (v - v.mean(0, dtype=np.float64)) - self._centre
        # A positive start at or above the solution max(τ - z, 0) / λ, for z = λv + y^k = const - h.
        gamma = (h - h.min(0)) / lam if self._gamma is None else self._gamma
        gamma = np.maximum(gamma, START / lam)
        if self._steps is None:
            self._until_solved(gamma, h)
        else:
            for _ in range(self._steps):
                check_deadline()
                gamma = _updated(gamma, h, lam)
        self._gamma = gamma
        return np.asarray(_gradient(gamma, h, lam), np.float32)

    def _until_solved(self, gamma: Array, h: Array) -> None:
        """Update `gamma` in place, column by column as long as it takes."""
        going = np.arange(h.shape[1])
        for _ in range(MOST_STEPS):
            if not len(going):
                return
            check_deadline()
            wanted = h[:, going]
            better = _updated(gamma[:, going], wanted, self._lam)
            gamma[:, going] = better
            # Optimal: γ >= 0, gradient >= 0, and one of the two is zero.
            residual = np.minimum(self._lam * better, _gradient(better, wanted, self._lam))
            going = going[np.abs(residual).max(0) > TOLERANCE]


def _gradient(gamma: Array, h: Array, lam: float) -> Array:
    """Return Qγ - h."""
    out: Array = lam * (gamma - gamma.mean(0)) - h
    return out


def _updated(gamma: Array, h: Array, lam: float) -> Array:
    """Return γ (2 Q⁻γ + h⁺ + c) / (|Q|γ + h⁻ + c)."""
    m = len(gamma)
    others = lam / m * (gamma.sum(0) - gamma)  # Q⁻γ
    above = 2 * others + np.maximum(h, 0) + SMALL
    below = lam * (1 - 1 / m) * gamma + others + np.maximum(-h, 0) + SMALL
    out: Array = gamma * (above / below)
    return out
