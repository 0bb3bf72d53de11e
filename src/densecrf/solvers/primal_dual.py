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
is forgotten by compressing z into a bounded range.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from densecrf.problem import Problem
from densecrf.rounding import Incumbent
from densecrf.solvers.loop import Step
from densecrf.solvers.prover import Prover

__all__ = ["primal_dual"]

SPAN, EDGE = 48.0, 16.0  # range of the potentials, and of each end that is kept exactly
STEP = 1.3  # times 1 / L; below 4/3 (He, Ma, Li and Yuan 2022)
TRIALS = 3  # of a line search


def primal_dual(problem: Problem, y: Any, incumbent: Incumbent) -> Iterator[Step]:
    """Yield the iterations of the primal-dual hybrid gradient method."""
    step: Any = STEP / problem.lipschitz
    best, prover = _Combination(problem), Prover(problem)
    v, z = y, None
    for iteration in count(1):
        r: Any = problem.flow(v, z, 1.0)
        previous = y
        y, proven, _, _ = problem.descend(y, r, step, y)
        bound = best.add(r, proven)
        r = None  # large: let it go
        incumbent.update(y, iteration)
        prover.consider(v, z, 1.0, proven, incumbent)
        z = problem.update_multipliers(z, v, SPAN, EDGE)
        v = problem.extrapolate(y, previous, 1.0)
        previous = None
        yield prover.step(y, bound, incumbent, iteration)


class _Combination:
    """The best convex combination of dual points, each added by a line search.

    Dual points of iterates that circle around a saddle point are better together than apart.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.r: Any = None
        self.bound = -float("inf")

    def add(self, r: Any, bound: float) -> float:
        """Move the combination towards r where that raises its bound; return the bound."""
        if self.r is None:
            self.r, self.bound = r, bound
            return bound
        best, second = (bound, 1.0, r), (self.bound, 0.0, self.r)
        for _ in range(TRIALS):
            if second[0] > best[0]:
                best, second = second, best
            t = (best[1] + second[1]) / 2
            mixed = self.problem.extrapolate(r, self.r, t - 1)
            second = (self.problem.lower_bound(mixed), t, mixed)
        self.bound, _, self.r = max(best, second, key=lambda point: point[0])
        return self.bound
