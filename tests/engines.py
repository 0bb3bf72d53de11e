"""Small filters of every engine, their explicit matrices, and what `ordered` means on a matrix."""

from __future__ import annotations

import numpy as np

from densecrf.operators import ExactFilter, Filter, GridFilter, LatticeFilter

DIMENSIONS = (1, 2, 3, 5, 8, 20)
GRIDS = {"1": (40,), "2": (7, 9), "3": (4, 5, 3)}
ENGINES = [
    *(f"exact-{d}" for d in DIMENSIONS),
    *(f"lattice-{d}" for d in DIMENSIONS),
    *(f"grid-{d}" for d in GRIDS),
]
FEW_ENGINES = ["exact-3", "lattice-1", "lattice-2", "lattice-5", "lattice-20", "grid-2"]


def random_features(n: int, d: int, seed: int = 0, spread: float = 1.5) -> np.ndarray:
    """Return features close enough for every pixel to have neighbours."""
    values = spread * np.random.default_rng(seed).standard_normal((n, d))
    return values.astype(np.float32)


def build(engine: str, n: int = 60) -> Filter:
    """Return a filter by a name such as ``lattice-5`` (five dimensions) or ``grid-2``."""
    kind, _, d = engine.partition("-")
    if kind == "grid":
        return GridFilter(GRIDS[d], sigma=1.3)
    points = random_features(n, int(d))
    if kind == "exact":
        return ExactFilter(points)
    return LatticeFilter(points, "forward" if kind == "forward" else "symmetric")


def matrix_of(operator: Filter) -> np.ndarray:
    """Return the matrix of a filter, column by column."""
    return operator.apply(np.eye(operator.n)).astype(np.float64)


def ordered_on(matrix: np.ndarray, sign: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ_b k_ab g_b s_ab."""
    return (matrix * sign * weights[None, :]).sum(1)


def exact_sign(y: np.ndarray) -> np.ndarray:
    """Return sign(y_a - y_b) for all pairs."""
    return np.sign(y[:, None] - y[None, :])


def level_sign(y: np.ndarray, levels: int, *, hard: bool, low: float, high: float) -> np.ndarray:
    """Return s(y_a, y_b): the sign of levels, bilinear between whole levels unless hard."""
    scale = np.float32((levels - 1) / (high - low)) if high > low else np.float32(0)
    t = np.clip((y.astype(np.float32) - np.float32(low)) * scale, 0, levels - 1)
    if hard:
        t = np.floor(t)
    share = np.maximum(0, 1 - np.abs(t[:, None].astype(np.float64) - np.arange(levels)))
    return share @ exact_sign(np.arange(levels)) @ share.T


def literal_sign(y: np.ndarray, levels: int, *, low: float, high: float) -> np.ndarray:
    """Return [bin_a >= bin_b], bins open above, minus [bin_a <= bin_b], bins closed above."""
    scale = np.float32((levels - 1) / (high - low))
    unit = (y.astype(np.float32) - np.float32(low)) * scale / np.float32(levels - 1)
    t = np.clip(unit, 0, 1) * np.float32(levels - 1)
    below, above = np.floor(t), np.ceil(t)
    return (below[:, None] >= below[None, :]) * 1.0 - (above[:, None] <= above[None, :])


def divide_and_conquer(features: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the recursion's own result: across each cut, a filter of the pixels involved alone."""
    out = np.zeros(len(y))
    order = np.argsort(y, kind="stable")

    def recurse(part: np.ndarray) -> None:
        middle = _cut(y[part])
        if middle == len(part):
            return
        low, high = part[:middle], part[middle:]
        inside = matrix_of(LatticeFilter(features[part]))
        out[low] -= inside[:middle, middle:] @ weights[high]
        out[high] += inside[middle:, :middle] @ weights[low]
        recurse(low)
        recurse(high)

    recurse(order)
    return out


def _cut(ascending: np.ndarray) -> int:
    """Return the boundary between two different scores nearest to the middle."""
    boundaries = np.flatnonzero(np.diff(ascending)) + 1
    if len(boundaries) == 0:
        return len(ascending)
    return int(boundaries[np.abs(boundaries - len(ascending) // 2).argmin()])
