"""Bounds are proofs: brute force, adversarial unaries, and energies in one accumulation."""

import itertools

import numpy as np
import pytest

import densecrf
from densecrf import Bilateral, DenseCRF, Features, Spatial
from densecrf.problem.certificate import (
    CertificateError,
    Mixture,
    Potentials,
    Share,
    Sizes,
    Tangent,
    lower_bound,
)
from densecrf.problem.problem import problem_of
from densecrf.solvers.result import relative_gap

pytestmark = pytest.mark.filterwarnings("ignore:kernels")

WITH_BOUNDS = ("qp", "sg-lp", "cg-lp", "prox-lp", "prox-lp-l", "prox-lp-acc", "lp")


def rounding(problem, labels) -> float:
    """Return how far the energy of a labelling may be from its exact value."""
    return Share(0.0, sizes=problem.energy_sizes(labels)).energy_rounding


def smallest_energy(crf: DenseCRF) -> tuple[float, float]:
    """Return the energy of the best labelling, over the explicit matrix, and its rounding."""
    k = crf.pairwise.apply_double(np.eye(crf.n))
    x = np.array(list(itertools.product(range(crf.n_labels), repeat=crf.n)))
    unary = crf.unary.astype(np.float64)[x, np.arange(crf.n)].sum(1)
    apart = x[:, :, None] != x[:, None, :]
    energies = unary + 0.5 * np.einsum("ab,xab->x", k, apart)
    best = x[energies.argmin()]
    return float(energies.min()), rounding(problem_of(crf), best)


def tiny(seed: int, **options: object) -> DenseCRF:
    """A random problem of at most 8 pixels: all strengths, ties, either normalisation."""
    rng = np.random.default_rng(seed)
    labels = 2 + seed % 2
    shape = ((2, 4), (7,), (3, 2))[seed % 3]
    n = int(np.prod(shape))
    weight = 10.0 ** rng.uniform(-2, 6)
    kernels = [
        Spatial(rng.uniform(0.4, 3), weight * rng.random()),
        Features(rng.normal(size=(n, 3)), weight * rng.random()),
    ]
    unary = rng.standard_normal((labels, *shape)) * 10.0 ** rng.uniform(-2, 5)
    if seed % 4 == 0:
        unary = np.round(unary / np.abs(unary).max())  # near ties and ties
    settings = {"normalization": ("symmetric", "none")[seed // 2 % 2], "filter": "lattice"}
    return DenseCRF(unary, kernels, **{**settings, **options})


def adversarial(crf: DenseCRF, seed: int) -> DenseCRF:
    """The same pairwise terms with unaries = -r, for which the dual point r proves 0."""
    problem = problem_of(crf)
    y = np.random.default_rng(seed).random(crf.unary.shape, dtype=np.float32)
    r = problem.dual_point_double(Potentials(y, None, 4.0))
    return DenseCRF(
        -r.reshape(crf.n_labels, *crf.shape),
        crf.kernels,
        crf.normalization,
        crf.filter,
        blur=crf.blur,
    )


@pytest.mark.parametrize("blur", ["symmetric", "forward"])
@pytest.mark.parametrize("method", WITH_BOUNDS)
def test_no_bound_is_above_the_optimum(method, blur):
    for seed in range(60):
        crf = tiny(seed, blur=blur)
        for each in (crf, adversarial(crf, seed)):
            options = {} if method in ("qp", "lp", "prox-lp") else {"label_threshold": 0.3}
            result = each.solve(method, max_iterations=6, **options)
            optimum, off = smallest_energy(each)
            assert result.energy == each.energy(result.labels)
            assert result.energy >= optimum - off
            if result.lower_bound is not None:
                assert result.lower_bound <= optimum + off


def test_every_dual_point_is_below_the_optimum():
    for seed in range(400):
        crf = tiny(seed, filter=("lattice", "exact")[seed % 2])
        problem, rng = problem_of(crf), np.random.default_rng(seed)
        optimum, off = smallest_energy(crf)
        y, z = rng.random((2, *crf.unary.shape), dtype=np.float32)
        soft, hard = Potentials(y, z, 5.0), Potentials(y, levels=7, hard=True)
        some = Potentials(y[1:], labels=np.arange(1, crf.n_labels))
        for dual in (
            soft,
            hard,
            some,
            Mixture(((0.3, soft), (0.6, hard))),
            Tangent(y),
            Mixture(()),
        ):
            assert lower_bound(problem, dual) <= optimum + off


def test_forward_blur_proves_what_is_true():
    unary = np.random.default_rng(104).standard_normal((2, 3, 3)).round(1).astype("f4")
    crf = DenseCRF(unary, [Spatial(1, 1.0)], "none", "lattice", blur="forward")
    result = crf.solve("lp", gap=0.0)
    optimum, off = smallest_energy(crf)
    assert result.lower_bound <= optimum + off <= result.energy + 2 * off
    assert result.gap < 1e-3


@pytest.mark.parametrize("method", ["cg-lp", "sg-lp", "lp", "qp"])
@pytest.mark.parametrize(("weight", "normalization"), [(10.0, "symmetric"), (1e4, "none")])
def test_a_constant_labelling_is_not_below_the_bound(method, weight, normalization):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (60, 60, 3))
    kernels = [Bilateral(image, 20.0, 60.0, weight)]
    plain = DenseCRF(np.zeros((3, 60, 60)), kernels, normalization)
    crf = adversarial(plain, 1)
    result = crf.solve(method, init=np.eye(3)[:, rng.integers(0, 2, (60, 60))])
    assert result.lower_bound <= crf.constant_energies().min()


@pytest.mark.parametrize("device", [None, "cpu"])
def test_labels_that_cost_something_beside_themselves(device):
    """What a pixel has with itself is no pair; it is taken out in double precision."""
    if device is not None:
        pytest.importorskip("torch")
        from densecrf.torch.problem import checked_device, problem_on
    rng = np.random.default_rng(3)
    for seed in range(20):
        potts = tiny(seed)
        mu = rng.normal(size=(potts.n_labels,) * 2)
        mu = (mu + mu.T).astype(np.float32)
        grid = potts.unary.reshape(-1, *potts.shape)
        crf = DenseCRF(grid, potts.kernels, potts.normalization, compatibility=mu)
        result = crf.solve("qp", device=device)
        problem = problem_of(crf) if device is None else problem_on(crf, checked_device(device))
        unit = problem.steps.double_from_numpy(np.eye(crf.n))
        k = problem.steps.to_numpy(problem.pairwise.apply_double(unit)) * (1 - np.eye(crf.n))
        x = np.array(list(itertools.product(range(crf.n_labels), repeat=crf.n)))
        unary = crf.unary.astype(np.float64)[x, np.arange(crf.n)].sum(1)
        costs = mu.astype(np.float64)[x[:, :, None], x[:, None, :]]
        energies = unary + 0.5 * np.einsum("ab,xab->x", k, costs)
        chosen = problem.steps.from_numpy(result.labels.reshape(-1).astype(np.int64))
        off = 2 * rounding(problem, chosen)
        own = int(np.flatnonzero((x == result.labels.reshape(-1)).all(1))[0])
        assert result.energy == pytest.approx(energies[own], rel=0, abs=off)
        if result.lower_bound is not None:  # None: the start is the quadratic program's minimum
            assert result.lower_bound <= energies.min() + off


@pytest.mark.parametrize("weight", [1e2, 1e3, 1e4])
@pytest.mark.parametrize("method", ["mf5", "dc-neg", "lp"])
def test_one_accumulation_of_the_energy(weight, method):
    rng = np.random.default_rng(2)
    image = rng.integers(0, 255, (40, 50, 3))
    crf = DenseCRF(
        rng.normal(size=(4, 40, 50)) * weight, [Bilateral(image, 10.0, 40.0, weight)], "none"
    )
    result = crf.solve(method)
    assert result.energy == crf.energy(result.labels)
    label, energy = result.best_constant
    assert energy == crf.energy(np.full(crf.shape, label))


def test_a_bound_above_an_energy_is_an_error():
    share = Share(2.0, 1.0, Sizes(8, unary=10.0))
    assert share.certified() == share.lower_bound == 1.0
    assert share.certified(1.5) == 1.5
    assert share.certified(2.0 + share.energy_rounding / 2) == 2.0
    with pytest.raises(CertificateError, match="report"):
        share.certified(2.1)
    assert relative_gap(1.0, 1.5) == -0.5


def test_shares_of_tiles_add_up():
    tiles = [Share(1.0, 0.5, Sizes(3, 1.0, 2.0, 0.5, 1.0)), Share(2.0, 1.5, Sizes(4, 3.0, 1.0))]
    whole = tiles[0] + tiles[1]
    assert (whole.energy, whole.bound, whole.sizes) == (3.0, 2.0, Sizes(7, 4.0, 3.0, 0.5, 1.0))
    assert whole.lower_bound < 2.0
    assert (whole + Share(1.0)).bound is None


def test_pixels_are_judged_by_the_bound_of_their_own_costs():
    """A better bound of other potentials says nothing about these reduced costs."""
    share = Share(3.0, 1.0, Sizes(4, unary=3.0))
    assert share.certified(2.5) == 2.5
    assert share.slack >= 3.0 - 1.0


def test_what_rounding_costs_is_little(shared_data):
    """Next to nothing of an image's energy is given away."""
    with np.load(shared_data / "msrc_paper" / "2_14_s.npz") as data:
        unary, image = data["unary"], data["image"]
    unary = np.moveaxis(unary, -1, 0) if unary.shape[-1] == 21 else unary
    crf = DenseCRF(unary, [Spatial(3, 3.0), Bilateral(image, 60, 13, 10.0)])
    problem = problem_of(crf)
    potentials = Potentials(problem.unary_marginals(), None, 4.0)
    exact = (crf.unary + problem.dual_point_double(potentials)).min(0).sum()
    assert 0 < exact - lower_bound(problem, potentials) < 1e-8 * exact


@pytest.mark.parametrize(
    ("scale", "method", "options"),
    [(1e38, "lp", {}), (1e-40, "sg-lp", {}), (1.0, "prox-lp", {"lam": 1e20})],
)
def test_marginals_are_distributions(scale, method, options):
    unary = np.random.default_rng(3).random((3, 6, 7)) * scale
    result = DenseCRF(unary, [Spatial(2.0, 1.0)]).solve(method, **options)
    assert result.marginals.min() >= 0
    np.testing.assert_allclose(result.marginals.sum(0), 1, atol=1e-4)
    assert result.lower_bound is None or result.lower_bound <= result.energy


@pytest.mark.parametrize("gap", [1.0, 5, float("nan"), -0.1])
def test_a_gap_is_a_fraction(gap):
    crf = tiny(6)
    with pytest.raises(ValueError, match=r"gap.*must be a fraction.*0\.001 means 0\.1 %"):
        densecrf.certify(crf, crf.unary.argmin(0), gap=gap)
    with pytest.raises(ValueError, match=r"gap.*must be a fraction"):
        densecrf.refine(np.zeros((4, 4, 3)), np.zeros((2, 4, 4)), kind="logits", gap=gap)


def test_certify_uses_the_same_bound():
    crf = tiny(6)
    labels = crf.solve("mf").labels
    certificate = densecrf.certify(crf, labels)
    assert certificate.energy == crf.energy(labels)
    assert certificate.lower_bound <= smallest_energy(crf)[0] + 1e-9 * abs(certificate.energy)


COSTS = {
    "potts": None,
    "tree": densecrf.LabelTree(3, [([0, 1], 0.7)], leaf=[0.3, 0.5, 0.2]),
    "matrix": [[0.3, 1.0, -0.4], [1.0, -0.2, 0.7], [-0.4, 0.7, 0.0]],
}


@pytest.mark.parametrize("normalization", ["symmetric", "none"])
@pytest.mark.parametrize("engine", ["lattice", "exact", "grid"])
@pytest.mark.parametrize("blur", ["symmetric", "forward"])
@pytest.mark.parametrize("costs", COSTS)
def test_an_independent_check_agrees(costs, engine, blur, normalization):
    """To the last digits: both are sums over the same numbers, rounded as they are stored."""
    rng = np.random.default_rng(5)
    kernels = [Spatial(1.5, 0.8)]
    if engine != "grid":
        kernels.append(Bilateral(rng.integers(0, 255, (6, 7, 3)), 3.0, 60.0, 1.2))
    crf = DenseCRF(
        rng.normal(size=(3, 6, 7)),
        kernels,
        normalization,
        filter=engine,
        blur=blur,
        compatibility=COSTS[costs],
    )
    for method in ("qp",) if costs == "matrix" else ("lp", "prox-lp", "cg-lp", "qp"):
        result = crf.solve(method, keep_dual=True)
        check = result.verify()
        assert check.disagreements(result.energy, result.lower_bound) == []
        single = engine == "lattice" and blur == "forward" and normalization == "symmetric"
        assert check.tolerance <= (0.05 if single else 1e-7)
        off = 1e-5 if single else 1e-11  # the forward order's masses are in single precision
        assert check.energy == pytest.approx(result.energy, rel=off)
        assert check.lower_bound == pytest.approx(result.lower_bound, rel=off)
        wrong = result.lower_bound + 2 * check.tolerance
        assert len(check.disagreements(result.energy, wrong)) == 1


@pytest.mark.parametrize("labels", [2, 4])
def test_an_independent_check_of_an_image(labels):
    rng = np.random.default_rng(6)
    image = rng.integers(0, 255, (6, 8, 3)).repeat(5, 0).repeat(5, 1)  # flat: many equal features
    kernels = [Spatial(3.0, 3.0), Bilateral(image, 30.0, 13.0, 10.0)]
    crf = DenseCRF(rng.normal(size=(labels, 30, 40)), kernels)
    for method, options in (("lp", {}), ("prox-lp-l", {"label_threshold": 0.6}), ("qp", {})):
        result = crf.solve(method, keep_dual=True, **options)
        check = result.verify()
        assert check.disagreements(result.energy, result.lower_bound) == []
        assert check.tolerance <= 1e-6 * abs(result.energy)
        assert check.lower_bound == pytest.approx(result.lower_bound, rel=1e-10)


def test_an_independent_check_of_a_result_on_tensors():
    pytest.importorskip("torch")
    crf = tiny(2)
    result = crf.solve("lp", keep_dual=True, device="cpu")
    assert result.verify().disagreements(result.energy, result.lower_bound) == []


def test_a_matrix_with_a_diagonal_is_checked_for_small_problems():
    crf = DenseCRF(np.zeros((3, 70, 70)), [Spatial(1.0)], compatibility=COSTS["matrix"])
    result = crf.solve("qp", max_iterations=1, keep_dual=True)
    with pytest.raises(ValueError, match="4900 pixels"):
        result.verify()


def test_a_check_needs_the_dual_point():
    crf = tiny(1)
    with pytest.raises(ValueError, match="keep_dual"):
        crf.solve("lp").verify()


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("compatibility", [None, densecrf.LabelTree(2, leaf=[1.0, 0.5])])
@pytest.mark.parametrize("order", ["soft", "hard"])
def test_an_independent_check_of_two_labels(order, compatibility, device):
    """The second label's flow is the first one's mirror image in some dual points alone."""
    if device is not None:
        pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    kernels = [Spatial(1.2, 1.5)]
    for method in ("sg-lp", "cg-lp", "prox-lp", "prox-lp-l", "prox-lp-acc", "lp"):
        crf = DenseCRF(rng.normal(size=(2, 4, 5)), kernels, compatibility=compatibility)
        options = {} if method == "lp" else {"order": order}
        result = crf.solve(method, keep_dual=True, device=device, **options)
        if result.dual is not None:
            assert result.verify().disagreements(result.energy, result.lower_bound) == []
