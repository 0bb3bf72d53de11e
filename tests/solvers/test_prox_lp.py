"""PROX-LP and its accelerated variants: the mathematics of Algorithm 1, and its certificates."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from densecrf import Bilateral, DenseCRF, Features, LabelTree, Spatial
from densecrf.problem.problem import problem_of
from densecrf.problem.projections import simplex
from densecrf.solvers.multiplicative import MultiplicativeBlock
from densecrf.solvers.prox_lp import Alpha, FrankWolfeIterate, Proximal, frank_wolfe
from densecrf.solvers.subproblems import Part, PixelPart, uncertain_pixels

VARIANTS = ("prox-lp", "prox-lp-l", "prox-lp-acc")


def tiny(seed: int, labels: int = 3, n: int = 7, **options: Any) -> DenseCRF:
    """A small problem with pairwise terms from weak to strong."""
    rng = np.random.default_rng(seed)
    unary = rng.normal(size=(labels, n)) * 2
    kernel = Features(rng.normal(size=(n, 2)), weight=10 ** rng.uniform(-1, 0.7))
    normalization = ("none", "symmetric")[seed % 2]
    return DenseCRF(unary, [kernel], normalization, "exact", **options)


def marginals(seed: int, labels: int, n: int, concentration: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(labels, concentration), n).T.astype(np.float32)


def weights(crf: DenseCRF) -> np.ndarray:
    return crf.pairwise.apply(np.eye(crf.n, dtype=np.float32))


def smallest_energy(crf: DenseCRF) -> float:
    """The energy of the best of all labellings, over an explicit matrix."""
    x = np.array(list(itertools.product(range(crf.n_labels), repeat=crf.n)))
    costs = 1 - np.eye(crf.n_labels) if crf.compatibility is None else crf.compatibility
    unary = crf.unary.astype(np.float64)[x, np.arange(crf.n)].sum(1)
    k = weights(crf).astype(np.float64)
    pairs = sum(
        k[a, b] * costs[x[:, a], x[:, b]] for a in range(crf.n) for b in range(a + 1, crf.n)
    )
    return float((unary + pairs).min())


def solve_quietly(crf: DenseCRF, method: str, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return crf.solve(method, **options)


def iterations(crf: DenseCRF, centre: np.ndarray, **options: Any) -> Iterator[FrankWolfeIterate]:
    chosen = Proximal(**{"order": "adaptive", "T": 15, **options})
    part = Part(problem_of(crf))
    return frank_wolfe(part, centre, Alpha(np.zeros_like(centre)), chosen.lam, chosen)


def dual_value(crf: DenseCRF, w: np.ndarray, centre: np.ndarray, lam: float) -> float:
    """-g(α, β, γ) for the best β and γ: the minimum over y of a separable quadratic."""
    y = simplex((lam * (w - crf.unary) + centre).astype(np.float32)).astype(np.float64)
    return float(((crf.unary - w) * y).sum() + ((y - centre) ** 2).sum() / (2 * lam))


# --- Algorithm 1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [2, 3, 21])
@pytest.mark.parametrize(("lam", "scale"), [(0.001, 300.0), (0.1, 10.0), (0.5, 1.0)])
def test_multiplicative_updates_find_the_projection(labels: int, lam: float, scale: float) -> None:
    rng = np.random.default_rng(labels)
    centre = marginals(1, labels, 30)
    block = MultiplicativeBlock(centre, lam)
    for _ in range(2):  # from a cold start, and from another point's γ
        v = (rng.normal(size=(labels, 30)) * scale).astype(np.float32)
        np.testing.assert_allclose(block(v), simplex(lam * v + centre), atol=1e-4)


def test_inner_solvers_lead_to_the_same_solution() -> None:
    crf = tiny(4)
    centre = marginals(4, crf.n_labels, crf.n)
    exact = list(iterations(crf, centre, order="soft", T=5))
    updated = list(iterations(crf, centre, order="soft", T=5, inner="multiplicative"))
    for one, other in zip(exact, updated, strict=True):
        np.testing.assert_allclose(one.y, other.y, atol=1e-3)
        assert one.gap == pytest.approx(other.gap, abs=1e-2)


def test_a_few_multiplicative_updates_still_give_a_labelling() -> None:
    crf = tiny(5)
    loose = solve_quietly(crf, "prox-lp", inner="multiplicative", inner_steps=3)
    assert loose.energy == pytest.approx(crf.energy(loose.labels), rel=1e-6)
    assert loose.lower_bound <= smallest_energy(crf) + 1e-4


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_analytic_step_is_the_best_one(seed: int) -> None:
    lam = 0.3
    crf = tiny(seed)
    centre = marginals(seed, crf.n_labels, crf.n).astype(np.float64)
    w, y = np.zeros_like(centre), simplex((centre - lam * crf.unary).astype(np.float32))
    for iterate in iterations(crf, centre, lam=lam, T=4):
        fixed = (y - centre) / lam - w  # Bβ + γ - φ by Eq. 9
        s = -iterate.r.astype(np.float64)

        def g(step: float, w: np.ndarray = w, s: np.ndarray = s, m: np.ndarray = fixed) -> float:
            z = w + step * (s - w) + m
            return float(lam / 2 * (z**2).sum() + (z * centre).sum())

        best = minimize_scalar(g, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
        scale = max(1.0, abs(g(0)))
        assert g(iterate.step) <= min(best.fun, g(0), g(1)) + 1e-6 * scale
        if 1e-3 < iterate.step < 1:
            assert iterate.step == pytest.approx(best.x, abs=1e-3)
        w, y = -iterate.alpha.q, iterate.y


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_dual_gap_is_primal_minus_dual_and_falls(seed: int) -> None:
    lam = 0.2
    crf = tiny(seed)
    centre = marginals(seed, crf.n_labels, crf.n)
    w, y, before = np.zeros_like(centre), simplex(centre - lam * crf.unary), -np.inf
    for iterate in iterations(crf, centre, lam=lam):
        primal = crf.relaxed_energy(y) + float(((y - centre) ** 2).sum()) / (2 * lam)
        dual = dual_value(crf, w, centre, lam)
        slack = 1e-5 * max(1.0, abs(primal))
        assert iterate.gap >= -slack
        assert iterate.gap == pytest.approx(primal - dual, abs=10 * slack)
        assert dual >= before - slack
        w, y, before = -iterate.alpha.q, iterate.y, dual


@pytest.mark.parametrize("seed", range(6))
def test_solved_proximal_steps_never_raise_the_objective(seed: int) -> None:
    crf = tiny(seed)
    lam, y = 0.3, marginals(seed, crf.n_labels, crf.n)
    for _ in range(5):
        *_, last = iterations(crf, y, lam=lam, T=400)
        moved = float(((last.y - y) ** 2).sum()) / (2 * lam)
        before = crf.relaxed_energy(y)
        after = crf.relaxed_energy(last.y)
        assert after + moved <= before + last.gap + 1e-4 * max(1, abs(before))
        y = last.y


def test_long_runs_reach_the_optimum_of_two_labels() -> None:
    crf = tiny(3, labels=2, n=10)
    result = solve_quietly(crf, "prox-lp", K=40, T=30, lam=0.5, order="adaptive", warm=True)
    optimum = smallest_energy(crf)
    assert result.energy == pytest.approx(optimum, abs=1e-4)
    assert optimum - 0.02 * max(1, abs(optimum)) <= result.lower_bound <= optimum + 1e-4


# --- certificates --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", VARIANTS)
@given(seed=st.integers(0, 10_000), order=st.sampled_from(["hard", "soft"]), warm=st.booleans())
@settings(max_examples=15, deadline=None)
def test_bounds_hold_for_every_labelling(method: str, seed: int, order: str, warm: bool) -> None:
    crf = tiny(seed)
    options = {"max_share": 0.5, "first_steps": seed % 3} if method == "prox-lp-acc" else {}
    if method != "prox-lp":
        options["label_threshold"] = 0.3  # remove labels that matter: bounds must still hold
    result = solve_quietly(crf, method, K=4, order=order, warm=warm, init="unary", **options)
    optimum = smallest_energy(crf)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5, abs=1e-4)
    assert optimum <= result.energy + 1e-4
    if result.lower_bound is not None:
        assert result.lower_bound <= optimum + 1e-4 * max(1, abs(optimum))


@pytest.mark.parametrize("method", VARIANTS)
def test_tree_metrics_are_solved_and_certified(method: str) -> None:
    tree = LabelTree(4, [([0, 1], 1.0)], leaf=[0.4, 0.4, 0.6, 0.6])
    options = {"max_share": 0.5, "first_steps": 1} if method == "prox-lp-acc" else {}
    for seed in range(6):
        crf = tiny(seed, labels=4, n=5, compatibility=tree)
        result = solve_quietly(crf, method, **options)
        optimum = smallest_energy(crf)
        assert optimum <= result.energy + 1e-4
        if result.lower_bound is not None:
            assert result.lower_bound <= optimum + 1e-4


def test_removed_labels_are_bounded_by_any_dual_point() -> None:
    rng = np.random.default_rng(8)
    for seed in range(12):
        crf = tiny(seed, labels=4, n=5)
        problem, optimum = problem_of(crf), smallest_energy(crf)
        keep = np.sort(rng.permutation(4)[: rng.integers(1, 4)])
        dual = problem.dual_point(marginals(seed, 4, 5), order="hard")
        part = Part(problem, keep, (dual, None))
        r = part.problem.dual_point(marginals(seed, len(keep), 5))
        assert part.bound(r) <= optimum + 1e-4
        assert part.bound(r) >= Part(problem, keep).bound(r)
        assert problem.lower_bound(part.extended(r)) <= part.bound(r) + 1e-4


# --- restriction to pixels -----------------------------------------------------------------------


def image_model(engine: str, **options: Any) -> DenseCRF:
    rng = np.random.default_rng(3)
    shape = (8, 9)
    kernels: list[Any] = [Spatial(2.0, weight=1.5)]
    if engine != "grid":
        kernels.append(Bilateral(rng.integers(0, 60, (*shape, 3)), 4.0, 20.0, weight=3.0))
    return DenseCRF(rng.normal(size=(4, *shape)), kernels, filter=engine, **options)


@pytest.mark.parametrize("order", ["hard", "soft"])
@pytest.mark.parametrize("engine", ["exact", "lattice", "grid"])
def test_a_part_of_the_pixels_sees_the_frozen_ones(engine: str, order: str) -> None:
    crf = image_model(engine)
    problem = problem_of(crf)
    y = marginals(2, 4, crf.n)
    y[3], y[:3] = 0, y[:3] / y[:3].sum(0)
    pixels = np.flatnonzero(np.random.default_rng(5).uniform(size=crf.n) < 0.3)
    part = PixelPart(problem, np.arange(3), y, pixels)
    moved = y.copy()
    moved[:3, pixels] = marginals(6, 3, len(pixels))
    mine = np.ascontiguousarray(moved[:3, pixels])
    np.testing.assert_allclose(part.full(mine), moved, atol=1e-6)
    np.testing.assert_allclose(part.take(moved), mine)

    r, constant, _ = part.conditional_gradient(mine, 7, order)
    wanted = problem.dual_point(moved, 7, order, rescale=False)
    np.testing.assert_allclose(r, wanted[:3, pixels], atol=1e-5)
    frozen = np.setdiff1d(np.arange(crf.n), pixels)
    t = np.floor(moved * 6) if order == "hard" else moved * 6
    near = np.maximum(0, 1 - np.abs(t[:, :, None] - np.arange(7)))
    s = np.einsum("iah,hg,ibg->iab", near, np.sign(np.subtract.outer(range(7), range(7))), near)
    pairs = weights(crf) * s * moved[:, None, :]
    assert constant == pytest.approx(0.5 * pairs[:, pixels][:, :, frozen].sum(), abs=1e-3)

    labels, energy = part.rounded(mine)
    np.testing.assert_array_equal(labels, moved.argmax(0))
    assert energy == pytest.approx(crf.energy(labels), rel=1e-5)


def test_frank_wolfe_on_some_pixels_closes_their_gap() -> None:
    crf = image_model("exact")
    lam, levels = 0.2, 400
    y = marginals(2, 4, crf.n)
    pixels = np.arange(5, 40)
    part = PixelPart(problem_of(crf), np.arange(4), y, pixels)
    centre = part.take(y)

    def primal(mine: np.ndarray) -> float:
        frozen = np.setdiff1d(np.arange(crf.n), pixels)
        there = part.full(mine)
        pairs = 0.5 * weights(crf) * np.abs(there[:, :, None] - there[:, None, :]).sum(0)
        own = 0.5 * pairs[np.ix_(pixels, pixels)].sum() + pairs[np.ix_(pixels, frozen)].sum()
        unary = float((crf.unary[:, pixels] * mine).sum())
        return own + unary + float(((mine - centre) ** 2).sum()) / (2 * lam)

    chosen = Proximal(lam=lam, T=60, levels=levels, order="hard")
    start = Alpha(np.zeros_like(centre))
    before = np.inf
    mine = simplex(centre - lam * crf.unary[:, pixels])
    values = []
    for iterate in frank_wolfe(part, centre, start, lam, chosen):
        assert iterate.gap >= 0
        values.append(primal(mine))
        dual = values[-1] - iterate.gap
        assert dual <= min(values) + 0.2  # the levels are not exact
        mine, before = iterate.y, iterate.gap
    assert before < 0.05 * values[0]
    assert values[-1] < values[0]


def test_frozen_pixels_and_removed_labels_stay() -> None:
    crf = image_model("lattice")
    y = marginals(9, 4, crf.n, concentration=0.1)
    y[2] = 0
    y *= 0.995 / y.sum(0)
    y[2] = 0.005
    start = y.argmax(0)
    result = solve_quietly(
        crf, "prox-lp-acc", init=y.reshape(4, 8, 9), first_steps=0, max_share=0.25, K=1
    )
    kept = result.info["pixels_kept"]
    np.testing.assert_array_equal(kept, uncertain_pixels(problem_of(crf), y, 0.95, 0.25))
    assert 0 < len(kept) <= crf.n // 4
    frozen = np.setdiff1d(np.arange(crf.n), kept)
    np.testing.assert_array_equal(result.labels.reshape(-1)[frozen], start[frozen])
    np.testing.assert_array_equal(result.info["labels_kept"], [0, 1, 3])
    assert (result.marginals[2] == 0).all()
    assert result.lower_bound is not None


def test_without_doubt_there_is_nothing_to_do() -> None:
    crf = image_model("lattice")
    labels = np.zeros(crf.shape, int)
    result = solve_quietly(crf, "prox-lp-acc", init=labels, first_steps=0)
    assert result.converged
    assert result.iterations == 0
    np.testing.assert_array_equal(result.labels, labels)


# --- the door ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("prox-lp", "lam", 0.0),
        ("prox-lp", "K", 0),
        ("prox-lp", "T", 1.5),
        ("prox-lp", "levels", 1),
        ("prox-lp", "order", "exact"),
        ("prox-lp", "inner", "newton"),
        ("prox-lp", "inner_steps", 0),
        ("prox-lp", "tolerance", -1.0),
        ("prox-lp-l", "label_threshold", 1.5),
        ("prox-lp-acc", "confidence", -0.1),
        ("prox-lp-acc", "max_share", 2.0),
        ("prox-lp-acc", "order", "adaptive"),
    ],
)
def test_wrong_options_are_named(method: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        solve_quietly(tiny(0), method, init="unary", **{option: value})


def test_a_wide_tolerance_ends_proximal_steps_early() -> None:
    crf = image_model("lattice")
    few = solve_quietly(crf, "prox-lp", init="mf", tolerance=10.0)
    assert few.iterations == 10
    assert len(few.info["dual_gaps"]) == 10


@pytest.mark.parametrize("method", ["prox-lp", "prox-lp-l", "prox-lp-acc"])
def test_labels_without_a_node_of_their_own_may_be_all_that_is_left(method: str) -> None:
    unary = np.array([[0.0, 0.2, 0.1, 0.0], [9.0, 9.0, 9.0, 9.0], [9.0, 8.0, 9.0, 8.0]])
    crf = DenseCRF(unary, [Spatial(1.0, 0.5)], compatibility=LabelTree(3, leaf=[0.0, 1.0, 1.0]))
    result = crf.solve(method, label_threshold=0.5) if method != "prox-lp" else crf.solve(method)
    assert (result.labels == 0).all()
    assert result.energy == pytest.approx(0.3)
