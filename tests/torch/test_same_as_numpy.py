"""Costs, proofs, dual points and learning on tensors: as on NumPy arrays."""

import numpy as np
import pytest

import densecrf
from densecrf.model.parameters import NUMBERS, Parameters
from densecrf.problem.certificate import lower_bound
from densecrf.problem.problem import problem_of
from densecrf.solvers.registry import REGISTRY

from .test_problem import COSTS, TREE, model

pytest.importorskip("densecrf._native")
pytestmark = pytest.mark.filterwarnings("ignore")

ANY = [name for name, method in REGISTRY.items() if method.compatibility == "any"]
#: Methods with a bound; the last two have none under tree costs.
BOUNDED = ("lp", "qp", "sg-lp", "cg-lp", "prox-lp", "prox-lp-l", "prox-lp-acc")
CASES = [("tree", name) for name in REGISTRY] + [("matrix", name) for name in ANY]


@pytest.mark.parametrize(("costs", "method"), CASES)
def test_other_costs_agree_with_numpy(costs, method, device):
    crf = model({"tree": TREE, "matrix": COSTS}[costs], shape=(6, 7))
    plain, ours = crf.solve(method), crf.solve(method, device=device)
    assert ours.info["device"] == str(device)
    assert ours.energy == pytest.approx(plain.energy, rel=1e-5)
    assert ours.energy == pytest.approx(crf.energy(ours.labels), rel=1e-6)
    assert (ours.labels == plain.labels).mean() > 0.95
    assert (ours.lower_bound is None) == (plain.lower_bound is None)
    if plain.lower_bound is not None:
        # Hard levels put a score at the edge of a level to either side.
        close = 1e-2 if method.startswith("prox-lp") else 1e-3
        assert ours.lower_bound == pytest.approx(plain.lower_bound, rel=close)


@pytest.mark.parametrize(
    ("method", "costs"), [(name, None) for name in BOUNDED] + [(name, TREE) for name in BOUNDED[:5]]
)
def test_dual_points_prove_the_same_bound_on_numpy_arrays(method, costs, device):
    crf = model(costs, shape=(6, 7))
    most = 5 if method in ("qp", "lp") else None  # the others' bounds come later
    result = crf.solve(method, device=device, keep_dual=True, max_iterations=most)
    assert result.dual is not None
    assert lower_bound(problem_of(crf), result.dual) == pytest.approx(result.lower_bound, rel=1e-5)
    checked = result.verify()
    assert checked.lower_bound == pytest.approx(result.lower_bound, abs=checked.tolerance)
    assert checked.energy == pytest.approx(result.energy, abs=checked.tolerance)


@pytest.mark.parametrize("costs", [None, TREE])
def test_pixels_are_proven_as_on_numpy_arrays(costs, device):
    crf = model(costs, shape=(6, 7))
    plain, ours = crf.solve("lp", gap=0.0), crf.solve("lp", gap=0.0, device=device)
    assert plain.optimal
    assert ours.optimal
    assert plain.proven.any()
    assert (ours.proven == plain.proven).mean() >= 0.95
    both = ours.proven & plain.proven
    np.testing.assert_array_equal(ours.labels[both], plain.labels[both])
    loose = crf.solve("lp", gap=0.5, max_iterations=1, device=device)
    assert loose.proven.mean() <= ours.proven.mean()


def test_fit_finds_the_same_model(device):
    start = Parameters(1.0, 0.2, 5.0, 20.0, 0.2)  # too weak for these scenes
    samples = [scene(seed) for seed in range(2)]
    settings = {"model": start, "folds": 0}
    plain, ours = (densecrf.fit(samples, device=where, **settings) for where in (None, device))
    assert plain.bilateral_weight > 1.4 * start.bilateral_weight
    for name in NUMBERS:
        assert getattr(ours, name) == pytest.approx(getattr(plain, name), rel=1e-6)


def scene(seed):
    """Return an image of two colours, noisy probabilities, and the truth."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((8, 10), int)
    truth[:, rng.integers(3, 7) :] = 1
    image = np.array([40, 200])[truth][..., None] + rng.normal(0, 5, (8, 10, 3))
    logits = 1.5 * rng.normal(size=(2, 8, 10))
    logits[truth, np.arange(8)[:, None], np.arange(10)] += 1.5
    p = np.exp(logits - logits.max(0))
    return image.clip(0, 255).astype(np.uint8), p / p.sum(0), truth
