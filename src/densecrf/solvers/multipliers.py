r"""The method of multipliers in potentials, with accelerated inner iterations.

For fixed z, minimise over y the LP smoothed with :math:`u = y + z` (projected gradients, Nesterov's
momentum, restarts), then update the multipliers, :math:`z \leftarrow z + y`. The cells stay wide,
so every inner problem is well conditioned, and yet their width leaves no bias: the multipliers
build up the potential differences between neighbours that the flow needs to saturate.

Where pairwise weights dominate, hardly any flow saturates and the inner problem is close to a
linear system on the graph of the kernel, for which momentum is what counts.
"""

from collections.abc import Iterator
from itertools import count
from math import sqrt
from typing import Any

from densecrf.certificates import Potentials
from densecrf.problem_base import ProblemBase
from densecrf.rounding import Incumbent
from densecrf.solvers.loop import Step

__all__ = ["multipliers"]

SPAN, EDGE = 5.0, 2.0  # range of the multipliers, and of each end that is kept exactly


def multipliers(
    problem: ProblemBase,
    y: Any,
    incumbent: Incumbent,
    *,
    cells: float,
    accuracy: float,
    least_inner: int,
) -> Iterator[Step]:
    """Yield the iterations of the method of multipliers; the parameters are those of `lp`."""
    step: Any = 1 / (cells * problem.lipschitz)
    z: Any = None
    v, momentum, inner, bound = y, 1.0, 0, -float("inf")
    for iteration in count(1):
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
        incumbent.update(y, iteration)
        v = problem.extrapolate(y, previous, (momentum - 1) / following)
        previous = None
        momentum, inner = following, inner + 1
        if inner >= least_inner and left <= accuracy * (incumbent.energy - bound):
            z = problem.update_multipliers(z, y, SPAN, EDGE)
            v, momentum, inner = y, 1.0, 0
        yield Step(y, bound=estimate, duals=duals, labels=incumbent.labels, energy=incumbent.energy)
