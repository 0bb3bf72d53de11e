r"""Column generation over labels: those that carry no mass are priced instead of iterated.

A linear program over the labels that occur, the *active* ones, has the least costs
:math:`\lambda_a = \min_{i\,\text{active}} (\phi_{ai} + r_{ai})`. For the Potts model the flow of
another label is its own: the bound of the whole program is :math:`\sum_a \min(\lambda_a, m_a)` with
:math:`m_a` the least :math:`\phi_{ai} + r_{ai}` of the others. While their flows rest, m is one row
of numbers.

A label whose costs fall short of :math:`\lambda` is priced: it takes a primal-dual step of the
program "this label against :math:`\lambda`",

.. math:: y_{ai} \leftarrow \operatorname{clip}(y_{ai} - \tau(\phi_{ai} + r_{ai} - \lambda_a)),
          \qquad z_i \leftarrow z_i + 2 y_i - y_i^\text{previous},

which ends with y = 0 where a flow exists that makes up for what falls short. A label for which none
is found becomes active. This is column generation, with labels for columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic

import numpy as np

from densecrf.backend import Array
from densecrf.problem.certificate import Dual, Mixture, Potentials
from densecrf.problem.problem import Problem
from densecrf.validation import IntArray

__all__ = ["OtherLabels", "active_labels", "pays"]

OCCURS = 2e-4  # share of the pixels from which on a label is active from the start
MANY, SMALL = 32, 2**18  # labels from which on pricing pays; pixels of images where 8 are enough
LEAST, MOST = 2, 0.75  # active labels, and the share of all above which pricing does not pay
SHARE = 0.8  # what prices may take of the bound, as a share of the gap of the active labels
RISES, CLOSE = 3.0, 3e-4  # the gap as rises of the bound, and its least, a fraction of the energy
FEW, PARTS = 20, 0.25  # a label's share of that matters from 1 / FEW on, or 1 / (PARTS · labels)
BEGIN = 4.0  # times what a label's first step adds to its marginals
PATIENCE = 10  # steps after which a label becomes active


def pays(problem: Problem[Array]) -> bool:
    """Return whether labels may be priced: many, or of a small image, whose memory is no matter."""
    many = problem.n_labels >= (MANY // 4 if problem.n < SMALL else MANY)
    return many and problem.potts and problem.steps.restricts_labels


def active_labels(problem: Problem[Array], y: Array) -> IntArray | None:
    """Return the labels to iterate, ascending; None: all of them."""
    if not pays(problem):
        return None
    labels = problem.steps.to_numpy(problem.steps.argmax(y))
    counts = np.bincount(labels, minlength=problem.n_labels)
    count = max(LEAST, int((counts > OCCURS * problem.n).sum()))
    found = np.sort(np.argsort(-counts, kind="stable")[:count])
    return found if count <= MOST * problem.n_labels else None


class OtherLabels(Generic[Array]):
    """The labels that are not active, and what is known of their costs.

    Parameters
    ----------
    problem : Problem
        The problem of all labels.
    active : ndarray of int
        The active labels, ascending.
    step : array, (n,)
        Step lengths.

    Attributes
    ----------
    active : ndarray of int
        The active labels.
    wanted : list of int
        Labels that are to become active.
    """

    problem: Problem[Array]
    _step: Array
    _resting_floor: Array
    _floor: Array

    def __init__(self, problem: Problem[Array], active: IntArray, step: Array) -> None:
        self.problem, self.active, self._step = problem, active, step
        self._resting = [i for i in range(problem.n_labels) if i not in set(active.tolist())]
        self._priced: dict[int, _Priced[Array]] = {}
        self.wanted: list[int] = []
        self._resting_floor = self._least_of(problem.unary[i] for i in self._resting)
        self._floor = self._resting_floor
        self._total = -float("inf")

    def bound(self, least: Array, total: float, energy: float) -> float:
        """Return an estimate of the bound of all labels; price others where they lower it much.

        Parameters
        ----------
        least : array, (n,)
            The least costs of the active labels.
        total : float
            Their sum.
        energy : float
            The best energy so far.
        """
        steps, rise = self.problem.steps, total - self._total
        bound = total - float(steps.shortfalls(self._floor[None], least)[0])
        self._total = total
        # Rises are geometric: the last one tells the active labels' gap before any rounding does.
        allowed = SHARE * min(energy - total, max(RISES * abs(rise), CLOSE * abs(energy)))
        if total - bound <= allowed:
            return bound
        self._price(least, allowed / max(FEW, PARTS * self.problem.n_labels))
        return total - float(steps.shortfalls(self._floor[None], least)[0])

    def _price(self, least: Array, matters: float) -> None:
        """Take a step of the labels whose costs fall short of the active ones'."""
        problem, steps, xp = self.problem, self.problem.steps, self.problem.steps.xp

        def falls_short(costs: Array) -> bool:
            return float(steps.shortfalls(costs[None], least)[0]) > matters

        begun = []
        if falls_short(self._resting_floor):  # else no label of them does
            short = steps.shortfalls(problem.unary, least)
            begun = [i for i in self._resting if short[i] > matters]
        if begun:
            self._resting = [i for i in self._resting if i not in set(begun)]
            self._resting_floor = self._least_of(problem.unary[i] for i in self._resting)
        behind = [i for i, label in self._priced.items() if falls_short(label.costs)] + begun
        if not behind:
            return
        for i in begun:
            self._priced[i] = _Priced(0 * least, 0 * least, problem.unary[i])
        for i in behind:
            label = self._priced[i]
            twice = 2.0 if label.steps else BEGIN
            label.z = steps.copy(label.z)  # dual points have the one before
            steps.price_step(label.costs, least, self._step, twice, label.y, label.z)
            label.steps += 1
        problem.calls.ordered -= 1  # the labels of this iteration's call that are not active
        r = problem.flow(None, xp.stack([self._priced[i].z for i in behind]), 1.0)
        for i, row in zip(behind, r, strict=True):
            row += problem.unary[i]
            self._priced[i].costs = row
        self.wanted = [i for i, label in self._priced.items() if label.steps >= PATIENCE]
        self._find_floor()

    def _find_floor(self) -> None:
        rows = (label.costs for label in self._priced.values())
        self._floor = self._least_of(rows, self._resting_floor)

    def _least_of(self, rows: Iterable[Array], least: Array | None = None) -> Array:
        xp = self.problem.steps.xp
        least = 0 * self.problem.unary[0] + float("inf") if least is None else least
        return reduce(xp.minimum, rows, least)

    def admit(self) -> tuple[Array, Array]:
        """Make the wanted labels active; return their marginals and potentials."""
        labels = sorted(self.wanted)
        rows = [self._priced.pop(i) for i in labels]
        self.active, self.wanted = np.union1d(self.active, labels), []
        self._find_floor()
        xp = self.problem.steps.xp
        return xp.stack([row.y for row in rows]), xp.stack([row.z for row in rows])

    def duals(self, active: Sequence[Dual[Array]]) -> "DualsOfAll[Array]":
        """Return dual points of all labels, from potentials of the active ones."""
        priced = {i: self._priced[i].z for i in sorted(self._priced)}
        return DualsOfAll(active, self.active, priced, self.problem.steps.xp)


class DualsOfAll(Sequence[Mixture[Array]]):
    """Dual points of all labels; the potentials of priced ones are put together when asked for.

    Parameters
    ----------
    active : sequence of Potentials
        Dual points of the active labels.
    labels : ndarray of int
        The active labels.
    priced : dict of int to array, (n,)
        The potentials of the priced ones, ascending.
    xp : module
        numpy or torch.
    """

    _active: Sequence[Dual[Array]]
    _priced: dict[int, Array]

    def __init__(
        self, active: Sequence[Dual[Array]], labels: IntArray, priced: dict[int, Array], xp: Any
    ) -> None:
        self._active, self._labels, self._priced, self._xp = active, labels, priced, xp

    def __len__(self) -> int:
        return len(self._active)

    def __getitem__(self, number: Any) -> Any:
        active = self._active[number]
        assert isinstance(active, Potentials)
        parts = [(1.0, replace(active, labels=self._labels))]
        if self._priced:
            stacked = self._xp.stack(list(self._priced.values()))
            labels = np.array(list(self._priced))
            parts.append((1.0, Potentials(stacked, cells=1.0, labels=labels, of_nodes=True)))
        return Mixture(tuple(parts))


@dataclass
class _Priced(Generic[Array]):
    """A label's marginals and potentials, both (n,), its costs, and the steps it took."""

    y: Array
    z: Array
    costs: Array
    steps: int = 0
