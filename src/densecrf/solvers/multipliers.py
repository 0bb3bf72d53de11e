r"""The method of multipliers in potentials, with accelerated inner iterations.

For fixed z, minimise over y the LP smoothed with :math:`u = y + z` (projected gradients, Nesterov's
momentum, restarts), then update the multipliers, :math:`z \leftarrow z + y`. The cells stay wide,
so every inner problem is well conditioned, and yet their width leaves no bias: the multipliers
build up the potential differences between neighbours that the flow needs to saturate.

Where pairwise weights dominate, hardly any flow saturates and the inner problem is close to a
linear system on the graph of the kernel, for which momentum is what counts.
"""

from collections.abc import Generator
from math import sqrt
from typing import Any

from densecrf.certificates import Potentials
from densecrf.problem_base import ProblemBase
from densecrf.rounding import Incumbent, Pace
from densecrf.solvers.loop import Step

__all__ = ["multipliers"]

SPAN, EDGE = 48.0, 16.0  # levels of the multipliers, and of each end that is kept exactly


def multipliers(
    problem: ProblemBase,
    y: Any,
    levels: Any,
    incumbent: Incumbent,
    *,
    cells: float,
    accuracy: float,
    least_inner: int,
    to_the_end: bool = False,
) -> Generator[Step, None, tuple[Any, Any]]:
    """Yield iterations of the method of multipliers until they are slow, or for ever.

    Parameters
    ----------
    problem, y
        The problem and the starting marginals.
    levels : array, (nodes, n), or None
        Multipliers to start from, in levels.
    incumbent : Incumbent
        The best labelling.
    cells, accuracy, least_inner
        The parameters of `lp`.
    to_the_end : bool
        Whether to go on where progress is slow.

    Returns
    -------
    y, levels : array
        The marginals, and the potentials in levels.
    """
    step: Any = 1 / (cells * problem.lipschitz)
    z: Any = None if levels is None else levels / cells
    levels = None
    v, momentum, inner, bound, pace = y, 1.0, 0, -float("inf"), Pace(incumbent)
    while True:
        r: Any = problem.flow(v, z, cells)
        previous = y
        y, estimate, value, uphill = problem.descend(v, r, step, previous, in_place=True)
        duals: Any = (Potentials(y, z, cells), Potentials(v, z, cells))
        r = v = None  # large: let them go before the next ones are made
        bound = max(bound, estimate)
        left = value - estimate  # duality gap of the inner problem
        if uphill > 0:
            momentum = 1.0  # it points uphill: restart (O'Donoghue and Candès 2015)
        following = (1 + sqrt(1 + 4 * momentum**2)) / 2
        incumbent.update(y, estimate)
        v = problem.extrapolate(y, previous, (momentum - 1) / following)
        previous = None
        momentum, inner = following, inner + 1
        slow = pace.slow(estimate) and not to_the_end
        if slow or (inner >= least_inner and left <= accuracy * (incumbent.energy - bound)):
            z = problem.update_multipliers(z, y, SPAN / cells, EDGE / cells)
            v, momentum, inner = y, 1.0, 0
        yield Step(y, bound=estimate, duals=duals, labels=incumbent.labels, energy=incumbent.energy)
        duals = None
        if slow:
            return y, z * cells
