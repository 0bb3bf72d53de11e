r"""Parts of a problem: some labels, some pixels (section 5.1 of the paper).

A part has a `problem` of its own, smaller than the whole, on which a method works as if it were
all there is; the part translates: what to `take` from arrays of the whole, what the part's solution
means in `full`, and which `bound` on the *whole* energy a dual point of the part proves.
"""

import copy
from typing import Any, Protocol

import numpy as np

from densecrf.filters.base import Levels, PixelArray
from densecrf.problem import Problem
from densecrf.validation import FloatArray, IntArray

__all__ = ["Part", "SomeLabels", "SomePixels", "Whole", "relevant_labels", "uncertain_pixels"]


def relevant_labels(y: FloatArray, threshold: float) -> IntArray:
    """Return the labels whose score reaches the threshold at some pixel; at least one.

    Examples
    --------
    >>> relevant_labels(np.array([[0.995, 0.6], [0.005, 0.0], [0.0, 0.4]], np.float32), 0.01)
    array([0, 2])
    """
    highest = y.max(1)
    return np.flatnonzero(highest >= min(threshold, float(highest.max())))


def uncertain_pixels(y: FloatArray, confidence: float, max_share: float) -> IntArray:
    """Return the pixels none of whose scores reaches `confidence`; the least certain if many.

    Examples
    --------
    >>> uncertain_pixels(np.array([[0.99, 0.6, 0.8], [0.01, 0.4, 0.2]], np.float32), 0.95, 0.34)
    array([1])
    """
    highest = y.max(0)
    uncertain = np.flatnonzero(highest < confidence)
    most = int(max_share * highest.size)
    if len(uncertain) > most:
        least_certain = np.argsort(highest[uncertain], kind="stable")[:most]
        uncertain = np.sort(uncertain[least_certain])
    return uncertain


class Part(Protocol):
    """What methods need to know of a part."""

    @property
    def problem(self) -> Problem:
        """The part as a problem of its own."""

    @property
    def complete(self) -> bool:
        """Whether all pixels are in it."""

    def conditional_gradient(self, y: Any, levels: int, order: str) -> tuple[Any, float]:
        """Return the dual point r at `y` and its constant c.

        The part's pairwise term is at least ⟨r, y⟩ - c everywhere, with equality at `y` but for
        the levels.
        """

    def take(self, array: Any) -> Any:
        """Return the part of an array (labels, n) of the whole."""

    def full(self, y: Any) -> Any:
        """Return the part's solution as one of the whole."""

    def bound(self, r: Any) -> float | None:
        """Return the bound on the whole energy that a dual point of the part proves, if any."""

    def extended(self, r: Any) -> Any:
        """Return the dual point as one of the whole, or None."""

    def rounded(self, y: Any) -> tuple[Any, float | None]:
        """Return the labelling of the whole, (n,), and its energy where that is cheap."""

    def info(self) -> dict[str, Any]:
        """Return what stayed."""


class Whole:
    """All labels, all pixels."""

    complete = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def conditional_gradient(self, y: Any, levels: int, order: str) -> tuple[Any, float]:
        """Return the problem's dual point and 0."""
        return self.problem.dual_point(y, levels, order), 0.0

    def take(self, array: Any) -> Any:
        """Return the array itself."""
        return array

    def full(self, y: Any) -> Any:
        """Return the solution itself."""
        return y

    def bound(self, r: Any) -> float | None:
        """Return the problem's bound."""
        return self.problem.lower_bound(r)

    def extended(self, r: Any) -> Any:
        """Return the dual point itself."""
        return r

    def rounded(self, y: Any) -> tuple[Any, float | None]:
        """Return the argmax."""
        return self.problem.argmax(y), None

    def info(self) -> dict[str, Any]:
        """Return nothing: everything stayed."""
        return {}


class SomeLabels:
    r"""All pixels, some labels; the others' scores are 0.

    Bounds are on the whole energy. In the Potts model the dual numbers
    :math:`\sigma_{abi}` of different labels have nothing to do with each other, so a dual point of
    the kept labels may be completed by *any* dual point of the removed ones: by
    :math:`\sigma = 0` or by the last one that was known, whichever is better. In a tree metric
    labels share nodes, and a part proves nothing.

    Parameters
    ----------
    whole : Problem
        The problem.
    keep : ndarray of int
        Labels that stay, ascending.
    dual : ndarray, (labels, n), optional
        Some dual point r of the whole.
    """

    complete = True

    def __init__(self, whole: Problem, keep: IntArray, dual: FloatArray | None = None) -> None:
        self.whole, self.keep = whole, keep
        self.problem = _on_labels(whole, keep)
        self._dual = dual
        gone = np.setdiff1d(np.arange(whole.n_labels), keep)
        self._floors: list[FloatArray] = []
        if len(gone):
            self._floors.append(whole.unary[gone].min(0))
        if len(gone) and dual is not None:
            self._floors.append((whole.unary[gone] + dual[gone]).min(0))

    def conditional_gradient(
        self, y: FloatArray, levels: int, order: str
    ) -> tuple[FloatArray, float]:
        """Return the problem's dual point and 0."""
        return self.problem.dual_point(y, levels, order), 0.0

    def take(self, array: FloatArray) -> FloatArray:
        """Return the kept labels' rows."""
        return array[self.keep]

    def full(self, y: FloatArray) -> FloatArray:
        """Return the solution with zeros for the removed labels."""
        out = np.zeros((self.whole.n_labels, self.whole.n), np.float32)
        out[self.keep] = y
        return out

    def bound(self, r: FloatArray) -> float | None:
        """Return the better of the bounds that completions of `r` prove."""
        if not self.whole.potts:
            return None
        if not self._floors:
            return self.whole.lower_bound(r)
        least = (self.problem.unary + r).min(0)
        return max(float(np.minimum(least, floor).sum(dtype=np.float64)) for floor in self._floors)

    def extended(self, r: FloatArray) -> FloatArray:
        """Return `r` completed by what is known of the removed labels."""
        zero = np.zeros((self.whole.n_labels, self.whole.n), np.float32)
        out = zero if self._dual is None else self._dual.copy()
        out[self.keep] = r
        return out

    def rounded(self, y: FloatArray) -> tuple[IntArray, float | None]:
        """Return the argmax among the kept labels."""
        return self.keep[y.argmax(0)], None

    def info(self) -> dict[str, Any]:
        """Return the kept labels."""
        return {"labels_kept": self.keep.copy()}


class SomePixels:
    r"""Some pixels, some labels; the other pixels keep their marginals.

    What the frozen pixels do to the others is filtered once and kept: for each of these pixels,
    each label and each level q the mass :math:`\sum_b K_{ab} \operatorname{clamp}(t_b - q + 1)` of
    frozen pixels at or above the level, from which the ordered sum at any score is interpolated.
    An iteration then filters among the optimised pixels alone. Levels are spread over [0, 1].

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

    def __init__(self, labels: SomeLabels, y: FloatArray, pixels: IntArray) -> None:
        self._labels, self.pixels = labels, pixels
        self._y = labels.problem.project(labels.take(y))
        self.problem = _PixelProblem(labels.problem, self._y, pixels)
        self._x = self._y.argmax(0)
        self._potts = labels.whole.potts
        if self._potts:
            self._prepare_energy()

    def conditional_gradient(
        self, y: FloatArray, levels: int, order: str
    ) -> tuple[FloatArray, float]:
        r"""Return r and :math:`c = \tfrac12 \sum_{abi} K_{ab} \sigma_{abi} y_{bi}`, b frozen."""
        return self.problem.dual_point(y, levels, order), self.problem.offset(y, levels, order)

    def _prepare_energy(self) -> None:
        """Store how much mass of each frozen label reaches the pixels, and the frozen energy."""
        problem = self._labels.problem
        frozen = (np.arange(problem.n_labels)[:, None] == self._x).astype(np.float32)
        frozen[:, self.pixels] = 0
        self._agreeing = problem.apply(frozen)[:, self.pixels]
        whole = self._labels.whole.energy(self._labels.keep[self._x])
        self._rest = whole - self._own_energy(self._x[self.pixels])

    def _own_energy(self, x: IntArray) -> float:
        """Return the energy but for what concerns frozen pixels alone and disagreement at all."""
        problem = self.problem
        own = (np.arange(problem.n_labels)[:, None] == x).astype(np.float32)
        # Pairs inside the set are met from both ends, pairs with a frozen pixel from one.
        same = 0.5 * problem.inside.apply(own, problem.threads) + self._agreeing
        return problem.inner(problem.unary - same, own)

    def take(self, array: FloatArray) -> FloatArray:
        """Return the kept labels' rows, the optimised pixels' columns."""
        return np.ascontiguousarray(self._labels.take(array)[:, self.pixels])

    def full(self, y: FloatArray) -> FloatArray:
        """Return the solution beside the frozen marginals."""
        out = self._y.copy()
        out[:, self.pixels] = y
        return self._labels.full(out)

    def bound(self, r: FloatArray) -> float | None:  # noqa: ARG002 - the frozen pixels' r is unknown
        """Return None: a dual point of some pixels proves nothing of the others."""
        return None

    def extended(self, r: FloatArray) -> None:
        """Return None."""

    def rounded(self, y: FloatArray) -> tuple[IntArray, float | None]:
        """Return the argmax and, for Potts, its energy from the stored masses."""
        x = self._x.copy()
        x[self.pixels] = y.argmax(0)
        energy = self._rest + self._own_energy(x[self.pixels]) if self._potts else None
        return self._labels.keep[x], energy

    def info(self) -> dict[str, Any]:
        """Return the kept labels and the optimised pixels."""
        return {**self._labels.info(), "pixels_kept": self.pixels.copy()}


class _PixelProblem(Problem):
    """The problem among some pixels, beside frozen ones."""

    def __init__(self, parent: Problem, y: FloatArray, pixels: PixelArray) -> None:
        self.__dict__.update(parent.__dict__)
        self.n = len(pixels)
        self.unary = np.ascontiguousarray(parent.unary[:, pixels])
        self.inside = parent.crf.pairwise.restricted(pixels)
        self._pixels = pixels
        self._frozen = np.ones(parent.n, np.float32)
        self._frozen[pixels] = 0
        self._scores = parent.nodes(y)
        self._stored: dict[bool, tuple[Levels, FloatArray]] = {}

    def dual_point(
        self,
        y: FloatArray,
        levels: int = 10,
        order: str = "soft",
        rescale: bool = False,  # noqa: ARG002 - the frozen pixels' levels are stored for [0, 1]
    ) -> FloatArray:
        """Return r at the optimised pixels, the frozen ones' part included."""
        self.calls.ordered += 1
        spread = Levels(levels, 0.0, float(levels - 1), order != "soft")
        nodes = self.nodes(y)
        r = self.inside.ordered(nodes, spread, order, self.threads)
        r += _signed_mass(self._masses(spread, scored=False), spread.of(nodes))
        r *= np.float32(0.5)
        return self.leaves(r)

    def offset(self, y: FloatArray, levels: int, order: str) -> float:
        """Return what r, as a linear function, leaves out: the frozen pixels' own scores in it."""
        spread = Levels(levels, 0.0, float(levels - 1), order != "soft")
        signed = _signed_mass(self._masses(spread, scored=True), spread.of(self.nodes(y)))
        lengths = np.ones(len(signed)) if self._lengths is None else self._lengths
        return 0.5 * float(lengths @ signed.sum(1, dtype=np.float64))

    def _masses(self, spread: Levels, *, scored: bool) -> FloatArray:
        """Return the frozen mass (times its score) at or above each level, stored."""
        stored = self._stored.get(scored)
        if stored is None or stored[0] != spread:
            stored = self._stored[scored] = spread, self._filtered_masses(spread, scored)
        return stored[1]

    def _filtered_masses(self, spread: Levels, scored: bool) -> FloatArray:
        """Filter what lies at or above each level: (nodes, levels + 2, pixels), the last two 0."""
        self.calls.ordered += 1  # the same work, among all pixels
        out = np.zeros((len(self._scores), spread.count + 2, self.n), np.float32)
        steps = np.arange(-1, spread.count - 1, dtype=np.float32)[:, None]
        for row, scores in zip(out, self._scores, strict=True):
            above = np.clip(spread.of(scores) - steps, 0, 1) * self._frozen
            if scored:
                above *= scores
            row[: spread.count] = self.crf.pairwise.apply(above, self.threads)[:, self._pixels]
        return out


def _signed_mass(masses: FloatArray, t: FloatArray) -> FloatArray:
    """Return the mass below minus the mass above the (fractional) levels `t`.

    With C_q the mass at or above level q it is C_0 - [(1-f) C_h + C_{h+1} + f C_{h+2}] at
    t = h + f.
    """
    h = np.floor(t).astype(np.intp)
    f = t - h

    def at(q: Any) -> Any:
        return np.take_along_axis(masses, q[:, None, :], 1)[:, 0]

    signed: FloatArray = masses[:, 0] - ((1 - f) * at(h) + at(h + 1) + f * at(h + 2))
    return signed


def _on_labels(problem: Problem, keep: IntArray) -> Problem:
    """Return the problem with some labels; its pixelwise and filtering operations are valid."""
    part = copy.copy(problem)
    part.unary = np.ascontiguousarray(problem.unary[keep])
    part.n_labels = len(keep)
    if problem._members is not None and problem._lengths is not None:
        below = problem._members[:, keep]
        used = below.any(1)
        part._members, part._lengths = below[used], problem._lengths[used]
    return part
