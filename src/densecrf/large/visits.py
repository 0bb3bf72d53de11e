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
from densecrf.large.problem import TileProblem, in_whole_cells
from densecrf.problem import Problem
from densecrf.projections import compressed
from densecrf.rounding import Incumbent
from densecrf.solvers.lp import lp_start
from densecrf.solvers.mean_field import mean_field
from densecrf.solvers.primal_dual import EDGE, SPAN, Average, primal_dual
from densecrf.validation import FloatArray, IntArray

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
    job: Job, turn: int, task: int, before: Before | None, cells: float, averaged: bool
) -> dict[str, Any]:
    """Make a tile's iterations, its neighbours held fixed; store marginals, potentials, labels.

    Where `averaged`, those of the iterations' average: the whole image restarts from it.
    """
    local = job.local(job.tiling.tiles(turn)[task])
    stage = f"iterates-{turn}"
    if not len(local.core):
        rows = job.n_labels + _nodes(job) + 1
        job.store.write(stage, local.box, local.scatter(np.zeros((rows, 0), np.float32)))
        return job.store.finish(stage, task, {"energy": 0.0, "bound": 0.0})
    crf = job.crf(local)
    if before is None:
        start = Problem(crf, job.threads)
        y = start.unary_marginals()
        z, labels = None, start.argmax(y)
    else:
        y, z, labels = _state(job, local, before)
    problem = TileProblem(crf, local.core, y, z, y.argmax(0), cells=cells, threads=job.threads)
    if job.method == "lp":
        y, z, labels, bound = _linear_program(job, problem, y, z, labels, averaged)
    else:
        step = next(mean_field(problem, y[:, local.core], iterations=1, tolerance=0.0))
        y, z, bound = step.y, np.zeros((0, problem.n), np.float32), 0.0
        labels = problem.argmax(y)
    stored = np.concatenate([y, z, labels[None].astype(np.float32)])
    job.store.write(stage, local.box, local.scatter(stored))
    record: dict[str, Any] = {"bound": bound}
    if job.method == "lp":
        whole = problem.among_neighbours(labels)
        record["energy"], _ = energy_share(problem.whole, whole, local.core)
        record["low"], record["high"] = z.min(1).tolist(), z.max(1).tolist()
    return job.store.finish(stage, task, record)


def _linear_program(
    job: Job,
    problem: TileProblem,
    y: FloatArray,
    z: FloatArray | None,
    labels: IntArray,
    averaged: bool,
) -> tuple[FloatArray, FloatArray, IntArray, float]:
    """Iterate the core; returns its marginals, potentials, labels and bound."""
    core = problem.core
    incumbent = Incumbent(problem, settle_every=job.inner)
    own = None if z is None else np.ascontiguousarray(z[:, core])
    if own is None:
        y = lp_start(problem).y
    else:
        incumbent.consider(labels[core])
        y = np.ascontiguousarray(y[:, core])
    steps = primal_dual(problem, y, incumbent, own, cells=problem.cells, restarts=False)
    kept, bound = Average(), 0.0
    for step in islice(steps, job.inner):
        dual: Any = step.duals[0]
        advanced = problem.nodes(dual.scores) + (0 if dual.offsets is None else dual.offsets)
        kept = kept if averaged else Average()
        kept.add(step.y, advanced)
        bound = float(step.bound or 0.0)
    return kept.y, kept.z, incumbent.labels, bound


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
