r"""The certified linear program: the method of multipliers in potentials.

The pairwise term of the LP relaxation (Eq. 4) is a maximum over flows,

.. math:: \sum_{a<b} K_{ab} \tfrac12 \sum_i |y_{ai} - y_{bi}|
          = \max_{|\sigma| \le 1} \tfrac12 \sum_{a<b} K_{ab} \sum_i \sigma_{abi}(y_{ai} - y_{bi}),

with one antisymmetric number for each pair and label: too many to store. But a flow that derives
from potentials, :math:`\sigma_{abi} = s(u_{ai} - u_{bi})` with s a sign rounded off over one
*cell*, needs only u, and one ordered filter call computes :math:`r_{ai} = \tfrac12\sum_b K_{ab}
\sigma_{abi}`. Whatever u is, :math:`\sum_a \min_i(\phi_{ai} + r_{ai})` is a lower bound.

The method of multipliers then reads, in potentials: for fixed z minimise over y the LP smoothed
with :math:`u = y + z` (projected gradients, Nesterov's momentum, restarts), then the
multiplier update, :math:`z \leftarrow z + y`. The cells stay wide, so every inner problem is well
conditioned, and yet their width leaves no bias: the multipliers build up the potential
differences between neighbours that the flow needs to saturate.
"""

from collections.abc import Iterator
from itertools import count
from math import sqrt
from typing import Any

from densecrf.certificates import Potentials
from densecrf.problem_base import ProblemBase
from densecrf.rounding import Descent, icm
from densecrf.solvers.loop import Step
from densecrf.solvers.mean_field import mean_field
from densecrf.validation import check_integer, check_non_negative, check_positive

__all__ = ["lp", "lp_finish", "lp_start"]

SPAN, EDGE = 5.0, 2.0  # range of the multipliers, and of each end that is kept exactly
CELLS, MOST_CELLS = 4.0, 1000.0  # a unit of potential
SWEEPS = 5  # of ICM; most of what there is to gain comes with the first


def lp_start(problem: ProblemBase) -> Step:
    """Start where mean field is after five iterations, unless a constant labelling beats it.

    Where one does, mean field is stuck among strong pairwise terms, and the unary marginals, which
    are less certain, are the better start.
    """
    y = problem.unary_marginals()
    if not problem.potts:
        return Step(y)
    for step in mean_field(problem, y, iterations=5, tolerance=0.0):
        y = step.y
    labels = problem.argmax(y)
    energy = problem.energy(labels)
    if problem.best_constant()[1] < energy:
        y = problem.unary_marginals()
    return Step(y, labels=labels, energy=energy)


def lp(
    problem: ProblemBase,
    y: Any,
    *,
    iterations: int = 500,
    cells: float = CELLS,
    accuracy: float = 0.8,
    least_inner: int = 6,
    round_every: int = 2,
    polish: int = 1,
    settle_every: int = 20,
) -> Iterator[Step]:
    r"""Minimise the LP relaxation with a certificate; one iteration is one ordered filter call.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    iterations : int
        Most iterations.
    cells : float
        Cells a unit of potential: how finely the order of the scores is taken.
    accuracy : float
        The multipliers are updated when the inner problem is solved to this share of the gap
        between the best energy and the best bound.
    least_inner : int
        Least iterations between two multiplier updates.
    round_every : int
        Iterations between two roundings.
    polish : int
        Sweeps of iterated conditional modes after each rounding.
    settle_every : int
        Iterations after which the incumbent gets more sweeps, as it does at the end. Long runs end
        sooner by it.
    """
    check_integer("iterations", iterations, at_least=0)
    check_integer("least_inner", least_inner, at_least=0)
    check_integer("round_every", round_every, at_least=1)
    check_integer("polish", polish, at_least=0)
    check_integer("settle_every", settle_every, at_least=1)
    check_positive("cells", cells)
    if cells > MOST_CELLS:
        raise ValueError(f"cells={cells!r}: at most {MOST_CELLS:g}; every cell is a level")
    check_non_negative("accuracy", accuracy)
    step: Any = 1 / (cells * problem.lipschitz)
    best = _Best(problem, polish)
    z: Any = None
    v, momentum, inner, bound = y, 1.0, 0, -float("inf")
    for iteration in count(1):
        if iteration > iterations:
            return
        r: Any = problem.flow(v, z, cells)
        previous = y
        y, estimate, value, uphill = problem.descend(v, r, step, previous, in_place=True)
        duals = (Potentials(y, z, cells), Potentials(v, z, cells))
        r = v = None  # large: let them go before the next ones are made
        bound = max(bound, estimate)
        left = value - estimate  # duality gap of the inner problem
        if uphill > 0:
            momentum = 1.0  # it points uphill: restart (O'Donoghue and Candès 2015)
        following = (1 + sqrt(1 + 4 * momentum**2)) / 2
        v = problem.extrapolate(y, previous, (momentum - 1) / following)
        previous = None
        momentum, inner = following, inner + 1

        if iteration % round_every == 0 or iteration == 1:
            best.round(y)
        if iteration % settle_every == 0:
            best.settle()
        if inner >= least_inner and left <= accuracy * (best.energy - bound):
            z = problem.update_multipliers(z, y, SPAN, EDGE)
            v, momentum, inner = y, 1.0, 0
        yield Step(y, bound=estimate, duals=duals, labels=best.labels, energy=best.energy)


def lp_finish(problem: ProblemBase, labels: Any) -> tuple[Any, float]:
    """Return the labelling after some sweeps of iterated conditional modes, and its energy."""
    return icm(problem, labels, SWEEPS)


class _Best:
    """The incumbent: the best labelling seen, the constant ones among the candidates."""

    def __init__(self, problem: ProblemBase, polish: int) -> None:
        self.problem, self.polish = problem, polish
        label, self.energy = problem.best_constant()
        self.labels = problem.constant(label)
        self._rounded: Any = None
        self._descent: Descent | None = None

    def round(self, y: Any) -> None:
        """Round, polish, and keep what is better."""
        labels = self.problem.argmax(y)
        if self._rounded is not None and bool((labels == self._rounded).all()):
            return
        self._rounded = labels
        descent = Descent(self.problem, labels)
        descent.sweeps(self.polish)
        if descent.energy < self.energy:
            self._keep(descent)

    def settle(self) -> None:
        """Continue the descent of the incumbent."""
        if self._descent is not None and self._descent.sweeps(SWEEPS):
            self._keep(self._descent)

    def _keep(self, descent: Descent) -> None:
        self._descent = descent
        self.labels, self.energy = descent.labels, descent.energy
