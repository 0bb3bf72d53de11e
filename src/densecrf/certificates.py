r"""How far from optimal, at most: bounds on the energy of every labelling.

For any numbers :math:`\sigma_{abi} \in [-1, 1]` with :math:`\sigma_{abi} = -\sigma_{bai}` put
:math:`r_{ai} = \tfrac12 \sum_b K_{ab} \sigma_{abi}`. Then for every y in the product of simplices

.. math:: \tilde E(y) \ge \langle \phi + r, y \rangle \ge \sum_a \min_i (\phi_{ai} + r_{ai}),

because :math:`\tfrac12 \sum_{a<b} K_{ab} \sum_i \sigma_{abi} (y_{ai} - y_{bi})` is at most the
pairwise term. Every ordered filter call gives such an r (`Problem.dual_point`, `Problem.flow`), so
every method on the linear program has a bound at no extra cost, and `certify` finds one for the
labelling of any other program.

The filters work in float32. Rounding errors that would break the antisymmetry are taken out of r,
and each bound gives away half a unit in the last place of all pairwise mass
(`Problem.rounding_allowance`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.result import relative_gap
from densecrf.validation import check_integer, check_non_negative

if TYPE_CHECKING:
    from densecrf.model import DenseCRF

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a labelling is.

    Attributes
    ----------
    energy : float
        Energy of the labelling.
    lower_bound : float
        No labelling has an energy below this.
    better_energy : float
        The lowest energy that was met on the way: at most `energy`.
    better_labels : ndarray, (*spatial)
        The labelling that has it.
    proven : ndarray of bool, (*spatial)
        The pixels whose label is the one that every optimal labelling has, as far as is proven.
    possible : ndarray of int, (*spatial)
        How many labels an optimal labelling can have at each pixel, as far as is proven.
    calls : int
        Ordered filter calls made.
    seconds : float
        Time spent.
    """

    energy: float
    lower_bound: float
    better_energy: float
    better_labels: npt.NDArray[np.int64]
    proven: npt.NDArray[np.bool_]
    possible: npt.NDArray[np.int32]
    calls: int
    seconds: float

    @property
    def gap(self) -> float:
        """(energy - lower_bound) / max(1, abs(energy)): how far from optimal, at most."""
        gap = relative_gap(self.energy, self.lower_bound)
        assert gap is not None
        return gap

    @property
    def excess(self) -> float:
        """(energy - better_energy) / max(1, abs(energy)): how far from optimal, at least."""
        return (self.energy - self.better_energy) / max(1.0, abs(self.energy))

    def __str__(self) -> str:
        """Return a summary for people."""
        lines = [
            f"energy       {self.energy:,.3f}",
            f"lower bound  {self.lower_bound:,.3f}",
            f"certificate  at most {100 * self.gap:.3g} % above the global optimum, proven",
        ]
        if self.excess > 0:
            lines.append(
                f"but          at least {100 * self.excess:.3g} % above it: a labelling of energy "
                f"{self.better_energy:,.3f} was found"
            )
        if self.proven.any():
            lines.append(
                f"pixels       {100 * self.proven.mean():.1f} % are proven to have the label of "
                "every optimum"
            )
        lines.append(f"effort       {self.calls} ordered filter calls, {self.seconds:.3f} s")
        return "\n".join(lines)


def certify(
    crf: "DenseCRF",
    labels: Any,
    budget: int = 50,
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
    threads: int | None = None,
) -> Certificate:
    """Bound the optimality of any labelling, whoever made it.

    Parameters
    ----------
    crf : DenseCRF
        The model whose energy counts; Potts or a `LabelTree`.
    labels : array_like of int, (*spatial)
        The labelling.
    budget : int
        Most ordered filter calls.
    gap : float
        Stop as soon as the labelling is proven to be within this fraction of the optimum.
    time_limit : float, optional
        Most seconds to spend.
    threads : int, optional
        Number of threads, all by default.

    Examples
    --------
    >>> import numpy as np
    >>> from densecrf import DenseCRF, Spatial
    >>> unary = np.array([[[0.0, 0.6, 0.0]], [[1.0, 0.5, 1.0]]])
    >>> crf = DenseCRF(unary, [Spatial(sigma=1.0, weight=1.0)], filter="exact")
    >>> certify(crf, [[0, 0, 0]]).gap < 1e-5
    True
    >>> round(certify(crf, [[0, 1, 0]]).excess, 2)
    0.46
    """
    x = crf.check_labels(labels)
    energy = crf.energy(x)
    asked = check_non_negative("gap", gap)
    result = crf.solve(
        "lp",
        gap=0.0,
        max_iterations=check_integer("budget", budget, at_least=1),
        time_limit=time_limit,
        threads=threads,
        callback=lambda outcome: _within(energy, outcome.lower_bound, asked),
    )
    bound = -np.inf if result.lower_bound is None else result.lower_bound
    better = result.energy < energy
    return Certificate(
        energy=energy,
        lower_bound=min(float(bound), energy),
        better_energy=result.energy if better else energy,
        better_labels=result.labels if better else x.reshape(crf.shape),
        proven=result.proven & (result.labels == x.reshape(crf.shape)),
        possible=np.full(crf.shape, crf.n_labels, np.int32)
        if result.possible is None
        else result.possible,
        calls=result.trace.ordered_calls[-1],
        seconds=result.seconds,
    )


def _within(energy: float, bound: float | None, asked: float) -> bool:
    gap = relative_gap(energy, bound)
    return gap is not None and gap <= asked
