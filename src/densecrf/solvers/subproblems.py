r"""Parts of a problem: some labels, some pixels (section 5.1 of the paper).

A part has a `problem` of its own, smaller than the whole, on which a method works as if it were
all there is; the part translates: what to `take` from arrays of the whole, what the part's solution
means in `full`, and which bound on the *whole* energy a dual point of the part proves.
"""

from dataclasses import replace
from typing import Any, Generic, Protocol

import numpy as np

from densecrf.backend import Array
from densecrf.operators.levels import Levels, PixelArray
from densecrf.problem.certificate import Mixture, Potentials
from densecrf.problem.problem import Problem
from densecrf.validation import IntArray

__all__ = ["Part", "SomeLabels", "SomePixels", "Whole", "relevant_labels", "uncertain_pixels"]

FINE = 256  # levels that stand for an exact order


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


class Part(Protocol[Array]):
    """What methods need of a part."""

    @property
    def problem(self) -> Problem[Array]:
        """The part as a problem of its own."""

    @property
    def complete(self) -> bool:
        """Whether all pixels are in it."""

    @property
    def labels(self) -> IntArray:
        """The whole's labels that are in it."""

    def conditional_gradient(self, y: Array, levels: int, order: str) -> tuple[Array, float]:
        """Return the dual point r at `y` and its constant c.

        The part's pairwise term is at least ⟨r, y⟩ - c everywhere, with equality at `y` but for
        the levels.
        """

    def take(self, array: Array) -> Array:
        """Return the part of an array (labels, n) of the whole."""

    def full(self, y: Array) -> Array:
        """Return the part's solution as one of the whole."""

    def bound(self, r: Array) -> float | None:
        """Return an estimate of the bound on the whole energy that r proves, if any."""

    def potentials(self, y: Array, levels: int, order: str) -> Potentials[Array]:
        """Return the dual point that r at `y` is, by levels."""

    def duals(
        self, parts: tuple[tuple[float, Potentials[Array]], ...]
    ) -> tuple[Mixture[Array], ...]:
        """Return dual points of the whole for a combination of the part's, the best first."""

    def extended(self, r: Array) -> Array | None:
        """Return the dual point as one of the whole, or None."""

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the labelling of the whole, (n,), and its energy where that is cheap."""

    def info(self) -> dict[str, Any]:
        """Return what stayed."""


class Whole(Generic[Array]):
    """All labels, all pixels."""

    complete = True
    problem: Problem[Array]

    def __init__(self, problem: Problem[Array]) -> None:
        self.problem = problem
        self.labels = np.arange(problem.n_labels)

    def conditional_gradient(self, y: Array, levels: int, order: str) -> tuple[Array, float]:
        """Return the problem's dual point and 0."""
        return self.problem.dual_point(y, levels, order), 0.0

    def take(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def full(self, y: Array) -> Array:
        """Return the solution itself."""
        return y

    def bound(self, r: Array) -> float | None:
        """Return the problem's bound."""
        return self.problem.lower_bound(r)

    def potentials(self, y: Array, levels: int, order: str) -> Potentials[Array]:
        """Return the dual point by levels."""
        return by_levels(y, levels, order)

    def duals(
        self, parts: tuple[tuple[float, Potentials[Array]], ...]
    ) -> tuple[Mixture[Array], ...]:
        """Return the combination."""
        return (Mixture(parts),)

    def extended(self, r: Array) -> Array | None:
        """Return the dual point itself."""
        return r

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the argmax."""
        return self.problem.steps.argmax(y), None

    def info(self) -> dict[str, Any]:
        """Return nothing: everything stayed."""
        return {}


class SomeLabels(Generic[Array]):
    r"""All pixels, some labels; the others' scores are 0.

    In the Potts model the dual numbers :math:`\sigma_{abi}` of different labels have nothing to do
    with each other, so a dual point of the kept labels is completed to one of the whole by
    :math:`\sigma = 0` for the removed ones. In a tree metric labels share nodes, and a part proves
    nothing.

    Parameters
    ----------
    whole : Problem
        The problem.
    keep : ndarray of int
        Labels that stay, ascending.
    known : tuple of (array, Mixture or None), optional
        Some dual point r of the whole, (labels, n), and how to prove it.
    """

    complete = True
    whole: Problem[Array]
    problem: Problem[Array]
    _known: tuple[Array, Mixture[Array] | None] | None
    _floors: list[Array]

    def __init__(
        self,
        whole: Problem[Array],
        keep: IntArray,
        known: tuple[Array, Mixture[Array] | None] | None = None,
    ) -> None:
        self.whole, self.keep, self.labels = whole, keep, keep
        self.problem = whole.on_labels(keep)
        self._known = known
        gone = np.setdiff1d(np.arange(whole.n_labels), keep)
        self._floors = []
        self._rest: tuple[tuple[float, Potentials[Array]], ...] = ()
        if len(gone):
            self._floors.append(whole.steps.xp.amin(whole.unary[gone], 0))
        if len(gone) and known is not None:
            self._floors.append(whole.steps.xp.amin(whole.unary[gone] + known[0][gone], 0))
            self._rest = () if known[1] is None else known[1].of_labels(gone)

    def conditional_gradient(self, y: Array, levels: int, order: str) -> tuple[Array, float]:
        """Return the problem's dual point and 0."""
        return self.problem.dual_point(y, levels, order), 0.0

    def take(self, array: Array) -> Array:
        """Return the kept labels' rows."""
        return array[self.keep]

    def full(self, y: Array) -> Array:
        """Return the solution with zeros for the removed labels."""
        return self.whole.embed_labels(y, self.keep)

    def bound(self, r: Array) -> float | None:
        """Return the better of the estimates that completions of `r` give."""
        if not self.whole.potts:
            return None
        if not self._floors:
            return self.whole.lower_bound(r)
        xp = self.whole.steps.xp
        least = xp.amin(self.problem.unary + r, 0)
        sums = (xp.minimum(least, floor).sum(dtype=xp.float64) for floor in self._floors)
        return max(float(total) for total in sums)

    def potentials(self, y: Array, levels: int, order: str) -> Potentials[Array]:
        """Return the dual point by levels, of the kept labels."""
        return replace(by_levels(y, levels, order), labels=self.keep)

    def duals(
        self, parts: tuple[tuple[float, Potentials[Array]], ...]
    ) -> tuple[Mixture[Array], ...]:
        """Return the completions of a combination of dual points."""
        if not self.whole.potts:
            return ()
        completed = (parts + self._rest, parts) if self._rest else (parts,)
        return tuple(Mixture(each) for each in completed)

    def extended(self, r: Array) -> Array | None:
        """Return `r` completed by what is known of the removed labels."""
        out = self.whole.embed_labels(r, self.keep)
        if self._known is not None:
            gone = np.setdiff1d(np.arange(self.whole.n_labels), self.keep)
            out[gone] = self._known[0][gone]
        return out

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the argmax among the kept labels."""
        return self.whole.steps.from_numpy(self.keep)[y.argmax(0)], None

    def info(self) -> dict[str, Any]:
        """Return the kept labels."""
        return {"labels_kept": self.keep.copy()}


class SomePixels(Generic[Array]):
    r"""Some pixels, some labels; the other pixels keep their marginals.

    What the frozen pixels do to the others is filtered once and kept: for each of these pixels,
    each label and each level q the mass :math:`\sum_b K_{ab} \operatorname{clamp}(t_b - q + 1)` of
    frozen pixels at or above the level, from which the ordered sum at any score is interpolated.
    An iteration then filters among the optimised pixels alone. Levels span [0, 1].

    Parameters
    ----------
    labels : SomeLabels
        The problem on the labels that stay.
    y : ndarray, (labels, n)
        Marginals of the whole.
    pixels : ndarray of int
        Pixels to optimise, ascending.
    """

    complete = False
    problem: Problem[Array]
    _labels: SomeLabels[Array]
    _y: Array
    _x: Array
    _frozen: "FrozenPixels[Array]"
    _agreeing: Array

    def __init__(self, labels: SomeLabels[Array], y: Array, pixels: IntArray) -> None:
        self._labels, self.pixels, self.labels = labels, pixels, labels.keep
        self._y = labels.problem.steps.project(labels.take(y))
        self.problem = labels.problem.on_pixels(pixels)
        self._frozen = FrozenPixels(labels.problem, self._y, pixels)
        self._x = self._y.argmax(0)
        self._potts = labels.whole.potts
        if self._potts:
            self._prepare_energy()

    def conditional_gradient(self, y: Array, levels: int, order: str) -> tuple[Array, float]:
        r"""Return r and :math:`c = \tfrac12 \sum_{abi} K_{ab} \sigma_{abi} y_{bi}`, b frozen."""
        scale = Levels(levels, 0.0, float(levels - 1), order != "soft")
        nodes = self.problem.steps.contiguous(self.problem.costs.nodes(y))
        self.problem.calls.ordered += 1
        inside = self.problem.pairwise.ordered(nodes, scale, order)
        r = 0.5 * (inside + self._frozen.signed_mass(nodes, scale))
        lengths = self.problem.costs.nodes_double[1]
        scored = self._frozen.signed_mass(nodes, scale, scored=True)
        sums = self.problem.steps.to_numpy(scored.sum(1, dtype=self.problem.steps.xp.float64))
        return self.problem.costs.leaves(r), 0.5 * float(lengths @ sums)

    def _prepare_energy(self) -> None:
        """Store how much mass of each frozen label reaches the pixels, and the frozen energy."""
        problem = self._labels.problem
        frozen = problem.indicator(self._x)
        frozen[:, self.pixels] = 0
        self._agreeing = problem.apply(frozen)[:, self.pixels]
        whole = self._labels.whole.energy(self._named(self._x))
        self._rest = whole - self._own_energy(self._x[self.pixels])

    def _named(self, x: Array) -> Array:
        """Return the labelling in the whole's labels."""
        named: Array = self._labels.whole.steps.from_numpy(self._labels.keep)[x]
        return named

    def _own_energy(self, x: Array) -> float:
        """Return the energy but for what concerns frozen pixels alone and disagreement at all."""
        problem = self.problem
        own = problem.indicator(x)
        # Pairs inside the set are met from both ends, pairs with a frozen pixel from one.
        same = 0.5 * problem.pairwise.apply(own) + self._agreeing
        return problem.steps.inner(problem.unary - same, own)

    def take(self, array: Array) -> Array:
        """Return the kept labels' rows, the optimised pixels' columns."""
        return self.problem.steps.floats(self._labels.take(array)[:, self.pixels])

    def full(self, y: Array) -> Array:
        """Return the solution beside the frozen marginals."""
        out = self.problem.steps.copy(self._y)
        out[:, self.pixels] = y
        return self._labels.full(out)

    def bound(self, r: Array) -> float | None:  # noqa: ARG002 - the frozen pixels' r is unknown
        """Return None: a dual point of some pixels proves nothing of the others."""
        return None

    def potentials(self, y: Array, levels: int, order: str) -> Potentials[Array]:
        """Return the dual point by levels, of no use for a bound."""
        return by_levels(y, levels, order)

    def duals(
        self,
        parts: tuple[tuple[float, Potentials[Array]], ...],  # noqa: ARG002
    ) -> tuple[Mixture[Array], ...]:
        """Return none."""
        return ()

    def extended(self, r: Array) -> None:
        """Return None."""

    def rounded(self, y: Array) -> tuple[Array, float | None]:
        """Return the argmax and, for Potts, an estimate of its energy from the stored masses."""
        x = self.problem.steps.copy(self._x)
        x[self.pixels] = y.argmax(0)
        estimate = self._rest + self._own_energy(x[self.pixels]) if self._potts else None
        return self._named(x), estimate

    def info(self) -> dict[str, Any]:
        """Return the kept labels and the optimised pixels."""
        return {**self._labels.info(), "pixels_kept": self.pixels.copy()}


class FrozenPixels(Generic[Array]):
    """What frozen pixels send to the others, by levels, filtered once and stored."""

    _problem: Problem[Array]
    _scores: Array
    _weight: Array
    _stored: dict[bool, tuple[Levels, Array]]

    def __init__(self, problem: Problem[Array], y: Array, pixels: PixelArray) -> None:
        self._problem, self._pixels = problem, pixels
        self._scores = problem.costs.nodes(y)
        self._weight = problem.steps.ones(problem.n)
        self._weight[:, pixels] = 0
        self._stored = {}

    def signed_mass(self, nodes: Array, levels: Levels, *, scored: bool = False) -> Array:
        """Return the frozen mass below minus that above each score, times its score if asked.

        With C_q the mass at or above level q it is C_0 - [(1-f) C_h + C_{h+1} + f C_{h+2}] at
        t = h + f.
        """
        stored = self._stored.get(scored)
        if stored is None or stored[0] != levels:
            stored = self._stored[scored] = levels, self._masses(levels, scored)
        masses, xp = stored[1], self._problem.steps.xp
        t = levels.of(nodes, xp)
        h = xp.floor(t)
        f = t - h
        out: Array = 0 * t
        for q in range(levels.count):
            share = (h == q) * (1 - f) + (h + 1 == q) + (h + 2 == q) * f
            out = out + (float(q == 0) - share) * masses[q]
        return out

    def _masses(self, levels: Levels, scored: bool) -> Array:
        """Return the mass at or above each level at the other pixels, (levels, nodes, pixels)."""
        problem, xp = self._problem, self._problem.steps.xp
        problem.calls.ordered += 1  # the same work as an ordered filter call
        weight = self._weight * self._scores if scored else self._weight
        t = levels.of(self._scores, xp)
        plain = problem.calls.plain
        masses = [
            problem.apply(problem.steps.floats(xp.clip(t - q, 0, 1) * weight))[:, self._pixels]
            for q in range(-1, levels.count - 1)
        ]
        problem.calls.plain = plain
        stacked: Array = xp.stack(masses)
        return stacked


def by_levels(y: Array, levels: int, order: str) -> Potentials[Array]:
    """Return the dual point at `y`, by levels; by fine ones where the order is exact."""
    exact = order not in ("hard", "soft", "literal")
    return Potentials(y, levels=FINE if exact else levels, hard=order in ("hard", "literal"))
