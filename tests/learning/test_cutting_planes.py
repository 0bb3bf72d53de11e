"""The bundle's minimum and its bound, against brute force."""

import numpy as np
import pytest

pytest.importorskip("clarabel")

from densecrf.learning.cutting_planes import Bundle


def bundle(seed: int, planes: int = 4) -> tuple[Bundle, list[tuple[int, float, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    made = Bundle(np.ones(3), np.full(3, 0.5), np.zeros(3), 0.1, 5)
    rows = [(n, rng.normal(), rng.normal(size=3)) for n in range(5) for _ in range(planes)]
    for row in rows:
        made.add(*row)
    return made, rows


def objective(made: Bundle, rows: list[tuple[int, float, np.ndarray]], theta: np.ndarray) -> float:
    hinges = np.zeros(5)
    for n, offset, slope in rows:
        hinges[n] = max(hinges[n], offset + slope @ theta)
    return made.regulariser(theta) + hinges.mean()


@pytest.mark.parametrize("seed", range(5))
def test_bound_and_minimiser_meet(seed: int) -> None:
    made, rows = bundle(seed)
    found = made.minimise()
    assert (found.theta >= 0).all()
    assert found.lower_bound == pytest.approx(objective(made, rows, found.theta), rel=1e-5)
    rng = np.random.default_rng(seed + 100)
    for spread in (1.0, 0.1, 0.01):
        for _ in range(300):
            other = np.maximum(found.theta + spread * rng.normal(size=3), 0)
            assert objective(made, rows, other) >= found.lower_bound - 1e-9


def test_without_planes_the_anchor_is_best() -> None:
    made = Bundle(np.ones(2), np.ones(2), np.zeros(2), 1.0, 3)
    found = made.minimise()
    np.testing.assert_allclose(found.theta, 1, atol=1e-6)
    assert found.lower_bound == pytest.approx(0, abs=1e-9)
