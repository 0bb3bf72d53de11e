"""The quadratic relaxations: equal to the energy at labellings, convex where they say so, and
never rising."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import densecrf
import oracles
from densecrf.problem.problem import problem_of
from densecrf.solvers import quadratic
from densecrf.solvers.quadratic import (
    START_STEPS,
    convex_start,
    convexifier,
    expected_energy,
    frank_wolfe,
    proximal_strength,
)

KINDS = ("potts", "tree", "vector", "matrix")

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")


def hessian(crf):
    """Return H of all labels and pixels, label-major."""
    return np.kron(oracles.label_costs(crf), oracles.dense_pairwise(crf))


def tangents(labels, n):
    """Return a basis of the differences of points of the product of simplices."""
    basis = np.linalg.svd(np.eye(labels) - 1 / labels)[0][:, :-1]
    return np.kron(basis, np.eye(n))


def random_point(crf, seed=0):
    weights = np.random.default_rng(seed).exponential(size=(crf.n_labels, crf.n))
    return (weights / weights.sum(0)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_expected_energy_is_the_energy_at_labellings(kind):
    for seed in range(12):
        case = oracles.case(seed, compatibility=kind)
        problem = problem_of(case.crf)
        labels = np.random.default_rng(seed).integers(case.crf.n_labels, size=case.crf.n)
        y = problem.indicator(labels)
        value = expected_energy(problem, y, problem.messages(y))
        assert value == pytest.approx(case.crf.energy(labels), abs=case.rounding)


@pytest.mark.parametrize("kind", KINDS)
def test_convexifier_is_enough(kind):
    for seed in range(12):
        crf = oracles.case(seed, compatibility=kind).crf
        c = np.tile(convexifier(problem_of(crf)), crf.n_labels)
        t = tangents(crf.n_labels, crf.n)
        values = np.linalg.eigvalsh(t.T @ (hessian(crf) + np.diag(c)) @ t)
        assert values[0] >= -1e-5 * max(1, values[-1])


def test_potts_has_unit_eigenvalues():
    potts = oracles.case(1)
    matrix = densecrf.DenseCRF(
        potts.crf.unary.reshape(potts.crf.n_labels, *potts.crf.shape),
        potts.crf.kernels,
        filter="exact",
        compatibility=oracles.label_costs(potts.crf),
    )
    assert problem_of(potts.crf).costs.eigenvalues == (1.0, 1.0)
    assert problem_of(matrix).costs.eigenvalues == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("kind", KINDS)
def test_frank_wolfe_steps_are_exact_line_searches(kind):
    for seed in range(6):
        crf = oracles.case(seed, compatibility=kind).crf
        problem = problem_of(crf)
        c = convexifier(problem)
        y = random_point(crf)
        iterates = frank_wolfe(problem, crf.unary - 0.5 * c, c, y, problem.messages(y))
        start, end = next(iterates), next(iterates)
        best = problem.steps.argmax(-(crf.unary - 0.5 * c + start.received + c * start.y))
        vertex = problem.indicator(best)

        def objective(step, crf=crf, c=c, y=y, vertex=vertex):
            z = ((1 - step) * y.astype(np.float64) + step * vertex).ravel()
            quadratic = hessian(crf) + np.diag(np.tile(c.astype(np.float64), crf.n_labels))
            linear = (crf.unary - 0.5 * c).astype(np.float64).ravel()
            return linear @ z + 0.5 * z @ quadratic @ z

        numeric = minimize_scalar(
            objective, bounds=(0, 1), method="bounded", options={"xatol": 1e-9}
        )
        lowest = min(numeric.fun, objective(0.0), objective(1.0))
        scale = 1e-5 * (1 + abs(lowest))
        assert end.objective == pytest.approx(lowest, abs=scale)
        assert start.objective == pytest.approx(objective(0.0), abs=scale)
        assert start.gap >= 0
        assert end.objective <= start.objective + scale


def test_frank_wolfe_finds_the_convex_minimum():
    case = oracles.case(4)
    results = [case.crf.solve("qp", iterations=k, tolerance=0.0) for k in (5, 2000)]
    few, many = (r.trace.relaxed[-1] for r in results)
    assert many <= few
    assert results[1].lower_bound <= many
    assert many - results[1].lower_bound <= 1e-2 * (1 + abs(many))


@pytest.mark.parametrize("method", ["qp", "qp-cccp", "dc-neg"])
@pytest.mark.parametrize("kind", KINDS)
def test_objective_never_rises(method, kind):
    for seed in range(18):
        case = oracles.case(seed, compatibility=kind)
        relaxed = case.crf.solve(method, init="unary", tolerance=0.0).trace.relaxed[1:]
        assert all(b <= a + case.rounding for a, b in pairwise(relaxed))


@pytest.mark.parametrize("method", ["qp-cccp", "dc-neg"])
def test_stationary_points(method):
    """At the end no pixel alone can lower the expected energy by much."""
    for seed in range(18):
        case = oracles.case(seed)
        problem = problem_of(case.crf)
        result = case.crf.solve(method, iterations=3000, tolerance=0.0)
        y = result.marginals.reshape(case.crf.n_labels, -1)
        gradient = case.crf.unary + problem.messages(y)
        slack = (gradient * y).sum(0) - gradient.min(0)
        assert slack.max() <= 0.02 * (1 + np.abs(gradient).max())


@pytest.fixture(params=[(3.0, 9), (0.05, 9), (3.0, 2)], ids=["coarse", "fine", "two labels"])
def on_lattices(request):
    """A model on lattices: their rows held at once, one after the other, or of few labels."""
    sigma, labels = request.param
    rng = np.random.default_rng(0)
    features = densecrf.Features(rng.normal(size=(700, 5)), sigma)
    unary = rng.normal(size=(labels, 700))
    return problem_of(densecrf.DenseCRF(unary, [densecrf.Features(rng.random((700, 2))), features]))


@pytest.mark.parametrize("given", [1, 2], ids=["one label given", "two"])
def test_quadratic_steps_of_the_core(on_lattices, given):
    """The fused pass is the composition that all back ends share, with any number of threads."""
    problem = on_lattices
    y, before = (random_point(problem.crf, seed) for seed in (1, 2))
    for array in (y, before):
        array[given:] = 0  # labels that no pixel carries
        array /= array.sum(0)
    strength = proximal_strength(problem)
    c = convexifier(problem)
    for options in ({}, {"c": c}, {"before": before, "share": 0.4, "c": c}):
        scale = strength + options.get("c", 0)
        expected = problem.composed_quadratic_step(
            y, scale, options.get("c"), options.get("before"), options.get("share", 0.0)
        )
        found, shared = (_with_threads(problem, k, y, scale, options) for k in (1, 2))
        np.testing.assert_array_equal(found.y, shared.y)
        assert replace(found, y=0) == replace(shared, y=0)
        np.testing.assert_allclose(found.y, expected.y, rtol=0, atol=2e-5)
        assert found.objective == pytest.approx(expected.objective, rel=1e-5)
        assert found.moved == pytest.approx(expected.moved, rel=1e-4)
        slope = scale * ((found.y - y) * (_point(y, options) - found.y)).sum(0)
        assert found.uphill == pytest.approx(float(slope.sum()), rel=1e-3, abs=1e-3)


def _with_threads(problem, threads, y, scale, options):
    return problem_of(problem.crf, threads).quadratic_step(y, scale, **options)


def _point(y, options):
    """Return where the gradient is taken."""
    if "before" not in options:
        return y
    v = np.clip(y + options["share"] * (y - options["before"]), 0, None)
    return v / v.sum(0)


def test_the_start_of_dc_neg_is_near_the_convex_minimum():
    """Nearer than as many Frank-Wolfe steps."""
    for seed in range(6):
        case = oracles.case(seed)
        problem = problem_of(case.crf)
        c = convexifier(problem)

        def objective(y, problem=problem, c=c):
            linear = problem.steps.inner(problem.unary - 0.5 * c, y)
            return linear + 0.5 * problem.steps.inner(problem.messages(y) + c * y, y)

        many = case.crf.solve("qp", iterations=2000, tolerance=0.0)
        few = case.crf.solve("qp", iterations=START_STEPS, tolerance=0.0)
        slack = objective(convex_start(problem).y) - many.lower_bound
        assert slack <= few.trace.relaxed[-1] - many.lower_bound + case.rounding
        assert slack <= 1e-2 * (1 + abs(many.lower_bound))


def test_dc_neg_takes_back_steps_where_the_filter_is_not_positive_semidefinite():
    """The linear interpolation that a lattice is can have negative eigenvalues."""
    rng = np.random.default_rng(0)
    features = densecrf.Features(rng.normal(size=(80, 5)), 5.0)
    unary = rng.normal(size=(4, 80))
    for blur in ("symmetric", "forward"):
        crf = densecrf.DenseCRF(unary, [features], "none", blur=blur)
        relaxed = crf.solve("dc-neg", init="unary", tolerance=0.0).trace.relaxed[1:]
        assert all(b <= a + 1e-4 * abs(a) for a, b in pairwise(relaxed))


@pytest.mark.parametrize("method", ["qp", "qp-cccp", "dc-neg"])
def test_potts_as_a_matrix_gives_the_same_labels(method):
    for seed in range(9):
        crf = oracles.case(seed).crf
        matrix = densecrf.DenseCRF(
            crf.unary.reshape(crf.n_labels, *crf.shape),
            crf.kernels,
            crf.normalization,
            "exact",
            compatibility=oracles.label_costs(crf),
        )
        one, two = crf.solve(method), matrix.solve(method)
        assert one.energy == pytest.approx(two.energy, rel=1e-4, abs=1e-4)


@pytest.fixture
def two_of_nine():
    """A model of nine labels, most of them costly, and marginals of the first two."""
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(9, 700))
    unary[3:] += 9
    crf = densecrf.DenseCRF(unary, [densecrf.Features(rng.random((700, 2)), weight=0.3)])
    y = rng.random((9, 700)).astype(np.float32)
    y[2:] = 0
    return crf, y / y.sum(0)


def test_labels_that_carry_nothing_are_left_out_with_the_same_iterates(two_of_nine, monkeypatch):
    crf, start = two_of_nine
    parts = []
    use = quadratic.Iterates._use
    monkeypatch.setattr(
        quadratic.Iterates, "_use", lambda self, rows: (use(self, rows), parts.append(rows))
    )
    ours = crf.solve("dc-neg", init=start)
    assert [0, 1, 2] in [rows.tolist() for rows in parts if rows is not None]
    monkeypatch.setattr(quadratic, "FEW", -1.0)
    plain = crf.solve("dc-neg", init=start)
    np.testing.assert_array_equal(ours.labels, plain.labels)
    np.testing.assert_allclose(ours.marginals, plain.marginals, atol=1e-5)
    assert ours.iterations == plain.iterations
    assert ours.trace.relaxed[1:] == pytest.approx(plain.trace.relaxed[1:], rel=1e-6)


def test_a_label_that_was_left_out_and_gains_mass_comes_back(two_of_nine):
    crf, start = two_of_nine
    problem = problem_of(crf)
    strength = proximal_strength(problem)
    iterates = quadratic.Iterates(problem, start[:2])
    iterates._use(np.arange(2))
    iterates.last = iterates.y
    found, expected = iterates.step(strength, None, 0.0), problem.quadratic_step(start, strength)
    assert iterates.rows is None
    assert expected.y[2].any()
    np.testing.assert_array_equal(found.y, expected.y)


@pytest.mark.parametrize("iterations", [1, 2, 3, 7])
def test_the_last_labelling_of_dc_neg_is_scored(iterations):
    crf = oracles.case(3).crf
    result = crf.solve("dc-neg", init="unary", max_iterations=iterations, tolerance=0.0)
    trace = result.trace
    assert len(trace) == 1 + result.iterations
    assert trace.energy == list(np.minimum.accumulate(trace.current_energy))
    assert trace.current_energy[-1] == pytest.approx(crf.energy(result.marginals.argmax(0)))
    every = crf.solve(
        "dc-neg",
        init="unary",
        max_iterations=iterations,
        tolerance=0.0,
        callback=lambda _: None,
    )
    assert every.energy == result.energy


@pytest.fixture
def image_of_three_labels():
    """An image of 160 by 164 pixels, three noisy labels, and its kernels of a width."""
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[:160, :164]
    own = (rows + columns > 140).astype(int) + (columns > 110)
    unary = rng.normal(size=(4, *own.shape)) - 1.5 * (np.arange(4)[:, None, None] == own)
    image = np.stack([40 * own] * 3, -1) + rng.integers(0, 9, (*own.shape, 1))

    def model(sigma):
        kernels = [densecrf.Spatial(sigma), densecrf.Bilateral(image.astype(np.uint8), 20, 12)]
        return densecrf.DenseCRF(unary, kernels, "none")

    return model


def test_the_start_on_a_grid_is_nearer_to_the_convex_minimum(image_of_three_labels, monkeypatch):
    """Than as many steps as are taken without the grid, with kernels that are wide enough."""
    problem = problem_of(image_of_three_labels(5.0))
    c = convexifier(problem)

    def objective(y):
        return problem.steps.inner(problem.unary + 0.5 * (problem.messages(y) + c * y), y)

    ours = convex_start(problem).y
    np.testing.assert_allclose(ours.sum(0), 1, atol=1e-5)
    monkeypatch.setattr(quadratic, "LEAST_GRID", problem.n)
    assert objective(ours) < objective(convex_start(problem).y)


def test_the_start_takes_no_grid_that_is_coarser_than_the_kernels(image_of_three_labels):
    for sigma, used in ((5.0, True), (0.5, False)):
        crf = image_of_three_labels(sigma)
        alone = densecrf.DenseCRF(crf.unary.reshape(4, *crf.shape), crf.kernels[:1])
        assert (quadratic._coarse_start(problem_of(alone)) is not None) == used
