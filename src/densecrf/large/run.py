r"""The rounds of a run: the whole image's energy and certificate, tile by tile.

Row masses come first, as the kernels are normalised by them. Then rounds over all tiles: each makes
some iterations of `lp` with its neighbours held fixed, and tiles of every second round are moved by
half a tile, so that errors at their borders do not stay. Where the bound has stalled, all restart
from the average of a round's iterations. Where the sums of the tiles' own bounds
and energies promise the asked gap, energy and bound of the whole image are evaluated in double
precision, with margins as wide as the filters reach: they are those that `DenseCRF.solve` would
report for the same labels and potentials.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from densecrf.certificates import checked_bound, gamma
from densecrf.label_costs import BorderStatistics
from densecrf.large import visits
from densecrf.large.engines import run_tasks
from densecrf.large.job import Job
from densecrf.large.outputs import label_dtype
from densecrf.large.result import LargeResult
from densecrf.large.tiles import Box
from densecrf.large.visits import Before
from densecrf.presets import Model
from densecrf.solvers.primal_dual import DAMPED, SLOW
from densecrf.validation import ArgumentError

__all__ = ["Progress", "Run"]

MEAN_FIELD = 5  # iterations of mf5

Progress = Callable[[str, int, int], None]
Visit = Callable[..., dict[str, Any]]
Records = list[dict[str, Any]]


class Run:
    """The stages of a run, one after the other."""

    def __init__(self, job: Job, client: Any, progress: Progress | None) -> None:
        self.job, self.client, self.progress = job, client, progress
        self.labels: str | int = 0  # the stage that stores them, or the only label

    def check_client(self) -> None:
        """Refuse inputs that workers cannot open."""
        job = self.job
        sources = (("image", job.image), ("probabilities", job.scores), ("mask", job.mask))
        for name, source in sources:
            if self.client is not None and source is not None and not source.portable:
                raise ArgumentError(
                    name,
                    ...,
                    "an array in memory cannot be read by workers; give a path, or a "
                    "Zarr, Dask or xarray array",
                )

    def stage(self, name: str, task: Visit, turn: int, arguments: Any = ()) -> Records:
        """Run what is left of a stage; return the records of all its tiles."""
        count = len(self.job.tiling.tiles(turn))
        found = {i: self.job.store.record(name, i) for i in range(count)}
        missing = [i for i in range(count) if found[i] is None]
        given = [(self.job, *arguments[:1], i, *arguments[1:]) for i in missing]
        done = count - len(missing)
        for number, record in run_tasks(task, given, self.client, name):
            found[missing[number]] = record
            done += 1
            if self.progress is not None:
                self.progress(name, done, count)
        return [record for record in found.values() if record is not None]

    def prepare(self, model: Model) -> None:
        """Compute row masses, the constants' energies, and label costs."""
        records = self.stage("masses", visits.masses, 0)
        self.pixels = sum(record["pixels"] for record in records)
        if not self.pixels:
            raise ArgumentError("mask", ..., "no pixel is inside")
        self.constants = np.sum([record["unary"] for record in records], 0)
        costs = model.label_costs
        if costs == "image" and self.job.kernels:
            records = self.stage("prices", visits.prices, 0)
            paid, pixels = (
                np.sum([record[key] for record in records], 0) for key in ("paid", "pixels")
            )
            costs = BorderStatistics(1, pixels, paid).label_costs(model.tolerated)
        if costs == "image" or not self.job.kernels:
            costs = None
        if costs is not None and len(costs) != self.job.n_labels:
            raise ArgumentError(
                "model",
                ...,
                f"has costs for {len(costs)} labels, but there are {self.job.n_labels}",
            )
        self.job = self.job.with_costs(costs)

    # --- methods --------------------------------------------------------------------------------

    def linear_program(self, gap: float, limit: int) -> LargeResult:
        """Iterate `lp` in rounds over all tiles until the gap is proven."""
        before, cells, turn, pace = None, 1.0, 0, _Pace(self.job.inner)
        best, last = -float("inf"), False
        while True:
            name, inner = f"iterates-{turn}", pace.inner
            records = self.stage(name, visits.iterate, turn, (turn, before, cells, inner))
            self._forget(turn)
            pace.take(records)
            damped = pace.done >= SLOW and cells != DAMPED
            cells = DAMPED if damped else cells
            before = _before(name, records, cells, 1 / DAMPED if damped else 1.0)
            last = pace.done >= limit
            if last or pace.promises(gap):
                result = self._certified(turn, before, best, pace.done)
                best = result.lower_bound or best
                proven = result.gap or 0.0
                result.trace = pace.trace
                result.converged = proven <= gap
                if result.converged or last:
                    reason = "within" if result.converged else "at the last iteration, above"
                    result.message = f"gap {proven:.2e} is {reason} the asked {gap:g}"
                    return result
                pace.disappointed(proven)
            turn += 1

    def mean_field(self) -> LargeResult:
        """Make the iterations of mean field, one a round, and evaluate the energy."""
        before = None
        for turn in range(MEAN_FIELD):
            name = f"iterates-{turn}"
            self.stage(name, visits.iterate, turn, (turn, before, 1.0, 1))
            self._forget(turn)
            before = Before(name, (), (), 1.0)
        assert before is not None
        result = self._certified(MEAN_FIELD - 1, before, None, MEAN_FIELD)
        result.converged, result.message = True, "the method's last iteration"
        return result

    def _forget(self, turn: int) -> None:
        """Remove what only earlier rounds read."""
        for each in (f"iterates-{turn - 1}", f"certificate-{turn - 1}"):
            self.job.store.forget(each)

    def _certified(
        self, turn: int, before: Before, known: float | None, iterations: int
    ) -> LargeResult:
        """Evaluate energy and bound in double precision."""
        job, n = self.job, self.pixels
        bounded = known is not None
        extents = [[0.0, high] for high in before.highest()] if bounded else None
        records = self.stage(
            f"certificate-{turn}", visits.certificate, turn, (turn, before, extents)
        )
        total = {key: sum(each[key] for each in records) for key in records[0]}
        costs = job.label_costs if job.label_costs and len(job.label_costs) > 2 else (1.0,)
        mass = total["mass"] * (1 + gamma(n))
        energy = total["energy"]
        energy_rounding = 2 * gamma(n) * (total["size"] + 2 * max(costs) * mass)
        label, constant = int(self.constants.argmin()), float(self.constants.min())
        self.labels = before.stage
        if constant < energy:
            energy, self.labels = constant, label
        bound, share, gap_map = None, 0.0, None
        if bounded and known is not None:
            rounding = 2 * gamma(n) * (max(costs) * mass + total["bound_size"])
            bound = checked_bound(max(known, total["bound"] - rounding), energy, energy_rounding)
            slack = energy + energy_rounding - bound + 2 * rounding
            share = self._proven(turn, slack, records) / n
            gap_map = self._map(turn, records, energy)
        boxes = [[[p.start, p.stop] for p in box] for box in job.tiling.tiles(turn)]
        return LargeResult(
            labels=None,
            energy=energy,
            lower_bound=bound,
            method=job.method,
            converged=False,
            message="",
            seconds=0.0,
            iterations=iterations,
            best_constant=(label, constant),
            proven_share=share,
            gap_map=gap_map,
            tiles=[{"box": box, **each} for box, each in zip(boxes, records, strict=True)],
        )

    def _proven(self, turn: int, slack: float, records: Records) -> int:
        """Count the pixels whose other labels are all ruled out."""
        count = 0
        for box, record in zip(self.job.tiling.tiles(turn), records, strict=True):
            if record.get("apart", 0.0) > slack:
                apart = self.job.store.read(f"certificate-{turn}", box)
                count += int((apart > slack).sum())
        return count

    def _map(self, turn: int, records: Records, energy: float) -> Any:
        tiles = self.job.tiling.tiles(turn)
        sides = [len({box[axis].start for box in tiles}) for axis in range(len(tiles[0]))]
        shares = [each["energy"] - each["bound"] for each in records]
        return np.reshape(shares, sides) / max(1.0, abs(energy))

    def block(self, box: Box) -> Any:
        """Return the labels of a block of the output."""
        if isinstance(self.labels, str):
            labels = self.job.store.read(self.labels, box, slice(-1, None))[0]
        else:
            labels = np.full([part.stop - part.start for part in box], self.labels)
        labels = labels.astype(label_dtype(self.job.n_labels))
        if self.job.mask is not None:
            held = np.asarray(self.job.mask.read(box)).reshape(labels.shape).astype(bool)
            labels[~held] = np.iinfo(labels.dtype).max
        return labels


class _Pace:
    """How rounds go: iterations, energies, bounds, and how many iterations the next one makes.

    The first bound of a round is that of the whole image for the potentials it started from, as
    all tiles see the same. Later ones are too high or too low, by what the margins' own sums miss;
    the next round's first bound tells by how much.
    """

    STALLED, WINDOW = 0.85, 20  # of the gap after so many iterations: fewer in a round from now on

    def __init__(self, inner: int) -> None:
        self.inner, self.done = inner, 0
        self.trace: Records = []
        self._excess: list[float] = []  # of a round's last bound above the next one's first
        self._gaps: list[tuple[int, float]] = []
        self._promise = -float("inf")

    def take(self, records: Records) -> None:
        """Take a round's records in."""
        bounds = [sum(each) for each in zip(*(r["bounds"] for r in records), strict=True)]
        known = [each["energy"] for each in records if "energy" in each]
        energy = sum(known) if known else self.trace[-1]["energy"]
        if self.trace:
            before = self.trace[-1]
            self._excess.append(before["bound"] - bounds[0])
            self._gaps.append((self.done, before["energy"] - bounds[0]))
            before["bound"] = bounds[0]
        self.done += len(bounds)
        self.trace.append({"iterations": self.done, "energy": energy, "bound": bounds[-1]})
        self._promise = energy - bounds[-1] + max(0.0, *self._excess[-2:], 0.0)
        if self.inner > 1 and self._stalled():
            self.inner //= 2
            self._gaps.clear()

    def _stalled(self) -> bool:
        if not self._gaps:
            return False
        done, gap = self._gaps[-1]
        earlier = [each for when, each in self._gaps if when <= done - self.WINDOW]
        return bool(earlier) and gap > self.STALLED * earlier[-1]

    def promises(self, gap: float) -> bool:
        """Return whether the whole image's gap is likely to be within the asked one."""
        return bool(self._promise <= gap * max(1.0, abs(self.trace[-1]["energy"])))

    def disappointed(self, proven: float) -> None:
        """Take in that a promise was not kept."""
        last = self.trace[-1]
        missed = proven * max(1.0, abs(last["energy"])) - (last["energy"] - last["bound"])
        self._excess.append(missed)


def _before(name: str, records: Records, cells: float, factor: float) -> Before:
    """Return how the next round reads this one's potentials."""
    used = [each for each in records if "low" in each]
    low = np.min([each["low"] for each in used], 0)
    top = np.max([each["high"] for each in used], 0) - low
    return Before(name, tuple(low.tolist()), tuple(top.tolist()), cells, factor)
