"""How the rounds over all tiles go: which method, how many iterations, when to look closely."""

import math
from typing import Any

import numpy as np

from densecrf.large.visits import Plan
from densecrf.solvers.lp import CELLS, DAMPED, SLOW

__all__ = ["Pace"]

STALLED, WINDOW = 0.8, 24  # of the gap left after so many iterations: the other method's turn
FALLS = 0.5  # what is left of an energy's error after a round
EXCESS_FALLS = 0.2  # and of a bound's: 0.2 to 0.4 were seen; a certificate costs half a round
BIASES = (0.2, 0.4, 0.6)  # of level sets, one in each round, in turn


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
        Iterations of a round.
    gap : float
        The asked gap.
    limit : int
        Most iterations.
    """

    def __init__(self, inner: int, gap: float, limit: int) -> None:
        self.inner, self.gap, self.limit, self.done = inner, gap, limit, 0
        self.smooth = False  # whether the next round is of the method of multipliers
        self.trace: list[dict[str, Any]] = []
        self._since = 0  # when this method's turn began
        self._cells: float | None = None  # of the last round
        self._excess = 0.0  # of a round's last bound
        self._missing = 0.0  # what estimates of energies lack
        self._gaps: list[tuple[int, float]] = []
        self._energy, self._bound = math.inf, -math.inf
        self._undecided: Any = None  # how undecided each label is
        self._rounded = 0  # rounds that have rounded
        self._rise = math.inf  # of the bound in the last iteration, a share of the bound

    @property
    def cells(self) -> float:
        """Cells a unit of potential in the next round."""
        if self.smooth:
            return CELLS
        return 1.0 if self.done < SLOW else DAMPED

    def plan(self) -> Plan:
        """Return what the next round does."""
        update = self.smooth and self.done > self._since
        roundings: tuple[tuple[int, float], ...] = ()
        if self._near_the_end():
            roundings = ((0, 0.0), *self._level_sets())
        return Plan(self.cells, self.inner, self.smooth, update, roundings)

    def _near_the_end(self) -> bool:
        """Return whether labels may matter: the bound hardly rises, or there is no time left."""
        return self._rise < self.gap or self.done + self.inner >= self.limit

    def _level_sets(self) -> tuple[tuple[int, float], ...]:
        """Return level sets of the two labels that are least decided."""
        if self._undecided is None:
            return ()
        bias = BIASES[self._rounded % len(BIASES)]
        order = np.argsort(-self._undecided, kind="stable")[:2]
        return tuple((int(label), bias) for label in order if self._undecided[label] > 0)

    def take(self, plan: Plan, records: list[dict[str, Any]]) -> bool:
        """Take a round's records in; return whether its labels are the best so far."""
        bounds = [sum(each) for each in zip(*(r["bounds"] for r in records), strict=True)]
        if plan.cells == self._cells and not plan.update:
            before = self.trace[-1]
            self._excess = max(0.0, before["bound"] - bounds[0])
            before["bound"] = bounds[0]
        elif plan.cells != self._cells:
            self._excess = 0.0
        self._cells = plan.cells
        undecided = [each["undecided"] for each in records if "undecided" in each]
        self._undecided = np.sum(undecided, 0)
        energy = sum(each["energy"] for each in records) + self._missing
        self._missing *= FALLS
        better = bool(plan.roundings) and energy < self._energy
        self._energy = energy if better else self._energy
        self._rounded += bool(plan.roundings)
        self.done += len(bounds)
        rise = (bounds[-1] - bounds[0]) if len(bounds) < 3 else (bounds[-1] - bounds[-3]) / 2
        self._rise = rise / max(1.0, abs(bounds[-1]))
        self._bound = bounds[-1] - EXCESS_FALLS * self._excess
        known = None if self._energy == math.inf else self._energy
        self.trace.append({"iterations": self.done, "energy": known, "bound": bounds[-1]})
        self._gaps.append((self.done, self._energy - self._bound))
        if self._ends():
            self.smooth, self._since = not self.smooth, self.done
        return better

    def _ends(self) -> bool:
        """Return whether it is the other method's turn."""
        done, gap = self._gaps[-1]
        earlier = [each for when, each in self._gaps if self._since < when <= done - WINDOW]
        return bool(earlier) and gap > STALLED * earlier[-1]

    def changes(self, plan: Plan) -> bool:
        """Return whether the method of multipliers has just ended: its last bound may be best."""
        return plan.smooth and not self.smooth

    def promises(self, gap: float) -> bool:
        """Return whether the whole image's gap is likely to be within the asked one."""
        known = self._energy < math.inf
        return known and self._energy - self._bound <= gap * max(1.0, abs(self._energy))

    def correct(self, energy: float, bound: float) -> None:
        """Take in what the certificate found."""
        self._missing = max(self._missing, energy - self._energy)
        self._excess = max(0.0, self.trace[-1]["bound"] - bound)
        self._energy, self._bound = energy, bound
