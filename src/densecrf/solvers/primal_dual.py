r"""The primal-dual hybrid gradient method in potentials (Chambolle and Pock 2011).

The saddle point of :math:`\langle\phi, y\rangle + \tfrac12 \sum_{a<b} K_{ab} \sum_i
\sigma_{abi}(y_{ai} - y_{bi})` over simplices and :math:`|\sigma| \le 1` is approached by

.. math:: \sigma_{abi} &\leftarrow \operatorname{clip}(\sigma_{abi} + \bar y_{ai} - \bar y_{bi}),
          \qquad \bar y = 2y - y^\text{previous} \\
          y &\leftarrow P_\Delta(y - \tau(\phi + r)),
          \qquad r_{ai} = \tfrac12\sum_b K_{ab}\sigma_{abi},

with one dual number for each pair and label: too many to store. If sums are clipped when they are
used, instead of each time, they derive from potentials, :math:`\sigma_{abi} = s(z_{ai} - z_{bi})`
with :math:`z \leftarrow z + \bar y`, and one ordered filter call computes r. What exceeds the clip
is forgotten by compressing z into a bounded range. Where the bound has stalled, iterates circle
around the saddle point, and the method restarts from their average, if its bound is better. After
20 iterations the dual step is halved and the primal one doubled, which damps such circles.
"""

from collections.abc import Generator
from typing import Any

from densecrf.certificates import Potentials
from densecrf.problem_base import ProblemBase
from densecrf.rounding import Incumbent, Pace
from densecrf.solvers.loop import Step

__all__ = ["Average", "primal_dual"]

SPAN, EDGE = 48.0, 16.0  # levels of the potentials, and of each end that is kept exactly
STEP = 1.3  # times 1 / L; below 4/3 (He, Ma, Li and Yuan 2022)
SLOW, DAMPED = 20, 0.5  # iterations after which the dual step is shortened, and to what
STALLED, LEAST = 3, 4  # iterations without a better bound, and in an average, before a restart


def primal_dual(
    problem: ProblemBase,
    y: Any,
    incumbent: Incumbent,
    z: Any = None,
    *,
    cells: float = 1.0,
    restarts: bool = True,
) -> Generator[Step, None, tuple[Any, Any]]:
    """Yield iterations of the primal-dual hybrid gradient method until they are slow.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    incumbent : Incumbent
        The best labelling, updated by each iteration.
    z : array, (nodes, n), optional
        Potentials of earlier iterations, to go on from.
    cells : float
        Cells per unit of them.
    restarts : bool
        Whether to restart from averages; without, it goes on for ever.

    Returns
    -------
    y, levels : array
        The marginals, and the potentials in levels.
    """
    step: Any = STEP / (cells * problem.lipschitz)
    v, best, stalled, average, pace = y, -float("inf"), 0, Average(problem), Pace(incumbent)
    iteration = 0
    while True:
        iteration += 1
        r: Any = problem.flow(v, z, cells)
        dual: Any = Potentials(v, z, cells)
        previous = y
        y, bound, _, _ = problem.descend(y, r, step, y)
        r = None  # large: let it go before the next one is made
        incumbent.update(y, bound)
        yield _step(y, bound, dual, incumbent)
        z = problem.update_multipliers(z, v, SPAN / cells, EDGE / cells)
        v = problem.extrapolate(y, previous, 1.0)
        dual = previous = None
        if restarts and pace.slow(bound):
            return y, z * cells
        average.add(y, z)
        stalled = 0 if bound > best else stalled + 1
        best = max(best, bound)
        if restarts and stalled >= STALLED and average.count >= LEAST:
            mean, dual = average.y, Potentials(0 * y, average.z, cells)
            r = problem.flow(dual.scores, dual.offsets, cells)
            mean, of_average, _, _ = problem.descend(mean, r, step, mean)
            if of_average > bound:
                y, z, v = mean, dual.offsets, mean
            best, stalled, average = max(best, of_average), 0, Average(problem)
            yield _step(y, of_average, dual, incumbent)
            r = mean = dual = None
        if iteration == SLOW and cells > DAMPED:  # the same flow, in longer potentials
            cells, step, z = DAMPED, step / DAMPED, z / DAMPED
            average = Average(problem)


def _step(y: Any, bound: float, dual: Potentials, incumbent: Incumbent) -> Step:
    labels, energy = incumbent.labels, incumbent.energy
    return Step(y, bound=bound, duals=(dual,), labels=labels, energy=energy)


class Average:
    """The average of some iterates."""

    def __init__(self, problem: ProblemBase) -> None:
        self._problem = problem
        self._y: Any = None
        self._z: Any = None
        self.count = 0

    def add(self, y: Any, z: Any) -> None:
        """Take an iterate in."""
        if self._y is None:
            self._y, self._z = y + 0, z + 0
        else:
            self._problem.accumulate(self._y, y)
            self._problem.accumulate(self._z, z)
        self.count += 1

    @property
    def y(self) -> Any:
        """The average marginals."""
        return self._y / self.count

    @property
    def z(self) -> Any:
        """The average potentials."""
        return self._z / self.count
