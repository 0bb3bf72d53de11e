r"""Parts of a problem: some labels, some pixels (section 5.1 of the paper).

A part has a `problem` of its own, smaller than the whole, on which a method works as if it were
all there is; the part translates: what to `take` from arrays of the whole, what the part's solution
means in `full`, and which bound on the *whole* energy a dual point of the part proves.
"""

from typing import Generic, TypeAlias

import numpy as np

from densecrf.backend import Array
from densecrf.operators.levels import Levels, PixelArray
from densecrf.problem.certificate import Mixture, Potentials
from densecrf.problem.problem import Problem
from densecrf.validation import IntArray

__all__ = ["Known", "Part", "PixelPart", "relevant_labels", "uncertain_pixels"]

FINE = 256  # levels that stand for an exact order
PLANES = 2**22  # numbers filtered at once

#: Dual points and their shares.
Shares: TypeAlias = tuple[tuple[float, Potentials[Array]], ...]
#: A dual point r of the whole, (labels, n), and how to prove it.
Known: TypeAlias = tuple[Array, Mixture[Array] | None]


def relevant_labels(problem: Problem[Array], y: Array, threshold: float) -> IntArray:
    """Return the labels whose score reaches the threshold at some pixel; at least one."""
    highest = problem.steps.to_numpy(problem.steps.xp.amax(y, 1))
    return np.flatnonzero(highest >= min(threshold, float(highest.max())))


def uncertain_pixels(
    problem: Problem[Array], y: Array, confidence: float, max_share: float
) -> IntArray:
    """Return the pixels none of whose scores reaches `confidence`; the least certain if many."""
    highest = problem.steps.to_numpy(problem.steps.xp.amax(y, 0))
    uncertain = np.flatnonzero(highest < confidence)
    most = int(max_share * highest.size)
    if len(uncertain) > most:
        least_certain = np.argsort(highest[uncertain], kind="stable")[:most]
        uncertain = np.sort(uncertain[least_certain])
    return uncertain


class Part(Generic[Array]):
    r"""All pixels and some labels; the others' scores are 0.

    In the Potts model the dual numbers :math:`\sigma_{abi}` of different labels have nothing to do
    with each other, so a dual point of the kept labels is completed to one of the whole by
    :math:`\sigma = 0` for the removed ones. In a tree metric labels share nodes, and some of them
    prove nothing.

    Parameters
    ----------
    whole : Problem
        The problem.
    keep : ndarray of int, optional
        Labels that stay, ascending; all by default.
    known : tuple of (array, Mixture or None), optional
        Some dual point of the whole.

    Attributes
    ----------
    problem : Problem
        The part as a problem of its own.
    complete : bool
        Whether all pixels are in it.
    """

    complete = True
    whole: Problem[Array]
    problem: Problem[Array]
    _known: "Known[Array] | None"

    def __init__(
        self,
        whole: Problem[Array],
        keep: IntArray | None = None,
        known: "Known[Array] | None" = None,
    ) -> None:
        self.whole, self.keep = whole, keep
        self.problem = whole if keep is None else whole.on_labels(keep)
        every = np.arange(whole.n_labels)
        self.gone = every[:0] if keep is None else np.setdiff1d(every, keep)
        self._known = known
        self._floors: list[Array] = []
        self._rest: Shares[Array] = ()
        if not len(self.gone):
            return
        self._floors.append(whole.steps.xp.amin(whole.unary[self.gone], 0))
        if known is not None:
            r, mixture = known
            self._floors.append(whole.steps.xp.amin(whole.unary[self.gone] + r[self.gone], 0))
            self._rest = () if mixture is None else mixture.of_labels(self.gone)

    @property
    def _proves(self) -> bool:
        return self.keep is None or self.whole.potts

    def conditional_gradient(
        self, y: Array, levels: int, order: str
    ) -> tuple[Array, float, Potentials[Array]]:
        """Return the dual point r at `y`, its constant c, and its potentials.

        The part's pairwise term is at least ⟨r, y⟩ - c everywhere, with equality at `y` but for
        the levels.
        """
        r = self.problem.dual_point(y, levels, order)
        exact = order not in ("hard", "soft", "literal")
        hard = order in ("hard", "literal")
        levels = FINE if exact else levels
        return r, 0.0, Potentials(y, levels=levels, hard=hard, labels=self.keep)

    def take(self, array: Array) -> Array:
        """Return the part of an array (labels, n) of the whole."""
        return array if self.keep is None else array[self.keep]

    def everywhere(self, y: Array) -> Array:
        """Return the part's solution at all pixels, in rows of the labels that stay."""
        return y

    def full(self, y: Array) -> Array:
        """Return the part's solution as one of the whole."""
        rows = self.everywhere(y)
        return rows if self.keep is None else self.whole.embed_labels(rows, self.keep)

    def bound(self, r: Array) -> float | None:
        """Return an estimate of the best bound on the whole energy that r proves, if any."""
        if not self._proves:
            return None
        if not self._floors:
            return self.whole.lower_bound(r)
        xp = self.whole.steps.xp
        least = xp.amin(self.problem.unary + r, 0)
        sums = (xp.minimum(least, floor).sum(dtype=xp.float64) for floor in self._floors)
        return max(float(total) for total in sums)

    def duals(self, parts: "Shares[Array]") -> tuple[Mixture[Array], ...]:
        """Return dual points of the whole for a combination of the part's, the best first."""
        if not self._proves:
            return ()
        completed = (parts + self._rest, parts) if self._rest else (parts,)
        return tuple(Mixture(each) for each in completed)

    def extended(self, r: Array) -> Array | None:
        """Return `r` as a dual point of the whole, with what is known of the removed labels."""
        out = self.full(r)
        if len(self.gone) and self._known is not None:
            out[self.gone] = self._known[0][self.gone]
        return out

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the labelling of the whole, (n,), and its energy where that is cheap."""
        return self._named(self.problem.steps.argmax(y)), None

    def _named(self, x: Array) -> Array:
        """Return the labelling in the whole's labels."""
        if self.keep is None:
            return x
        named: Array = self.whole.steps.from_numpy(self.keep)[x]
        return named

    def info(self) -> dict[str, IntArray]:
        """Return what stayed, where that is not all."""
        return {} if self.keep is None else {"labels_kept": self.keep.copy()}


class PixelPart(Part[Array]):
    r"""Some pixels and some labels; the other pixels keep their marginals.

    What the frozen pixels do to the others is filtered once and kept: for each of these pixels,
    each label and each level q the mass :math:`\sum_b K_{ab} \operatorname{clamp}(t_b - q + 1)` of
    frozen pixels at or above the level, from which the ordered sum at any score is interpolated.
    An iteration then filters among the optimised pixels alone. Levels span [0, 1].

    Parameters
    ----------
    whole : Problem
        The problem.
    keep : ndarray of int
        Labels that stay, ascending.
    y : array, (labels, n)
        Marginals of the whole.
    pixels : ndarray of int
        Pixels to optimise, ascending.
    """

    complete = False
    _y: Array
    _x: Array
    _frozen: "FrozenPixels[Array]"

    def __init__(self, whole: Problem[Array], keep: IntArray, y: Array, pixels: IntArray) -> None:
        Part.__init__(self, whole, keep)
        self.pixels, everywhere = pixels, self.problem
        self.problem = everywhere.on_pixels(pixels)
        self._y = everywhere.steps.project(Part.take(self, y))
        self._x = self._y.argmax(0)
        self._frozen = FrozenPixels(everywhere, self._y, pixels)
        if whole.potts:
            # The mass of each frozen label that reaches the pixels, and the frozen energy.
            frozen = everywhere.indicator(self._x)
            frozen[:, pixels] = 0
            self._agreeing: Array = everywhere.apply(frozen)[:, pixels]
            self._rest_energy = whole.energy(self._named(self._x))
            self._rest_energy -= self._own_energy(self._x[pixels])

    def _own_energy(self, x: Array) -> float:
        """Return the energy but for what concerns frozen pixels alone and disagreement at all."""
        problem = self.problem
        own = problem.indicator(x)
        # Pairs inside the set are met from both ends, pairs with a frozen pixel from one.
        same = 0.5 * problem.pairwise.apply(own) + self._agreeing
        return problem.steps.inner(problem.unary - same, own)

    def conditional_gradient(
        self, y: Array, levels: int, order: str
    ) -> tuple[Array, float, Potentials[Array]]:
        r"""Return r and :math:`c = \tfrac12 \sum_{abi} K_{ab} \sigma_{abi} y_{bi}`, b frozen."""
        problem, scale = self.problem, Levels(levels, 0.0, float(levels - 1), order != "soft")
        nodes = problem.steps.contiguous(problem.costs.nodes(y))
        problem.calls.ordered += 1
        inside = problem.pairwise.ordered(nodes, scale, order)
        outside, scored = self._frozen.signed_masses(nodes, scale)
        r = 0.5 * (inside + outside)
        lengths = problem.costs.nodes_double[1]
        sums = problem.steps.to_numpy(scored.sum(1, dtype=problem.steps.xp.float64))
        return problem.costs.leaves(r), 0.5 * float(lengths @ sums), Potentials(y)

    def take(self, array: Array) -> Array:
        """Return the kept labels' rows, the optimised pixels' columns."""
        return self.problem.steps.floats(Part.take(self, array)[:, self.pixels])

    def everywhere(self, y: Array) -> Array:
        """Return the solution beside the frozen marginals."""
        out = self.problem.steps.copy(self._y)
        out[:, self.pixels] = y
        return out

    def bound(self, r: Array) -> None:
        """Return None: a dual point of some pixels proves nothing of the others."""

    def duals(self, parts: "Shares[Array]") -> tuple[()]:  # noqa: ARG002
        """Return none."""
        return ()

    def extended(self, r: Array) -> None:
        """Return None."""

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the argmax and, for Potts, an estimate of its energy from the stored masses."""
        x = self.problem.steps.copy(self._x)
        x[self.pixels] = y.argmax(0)
        estimate = None
        if self.whole.potts:
            estimate = self._rest_energy + self._own_energy(x[self.pixels])
        return self._named(x), estimate

    def info(self) -> dict[str, IntArray]:
        """Return the kept labels and the optimised pixels."""
        return {**super().info(), "pixels_kept": self.pixels.copy()}


class FrozenPixels(Generic[Array]):
    """What frozen pixels send to the others, by levels, filtered once and stored."""

    _problem: Problem[Array]
    _scores: Array
    _weight: Array
    _stored: tuple[Levels, Array] | None

    def __init__(self, problem: Problem[Array], y: Array, pixels: PixelArray) -> None:
        self._problem, self._pixels = problem, pixels
        self._scores = problem.costs.nodes(y)
        self._weight = problem.steps.zeros_like(self._scores, 1, problem.n) + 1
        self._weight[:, pixels] = 0
        self._stored = None

    def signed_masses(self, nodes: Array, levels: Levels) -> tuple[Array, Array]:
        """Return the frozen mass below minus that above each score, and that times its score.

        With C_q the mass at or above level q it is C_0 - [(1-f) C_h + C_{h+1} + f C_{h+2}] at
        t = h + f.
        """
        if self._stored is None or self._stored[0] != levels:
            self._stored = levels, self._masses(levels)
        masses, steps = self._stored[1], self._problem.steps
        t = levels.of(nodes, steps.xp)
        h = steps.xp.floor(t)
        f, at = t - h, steps.xp.asarray(h, dtype=steps.xp.int64)
        node, pixel = (steps.from_numpy(np.arange(size)) for size in nodes.shape)
        low, middle, high = (masses[:, at + k, node[:, None], pixel] for k in range(3))
        plain, scored = masses[:, 0] - ((1 - f) * low + middle + f * high)
        return plain, scored

    def _masses(self, levels: Levels) -> Array:
        """Return masses at or above each level, and two beyond, at the other pixels.

        Those of the pixels, and of their scores: (2, levels, nodes, pixels).
        """
        problem, xp, plain = self._problem, self._problem.steps.xp, self._problem.calls.plain
        t, rows = levels.of(self._scores, xp), 2 * levels.count
        some = max(1, PLANES // (rows * problem.n))
        masses = []
        for first in range(0, len(t), some):  # all levels of some nodes at a time
            own, scores = (array[first : first + some] for array in (t, self._scores))
            above = xp.stack([xp.clip(own - q, 0, 1) for q in range(-1, levels.count - 1)])
            above = xp.stack([above * self._weight, above * (self._weight * scores)])
            flat = problem.steps.floats(above).reshape(rows * len(own), problem.n)
            found = problem.apply(flat)[:, self._pixels]
            masses.append(found.reshape(2, levels.count, len(own), -1))
        problem.calls.plain = plain
        problem.calls.ordered += 2  # the same work as so many ordered filter calls
        stacked: Array = xp.concatenate(masses, 2)
        beyond = 0 * stacked[:, :2]
        return xp.concatenate([stacked, beyond], 1)  # type: ignore[no-any-return]
