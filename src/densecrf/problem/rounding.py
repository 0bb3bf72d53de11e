r"""From marginals to a labelling, and from a labelling to a better one."""

from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from densecrf.backend import Array, Moves
from densecrf.problem.problem import Problem
from densecrf.validation import ArgumentError, IntArray, as_real_array, check_finite, check_integer

__all__ = ["FIRST", "SELDOM", "SWEEPS", "Descent", "Incumbent", "Pace", "argmax", "icm", "interval"]

SWEEPS = 5  # of ICM; most of what there is to gain comes with the first
UNDECIDED = 3  # labels whose level sets are tried in a rounding, and one in the first roundings
FIRST = 4  # iteration of the first rounding, unless told otherwise
SETTLED = 2e-3  # rise of the bound, a fraction of the energy, below which roundings may end a run
OFTEN, SELDOM = 16, 8  # last of the first, frequent roundings; iterations while the bound rises
PROMISING = 1e-3  # excess over the best energy, a fraction of it, that a sweep may make up
BIASES = (0.6, 0.8, 0.4, 0.9)  # one in each rounding, in turn; level sets at (1 - bias) / 2


def argmax(y: npt.ArrayLike) -> IntArray:
    r"""Give each pixel the label of its largest score.

    What the paper does (Section 5.2). No guarantee in general: a pixel of scores (0.34, 0.33,
    0.33) goes to the first whatever its neighbours do. Exact where `y` is integral, as nearly all
    pixels of a solved relaxation are.

    Parameters
    ----------
    y : array_like, (labels, *spatial)
        Scores.

    Returns
    -------
    ndarray of int, (*spatial)

    Examples
    --------
    >>> argmax([[0.2, 0.9], [0.8, 0.1]])
    array([1, 0])
    """
    return np.asarray(_scores(y).argmax(0), np.int64)


def interval(y: npt.ArrayLike, seed: int | np.random.Generator | None = None) -> IntArray:
    r"""Round at random so that neighbours with similar scores mostly agree.

    Kleinberg and Tardos (2002): draw a label i and a threshold :math:`\theta` in [0, 1), both
    uniformly; every pixel that has no label yet and :math:`y_{ai} > \theta` takes i; repeat until
    all have one. Pixel a takes label i with probability :math:`y_{ai}`, and two pixels part with
    probability at most twice :math:`\tfrac12\lVert y_a - y_b\rVert_1`. So for the Potts model the
    *expected* energy is at most the LP's unary term plus twice its pairwise term: at most twice
    the LP's objective where unaries are not negative, and at most twice the optimum from the LP's
    solution. Keep the best of several seeds.

    Parameters
    ----------
    y : array_like, (labels, *spatial)
        A point of the product of simplices.
    seed : int or numpy.random.Generator, optional
        The same seed gives the same labelling.

    Returns
    -------
    ndarray of int, (*spatial)

    Examples
    --------
    >>> interval([[0.5, 0.5, 1.0], [0.5, 0.5, 0.0]], seed=3)
    array([1, 1, 0])
    """
    scores = _scores(y)
    flat = scores.reshape(scores.shape[0], -1)
    if flat.min() < -1e-3 or np.abs(flat.sum(0, dtype=np.float64) - 1).max() > 1e-3:
        raise ArgumentError(
            "y",
            ...,
            "not in the product of simplices (negative values, or columns that do not add up to "
            "1); project it first (densecrf.problem.projections.simplex)",
        )
    rng = np.random.default_rng(seed)
    labels = np.zeros(flat.shape[1], np.int64)
    left = np.arange(flat.shape[1])
    while left.size:
        label, threshold = int(rng.integers(flat.shape[0])), rng.random()
        taken = flat[label, left] > threshold
        labels[left[taken]] = label
        left = left[~taken]
    return labels.reshape(scores.shape[1:])


def icm(problem: Problem[Array], labels: Array, max_sweeps: int = 10) -> tuple[Array, float]:
    r"""Lower the energy by iterated conditional modes (ICM).

    A sweep finds each pixel's best label given all others,
    :math:`\arg\min_i \phi_a(i) + \sum_{b \ne a} K_{ab}\, \mu(i, x_b)`, with one filter call, and
    moves all pixels that gain at once. Moves made together can undo each other's gains; if they
    raise the energy, the half that gains most is tried, then a quarter, down to a single pixel,
    whose gain is real.

    The energy never rises, and unless `max_sweeps` ends it, no change of a single pixel lowers
    the result's. It may still be far from the optimum.

    Parameters
    ----------
    problem : Problem
        The problem.
    labels : ndarray of int, (n,)
        Where to start.
    max_sweeps : int
        Most accepted sweeps.

    Returns
    -------
    labels : ndarray of int, (n,)
        The labelling.
    energy : float
        Its energy.
    """
    check_integer("max_sweeps", max_sweeps, at_least=0)
    descent = Descent(problem, labels)
    descent.sweeps(max_sweeps)
    return descent.labels, descent.energy


class Descent(Generic[Array]):
    """Iterated conditional modes from a labelling, which can be continued.

    Attributes
    ----------
    labels : array, (n,)
        The labelling so far.
    """

    problem: Problem[Array]
    labels: Array
    _moves: Moves[Array]

    def __init__(self, problem: Problem[Array], labels: Array) -> None:
        self.problem, self.labels = problem, labels
        self._moves = problem.icm_moves(labels)
        self._settled = False

    @property
    def energy(self) -> float:
        """The labelling's energy."""
        return self._moves.energy

    def sweeps(self, most: int) -> int:
        """Make sweeps, at most so many, while they lower the energy; return how many did."""
        for made in range(most):
            self._settled = self._settled or not self._sweep()
            if self._settled:
                return made
        return most

    def _sweep(self) -> bool:
        """Move the pixels that gain; return whether the energy fell."""
        moves = self._moves
        movers = moves.movers
        while movers:
            everyone = movers == moves.movers
            trial = (
                moves.labels
                if everyone
                else self.problem.steps.apply_moves(self.labels, moves, movers)
            )
            then = self.problem.icm_moves(trial)
            if then.energy < moves.energy:
                self.labels, self._moves = trial, then
                return True
            movers //= 2
        return False


class Incumbent(Generic[Array]):
    """The best labelling seen, the constant ones among the candidates.

    A rounding tries the largest scores, and level sets of the labels that are least decided: the
    largest scores after one label's were raised by a bias b, which between two labels is the set
    where its score exceeds (1 - b) / 2. The best of them gets sweeps of iterated conditional modes.

    A rounding takes about as long as an iteration and ends no run whose bound is far from its end:
    while the bound rises by more than a fraction of the energy, there are few, one of them in
    iteration `first`.

    Attributes
    ----------
    labels : array, (n,)
        The labelling.
    energy : float
        Its energy.
    """

    problem: Problem[Array]
    labels: Array
    _rounded: Array | None
    _descent: Descent[Array] | None

    def __init__(
        self,
        problem: Problem[Array],
        round_every: int = 2,
        polish: int = 1,
        settle_every: int = 20,
        first: int = FIRST,
    ) -> None:
        self.problem, self._first = problem, first
        self.round_every, self.polish, self.settle_every = round_every, polish, settle_every
        label, self.energy = problem.best_constant
        self.labels = problem.constant(label)
        self._iteration = self._turn = self._latest = 0
        self._bound = -float("inf")
        self._rounded = None
        self._considered: float | None = None
        self._descent = None

    def relabel(self, problem: Problem[Array], places: IntArray) -> None:
        """Go on with a problem of more labels, among which those so far have these places."""
        self.problem, self._rounded, self._descent = problem, None, None
        self.labels = problem.steps.from_numpy(places)[self.labels]
        label, energy = problem.best_constant
        if energy < self.energy:
            self.labels, self.energy = problem.constant(label), energy

    def update(self, y: Array, bound: float) -> None:
        """Round an iteration's marginals where it is its turn, and continue the descent."""
        self._iteration += 1
        settle = self._iteration % self.settle_every == 0
        if self._turn_to_round(bound) or settle:
            self._latest = self._iteration
            self.problem.give_back_free_memory()
            self._round(y)
        if settle:
            self._settle()

    def _turn_to_round(self, bound: float) -> bool:
        settled = bound - self._bound <= SETTLED * abs(self.energy)
        self._bound = max(self._bound, bound)
        if not settled:
            return self._iteration == self._first or self._iteration - self._latest >= SELDOM
        often = self._iteration <= OFTEN
        every = max(1, self.round_every // 2) if often else self.round_every
        return self._iteration - self._latest >= every

    def _round(self, y: Array) -> None:
        problem, bias = self.problem, BIASES[self._turn % len(BIASES)]
        self._turn += 1
        labels = problem.steps.argmax(y)
        undecided, repeated = problem.steps.compare(y, labels, self._rounded)
        self._rounded = labels
        tried = [] if repeated else [labels]
        count = 1 if self._iteration <= OFTEN else UNDECIDED
        order = np.argsort(-undecided, kind="stable")[:count]
        raised = [int(label) for label in order if undecided[label] > 0]
        tried += [problem.steps.raised_argmax(y, label, bias) for label in raised]
        if tried:
            energies = problem.estimates(tried)
            best = int(np.argmin(energies))
            energy, labels = energies[best], tried[best]
            del tried  # large
            problem.give_back_free_memory()
            promising = energy <= self.energy + PROMISING * abs(self.energy)
            if promising and energy != self._considered:  # not the last one again
                self._considered = energy
                self.consider(labels)

    def consider(self, labels: Array) -> None:
        """Let a labelling be a candidate, after its sweeps."""
        descent = Descent(self.problem, labels)
        descent.sweeps(self.polish)
        self._keep(descent)

    def _settle(self) -> None:
        if self._descent is not None and self._descent.sweeps(SWEEPS):
            self._keep(self._descent)

    def _keep(self, descent: Descent[Array]) -> None:
        """Keep a labelling that is better; one that is by its descent's estimate is evaluated."""
        if descent.energy < self.energy:
            energy = self.problem.energy(descent.labels)
            if energy < self.energy:
                self._descent, self.labels, self.energy = descent, descent.labels, energy


class Pace:
    """Decides when the gap between the best energy and a method's bound has stopped halving."""

    LEAST, WINDOW, SHARE = 20, 10, 0.5

    def __init__(self) -> None:
        self._best = -float("inf")
        self._gaps: list[float] = []

    def slow(self, energy: float, bound: float) -> bool:
        """Take an iteration's numbers in; return whether the last ten did not halve the gap."""
        self._best = max(self._best, bound)
        self._gaps.append(energy - self._best)
        if len(self._gaps) <= self.LEAST:
            return False
        return self._gaps[-1] > self.SHARE * self._gaps[-1 - self.WINDOW]


def _scores(y: npt.ArrayLike) -> npt.NDArray[Any]:
    array = as_real_array("y", y)
    if array.ndim < 2 or array.size == 0:
        raise ArgumentError("y", ..., f"shape {array.shape}; give (labels, *spatial)")
    check_finite("y", array)
    return array
