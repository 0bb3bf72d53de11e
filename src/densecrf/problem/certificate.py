r"""How far from optimal, at most: bounds on the energy of every labelling.

For any numbers :math:`\sigma_{abi} \in [-1, 1]` with :math:`\sigma_{abi} = -\sigma_{bai}` put
:math:`r_{ai} = \tfrac12 \sum_b K_{ab} \sigma_{abi}`. Then for every y in the product of simplices

.. math:: \tilde E(y) \ge \langle \phi + r, y \rangle \ge \sum_a \min_i (\phi_{ai} + r_{ai}),

because :math:`\tfrac12 \sum_{a<b} K_{ab} \sum_i \sigma_{abi} (y_{ai} - y_{bi})` is at most the
pairwise term. Half the output of every ordered filter call is such an r, and so is every convex
combination of them.

While a method iterates, its bounds are estimates in single precision. What a result states is
`lower_bound` of one of the dual points below, evaluated in double precision over the exact
operator, less a bound on all rounding errors: docs/mathematics.md derives it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from math import fsum, inf
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import numpy as np
import numpy.typing as npt

from densecrf.backend import Array
from densecrf.operators.levels import Doubles
from densecrf.solvers.result import relative_gap, share_proven
from densecrf.validation import FloatArray, IntArray, check_gap, check_integer

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF
    from densecrf.problem.problem import Problem
    from densecrf.solvers.result import Result

__all__ = [
    "Certificate",
    "CertificateError",
    "Costs",
    "Dual",
    "HostDual",
    "Mixture",
    "Potentials",
    "Share",
    "Sizes",
    "Tangent",
    "certify",
    "lower_bound",
    "rounded_down",
]

UNIT = 2.0**-53  # of rounding, in double precision
SINGLE = 2.0**-23  # twice that of single precision
SMALLEST = 2.0**-126  # normal number of single precision: numbers below it may be rounded to 0
BESIDES = 512  # operations on the way of a number through a filter, beside the sums over pixels
COMBINED = 256  # of these, for the sums over the dual points of a mixture


class CertificateError(RuntimeError):
    """A bound above an energy: a defect of densecrf, never of its input."""


@dataclass(frozen=True, eq=False)
class Potentials(Generic[Array]):
    r"""The dual point :math:`r_{ai} = \tfrac12 \sum_b K_{ab}\, s(u_{ai}, u_{bi})`.

    Attributes
    ----------
    scores : array, (labels, n)
        With the offsets, the potentials u.
    offsets : array, (nodes, n), or None
        What is added to the nodes' scores.
    cells : float or None
        Levels of each unit; None: `levels` levels over the range of all potentials.
    levels : int
        Number of levels.
    hard : bool
        Whether potentials are floored to levels.
    labels : ndarray of int, optional
        The labels that the scores are of, where not of all; the others have r = 0.
    of_nodes : bool
        Whether the scores are sums over the labels below each node of the tree already.
    """

    scores: Array
    offsets: Array | None = None
    cells: float | None = None
    levels: int = 10
    hard: bool = False
    labels: IntArray | None = None
    of_nodes: bool = False


@dataclass(frozen=True, eq=False)
class Mixture(Generic[Array]):
    """A combination of dual points; what is left to a total of 1 is the dual point 0."""

    parts: tuple[tuple[float, Potentials[Array]], ...]

    def of_labels(self, labels: IntArray) -> tuple[tuple[float, Potentials[Array]], ...]:
        """Return the parts' rows of some labels."""
        out = []
        for share, part in self.parts:
            own = np.arange(len(part.scores)) if part.labels is None else part.labels
            rows = np.flatnonzero(np.isin(own, labels))
            if len(rows):
                some = replace(part, scores=part.scores[rows], labels=own[rows])
                out.append((share, some))
        return tuple(out)

    @property
    def disjoint(self) -> bool:
        """Whether the parts are of different labels, each with a share of 1."""
        names = [part.labels for _, part in self.parts if part.labels is not None]
        if not names or len(names) < len(self.parts) or any(share != 1 for share, _ in self.parts):
            return False
        every = np.concatenate(names)
        return len(np.unique(every)) == len(every)

    @property
    def excess(self) -> float:
        """By how much the shares of any label exceed 1, which rounding errors can make them do.

        Divided by their sum they are a dual point, whose bound is lower by at most this share of
        the pairwise mass.
        """
        ends = [part.labels for _, part in self.parts if part.labels is not None]
        names = set[int]().union(*(set(map(int, labels)) for labels in ends)) or {0}
        sums = (
            fsum(share for share, part in self.parts if part.labels is None or name in part.labels)
            for name in names
        )
        return max(0.0, *(total - 1 for total in sums))

    def largest(self) -> "Mixture[Array]":
        """Return the part of the largest share, alone."""
        return Mixture(tuple((1.0, part) for _, part in sorted(self.parts, key=itemgetter(0))[-1:]))


@dataclass(frozen=True, eq=False)
class Tangent(Generic[Array]):
    """The convex quadratic program's tangent at the marginals y, a lower bound by convexity."""

    y: Array


Dual: TypeAlias = Potentials[Array] | Mixture[Array] | Tangent[Array]
#: One that is kept: NumPy's arrays, wherever it was found.
HostDual: TypeAlias = Dual[npt.NDArray[Any]]


def gamma(n: int) -> float:
    r"""Return :math:`\gamma_k = k u / (1 - k u)`, k the roundings that a sum of n may meet."""
    k = (n + BESIDES) * UNIT
    return k / (1 - k)


@dataclass(frozen=True)
class Sizes:
    r"""What the rounding errors of a `Share` are proportional to: sums of absolute values.

    Attributes
    ----------
    pixels : int
        Number of pixels.
    unary, pairs : float
        Of the energy: no less than :math:`\sum_a |\phi_a(x_a)|`, and than the sum over all pairs of
        the pixels of their weight times the largest cost.
    least, flow : float
        Of the bound: no less than :math:`\sum_a |\min_i c_{ai}|` with the dual point's constant,
        and than the numbers that r is made of, summed over the pixels: for a label's nodes of total
        length :math:`\ell`, :math:`\ell \sum_a m_a`.
    parts : int
        How many dual points were combined.
    excess : float
        No less than what the bound loses for shares of dual points that add up to more than 1.
    """

    pixels: int = 0
    unary: float = 0.0
    pairs: float = 0.0
    least: float = 0.0
    flow: float = 0.0
    parts: int = 0
    excess: float = 0.0

    def __add__(self, other: "Sizes") -> "Sizes":
        """Return the sizes of both shares' sum."""
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return Sizes(**{**sums, "parts": max(self.parts, other.parts)})


@dataclass(frozen=True)
class Share:
    """Some pixels' share of an energy and of a lower bound on all energies, in double precision.

    An image is one share. Shares of tiles add up to that of their image. Every rounding error of
    energies and bounds is bounded here, as docs/mathematics.md derives it.

    Attributes
    ----------
    energy : float
        The pixels' unary energies and half of what their pairs with all pixels cost.
    bound : float or None
        The sum of the pixels' least costs, with the dual point's constant; None: there is none.
    sizes : Sizes
        What their rounding errors are proportional to.

    Examples
    --------
    >>> image = Share(3.0, 1.0, Sizes(4, unary=3.0)) + Share(2.0, 1.5, Sizes(4, unary=2.0))
    >>> image.energy, image.bound, image.sizes.pixels
    (5.0, 2.5, 8)
    >>> image.lower_bound == image.certified() == 2.5 - image.bound_rounding
    True
    """

    energy: float
    bound: float | None = None
    sizes: Sizes = Sizes()

    def __add__(self, other: "Share") -> "Share":
        """Return the share of both sets of pixels."""
        one, another = self.bound, other.bound
        bound = None if one is None or another is None else one + another
        return Share(self.energy + other.energy, bound, self.sizes + other.sizes)

    def with_bound(self, other: "Share") -> "Share":
        """Return this energy beside the bound of another share of the same pixels."""
        sizes = replace(other.sizes, unary=self.sizes.unary, pairs=self.sizes.pairs)
        return Share(self.energy, other.bound, sizes)

    @property
    def energy_rounding(self) -> float:
        """How far the energy may be from its exact value."""
        return 2 * gamma(self.sizes.pixels) * (self.sizes.unary + self.sizes.pairs)

    @property
    def bound_rounding(self) -> float:
        """How far above the exact value the bound may be."""
        sizes = self.sizes
        terms = sizes.pixels + max(0, sizes.parts - COMBINED)
        return 2 * gamma(terms) * (sizes.flow + sizes.least) + sizes.excess

    @property
    def lower_bound(self) -> float:
        """No labelling's energy is below this: the bound, less what rounding may have added."""
        return -inf if self.bound is None else self.bound - self.bound_rounding

    @property
    def slack(self) -> float:
        r"""No optimal labelling has a label whose reduced cost is above this.

        Every labelling with label i at pixel a has at least the energy of the bound and the
        *reduced cost* :math:`c_{ai} - \min_j c_{aj}`. Rounding errors of all numbers are
        given away.
        """
        return self.energy + self.energy_rounding - self.lower_bound + 2 * self.bound_rounding

    def certified(self, known: float = -inf) -> float:
        """Return the lower bound, or a better one that is known, at most the energy.

        Raises
        ------
        CertificateError
            If it is above the energy by more than the energy's rounding errors.
        """
        bound = max(known, self.lower_bound)
        if bound <= self.energy:
            return bound
        if bound - self.energy <= self.energy_rounding:
            return self.energy
        from densecrf import __version__

        raise CertificateError(
            f"a lower bound of {bound!r} is above an energy of {self.energy!r} (rounding accounts "
            f"for {self.energy_rounding:g}): a defect of densecrf {__version__} (NumPy "
            f"{np.__version__}). Please report it with the model and the call, seeds included"
        )


def lower_bound(problem: "Problem[Array]", dual: Dual[Array]) -> float:
    """Return a number that no labelling's energy is below: the bound of `Costs`."""
    return Costs(problem, dual).bound


class Costs(Generic[Array]):
    r"""The costs :math:`c = \phi + r` of a dual point in double precision, and what they prove.

    They are made some labels at a time and kept in single precision, for the reduced costs. Labels
    without a flow have their unary energies for costs.

    Parameters
    ----------
    problem
        The problem, on whatever arrays.
    dual : Potentials, Mixture or Tangent
        The dual point.
    another : callable, optional
        Whether there is time for a filter call more; parts for which there is none are left out.

    Attributes
    ----------
    dual : Potentials, Mixture or Tangent
        The dual point, of the parts that were evaluated.
    bound : float
        No labelling's energy is below it.
    """

    _least: Array
    _rows: Array
    _floor: Array

    def __init__(
        self,
        problem: "Problem[Array]",
        dual: Dual[Array],
        another: Callable[[], bool] = lambda: True,
    ) -> None:
        constant, flow = 0.0, problem.costs.reach * problem.total_mass_double
        blocks: Iterator[tuple[IntArray, Array]]
        every = np.arange(problem.n_labels)
        parts, excess = 0, 0.0
        if isinstance(dual, Potentials):
            blocks = problem.dual_rows([dual])
        elif isinstance(dual, Mixture) and dual.disjoint and problem.potts:
            blocks = problem.dual_rows([part for _, part in dual.parts])
            parts = len(dual.parts)
        elif isinstance(dual, Mixture):
            r, parts = _combination(problem, dual.parts, another)
            blocks, dual = iter([(every, r)]), Mixture(dual.parts[:parts])
            excess = dual.excess * flow
        else:
            r, constant, flow = problem.tangent(dual.y)
            blocks = iter([(every, r)])
        self.dual: Dual[Array] = dual
        steps, xp = problem.steps, problem.steps.xp
        rows_of: list[tuple[IntArray, Array]] = []
        for labels, rows in blocks:
            whole = len(labels) == problem.n_labels
            rows += problem.unary if whole else problem.unary[labels]
            least = xp.amin(rows, 0)
            self._least = xp.minimum(least, self._least) if rows_of else least
            rows_of.append((labels, steps.floats(rows)))
            del rows
        self._labels = np.concatenate([labels for labels, _ in rows_of])
        only = rows_of[0][1] if len(rows_of) == 1 else None
        self._rows = xp.concatenate([rows for _, rows in rows_of]) if only is None else only
        self._resting = np.setdiff1d(every, self._labels)
        if len(self._resting):
            self._floor = reduce(xp.minimum, (problem.unary[i] for i in self._resting.tolist()))
            self._least = xp.minimum(self._least, steps.double(self._floor))
        sums = xp.stack([self._least.sum(), abs(self._least).sum()])
        total, size = (float(each) for each in problem.steps.to_numpy(sums))
        sizes = Sizes(problem.n, 0.0, 0.0, size + abs(constant), flow, parts, excess)
        self._share = Share(inf, total + constant, sizes)
        self.bound = self._share.lower_bound

    def of_pixels(self, problem: "Problem[Array]", pixels: IntArray) -> tuple[Share, Doubles]:
        """Return some pixels' share of the bound, and what another label costs them more at least.

        Where that is more than the whole image's `Share.slack`, every optimal labelling has the
        same label. Of potentials.
        """
        least = self._least[pixels]
        mass = float(problem.pairwise.mass_double[pixels].sum()) * (1 + gamma(problem.n))
        flow = problem.costs.reach * mass
        sizes = Sizes(len(least), least=float(abs(least).sum()), flow=flow)
        assert not len(self._resting)  # potentials have a flow of every label
        rows = self._rows[:, pixels]
        reduced = problem.steps.to_numpy(self._reduced(problem, rows, least))
        second = np.partition(reduced, 1, 0)[1]
        return Share(inf, float(least.sum()), sizes), second

    def possible_labels(self, problem: "Problem[Array]", known: Share) -> npt.NDArray[np.int32]:
        """Count the labels, (n,), that an optimal labelling can have at each pixel: at least 1.

        `known` is the energy of a known labelling. Where the count is 1, every optimal labelling
        has its label.
        """
        count = reduce(add, (1 * row for row in self.possible(problem, known)))
        return np.asarray(problem.steps.to_numpy(count), np.int32)

    def possible(self, problem: "Problem[Array]", known: Share) -> Iterator[Array]:
        """Yield the pixels that can have a label, (n,), of one label after the other."""
        slack, place = known.with_bound(self._share).slack, np.full(problem.n_labels, -1)
        place[self._labels] = np.arange(len(self._labels))
        for label, own in enumerate(place.tolist()):
            row = problem.unary[label] if own < 0 else self._rows[own]
            yield ~(self._reduced(problem, row, self._least) > slack)

    def margin(self, problem: "Problem[Array]", known: Share, labels: Array) -> FloatArray:
        r"""Return what other labels than a labelling's cost at least more than it, (n,).

        Every labelling that differs from `labels`, of energy `known`, at pixel a has at least this
        much more energy: :math:`\min_{i \ne x_a} c_{ai} - \min_j c_{aj}` less `Share.slack`. Where
        it is positive, every optimal labelling has the pixel's label.
        """
        steps = problem.steps
        others = self._least_others(problem, self._labels, self._rows, labels)
        if len(self._resting):
            floor, given = self._floor, steps.to_numpy(labels)
            inside = np.flatnonzero(np.isin(given, self._resting))
            if len(inside):
                rows = problem.unary[self._resting][:, inside]
                floor = steps.copy(floor)
                floor[inside] = self._least_others(problem, self._resting, rows, labels[inside])
            others = steps.xp.minimum(others, floor)
        reduced = self._reduced(problem, others, self._least)
        margin = rounded_down(reduced - known.with_bound(self._share).slack, steps.xp)
        return np.asarray(steps.to_numpy(margin))

    @staticmethod
    def _least_others(
        problem: "Problem[Array]", names: IntArray, rows: Array, labels: Array
    ) -> Array:
        """Return the least of the rows of some labels but for each pixel's own label."""
        place = np.full(problem.n_labels, -1)
        place[names] = np.arange(len(names))
        return problem.steps.least_others(rows, problem.steps.from_numpy(place)[labels])

    @staticmethod
    def _reduced(problem: "Problem[Array]", rows: Array, least: Array) -> Array:
        """Return no more than the reduced costs of some labels."""
        costs = problem.steps.double(rows)
        reduced: Array = costs - (SINGLE * abs(costs) + SMALLEST) - least
        return reduced


def rounded_down(values: Array, xp: Any = np) -> Array:
    """Return the largest finite numbers of single precision that are not above `values`.

    Of numpy's or torch's arrays, `xp`.

    Examples
    --------
    >>> rounded_down(np.array([0.5, 1e-50, 1e50]))
    array([5.0000000e-01, 0.0000000e+00, 3.4028235e+38], dtype=float32)
    """
    most = float(np.finfo(np.float32).max)
    values = xp.clip(values, -most, most)
    singles = xp.asarray(values, dtype=xp.float32)
    below = xp.nextafter(singles, xp.full_like(singles, -most))
    return xp.where(singles > values, below, singles)  # type: ignore[no-any-return]


def _combination(
    problem: "Problem[Array]",
    parts: tuple[tuple[float, Potentials[Array]], ...],
    another: Callable[[], bool],
) -> tuple[Array, int]:
    """Return the dual point of a mixture, as far as there is time, and of how many parts it is."""
    if not parts:
        mass = problem.pairwise.mass_double
        return problem.steps.zeros_like(mass, problem.n_labels, problem.n), 0
    share, potentials = parts[0]
    r = problem.dual_point_double(potentials)
    if share != 1:
        r *= share
    for evaluated in range(1, len(parts)):
        if not another():
            return r, evaluated
        share, potentials = parts[evaluated]
        r += share * problem.dual_point_double(potentials)
    return r, len(parts)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """How good a labelling is.

    Attributes
    ----------
    energy : float
        Energy of the labelling.
    lower_bound : float
        No labelling has an energy below this.
    better_energy : float
        The lowest energy that was met on the way: at most `energy`.
    better_labels : ndarray, (*spatial)
        The labelling that has it.
    proven : ndarray of bool, (*spatial)
        The pixels whose label is the one that every optimal labelling has, as far as is proven.
    possible : ndarray of int, (*spatial)
        How many labels an optimal labelling can have at each pixel, as far as is proven.
    calls : int
        Ordered filter calls made.
    seconds : float
        Time spent.
    proof : Result
        The labelling with its energy, the bound and the dual point that proves it: ``proof.save``
        writes a certificate that others can check (`Result.verify`).
    """

    energy: float
    lower_bound: float
    better_energy: float
    better_labels: npt.NDArray[np.int64]
    proven: npt.NDArray[np.bool_]
    possible: npt.NDArray[np.int32]
    calls: int
    seconds: float
    proof: "Result" = field(repr=False)

    @property
    def gap(self) -> float:
        """(energy - lower_bound) / max(1, abs(energy)): how far from optimal, at most."""
        return (self.energy - self.lower_bound) / max(1.0, abs(self.energy))

    @property
    def excess(self) -> float:
        """(energy - better_energy) / max(1, abs(energy)): how far from optimal, at least."""
        return (self.energy - self.better_energy) / max(1.0, abs(self.energy))

    def _repr_html_(self) -> str:
        from densecrf.display import certificate_html

        return certificate_html(self)

    def __repr__(self) -> str:
        """Return one line."""
        return f"<Certificate: energy={self.energy:.10g}, gap={self.gap:.3g}>"

    def __str__(self) -> str:
        """Return a summary for people."""
        lines = [
            f"energy       {self.energy:,.3f}",
            f"lower bound  {self.lower_bound:,.3f}",
            f"certificate  at most {100 * self.gap:.3g} % above the global optimum, proven",
        ]
        if self.excess > 0:
            lines.append(
                f"but          at least {100 * self.excess:.3g} % above it: a labelling of energy "
                f"{self.better_energy:,.3f} was found"
            )
        if self.proven.any():
            lines.append(
                f"pixels       {share_proven(self.proven)} of the pixels are proven optimal: "
                "every optimum has their label"
            )
        lines.append(f"effort       {self.calls} ordered filter calls, {self.seconds:.3f} s")
        return "\n".join(lines)


def certify(
    crf: "DenseCRF",
    labels: npt.ArrayLike,
    budget: int = 50,
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
    threads: int | None = None,
) -> Certificate:
    """Bound the distance of any labelling from the optimum.

    Parameters
    ----------
    crf : DenseCRF
        The model whose energy counts; Potts or a `LabelTree`.
    labels : array_like of int, (*spatial)
        The labelling.
    budget : int
        Maximum number of ordered filter calls.
    gap : float
        Stop as soon as the labelling is proven to be within this fraction of the optimum.
    time_limit : float, optional
        Maximum time in seconds.
    threads : int, optional
        Number of threads, all by default.

    Examples
    --------
    >>> import numpy as np
    >>> from densecrf import DenseCRF, Spatial
    >>> unary = np.array([[[0.0, 0.6, 0.0]], [[1.0, 0.5, 1.0]]])
    >>> crf = DenseCRF(unary, [Spatial(sigma=1.0, weight=1.0)], filter="exact")
    >>> certify(crf, [[0, 0, 0]]).gap < 1e-5
    True
    >>> round(certify(crf, [[0, 1, 0]]).excess, 2)
    0.46
    """
    from densecrf.problem.problem import problem_of

    x = crf.check_labels(labels)
    energy = crf.energy(x)
    asked = check_gap(gap)
    result = crf.solve(
        "lp",
        gap=0.0,
        max_iterations=check_integer("budget", budget, at_least=1),
        time_limit=time_limit,
        threads=threads,
        callback=lambda outcome: _within(energy, outcome.lower_bound, asked),
        keep_dual=True,
    )
    problem = problem_of(crf)
    found = -inf if result.lower_bound is None else result.lower_bound
    bound = Share(energy, sizes=problem.energy_sizes(x)).certified(found)
    better = result.energy < energy
    return Certificate(
        energy=energy,
        lower_bound=bound,
        better_energy=result.energy if better else energy,
        better_labels=result.labels if better else x.reshape(crf.shape),
        proven=result.proven & (result.labels == x.reshape(crf.shape)),
        possible=np.full(crf.shape, crf.n_labels, np.int32)
        if result.possible is None
        else result.possible,
        calls=result.trace.ordered_calls[-1],
        seconds=result.seconds,
        proof=replace(
            result,
            labels=x.reshape(crf.shape),
            energy=energy,
            lower_bound=None if result.lower_bound is None else bound,
            possible=None,
            margin=None,
        ),
    )


def _within(energy: float, bound: float | None, asked: float) -> bool:
    gap = relative_gap(energy, bound)
    return gap is not None and gap <= asked
