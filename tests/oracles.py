"""Small problems and what is known of them: brute force and a general LP solver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

import densecrf
from densecrf.problem.problem import problem_of


def dense_pairwise(crf: densecrf.DenseCRF) -> np.ndarray[Any, Any]:
    """Return K with an empty diagonal, in double precision."""
    matrix = crf.pairwise.apply_double(np.eye(crf.n))
    np.fill_diagonal(matrix, 0)
    return matrix


def label_costs(crf: densecrf.DenseCRF) -> np.ndarray[Any, Any]:
    """Return the compatibility matrix, Potts included."""
    if crf.compatibility is None:
        return 1.0 - np.eye(crf.n_labels)
    return problem_of(crf).costs.double


def energies(crf: densecrf.DenseCRF) -> np.ndarray[Any, Any]:
    """Return the energy of every labelling, one axis a pixel."""
    k, mu = dense_pairwise(crf), label_costs(crf)
    total = np.zeros((crf.n_labels,) * crf.n)
    for a in range(crf.n):
        total += _along(crf.unary[:, a].astype(np.float64), crf.n, a)
        for b in range(a):
            total += _along(k[a, b] * mu, crf.n, b, a)
    return total


def _along(values: np.ndarray[Any, Any], n: int, *axes: int) -> np.ndarray[Any, Any]:
    shape = [1] * n
    for axis, length in zip(axes, values.shape, strict=True):
        shape[axis] = length
    return values.reshape(shape)


def brute_force(crf: densecrf.DenseCRF) -> tuple[np.ndarray[Any, Any], float]:
    """Return an optimal labelling (n,) and its energy."""
    table = energies(crf)
    best = np.unravel_index(int(table.argmin()), table.shape)
    return np.array(best), float(table[best])


def linear_program(crf: densecrf.DenseCRF) -> float:
    r"""Return the optimum of the LP relaxation, for Potts and tree metrics.

    Variables are y (n × labels) and, for each pair and node T, a z of at least |y_T(a) - y_T(b)|.
    """
    tree = crf.tree if crf.tree is not None else densecrf.LabelTree(crf.n_labels)
    nodes = [(m > 0, float(s)) for m, s in zip(tree.members, tree.lengths, strict=True) if s > 0]
    k = dense_pairwise(crf)
    n, labels = crf.n, crf.n_labels
    costs = list(crf.unary.T.astype(np.float64).ravel())
    rows, columns, values = [], [], []
    row = 0
    for a in range(n):
        for b in range(a):
            for inside, length in nodes:
                z = len(costs)
                costs.append(0.5 * k[a, b] * length)
                for sign in (1.0, -1.0):
                    for label in np.flatnonzero(inside):
                        rows += [row, row]
                        columns += [a * labels + label, b * labels + label]
                        values += [sign, -sign]
                    rows.append(row)
                    columns.append(z)
                    values.append(-1.0)
                    row += 1
    inequalities = coo_array((values, (rows, columns)), shape=(row, len(costs))).tocsr()
    sums = coo_array(
        (np.ones(n * labels), (np.repeat(np.arange(n), labels), np.arange(n * labels))),
        shape=(n, len(costs)),
    ).tocsr()
    if row == 0:
        inequalities = None
    found = linprog(
        costs,
        A_ub=inequalities,
        b_ub=None if inequalities is None else np.zeros(row),
        A_eq=sums,
        b_eq=np.ones(n),
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun)


@dataclass(frozen=True)
class Case:
    """A small random problem with its optima, computed on first use."""

    seed: int
    crf: densecrf.DenseCRF

    @cached_property
    def map_energy(self) -> float:
        return brute_force(self.crf)[1]

    @cached_property
    def lp_energy(self) -> float:
        return linear_program(self.crf)

    @property
    def rounding(self) -> float:
        """What float32 may lose of this problem's energies."""
        pairs = float(np.abs(label_costs(self.crf)).max()) * float(self.crf.pairwise.mass.sum())
        return 1e-6 * (1.0 + float(np.abs(self.crf.unary).sum()) + pairs)


SIZES = {2: ((2, 7), (3, 5), (1, 16)), 3: ((2, 5), (3, 3), (10,)), 4: ((2, 4), (8,), (7, 1))}


@cache
def case(
    seed: int, labels: int | None = None, compatibility: str = "potts", engine: str = "exact"
) -> Case:
    """Return a random problem: weak to strong pairwise terms, both normalisations.

    Pixels lie on grids and lines; unaries may be negative.
    """
    rng = np.random.default_rng(seed)
    labels = labels or 2 + seed % 3
    shapes = SIZES[labels]
    shape = shapes[int(rng.integers(len(shapes)))]
    n = int(np.prod(shape))
    strength = 10.0 ** rng.uniform(-1.5, 1.0)
    kernels = [
        densecrf.Spatial(sigma=rng.uniform(0.5, 3), weight=strength * rng.random()),
        densecrf.Features(rng.normal(size=(n, 2)) / rng.uniform(0.3, 2), strength * rng.random()),
    ]
    unary = rng.uniform(0.2, 3) * rng.normal(size=(labels, *shape))
    return Case(
        seed,
        densecrf.DenseCRF(
            unary,
            kernels,
            normalization=("symmetric", "none")[seed // 3 % 2],
            filter=engine,
            compatibility=_compatibility(compatibility, labels, rng),
        ),
    )


def _compatibility(kind: str, labels: int, rng: np.random.Generator) -> Any:
    if kind == "potts":
        return None
    if kind == "tree":
        groups = [([0, 1], rng.uniform(0.2, 1))] if labels > 2 else []
        if labels > 3:
            groups.append(([2, 3], rng.uniform(0, 1)))
        return densecrf.LabelTree(labels, groups, leaf=rng.uniform(0.1, 1, labels))
    if kind == "vector":
        return rng.uniform(-0.5, 2, labels)
    matrix = rng.normal(size=(labels, labels))
    return matrix + matrix.T
