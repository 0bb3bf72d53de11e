"""Problems of which some labels are settled, against explicit matrices and every labelling."""

import itertools

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Spatial
from densecrf.problem.remainder import Remainder


def model(seed, shape=(3, 5), labels=2, margin=1.0, weight=1.0):
    rng = np.random.default_rng(seed)
    unary = rng.random((labels, *shape)) * margin
    image = rng.integers(0, 256, (*shape, 3)).astype(float)
    kernels = [Spatial(1.0, weight), Bilateral(image, 2.0, 60.0, weight)]
    return DenseCRF(unary, kernels)


def energies(crf):
    """Return the energy of every labelling, by the explicit matrix."""
    k = crf.pairwise.apply_double(np.eye(crf.n))
    np.fill_diagonal(k, 0)
    every = np.array(list(itertools.product(range(crf.n_labels), repeat=crf.n)))
    unary = crf.unary.astype(float)[every, np.arange(crf.n)].sum(1)
    pairs = [0.5 * (k * (x[:, None] != x)).sum() for x in every]
    return every, unary + pairs


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_settled_labels_are_optimal_and_the_rest_has_the_whole_energy(seed, labels):
    shape = (2, 5) if labels == 2 else (1, 7)
    crf = model(seed, shape, labels, margin=6.0)
    every, energy = energies(crf)
    rest = Remainder(crf.pairwise, crf.unary, np.arange(crf.n), settled_outside=False)
    settled = rest.labels >= 0
    assert 0 < settled.sum() < crf.n
    best = every[energy.argmin()]
    assert (best[settled] == rest.labels[settled]).all()
    problem = rest.problem()
    for x, e in zip(every, energy, strict=True):
        if (x[settled] == rest.labels[settled]).all():
            part = x[rest.left]
            assert (rest.completed(part) == x).all()
            assert rest.whole_energy(part, problem.energy(part)) == pytest.approx(e, abs=1e-9)
    least = min(problem.energy(x) for x in _all(labels, len(rest.left)))
    assert rest.whole_bound(least) == pytest.approx(energy.min(), abs=1e-6)
    assert rest.whole_bound(least) <= energy.min() + 1e-12


@pytest.mark.parametrize("settled_outside", [False, True])
def test_a_window_bounds_the_whole_image(settled_outside):
    crf = model(7, (3, 4), margin=1.0)
    window = np.array([0, 1, 4, 5, 8, 9])
    outside = np.setdiff1d(np.arange(crf.n), window)
    unary = crf.unary.copy()
    unary[0, outside], unary[1, outside] = 0.25, 1000.0 if settled_outside else 1.0
    crf = crf.with_unary(unary.reshape(2, *crf.shape))
    energy = energies(crf)[1]
    constant = 0.25 * len(outside)
    rest = Remainder(
        crf.pairwise,
        np.ascontiguousarray(crf.unary[:, window]),
        window,
        settled_outside=settled_outside,
        constant=constant,
    )
    problem = rest.problem()
    parts = list(_all(2, len(rest.left)))
    for x in parts:
        whole = np.zeros(crf.n, np.int64)
        whole[window] = rest.completed(x)
        found = rest.whole_energy(x, problem.energy(x))
        assert found == pytest.approx(crf.energy(whole), abs=1e-9)
    bound = rest.whole_bound(min(problem.energy(x) for x in parts))
    assert bound <= energy.min() + 1e-12
    if settled_outside:
        assert bound == pytest.approx(energy.min(), abs=1e-6)


def _all(labels, count):
    return (np.array(x, np.int64) for x in itertools.product(range(labels), repeat=count))
