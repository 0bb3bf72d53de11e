"""The baselines on the two images of the paper's authors, against measured energies."""

import numpy as np
import pytest

import densecrf

# The paper's weights for DC, over ordered pairs, doubled for unordered ones.
SPATIAL = (3.535267, 2 * 2.247081)
BILATERAL = (31.232626, 7.949970, 2 * 1.699011)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the constant labelling"),
]


@pytest.fixture(scope="module", params=["2_14_s", "4_11_s"])
def name(request):
    return request.param


@pytest.fixture(scope="module", params=["symmetric", "none"])
def normalization(request):
    return request.param


@pytest.fixture(scope="module")
def results(shared_data, name, normalization):
    """Return every method's result on one image under one normalisation."""
    with np.load(shared_data / "msrc_paper" / f"{name}.npz") as data:
        image, unary = data["image"], data["unary"]
    if unary.shape[-1] == 21:
        unary = np.moveaxis(unary, -1, 0)
    kernels = [densecrf.Spatial(*SPATIAL), densecrf.Bilateral(image, *BILATERAL)]
    crf = densecrf.DenseCRF(unary, kernels, normalization)
    methods = ("unary", "mf5", "qp", "dc-neg", "sg-lp", "cg-lp")
    found = {method: crf.solve(method) for method in methods}
    found["dc-neg from unaries"] = crf.solve("dc-neg", init="unary")
    return found


def test_energies_are_no_higher_than_measured_before(results, name, normalization):
    """Energies that a first implementation of the same methods reached, with a little room."""
    known = {
        ("2_14_s", "symmetric"): {"mf5": 161_483, "qp": 161_300, "dc-neg": 160_829},
        ("4_11_s", "symmetric"): {"mf5": 162_079, "qp": 159_900, "dc-neg": 159_620},
        ("2_14_s", "none"): {"dc-neg": 1_197_500, "dc-neg from unaries": 817_490},
        # dc-neg ends at 816,542 or 849,194 here: the last bits decide between local optima.
        ("4_11_s", "none"): {"dc-neg": 850_000, "dc-neg from unaries": 922_800},
    }[name, normalization]
    for method, energy in known.items():
        assert results[method].energy <= energy * (1 + 1e-5), method


def test_no_bound_is_above_any_energy(results):
    lowest = min(result.energy for result in results.values())
    lowest = min(lowest, results["unary"].best_constant[1])
    bounds = [result.lower_bound for result in results.values() if result.lower_bound is not None]
    assert len(bounds) == 3
    assert max(bounds) <= lowest


def test_each_relaxation_improves_on_what_it_starts_from(results):
    assert results["dc-neg"].energy <= results["qp"].energy
    for method in ("sg-lp", "cg-lp"):
        assert results[method].energy <= results["dc-neg"].energy * (1 + 1e-6)


def test_objectives_never_rise(results):
    for method in ("qp", "dc-neg", "dc-neg from unaries"):
        relaxed = np.array(results[method].trace.relaxed[1:], float)
        assert (np.diff(relaxed) <= 2e-6 * np.abs(relaxed[:-1])).all(), method
