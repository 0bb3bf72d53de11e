"""Labels that are priced instead of iterated: the same optimum, and the bound of all labels."""

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Spatial
from densecrf.problem.certificate import Costs, Mixture, Potentials
from densecrf.problem.problem import problem_of
from densecrf.solvers import lp as method
from densecrf.solvers.pricing import active_labels, pays


def scene(seed, labels=40, occurring=3):
    """Return a model with many labels, few of which occur."""
    rng = np.random.default_rng(seed)
    truth = np.kron(rng.integers(0, occurring, (4, 4)), np.ones((6, 6), int))
    image = np.uint8(40 * truth[..., None] + rng.integers(0, 20, (*truth.shape, 3)))
    logits = rng.normal(0, 0.8, (labels, *truth.shape))
    np.put_along_axis(logits, truth[None], 5.0 + rng.normal(0, 1, truth.shape)[None], 0)
    kernels = [Spatial(2.0, 1.0), Bilateral(image, 10, 20, 2.0)]
    return DenseCRF.from_logits(logits, kernels, axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_the_answer_is_that_of_all_labels(seed, monkeypatch):
    crf = scene(seed)
    assert active_labels(problem_of(crf), method.lp_start(problem_of(crf)).y) is not None
    priced = crf.solve("lp", gap=1e-5, keep_dual=True)
    monkeypatch.setattr(method, "active_labels", lambda *_: None)
    plain = crf.solve("lp", gap=1e-5)
    assert priced.converged
    assert priced.energy == pytest.approx(plain.energy, rel=2e-5)
    assert priced.lower_bound <= plain.energy
    assert priced.verify(crf)
    assert priced.marginals.shape == (40, 24, 24)
    np.testing.assert_allclose(priced.marginals.sum(0), 1, atol=1e-4)


def test_a_label_that_the_start_misses_becomes_active():
    crf = scene(0)
    problem = problem_of(crf)
    start = np.zeros(problem.unary.shape, np.float32)
    start[37:] = 1 / 3  # three labels that the optimum does not have
    result = crf.solve("lp", init=start.reshape(40, 24, 24), gap=1e-4, max_iterations=200)
    assert result.converged
    assert set(np.unique(result.labels)) == {0, 1, 2}


def test_marginals_that_no_active_label_has_are_spread():
    y = np.zeros((4, 3), np.float32)
    np.testing.assert_allclose(method._normalised(y), 0.25)


def test_parts_of_different_labels_prove_what_one_does():
    problem = problem_of(scene(1))
    rng = np.random.default_rng(0)
    z = rng.uniform(0, 3, problem.unary.shape).astype(np.float32)
    z[:, 0] = 0  # the level that all parts begin at
    whole = Potentials(z, cells=1.0, of_nodes=True)
    odd, even = np.arange(1, 40, 2), np.arange(0, 40, 2)
    parts = [Potentials(z[rows], cells=1.0, labels=rows, of_nodes=True) for rows in (odd, even)]
    both = Mixture(tuple((1.0, part) for part in parts))
    assert both.disjoint
    assert not Mixture(((1.0, parts[0]), (1.0, parts[0]))).disjoint
    expected = Costs(problem, whole).bound
    assert Costs(problem, both).bound == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "side", "expected"), [(7, 8, False), (8, 8, True), (8, 512, False)]
)
def test_few_labels_are_priced_in_small_images_only(labels, side, expected):
    crf = DenseCRF(np.zeros((labels, side, side), np.float32), [Spatial(2.0)])
    assert pays(problem_of(crf)) is expected
