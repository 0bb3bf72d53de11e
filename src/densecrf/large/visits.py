r"""What is done to a tile: its row masses, its border's price, some iterations, its certificate.

Each visit reads what earlier stages wrote, of the tile and its margin, writes the tile's own part
of the next, and ends with a record of sums. All sums over pixels are those of the whole image,
whatever the tiles: records of all tiles add up to the energy and the bound of the whole.
"""

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from densecrf.certificates import Potentials
from densecrf.filters.base import SMALLEST_MASS
from densecrf.label_costs import BorderStatistics, border_statistics
from densecrf.large.job import Job, Local
from densecrf.large.problem import FinalRounding, TileProblem, in_whole_cells
from densecrf.problem import Problem
from densecrf.projections import compressed
from densecrf.solvers.lp import lp_start
from densecrf.solvers.primal_dual import primal_dual
from densecrf.validation import FloatArray, IntArray

SPAN, EDGE = 192.0, 64.0  # levels of the potentials, and of each end that is kept exactly

__all__ = ["Before", "certificate", "iterate", "masses", "prices"]


class Before(NamedTuple):
    """The iterates that a visit starts from.

    Attributes
    ----------
    stage : str
        Where they are stored.
    low, top : tuple of float
        Least potential of each node in the whole image, and the largest above it.
    cells : float
        Cells a unit of potential, from now on.
    factor : float
        What stored potentials are multiplied by, where that has changed.
    """

    stage: str
    low: tuple[float, ...]
    top: tuple[float, ...]
    cells: float
    factor: float = 1.0

    def highest(self) -> list[float]:
        """Return the largest potential of each node, marginals included."""
        span = SPAN / self.cells
        return [min(self.factor * top, span) + 1.0 for top in self.top]

    def potentials(self, stored: FloatArray) -> FloatArray:
        """Return stored potentials (nodes, n) as visits use them, the same for all tiles."""
        low, top = (np.array(each, np.float32)[:, None] for each in (self.low, self.top))
        u = (stored - low) * np.float32(self.factor)
        top = top * self.factor
        span, edge = SPAN / self.cells, EDGE / self.cells
        return np.asarray(compressed(np, u, top, span, edge), np.float32)


def masses(job: Job, task: int) -> dict[str, Any]:
    r"""Store :math:`1 / \sqrt{m_a}` of each kernel; record the unaries' sums."""
    local = job.local(job.tiling.tiles(0)[task])
    if job.normalization == "symmetric":
        scales = np.zeros((len(job.kernels), len(local.core)), np.float32)
        if len(local.core):
            for row, each in zip(scales, job.filters(local), strict=True):
                row[:] = 1 / np.sqrt(np.maximum(each.mass[local.core], np.float32(SMALLEST_MASS)))
        job.store.write("scales", local.box, local.scatter(scales))
    unary = job.unary(local)[:, local.core]
    return job.store.finish(
        "masses",
        task,
        {"pixels": len(local.core), "unary": unary.sum(1, dtype=np.float64).tolist()},
    )


def prices(job: Job, task: int) -> dict[str, Any]:
    """Record what the unaries' own labels pay for their borders."""
    local = job.local(job.tiling.tiles(0)[task])
    count = job.n_labels
    found = BorderStatistics(0, np.zeros(count), np.zeros(count))
    if len(local.core):
        found = border_statistics(job.crf(local), job.threads, local.core)
    record = {"pixels": found.pixels.tolist(), "paid": found.paid.tolist()}
    return job.store.finish("prices", task, record)


def iterate(
    job: Job, turn: int, task: int, before: Before | None, cells: float, inner: int
) -> dict[str, Any]:
    """Make a tile's iterations, its neighbours held fixed; store marginals, potentials, labels."""
    local = job.local(job.tiling.tiles(turn)[task])
    stage, core = f"iterates-{turn}", local.core
    if not len(core):
        rows = job.n_labels + _nodes(job) + 1
        job.store.write(stage, local.box, local.scatter(np.zeros((rows, 0), np.float32)))
        return job.store.finish(stage, task, {"bounds": [0.0] * inner})
    problem = TileProblem(job.crf(local), core, cells, job.threads)
    y, z, labels = (None, None, None) if before is None else _state(job, local, before)
    record: dict[str, Any] = {}
    if job.method == "lp":
        y, z, labels = _linear_program(problem, turn, (y, z, labels), inner)
        record["bounds"] = problem.bounds
        if _rounds(turn):
            record["energy"], _ = energy_share(problem, labels, core)
        z = z[:, core]
        record["low"], record["high"] = z.min(1).tolist(), z.max(1).tolist()
    else:
        start = problem.unary_marginals() if y is None else y
        y = problem.response(start)
        z, labels = np.zeros((0, len(core)), np.float32), y.argmax(0)
    stored = np.concatenate([y[:, core], z, labels[None, core].astype(np.float32)])
    job.store.write(stage, local.box, local.scatter(stored))
    return job.store.finish(stage, task, record)


def _rounds(turn: int) -> bool:
    """Return whether visits of a turn look for better labels: in every second one."""
    return turn % 2 == 0


def _linear_program(
    problem: TileProblem, turn: int, state: tuple[Any, Any, Any], inner: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Iterate the core from marginals, potentials and labels; returns the next ones."""
    y, z, labels = state
    if y is None:
        start = Problem(problem.crf, problem.threads)
        y = lp_start(start).y
        problem.hold(y, start.argmax(y))
    else:
        problem.hold(y, labels)
    incumbent = FinalRounding(problem, labels, inner if _rounds(turn) else None, turn // 2)
    steps = primal_dual(problem, y, incumbent, z, cells=problem.cells, restarts=False)
    previous = y
    for step in islice(steps, inner):
        previous, y = y, step.y
        dual: Any = step.duals[0]
    # The next visit starts from y; its first flow is to be that of the extrapolated 2 y - previous.
    z = problem.update_multipliers(dual.offsets, dual.scores, 0.0, 0.0)
    return y, z + problem.nodes(y - previous), incumbent.labels


def certificate(
    job: Job, turn: int, task: int, before: Before, extents: list[list[float]] | None
) -> dict[str, Any]:
    r"""Record the tile's share of the energy and of the bound, in double precision.

    The bound's share is :math:`\sum_a \min_i c_{ai}` with the costs :math:`c = \phi + r` of the
    stored potentials. By how much each pixel's second-best label costs more is stored.
    """
    local = job.local(job.tiling.tiles(turn)[task])
    stage = f"certificate-{turn}"
    if not len(local.core):
        job.store.write(stage, local.box, local.scatter(np.zeros((1, 0), np.float32)))
        zeros = dict.fromkeys(("energy", "size", "mass", "bound", "bound_size", "apart"), 0.0)
        return job.store.finish(stage, task, zeros)
    problem = _Bounded(job.crf(local), job.threads)
    y, z, labels = _state(job, local, before)
    energy, size = energy_share(problem, labels, local.core)
    mass = float(problem.mass_double[local.core].sum())
    record = {"energy": energy, "size": size, "mass": mass}
    if extents is not None:
        problem.extents = in_whole_cells(np.array(extents, np.float32), before.cells)
        r = problem.dual_point_double(Potentials(y, z, before.cells))
        costs = crf_costs(problem, r, local.core)
        least = costs.min(0)
        costs[costs.argmin(0), np.arange(len(least))] = np.inf
        apart = np.nextafter((costs.min(0) - least).astype(np.float32), np.float32(-np.inf))
        job.store.write(stage, local.box, local.scatter(apart[None]))
        record["bound"], record["bound_size"] = float(least.sum()), float(abs(least).sum())
        record["apart"] = float(apart.max())
    return job.store.finish(stage, task, record)


class _Bounded(Problem):
    """A problem whose potentials' extents are those of the whole image."""

    extents: FloatArray

    def _extents(self, nodes: FloatArray, offsets: FloatArray | None) -> FloatArray:  # noqa: ARG002
        return self.extents


def crf_costs(problem: Problem, r: Any, core: IntArray) -> Any:
    """Return the costs of a dual point at the core's pixels."""
    return problem.unary[:, core].astype(np.float64) + r[:, core]


def energy_share(problem: Problem, labels: IntArray, core: IntArray) -> tuple[float, float]:
    """Return the core's share of a labelling's energy, and the sum of its absolute unaries.

    A pair's cost is shared by its two pixels.
    """
    present, x = np.unique(labels, return_inverse=True)
    mu = 1.0 - np.eye(len(present))
    if problem.costs_double is not None:
        mu = problem.costs_double[np.ix_(present, present)]
    own = (np.arange(len(present))[:, None] == x).astype(np.float64)
    received = problem.apply_double(own)[:, core]
    pairs = float((mu @ own[:, core] * received).sum())
    unary = problem.unary[labels[core], core].astype(np.float64)
    return float(unary.sum()) + 0.5 * pairs, float(abs(unary).sum())


def _nodes(job: Job) -> int:
    """Return how many rows potentials have."""
    if job.method != "lp":
        return 0
    costs = job.label_costs
    return job.n_labels if costs is None or len(costs) == 2 else sum(cost > 0 for cost in costs)


def _state(job: Job, local: Local, before: Before) -> tuple[FloatArray, FloatArray, IntArray]:
    """Read marginals, potentials and labels of tile and margin."""
    stored = local.gather(job.store.read(before.stage, local.outer))
    y, z, x = np.split(stored, [job.n_labels, len(stored) - 1])
    return y, before.potentials(z) if len(z) else z, x[0].astype(np.int64)
