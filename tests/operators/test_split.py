"""Kernels with few neighbours: their matrix by its entries says what the lattice says."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Spatial
from densecrf.native import core
from densecrf.operators import LatticeFilter
from densecrf.operators.levels import Levels
from densecrf.operators.pairwise import NARROW, Pairwise
from densecrf.problem.problem import problem_of
from engines import level_sign

LABELS, SHAPE = 5, (9, 11)
IMAGE = np.random.default_rng(0).integers(0, 40, (*SHAPE, 3), np.uint8)
WIDE, NARROW_COLOUR, NARROW_SPACE = Spatial(6.0, 3), Bilateral(IMAGE, 1, 5, 100), Spatial(0.6, 2)
KERNELS = {
    "one of two": [WIDE, NARROW_COLOUR],
    "all": [NARROW_SPACE, NARROW_COLOUR],
    "the only one": [NARROW_COLOUR],
}


@pytest.fixture(params=KERNELS)
def crf(request: pytest.FixtureRequest) -> DenseCRF:
    """Return a problem whose narrow kernels are formed."""
    unary = np.random.default_rng(1).random((LABELS, *SHAPE), np.float32)
    return DenseCRF(unary, KERNELS[request.param])


def potentials(n: int) -> tuple[np.ndarray, np.ndarray, Levels]:
    """Return scores, one label's constant, with their extents and levels."""
    y = (9 * np.random.default_rng(2).random((LABELS, n))).astype(np.float32)
    y[3] = 4
    extents = np.stack([y.min(1), y.max(1)], 1)
    return y, extents, Levels.by_cells(extents, 1.7)


def test_kernels_with_few_neighbours_are_formed(crf: DenseCRF) -> None:
    split = crf.pairwise.split
    assert split is not None
    wide = sum(kernel is WIDE for kernel in crf.kernels)
    assert len(split.wide) == wide
    assert crf.n <= len(split.entries) <= NARROW * crf.n


def test_kernels_with_many_neighbours_are_not() -> None:
    points = np.zeros((200, 2), np.float32)
    points[:, 0] = np.linspace(0, 1, 200)
    assert not core().few_entries(LatticeFilter(points).native, NARROW)
    assert Pairwise([(1.0, LatticeFilter(points))], 200, "symmetric").split is None


def test_ordered_sums_are_those_of_the_matrix(crf: DenseCRF) -> None:
    pairwise = crf.pairwise
    y, extents, levels = potentials(crf.n)
    matrix = pairwise.apply_double(np.eye(crf.n))
    high = levels.low + (levels.count - 1) / levels.scale
    wanted = np.stack(
        [
            (matrix * level_sign(row, levels.count, hard=False, low=levels.low, high=high)).sum(1)
            for row in y
        ]
    )
    single = pairwise.ordered(y, levels, "soft", extents=extents)
    double = pairwise.ordered_double(y, None, extents, levels)
    offsets = np.full_like(y, 0.5)
    moved = pairwise.ordered_double(y - offsets, offsets, extents, levels)
    size = np.abs(wanted).max()
    assert np.abs(single - wanted).max() <= 1e-5 * size
    assert np.abs(double - wanted).max() <= 1e-5 * size  # levels are rounded in the oracle
    assert np.abs(moved - double).max() <= 1e-5 * size
    assert np.abs((double).sum(1)).max() <= 1e-12 * size * crf.n
    assert not double[3].any()


def test_ordered_sums_in_double_are_those_of_the_lattices(crf: DenseCRF) -> None:
    y, extents, levels = potentials(crf.n)
    pairwise = crf.pairwise
    wanted = np.empty(y.shape)
    pairwise.lattice_sum.ordered_double(
        y, wanted, levels, offsets=None, extents=extents, mass=pairwise.mass_double, threads=0
    )
    found = pairwise.ordered_double(y, None, extents, levels)
    assert np.abs(found - wanted).max() <= 1e-13 * pairwise.mass_double.max()


def test_estimates_are_energies(crf: DenseCRF) -> None:
    problem = problem_of(crf)
    labels = np.random.default_rng(3).integers(0, LABELS, crf.n)
    assert problem.estimates([labels])[0] == pytest.approx(problem.energy(labels), rel=1e-12)
    assert problem.icm_moves(labels).energy == pytest.approx(problem.energy(labels), rel=1e-5)


def test_a_constant_labelling_has_no_pairwise_energy(crf: DenseCRF) -> None:
    problem = problem_of(crf)
    moves = problem.icm_moves(np.zeros(crf.n, np.int64))
    assert moves.energy == pytest.approx(float(problem.unary[0].sum(dtype=np.float64)), rel=1e-12)


def test_entries_have_the_same_bits_for_any_number_of_threads(crf: DenseCRF) -> None:
    y, extents, levels = potentials(crf.n)
    before = core().set_work_per_thread(1)
    try:
        results = [
            (
                crf.pairwise.ordered(y, levels, "soft", threads, extents).tobytes(),
                crf.pairwise.ordered_double(y, None, extents, levels, threads).tobytes(),
            )
            for threads in (1, 2, 3)
        ]
    finally:
        core().set_work_per_thread(before)
    assert len(set(results)) == 1


def test_lp_proves_its_bound_on_narrow_kernels(crf: DenseCRF) -> None:
    result = crf.solve("lp", gap=1e-3, keep_dual=True)
    assert result.converged
    check = result.verify()
    assert check.lower_bound == pytest.approx(result.lower_bound, abs=check.tolerance)
