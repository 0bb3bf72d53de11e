r"""The rounds of a run: the whole image's energy and certificate, tile by tile.

Row masses come first, since they normalise the kernels. Then follow rounds over all tiles: each
tile does some iterations of `lp` with its neighbours held fixed, and in every second round tiles
are shifted by half a tile, so that errors at borders do not persist. When the tiles' bounds and
energies suggest that the requested gap is reached, energy and bound of the whole image are
evaluated in double precision, with margins as wide as the filters reach. They equal those of
`DenseCRF.solve` for the same labels and potentials. The two methods of `densecrf.solvers.lp`
alternate as they do there.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np

from densecrf.large import visits
from densecrf.large.energy import TiledEnergy
from densecrf.large.result import LargeResult, label_dtype
from densecrf.large.sources import Source, raster_range
from densecrf.large.tiles import Box
from densecrf.large.visits import REACHES, Before, Round
from densecrf.model.kernels import black_and_white, check_opaque
from densecrf.model.parameters import Parameters, check_label_count
from densecrf.model.reading import Reading
from densecrf.model.specification import Specification
from densecrf.parallel import run
from densecrf.problem import rounding
from densecrf.problem.certificate import Share, Sizes
from densecrf.solvers.lp import CELLS, DAMPED, DOMINANT
from densecrf.solvers.minimisation import warn_of_optimum
from densecrf.validation import ArgumentError, check_finite

__all__ = ["Progress", "Schedule", "TiledRun"]

MEAN_FIELD = 5  # iterations of mf5
MOST_ITERATIONS = 500  # of lp
MOST_TILES, TASKS = 32, 16  # of a task at most; of a worker's thread in a round at least
FIRST = 12  # most iterations of the first round
SLOW = 20  # iterations of all rounds before the dual step is shortened
LEAST = 4  # iterations of a later one: a visit costs as much besides
EXCESS_FALLS = 0.2  # and of a bound's: 0.2 to 0.4 were seen; a certificate costs half a round
EXCESS_OF_A_RISE = 0.25  # in the first round with neighbours held fixed
LEAST_SMOOTH = 6  # iterations of a round of the method of multipliers
UPDATED_AFTER = 12  # iterations between two updates of multipliers: after 6, bounds stay low
NEAR = 0.85  # share of the requested gap at which the first round ends in one tile
SAFE = 0.7  # share of the requested gap at which a round aims, since neighbours change it
MOST_WIDENED = 2.0  # pixels of tiles with wide margins for each with narrow ones

Progress = Callable[[str, int, int], None]
Visit = Callable[..., dict[str, Any]]
Records = list[dict[str, Any]]


class Schedule:
    """Iterations, energies and bounds so far, and the next round.

    The first bound of a round is that of the whole image for the initial potentials, since all
    tiles see the same ones (unless multipliers were updated, or the width of cells changed). Later
    bounds have an error, since neighbours are held fixed; the next round's first bound reveals it.
    Energies have an error, since labels across borders may change; the certificate reveals it.

    Parameters
    ----------
    inner : int
        Maximum number of iterations of a round.
    gap : float
        The requested gap.
    limit : int
        Maximum number of iterations.
    constant : float
        Energy of the best constant labelling.
    """

    def __init__(self, inner: int, gap: float, limit: int, constant: float = math.inf) -> None:
        self.inner, self.gap, self.limit, self.done = inner, gap, limit, 0
        self.smooth = False  # whether the next round is of the method of multipliers
        self.trace: list[dict[str, Any]] = []
        self._constant = constant
        self._alone = False  # whether the method of multipliers is used alone
        self._since = 0  # the iteration of the last change of method or update of multipliers
        self._cells: float | None = None  # of the last round
        self._excess = 0.0  # of a round's last bound
        self.best = self.newest = ""  # where the best labels are, and those of the last round
        self._lowest = self._estimate = math.inf  # their energies, the latter an estimate
        self._missing = [0.0, 0.0]  # errors of the estimates in the last even and odd turn
        self._bound = -math.inf  # at the end of the last round
        self._start = self._best_start = -math.inf  # at its start, and the best at any start
        self._bounds: list[float] = []  # of the last round
        self._undecided: Any = None  # how undecided each label is
        self._turns = rounding.Pace()

    @property
    def energy(self) -> float:
        """The best energy so far."""
        return min(self._constant, self._lowest, self._estimate)

    @property
    def labels(self) -> str:
        """The stage of the labels with the lowest energy."""
        return self.newest if self._estimate < self._lowest else self.best

    @property
    def stages(self) -> set[str]:
        """The stages of labels that are still needed."""
        return {self.best, self.newest} - {""}

    @property
    def cells(self) -> float:
        """Cells per unit of potential in the next round."""
        if self.smooth:
            return CELLS
        return 1.0 if self.done < SLOW else DAMPED

    def plan(self) -> Round:
        """Return the next round."""
        update = self.smooth and self.done - self._since >= UPDATED_AFTER
        inner = max(1, min(self.limit - self.done, self._needed()))
        roundings = ((0, 0.0), *self._level_sets())
        return Round(self.cells, inner, self.smooth, update, roundings, labels=self.newest)

    def pilot(self) -> Round:
        """Return the plan of the very first tile: iterations until its gap is reached."""
        return self.plan()._replace(near=NEAR * self.gap)

    def _needed(self) -> int:
        """Return the number of iterations until the bound, at its present rate, is near enough.

        At most so many that halving the gap in each would reach a tenth of the requested gap.
        """
        if not self._bounds:
            return FIRST
        asked = self.gap * max(1.0, abs(self.energy))
        most = self.inner
        if asked > 0:
            left = max(1.0, (self.energy - self._bound) / asked)
            most = min(most, math.ceil(math.log2(10 * left)))
        if self.smooth:
            return min(self.inner, max(most, LEAST_SMOOTH))
        if len(self._bounds) < 3:
            return most
        last, rises = self._bound, np.diff(self._bounds[-3:])
        wanted = self.energy - SAFE * asked
        slower = min(max(rises[1] / rises[0], 0.1), 0.95) if rises[0] > 0 else 0.95
        rise, count = float(rises[1]), 0
        while last < wanted and count < most:
            rise, count = slower * rise, count + 1
            last += rise
        return max(count, min(LEAST, self.inner))

    def _level_sets(self) -> tuple[tuple[int, float], ...]:
        """Return level sets of the labels that are least decided, as `Incumbent` tries them."""
        if self._undecided is None:
            return ()
        bias = rounding.BIASES[len(self.trace) % len(rounding.BIASES)]
        order = np.argsort(-self._undecided, kind="stable")[: rounding.UNDECIDED]
        return tuple((int(label), bias) for label in order if self._undecided[label] > 0)

    def smooth_alone(self) -> None:
        """Use the method of multipliers from now on, as with dominating pairwise weights."""
        if not self._alone:
            self.smooth = self._alone = True
            self._since = self.done

    def take(self, plan: Round, records: Records) -> None:
        """Add a round's records."""
        shares = [each["bounds"] for each in records if each["bounds"]]
        bounds = [sum(each) for each in zip(*shares, strict=True)]
        self._start = bounds[0] if self.trace and not plan.update else -math.inf
        self._best_start = max(self._best_start, self._start)
        if plan.cells == self._cells and not plan.update:
            before = self.trace[-1]
            self._excess = max(0.0, before["bound"] - bounds[0])
            before["bound"] = bounds[0]
        elif plan.cells != self._cells:
            self._excess = 0.0
        excess = EXCESS_FALLS * self._excess
        if len(self.trace) == 1:
            excess = max(excess, EXCESS_OF_A_RISE * (bounds[-1] - bounds[0]))
        self._cells, self._bounds = plan.cells, bounds
        self._undecided = np.sum([each["undecided"] for each in records if "undecided" in each], 0)
        if plan.update:
            self._since = self.done
        if plan.labels:
            self.evaluated(sum(each["labelled"] for each in records))
        self.newest = f"labels-{len(self.trace)}"
        missing = self._missing[len(self.trace) % 2]
        self._estimate = sum(each["energy"] for each in records) + missing
        self.done += len(bounds)
        self._bound = bounds[-1] - excess
        self.trace.append({"iterations": self.done, "energy": self.energy, "bound": bounds[-1]})
        # The later bounds may be too high.
        slow = [self._turns.slow(self.energy, bounds[0]) for _ in bounds][-1]
        if slow and not self._alone:
            self.smooth, self._since = not self.smooth, self.done
            self._turns = rounding.Pace()

    def changes(self, plan: Round) -> bool:
        """Return whether the method of multipliers has just ended: its last bound may be best."""
        return plan.smooth and not self.smooth

    def started_best(self) -> bool:
        """Return whether no round started from better potentials than the last one."""
        return self._start == self._best_start > -math.inf

    def started_within(self, gap: float) -> bool:
        """Return whether a round started from potentials that prove the gap of the best labels."""
        energy = min(self._constant, self._lowest)
        return self._best_start >= energy - gap * max(1.0, abs(energy))

    def start_again(self) -> None:
        """Forget the best potentials, which proved less in double precision."""
        self._best_start = -math.inf

    def promises(self, gap: float) -> bool:
        """Return whether the whole image's gap is probably within the requested one."""
        return self.energy - self._bound <= gap * max(1.0, abs(self.energy))

    def correct(self, energy: float, bound: float) -> None:
        """Add the numbers of the certificate."""
        self._excess = max(0.0, self.trace[-1]["bound"] - bound)
        self._bound = bound
        if self.labels == self.newest:
            self.evaluated(energy)

    def evaluated(self, energy: float) -> None:
        """Add the energy of the newest labels; keep them if they are the best."""
        turn = (len(self.trace) - 1) % 2
        self._missing[turn] = max(0.0, energy - self._estimate + self._missing[turn])
        if energy < self._lowest:
            self.best, self._lowest = self.newest, energy
        self.newest, self._estimate = "", math.inf


class TiledRun:
    """The stages of a run, one after the other."""

    def __init__(self, job: TiledEnergy, client: Any, progress: Progress | None) -> None:
        self.job, self.client, self.progress = job, client, progress
        self.labels = ""  # the stage of the best ones
        self.constant: int | None = None  # the label of the constant labelling, if that is better
        self.whole: Any = None  # the labels, if one tile holds the image

    def stage(
        self, name: str, task: Visit, turn: int, arguments: Any = (), only: int | None = None
    ) -> Records:
        """Run the unfinished tasks of a stage; return the records of all its tiles, or of one."""
        count = len(self.job.tiling.tiles(turn))
        asked = range(count) if only is None else [only]
        found = {i: self.job.store.record(name, i) for i in asked}
        missing = [i for i in asked if found[i] is None]
        size = self._tiles_in_a_task(len(missing))
        some = [missing[first : first + size] for first in range(0, len(missing), size)]
        given = [(task, self.job, name, tiles, arguments) for tiles in some]
        done = count - len(missing) if only is None else 0
        for ended in run(visits.several, given, client=self.client, batch=1, name=name):
            records = ended.result()
            found |= dict(zip(some[ended.number], records, strict=True))
            done += len(records)
            if self.progress is not None:
                self.progress(name, done, count)
        return [record for record in found.values() if record is not None]

    def _tiles_in_a_task(self, count: int) -> int:
        """Return the tiles per task: one, or more on a cluster with few workers."""
        if self.client is None:
            return 1
        threads: int = max(1, sum(self.client.nthreads().values()))
        return max(1, min(MOST_TILES, count // (TASKS * threads)))

    def read(self) -> None:
        """Find kind, number of labels, black and white of the input, as `refine` does."""
        job = self.job
        records = self.stage("scan", visits.scan, 0)
        rows = None if job.content == "labels" else 1 if job.content == "map" else job.n_labels
        parts = [np.array(each["scores"], job.scores.dtype) for each in records if each["scores"]]
        if not any(part.size for part in parts):
            what = "mask" if job.mask is not None else "probabilities"
            raise ArgumentError(what, ..., "no pixel is inside, or none holds data")
        if rows is None:
            values = np.unique(np.concatenate(parts))
        else:
            values = np.concatenate([part.reshape(rows, -1) for part in parts], 1)
            values = values if job.content == "scores" else values[0]
        found = values if job.content == "labels" else None
        job = replace(job, kind=Reading.of(job.content, values).kind(job.kind), found=found)
        job = replace(job, n_labels=len(job.energies(values)))
        if job.image is not None and job.image_range is None:
            job = _with_range(job, [each["image"] for each in records if each["image"]])
        self.job = job

    def prepare(self, model: Parameters) -> None:
        """Compute positions, the labels' shares and their costs."""
        if self.job.flow is not None:
            records = self.stage("positions", visits.positions, 0)
            furthest = np.max([record["furthest"] for record in records], 0).astype(int)
            sides = (self.job.tiling.shape[0], *(furthest + 1).tolist())
            self.job = replace(self.job, extent=sides)
        if model.prior is not None:
            check_label_count("prior", model.prior.frequencies, self.job.n_labels)
            records = self.stage("shares", visits.shares, 0)
            known = sum(record["known"] for record in records)
            sums = np.sum([record["sums"] for record in records], 0)
            share = sums / known if known else np.full(len(sums), 1 / len(sums))
            offsets = model.prior.energies(share).astype(np.float32)
            self.job = replace(self.job, offsets=tuple(offsets.tolist()))
        costs = model.label_costs if self.job.kernels else None
        if costs is not None:
            check_label_count("label_costs", costs, self.job.n_labels)
        self.job = replace(self.job, label_costs=None if costs is None else tuple(costs))

    def weigh(self) -> None:
        """Compute row masses and the energies of constant labellings."""
        records = self.stage("masses", visits.masses, 0)
        self.pixels = sum(record["pixels"] for record in records)
        self.constants = np.sum([record["unary"] for record in records], 0)
        self.gain = float(self.constants.min()) - sum(record["least"] for record in records)

    def solve(
        self,
        model: Parameters,
        gap: float,
        limit: int | None,
        specification: Specification | None = None,
    ) -> LargeResult:
        """Solve an image by tiles, or in memory if one tile holds it.

        Parameters
        ----------
        model : Parameters
            The model.
        gap : float
            The requested gap.
        limit : int or None
            Maximum number of iterations.
        specification : Specification or None
            The arguments of `densecrf.refine` for an image that one tile holds.
        """
        method = self.job.method
        asked = {"gap": gap if method == "lp" else None, "max_iterations": limit}
        if self.job.alone and specification is not None:
            return self._alone(visits.refine_whole, specification, asked)
        warn_of_optimum(model.caution, method)
        self.read()
        self.prepare(model)
        if self.job.alone:
            return self._alone(visits.solve_whole, asked)
        self.weigh()
        if method == "mf5":
            return self.mean_field()
        return self.linear_program(gap, limit or MOST_ITERATIONS)

    def _alone(self, task: Callable[..., LargeResult], *given: Any) -> LargeResult:
        """Run the only task of an image that one tile holds."""
        (ended,) = run(task, [(self.job, *given)], client=self.client, name="refine")
        result = cast("LargeResult", ended.result())
        self.whole = result.labels
        if self.progress is not None:
            self.progress("refine", 1, 1)
        return result

    # --- methods --------------------------------------------------------------------------------

    def linear_program(self, gap: float, limit: int) -> LargeResult:
        """Iterate `lp` in rounds over all tiles until the gap is proven."""
        pace = Schedule(self.job.inner, gap, limit, float(self.constants.min()))
        before, turn, bound = None, 0, -math.inf
        proving: Before | None = None  # the best potentials whose bound is known
        while True:
            name, plan = f"iterates-{turn}", pace.plan() if turn else self._first(pace)
            records = self.stage(name, visits.iterate, turn, (turn, before, plan))
            kept = {*pace.stages, f"labels-{turn}", f"iterates-{turn - 1}"}
            kept |= {proving.stage} if proving is not None else set()
            pace.take(plan, records)
            proving = before if pace.started_best() else proving
            if self.job.n_labels > 2 and sum(each.get("mass", 0.0) for each in records) > (
                DOMINANT * self.gain
            ):
                pace.smooth_alone()
            last = pace.done >= limit
            point, self.labels = None, pace.labels
            if pace.started_within(gap):
                point, self.labels = proving, pace.best
            elif last or pace.promises(gap) or pace.changes(plan):
                point = _before(name, records, plan.cells, plan.cells)
            if point is not None:
                result = self._certified(turn, point, bound, pace.done)
                bound = result.lower_bound or bound
                proven = result.gap or 0.0
                result.trace = pace.trace
                result.converged = proven <= gap
                if result.converged or last:
                    result.proven_share = self._proven(turn, point, result)
                    how = "at most" if result.converged else "at the last iteration, above"
                    result.message = f"gap {proven:.2e}, {how} the requested {gap:g}"
                    return result
                if point is proving:
                    pace.start_again()
                else:
                    pace.correct(result.energy, bound)
                self._forget(visits.certificate_stage(turn, point))
            self._forget(*kept - pace.stages - {proving.stage if proving is not None else ""})
            before = _before(name, records, plan.cells, pace.cells)
            turn += 1

    def _first(self, pace: Schedule) -> Round:
        """Return the plan of the first round: as many iterations as a tile in the middle needs."""
        count = len(self.job.tiling.tiles(0))
        plan = pace.pilot()
        for i in range(count):  # those before it have no pixels
            (record,) = self.stage(
                "iterates-0", visits.iterate, 0, (0, None, plan), (count // 2 + i) % count
            )
            if record["bounds"]:
                return pace.plan()._replace(inner=len(record["bounds"]))
        raise ArgumentError("mask", ..., "no pixel is inside")

    def mean_field(self) -> LargeResult:
        """Do the iterations of mean field and evaluate the energy.

        All in one round with wide margins or, if these would be most of a tile, one per round.
        """
        sides = zip(self.job.tiling.block, self.job.margin, strict=True)
        wide = math.prod((block + REACHES * margin) / (block + margin) for block, margin in sides)
        inner = MEAN_FIELD if wide < MOST_WIDENED else 1
        before = None
        for turn in range(MEAN_FIELD // inner):
            name = f"iterates-{turn}"
            self.stage(name, visits.iterate, turn, (turn, before, Round(inner=inner)))
            self.labels = f"labels-{turn}"
            self._forget(f"iterates-{turn - 1}", f"labels-{turn - 1}")
            before = Before(name, (), (), 1.0)
        assert before is not None
        result = self._certified(turn, before, None, MEAN_FIELD)
        result.converged, result.message = True, "end of the method"
        return result

    def _forget(self, *stages: str) -> None:
        for each in stages:
            self.job.store.forget(each)

    def _certified(
        self, turn: int, before: Before, known: float | None, iterations: int
    ) -> LargeResult:
        """Evaluate energy and bound in double precision."""
        job, bounded = self.job, known is not None
        extents = [[0.0, high] for high in before.highest()] if bounded else None
        records = self.stage(
            visits.certificate_stage(turn, before),
            visits.certificate,
            turn,
            (turn, before, self.labels, extents),
        )
        whole = reduce(add, map(_share, records))
        label, constant = int(self.constants.argmin()), float(self.constants.min())
        self.constant = label if constant < whole.energy else None
        energy = min(constant, whole.energy)
        whole = replace(whole, energy=energy)
        bound, gap_map = None, None
        if known is not None:
            bound = whole.certified(known)
            self.slack = whole.slack
            gap_map = self._map(turn, records, energy)
        boxes = [[[p.start, p.stop] for p in box] for box in job.tiling.tiles(turn)]
        return LargeResult(
            energy,
            bound,
            job.method,
            best_constant=(label, constant),
            iterations=iterations,
            gap_map=gap_map,
            tiles=[
                {"box": box, **{key: each[key] for key in ("energy", "bound", "apart")}}
                for box, each in zip(boxes, records, strict=True)
            ],
        )

    def _proven(self, turn: int, before: Before, result: LargeResult) -> float:
        """Return the share of the pixels whose other labels are all ruled out."""
        count = 0
        for box, record in zip(self.job.tiling.tiles(turn), result.tiles, strict=True):
            if record.get("apart", 0.0) > self.slack:
                apart = self.job.store.read(visits.certificate_stage(turn, before), box)
                count += int((apart > self.slack).sum())
        return count / float(self.pixels)

    def _map(self, turn: int, records: Records, energy: float) -> Any:
        tiles = self.job.tiling.tiles(turn)
        sides = [len({box[axis].start for box in tiles}) for axis in range(len(tiles[0]))]
        shares = [each["energy"] - each["bound"] for each in records]
        return np.reshape(shares, sides) / max(1.0, abs(energy))

    @property
    def dtype(self) -> Any:
        """The dtype of the labels."""
        return label_dtype(self.job.n_labels) if self.whole is None else self.whole.dtype

    def block(self, box: Box) -> Any:
        """Return the labels of a block of the output."""
        if self.whole is not None:
            return self.whole[box]
        if self.constant is None:
            labels = self.job.store.read(self.labels, box)[0]
        else:
            labels = np.full([part.stop - part.start for part in box], self.constant)
        labels = labels.astype(self.dtype)
        if self.job.mask is not None:
            held = self.job.mask.read("mask", box).reshape(labels.shape).astype(bool)
            labels[~held] = np.iinfo(labels.dtype).max
        return labels


def _share(record: dict[str, Any]) -> Share:
    """Return a tile's share of energy and bound."""
    return Share(record["energy"], record["bound"], Sizes(**record["sizes"]))


def _with_range(job: TiledEnergy, pixels: list[Any]) -> TiledEnergy:
    """Return the run with black and white, and without an alpha channel, by extreme pixels."""
    image = cast("Source", job.image)
    values = np.concatenate([np.array(each, image.dtype) for each in pixels], 1)
    if job.opaque:
        check_opaque(values[3], image.shape)
        values = values[:3]
    low, high = check_finite("image", values)
    found = raster_range(image, values) or black_and_white(low, high, image.dtype, None)
    return replace(job, image_range=found or (0.0, 255.0))


def _before(name: str, records: Records, cells: float, following: float) -> Before:
    """Return the iterates to read for a visit with another number of cells per unit."""
    used = [each for each in records if "low" in each]
    low = np.min([each["low"] for each in used], 0)
    top = np.max([each["high"] for each in used], 0) - low
    return Before(name, tuple(low.tolist()), tuple(top.tolist()), following, cells / following)
