"""Labels that are priced instead of iterated: the same optimum, and the bound of all labels."""

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Features, Spatial
from densecrf.problem.certificate import Costs, Mixture, Potentials, Share
from densecrf.problem.problem import problem_of
from densecrf.solvers import lp as method
from densecrf.solvers.pricing import active_labels, pays
from oracles import energies


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


def test_costs_of_some_labels_are_those_of_all():
    """Labels without a flow are left out of the proof; also where a labelling has one of them."""
    crf = scene(3)
    problem = problem_of(crf)
    rng = np.random.default_rng(0)
    some, others = np.array([0, 2, 5]), np.array([1, 7])
    scores = rng.random((40, crf.n), np.float32)
    scores[np.setdiff1d(np.arange(40), [*some, *others])] = 0
    parts = tuple((1.0, Potentials(scores[own], cells=1.0, labels=own)) for own in (some, others))
    few, all_of_them = Costs(problem, Mixture(parts)), Costs(problem, Potentials(scores, cells=1.0))
    labels = rng.integers(0, 40, crf.n)
    known = Share(problem.energy(labels), sizes=problem.energy_sizes(labels))
    assert few.bound == pytest.approx(all_of_them.bound, rel=1e-12)
    np.testing.assert_allclose(
        few.margin(problem, known, labels), all_of_them.margin(problem, known, labels), rtol=1e-6
    )
    for one, other in zip(
        few.possible(problem, known), all_of_them.possible(problem, known), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_step_of_prices_is_what_it_is_defined_as():
    rng = np.random.default_rng(0)
    steps = problem_of(scene(0)).steps
    costs, least, step, y, z = rng.random((5, 1000)).astype(np.float32)
    after = np.clip(y - step * (costs - least), 0, 1)
    expected = z + 3 * after - y
    steps.price_step(costs, least, step, 3.0, y, z)
    np.testing.assert_allclose(y, after, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(z, expected, rtol=1e-6, atol=1e-6)
    rows = rng.random((3, 1000)).astype(np.float32)
    short = np.clip(least - rows, 0, None).sum(1, dtype=np.float64)
    np.testing.assert_allclose(steps.shortfalls(rows, least), short, rtol=1e-5)


@pytest.mark.parametrize("normalization", ["symmetric", "none"])
def test_what_is_proven_of_priced_labels_holds_for_every_labelling(normalization):
    rng = np.random.default_rng(0)
    proven = 0
    for _ in range(60):
        n, labels = rng.integers(2, 5), rng.integers(8, 11)
        unary = rng.normal(0, rng.choice([0.3, 1.0, 3.0]), (labels, n))
        kernels = [Features(rng.normal(size=(n, 2)), weight) for weight in rng.uniform(0.2, 4, 2)]
        crf = DenseCRF(unary, kernels, normalization)
        found = crf.solve("lp", gap=0.0, max_iterations=int(rng.choice([1, 3, 8, 60])))
        table = energies(crf)
        best, rounding = table.min(), 1e-6 * max(1.0, abs(table.min()))
        assert found.lower_bound <= best + 1e-3 * rounding
        assert found.energy == pytest.approx(table[tuple(found.labels)], abs=rounding)
        for a, label in enumerate(found.labels.tolist()):
            of_pixel = np.moveaxis(table, a, 0).reshape(labels, -1).min(1)
            assert found.margin[a] <= np.delete(of_pixel, label).min() - found.energy + rounding
            assert found.possible[a] >= (of_pixel <= best + 1e-3 * rounding).sum()
        proven += int((found.margin > 0).sum())
    assert proven > 60
