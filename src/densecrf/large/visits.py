r"""Visits to a tile: extremes, label shares, row masses, iterations, the certificate.

Each visit reads the results of earlier stages for the tile and its margin, writes the tile's own
part of the next, and ends with a record of sums. The records of all tiles add up to the energy and
the bound of the whole image.

A tile's pixels, its *core*, are surrounded by a margin of the neighbours' pixels, as wide as the
filters reach (`densecrf.large.tiles`), so that the core's sums over pixels are those of the whole
image. The methods of `densecrf.solvers` iterate the core. The margin's marginals are held fixed,
and its potentials advance as in the neighbours' own iterations. The first iteration of a visit is
then that of the whole image; once the whole image has converged, so are the others. In the first
round, where the neighbours are unknown, tile and margin iterate together.
"""

from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from densecrf.backend import Gradient
from densecrf.large.energy import Local, TiledEnergy
from densecrf.large.motion import at_rest, flow_from, moved
from densecrf.large.result import LargeResult, label_dtype
from densecrf.large.sources import Source, raster_range, whole
from densecrf.large.tiles import shape_of
from densecrf.model.label_prior import share_sums
from densecrf.model.specification import KEYWORDS, Specification
from densecrf.native import core as native_core
from densecrf.operators.levels import SMALLEST_MASS
from densecrf.problem.certificate import Costs, Potentials, Share, Sizes, gamma
from densecrf.problem.problem import Problem, problem_of
from densecrf.problem.projections import compressed
from densecrf.problem.rounding import SWEEPS, Incumbent, icm
from densecrf.refinement import refine
from densecrf.solvers.lp import Workspace, lp_start, multipliers, primal_dual
from densecrf.steps.native import NativeSteps, Plain
from densecrf.validation import ArgumentError, FloatArray, IntArray, check_finite

REACHES = 3  # margins of five iterations of mean field at once: the error is below 1e-6
SPAN, EDGE = 192.0, 64.0  # levels of the potentials, and of each end that is stored exactly

__all__ = [
    "REACHES",
    "Before",
    "Round",
    "certificate",
    "certificate_stage",
    "iterate",
    "labels_of",
    "masses",
    "positions",
    "refine_whole",
    "scan",
    "several",
    "shares",
    "solve_whole",
    "stored_rows",
]


def in_whole_cells(extents: FloatArray, cells: float) -> FloatArray:
    """Return extents (nodes, 2) enlarged to whole cells.

    Potentials are rounded to levels, so that all tiles need the same levels.

    Examples
    --------
    >>> in_whole_cells(np.array([[0.3, 2.0]], np.float32), 0.5)
    array([[0., 2.]], dtype=float32)
    """
    low, high = np.floor(extents[:, 0] * cells), np.ceil(extents[:, 1] * cells)
    return np.asarray(np.stack([low, high], 1) / cells, np.float32)


class TileSteps(NativeSteps):
    """The steps of a tile and its margin, with levels at the whole image's places.

    Parameters
    ----------
    unary : ndarray, (labels, n)
        The energies of tile and margin.
    core : ndarray of int
        The core's pixels, ascending.
    cells : float
        Cells per unit of potential.
    mirrored : bool
        Whether there are two labels, the order of the second the first one's reversed.
    threads : int
        0 for all.

    Attributes
    ----------
    bounds : list of float
        The core's share of the bound in each iteration so far.
    """

    restricts_labels = False

    def __init__(
        self, unary: FloatArray, core: IntArray, cells: float, *, mirrored: bool, threads: int = 0
    ) -> None:
        super().__init__(threads)
        self.core, self.cells, self._mirrored = core, cells, mirrored
        self.bounds: list[float] = []
        self._outside = np.ones(unary.shape[1], bool)
        self._outside[core] = False
        self._margin = np.flatnonzero(self._outside)
        self._unary = unary.take(self._margin, 1)
        self._y: FloatArray | None = None

    def hold(self, y: FloatArray) -> None:
        """Hold the margin's marginals fixed; otherwise they are iterated, too."""
        self._y = y

    def extents(self, nodes: Plain, offsets: Plain | None) -> FloatArray:
        """Return extents in whole cells."""
        found = super().extents(nodes, offsets)
        if self._mirrored and len(nodes) == 2:
            found[1] = found[0]
        return in_whole_cells(found, self.cells)

    def compress(
        self, nodes: Plain, offsets: Plain | None, span: float, edge: float, *, in_place: bool
    ) -> Plain:
        """Return nodes + offsets, compressed between visits in the same way in all tiles."""
        del span, edge
        if offsets is not None:
            return np.asarray(offsets + nodes)
        return nodes if in_place else np.array(nodes)

    def descend(self, at: Gradient[Plain], *, in_place: bool) -> tuple[Plain, float, float, float]:
        """Take a projected gradient step, and note the core's share of the bound."""
        of_margin = native_core().lower_bound(
            self._unary, at.r.take(self._margin, 1), 1.0, None, self.threads
        )
        out = super().descend(at, in_place=in_place)
        self.bounds.append(out[1] - float(of_margin))
        if self._y is not None:
            np.copyto(out[0], self._y, where=self._outside)
        return out


class FixedExtents(NativeSteps):
    """Steps for which the extents of potentials are those of the whole image."""

    restricts_labels = False

    def __init__(self, extents: FloatArray, threads: int) -> None:
        super().__init__(threads)
        self._extents = extents

    def extents(self, nodes: Plain, offsets: Plain | None) -> FloatArray:
        """Return the whole image's extents."""
        del nodes, offsets
        return self._extents


class Unrounded(Incumbent[Plain]):
    """No labelling: those of tiles are compared for the whole image."""

    def update(self, y: Plain, bound: float) -> None:
        """Do nothing."""


class Before(NamedTuple):
    """The iterates that a visit starts from.

    Attributes
    ----------
    stage : str
        Where they are stored.
    low, top : tuple of float
        Smallest potential of each node in the whole image, and its largest minus the smallest.
    cells : float
        Cells per unit of potential from now on.
    factor : float
        Factor of stored potentials, for a changed number of cells.
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


def several(
    visit: Callable[..., dict[str, Any]], job: TiledEnergy, stage: str, tasks: list[int], given: Any
) -> list[dict[str, Any]]:
    """Visit some tiles, except finished ones: a task may run twice."""
    return [
        job.store.record(stage, task) or visit(job, *given[:1], task, *given[1:]) for task in tasks
    ]


def scan(job: TiledEnergy, task: int) -> dict[str, Any]:
    """Record the pixels with the extreme values of a tile, and the values of its hard labels.

    The reading of the input depends on its smallest and largest values and sums; the extremes of
    all tiles are read as the whole input would be.
    """
    local = job.local(job.tiling.tiles(0)[task], 0)
    record: dict[str, Any] = {"image": [], "scores": []}
    if len(local.pixels):
        if job.image is not None:
            record["image"] = _extreme("image", local, job.pixels_of_image(local).T).tolist()
        values, known = job.values(local)
        values = values[..., known]
        found = (
            np.unique(values)
            if job.content == "labels"
            else _extreme("probabilities", local, np.atleast_2d(values))
        )
        record["scores"] = found.tolist()
    return job.store.finish("scan", task, record)


def _extreme(name: str, local: Local, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the pixels of an array (channels, n) that have the extremes of its numbers and sums.

    They include one with a fraction, if there is any. Numbers that are not finite are refused.
    """
    if not values.size:
        return values
    try:
        check_finite(name, values)
    except ArgumentError as error:
        corner = tuple(part.start for part in local.box)
        raise ArgumentError(name, ..., f"in the tile at {corner}: {error.remedy}") from error
    picked = [int(each) for row in values for each in (row.argmin(), row.argmax())]
    sums = [values.sum(0, dtype=np.float64)]
    if values.dtype.kind == "f":
        fractions = values != np.rint(values)
        picked.append(int(fractions.any(0).argmax()))
        with np.errstate(over="ignore"):
            sums.append(np.exp(-values.astype(np.float32)).sum(0))
    picked += [int(each) for total in sums for each in (total.argmin(), total.argmax())]
    return values[:, np.unique(picked)]


def shares(job: TiledEnergy, task: int) -> dict[str, Any]:
    """Record the sums of the labels' probabilities."""
    local = job.local(job.tiling.tiles(0)[task], 0)
    sums, known = share_sums(job.unary(local)[:, local.core])
    return job.store.finish("shares", task, {"sums": sums.tolist(), "known": known})


def positions(job: TiledEnergy, task: int) -> dict[str, Any]:
    """Store the position (y, x) of each pixel in the first frame, by the flow.

    Windows are visited in the order of time: each starts from the last frame of the previous one.
    """
    box = job.tiling.tiles(0)[task]
    frames, plane = range(box[0].start, box[0].stop), box[1:]
    places = at_rest(shape_of(plane))
    if frames.start:
        places = job.store.read("positions", (slice(frames.start - 1, frames.start), *plane))[:, 0]
    out = []
    for t in frames:
        if t:
            places = moved(places, flow_from(cast("Source", job.flow), t - 1))
        out.append(places)
    job.store.write("positions", box, np.stack(out, 1))
    furthest = np.abs(out).max((0, 2, 3)).tolist()
    return job.store.finish("positions", task, {"furthest": furthest})


def masses(job: TiledEnergy, task: int) -> dict[str, Any]:
    r"""Store :math:`1 / \sqrt{m_a}` of each kernel and the self terms; record the unaries' sums."""
    local = job.local(job.tiling.tiles(0)[task])
    symmetric = job.normalization == "symmetric"
    scales = np.ones((len(job.kernels), len(local.core)), np.float32)
    own = np.zeros((1, len(local.core)), np.float32)
    if len(local.core):
        for row, kernel, each in zip(scales, job.kernels, job.filters(local), strict=True):
            if symmetric:
                mass = each.row_sums()[local.core].astype(np.float32)
                row[:] = 1 / np.sqrt(np.maximum(mass, np.float32(SMALLEST_MASS)))
            own += kernel.weight * row**2 * each.diagonal()[local.core]
    rows = np.concatenate([scales, own] if symmetric else [own])
    job.store.write("masses", local.box, local.scatter(rows))
    unary = job.unary(job.local(local.box, 0))
    record = {"pixels": len(local.core), "unary": unary.sum(1, dtype=np.float64).tolist()}
    record["least"] = float(unary.min(0).sum(dtype=np.float64))
    return job.store.finish("masses", task, record)


class Round(NamedTuple):
    """The work of a round in each tile.

    Attributes
    ----------
    cells : float
        Cells per unit of potential.
    inner : int
        Iterations.
    smooth : bool
        Of the method of multipliers instead of the primal-dual one.
    update : bool
        Whether multipliers are updated first.
    roundings : tuple of (int, float)
        Roundings to try: a label and the number added to its marginals before the largest is taken.
    near : float
        Relative gap of a tile with its margin at which its first iterations end, or 0.
    labels : str
        The stage of labels whose energy is to be evaluated, or "".
    """

    cells: float = 1.0
    inner: int = 1
    smooth: bool = False
    update: bool = False
    roundings: tuple[tuple[int, float], ...] = ()
    near: float = 0.0
    labels: str = ""


def iterate(
    job: TiledEnergy, turn: int, task: int, before: Before | None, plan: Round
) -> dict[str, Any]:
    """Do a tile's iterations with its neighbours held fixed; store marginals, potentials, labels.

    Labels are the best of some roundings; their recorded energy assumes the neighbours' labels of
    this visit.
    """
    several = job.method == "mf5" and plan.inner > 1
    local = job.local(job.tiling.tiles(turn)[task], REACHES if several else 1)
    stage, core = f"iterates-{turn}", local.core
    record: dict[str, Any] = {"bounds": [], "energy": 0.0, "labelled": 0.0}
    y, z = (np.zeros((rows, 0), np.float32) for rows in stored_rows(job))
    labels = np.zeros((1, 0), np.int64)
    if len(core):
        crf = job.crf(local)
        problem = problem_of(crf, job.threads)
        mirrored = problem.potts and problem.n_labels == 2
        tile = TileSteps(crf.unary, core, plan.cells, mirrored=mirrored, threads=job.threads)
        record["mass"] = float(problem.pairwise.mass[core].sum(dtype=np.float64))
        if before is not None:
            marginals, given = _state(job, local, before)
        elif job.method == "lp":
            marginals, given = lp_start(problem).y, None
        else:
            marginals, given = problem.unary_marginals(), None
        if job.method == "lp":
            if given is None:
                y, z, best = _from_the_start(problem, tile, marginals, plan)
            else:
                y, z = _linear_program(problem, tile, marginals, given, plan)
                best = _best_rounding(problem, core, y, plan.roundings)
            best, _ = icm(problem, best, SWEEPS)
            labels = best[None, core]
            record["energy"] = energy_share(problem, best, core, np.float32).energy
            if plan.labels:
                known = labels_of(job, plan.labels, local)
                record["labelled"] = energy_share(problem, known, core, np.float32).energy
            record["bounds"] = tile.bounds
            record["undecided"] = (y * (1 - y))[:, core].sum(1, dtype=np.float64).tolist()
        else:
            y, z = marginals, marginals[:0, core]
            for _ in range(plan.inner):
                y = problem.response(y)
            labels = problem.steps.argmax(y)[None, core]
        y, z = (each[:rows] for each, rows in zip((y[:, core], z), stored_rows(job), strict=True))
        if len(z):
            record["low"], record["high"] = (each.tolist() for each in (z.min(1), z.max(1)))
    if not several:  # labels that no later stage reads
        job.store.write(stage, local.box, local.scatter(np.concatenate([y, z])))
    kept = labels.astype(label_dtype(job.n_labels))
    job.store.write(f"labels-{turn}", local.box, local.scatter(kept))
    return job.store.finish(stage, task, record)


def _best_rounding(
    problem: Problem[Plain], core: IntArray, y: FloatArray, wanted: tuple[tuple[int, float], ...]
) -> IntArray:
    """Return the labels of the best rounding.

    The margin's labels are always those of the largest marginals.
    """
    plain, candidates = problem.steps.argmax(y), []
    for label, bias in wanted:
        labels = plain.copy()
        labels[core] = problem.steps.raised_argmax(y, label, np.float32(bias))[core]
        candidates.append(labels)
    best: IntArray = candidates[int(np.argmin(problem.estimates(candidates)))]
    return best


def _with_steps(problem: Problem[Plain], steps: NativeSteps) -> Problem[Plain]:
    return Problem(problem.unary, problem.pairwise, steps, problem.costs, problem.crf)


def _from_the_start(
    whole: Problem[Plain], tile: TileSteps, y: FloatArray, plan: Round
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Iterate tile and margin as `lp` does; one tile alone until its own gap is near enough.

    Returns the tile's marginals, the core's potentials, and the tile's labels.
    """
    problem = _with_steps(whole, tile)
    incumbent, previous, dual = Incumbent(problem), y, None
    workspace = Workspace(problem, y)
    steps = primal_dual(workspace, incumbent, cells=tile.cells, to_the_end=True)
    for step in islice(steps, plan.inner):
        previous, y = y, step.y
        dual = cast("Potentials[npt.NDArray[Any]]", step.duals[0])
        if plan.near:  # one tile alone: as exact as can be
            incumbent.consider(problem.steps.argmax(y))
            gap = incumbent.energy - cast("float", step.bound)
            if gap <= plan.near * max(1.0, abs(incumbent.energy)):
                break
    assert dual is not None
    incumbent.consider(problem.steps.argmax(y))
    z = dual.scores + problem.costs.nodes(y - previous)
    return y, z[:, tile.core], incumbent.labels


def _linear_program(
    whole: Problem[Plain], tile: TileSteps, y: FloatArray, z: FloatArray, plan: Round
) -> tuple[FloatArray, FloatArray]:
    """Iterate the core; return the tile's marginals and the core's potentials."""
    problem = _with_steps(whole, tile)
    tile.hold(y)
    cells, none = tile.cells, Unrounded(problem)
    if plan.smooth:
        z = problem.update_multipliers(z, y, 0.0, 0.0) if plan.update else z
        settings: Any = {"cells": cells, "accuracy": 1.0, "least_inner": plan.inner + 1}
        workspace = Workspace(problem, y, z * cells)
        for step in islice(multipliers(workspace, none, **settings), plan.inner):
            y = step.y
        return y, z[:, tile.core]
    previous = y
    workspace = Workspace(problem, y, z * cells)
    steps = primal_dual(workspace, none, cells=cells, to_the_end=True)
    for step in islice(steps, plan.inner):
        previous, y = y, step.y
        dual: Any = step.duals[0]
    # The next visit starts from y; its first flow is to be that of the extrapolated 2 y - previous.
    return y, (dual.scores + problem.costs.nodes(y - previous))[:, tile.core]


def certificate_stage(turn: int, before: Before) -> str:
    """Return the stage of the certificate of iterates, by the tiles of a turn."""
    return f"certificate-{turn}-of-{before.stage}"


def certificate(
    job: TiledEnergy,
    turn: int,
    task: int,
    before: Before,
    labels: str,
    extents: list[list[float]] | None,
) -> dict[str, Any]:
    r"""Record the tile's share of the energy and of the bound, in double precision.

    The bound's share is :math:`\sum_a \min_i c_{ai}` with the costs :math:`c = \phi + r` of the
    stored potentials. The smallest extra cost of another label is stored for each pixel.
    """
    local = job.local(job.tiling.tiles(turn)[task])
    stage, share = certificate_stage(turn, before), Share(0.0, 0.0)
    apart = np.zeros(0)
    if len(local.core):
        problem = problem_of(job.crf(local), job.threads)
        share = energy_share(problem, labels_of(job, labels, local), local.core)
        if extents is not None:
            y, z = _state(job, local, before)
            known = in_whole_cells(np.array(extents, np.float32), before.cells)
            problem = _with_steps(problem, FixedExtents(known, job.threads))
            costs = Costs(problem, Potentials(y, z, before.cells))
            bound, apart = costs.of_pixels(problem, local.core)
            share = share.with_bound(bound)
    if extents is not None:
        least = np.nextafter(apart.astype(np.float32), np.float32(-np.inf))
        job.store.write(stage, local.box, local.scatter(least[None]))
    record = {**asdict(share), "apart": float(apart.max(initial=0.0))}
    return job.store.finish(stage, task, record)


def energy_share(
    problem: Problem[Plain], labels: IntArray, core: IntArray, precision: Any = np.float64
) -> Share:
    """Return the core's share of a labelling's energy.

    A pair's cost is shared by its two pixels. In single precision, an estimate.
    """
    seen = np.bincount(labels) > 0
    present, x = np.flatnonzero(seen), (seen.cumsum() - 1)[labels]
    mu = 1.0 - np.eye(len(present))
    if problem.costs.double is not None:
        mu = problem.costs.double[np.ix_(present, present)]
    own = (np.arange(len(present))[:, None] == x).astype(precision)
    apply: Any = problem.pairwise.apply_double if precision == np.float64 else problem.apply
    received = apply(own)[:, core]
    pairs = float((mu.astype(precision) @ own[:, core] * received).sum(dtype=np.float64))
    unary = problem.unary[labels[core], core].astype(np.float64)
    largest = 2 * problem.costs.reach * float(received.sum(dtype=np.float64))
    sizes = Sizes(len(core), float(abs(unary).sum()), largest * (1 + gamma(problem.n)))
    return Share(float(unary.sum()) + 0.5 * pairs, sizes=sizes)


def refine_whole(
    job: TiledEnergy, specification: Specification, asked: dict[str, Any]
) -> LargeResult:
    """Solve an image that one tile holds by `densecrf.refine`."""
    (box,) = job.tiling.tiles(0)
    local = job.local(box)
    image, scores = cast("Source", job.image), job.scores
    bands = slice(0, image.shape[-1])
    named = (slice(0, scores.shape[0]),) if job.content == "scores" else ()
    job.check_complete("image", image, local, (), (bands,))
    job.check_complete("probabilities", scores, local, named, ())
    keywords = {name: getattr(specification, name) for name in KEYWORDS}
    native = specification.image_range is not None
    pixels, known = whole("image", image, native=native), whole("probabilities", scores)
    if not native:
        keywords["image_range"] = raster_range(image, pixels)
    keywords["kind"] = specification.kind or job.kind
    limits = {**asked, "method": job.method, "threads": job.threads or None}
    return LargeResult.of(refine(pixels, known, **keywords, **limits))


def solve_whole(job: TiledEnergy, asked: dict[str, Any]) -> LargeResult:
    """Solve an image that one tile holds in memory, with a mask or kernels of its own."""
    (box,) = job.tiling.tiles(0)
    local = job.local(box)
    found = job.crf(local).solve(job.method, threads=job.threads or None, **asked)
    result = LargeResult.of(found)
    fill = np.iinfo(result.labels.dtype).max
    result.labels = local.scatter(result.labels[None], fill)[0]
    return result


def labels_of(job: TiledEnergy, stage: str, local: Local) -> IntArray:
    """Read a stage's labels of tile and margin."""
    return np.asarray(local.gather(job.store.read(stage, local.outer))[0], np.int64)


def stored_rows(job: TiledEnergy) -> tuple[int, int]:
    """Return the numbers of stored rows of marginals and potentials: one each for two labels."""
    if job.method != "lp":
        return job.n_labels, 0
    if job.n_labels == 2:
        return 1, 1
    costs = job.label_costs
    return job.n_labels, job.n_labels if costs is None else sum(cost > 0 for cost in costs)


def _state(job: TiledEnergy, local: Local, before: Before) -> tuple[FloatArray, FloatArray]:
    """Read marginals and potentials of tile and margin."""
    stored = local.gather(job.store.read(before.stage, local.outer))
    rows = stored_rows(job)
    y, z = stored[: rows[0]], stored[rows[0] :]
    if len(z):
        z = before.potentials(z)
    if len(y) < job.n_labels:
        highest = np.float32(before.highest()[0] - 1)
        return np.concatenate([y, 1 - y]), np.concatenate([z, highest - z])
    return y, z
