"""How the rounds over all tiles go: which method, how many iterations, when to look closely.

The two methods of `densecrf.solvers.lp` take turns as they do there, by the same numbers.
"""

import math
from typing import Any

import numpy as np

from densecrf.large.visits import Plan
from densecrf.problem import rounding
from densecrf.solvers.lp import CELLS, DAMPED, SLOW

__all__ = ["Pace"]

FIRST = 12  # most iterations of the first round
FALLS = 0.5  # what is left of an energy's error after a round
EXCESS_FALLS = 0.2  # and of a bound's: 0.2 to 0.4 were seen; a certificate costs half a round
SAFE = 0.7  # share of the asked gap at which a round aims, for what its neighbours change


class Pace:
    """Iterations, energies and bounds so far, and what the next round is to do.

    The first bound of a round is that of the whole image for the potentials it started from, as all
    tiles see the same (unless multipliers were updated, or cells have another width). Later ones
    are too high or too low, by what the neighbours would have changed meanwhile; the next round's
    first bound tells by how much. Energies are those of labels whose neighbours across a border may
    have changed theirs; the certificate tells by how much.

    Parameters
    ----------
    inner : int
        Most iterations of a round.
    gap : float
        The asked gap.
    limit : int
        Most iterations.
    constant : float
        Energy of the best constant labelling.
    """

    def __init__(self, inner: int, gap: float, limit: int, constant: float = math.inf) -> None:
        self.inner, self.gap, self.limit, self.done = inner, gap, limit, 0
        self.smooth = False  # whether the next round is of the method of multipliers
        self.trace: list[dict[str, Any]] = []
        self._constant = constant
        self._alone = False  # whether the method of multipliers is used alone
        self._since = 0  # when this method's turn began
        self._cells: float | None = None  # of the last round
        self._excess = 0.0  # of a round's last bound
        self._missing = 0.0  # what estimates of energies lack
        self._labelled, self._bound = math.inf, -math.inf
        self._bounds: list[float] = []  # of the last round
        self._undecided: Any = None  # how undecided each label is
        self._turns = rounding.Pace(self)

    @property
    def energy(self) -> float:
        """The best energy so far."""
        return min(self._constant, self._labelled)

    @property
    def cells(self) -> float:
        """Cells per unit of potential in the next round."""
        if self.smooth:
            return CELLS
        return 1.0 if self.done < SLOW else DAMPED

    def plan(self) -> Plan:
        """Return what the next round does."""
        update = self.smooth and self.done > self._since
        inner = max(1, min(self.limit - self.done, self._needed()))
        roundings = ((0, 0.0), *self._level_sets())
        return Plan(self.cells, inner, self.smooth, update, roundings)

    def pilot(self) -> Plan:
        """Return what the first tile of all does: as many iterations as it takes."""
        return self.plan()._replace(near=SAFE * self.gap)

    def _needed(self) -> int:
        """Return in how many iterations the bound, rising as it did, would be near enough."""
        if self.smooth or len(self._bounds) < 3:
            return self.inner if self._bounds else FIRST
        last, rises = self._bound, np.diff(self._bounds[-3:])
        wanted = self.energy - SAFE * self.gap * max(1.0, abs(self.energy))
        slower = min(max(rises[1] / rises[0], 0.1), 0.95) if rises[0] > 0 else 0.95
        rise, count = float(rises[1]), 0
        while last < wanted and count < self.inner:
            rise, count = slower * rise, count + 1
            last += rise
        return count

    def _level_sets(self) -> tuple[tuple[int, float], ...]:
        """Return level sets of the labels that are least decided, as `Incumbent` tries them."""
        if self._undecided is None:
            return ()
        bias = rounding.BIASES[len(self.trace) % len(rounding.BIASES)]
        order = np.argsort(-self._undecided, kind="stable")[: rounding.UNDECIDED]
        return tuple((int(label), bias) for label in order if self._undecided[label] > 0)

    def smooth_alone(self) -> None:
        """Use the method of multipliers from now on, as where pairwise weights dominate."""
        if not self._alone:
            self.smooth = self._alone = True
            self._since = self.done

    def take(self, plan: Plan, records: list[dict[str, Any]]) -> bool:
        """Take a round's records in; return whether its labels are the best so far."""
        shares = [each["bounds"] for each in records if each["bounds"]]
        bounds = [sum(each) for each in zip(*shares, strict=True)]
        if plan.cells == self._cells and not plan.update:
            before = self.trace[-1]
            self._excess = max(0.0, before["bound"] - bounds[0])
            before["bound"] = bounds[0]
        elif plan.cells != self._cells:
            self._excess = 0.0
        self._cells, self._bounds = plan.cells, bounds
        self._undecided = np.sum([each["undecided"] for each in records if "undecided" in each], 0)
        energy = sum(each["energy"] for each in records) + self._missing
        self._missing *= FALLS
        better = bool(energy < self._labelled)
        self._labelled = min(energy, self._labelled)
        self.done += len(bounds)
        self._bound = bounds[-1] - EXCESS_FALLS * self._excess
        self.trace.append({"iterations": self.done, "energy": self.energy, "bound": bounds[-1]})
        slow = [self._turns.slow(bound) for bound in bounds][-1]
        if slow and not self._alone:
            self.smooth, self._since = not self.smooth, self.done
            self._turns = rounding.Pace(self)
        return better

    def changes(self, plan: Plan) -> bool:
        """Return whether the method of multipliers has just ended: its last bound may be best."""
        return plan.smooth and not self.smooth

    def promises(self, gap: float) -> bool:
        """Return whether the whole image's gap is likely to be within the asked one."""
        return self.energy - self._bound <= gap * max(1.0, abs(self.energy))

    def correct(self, energy: float, bound: float) -> None:
        """Take in what the certificate found."""
        self._missing = max(self._missing, energy - self.energy)
        self._excess = max(0.0, self.trace[-1]["bound"] - bound)
        self._labelled, self._bound = energy, bound
