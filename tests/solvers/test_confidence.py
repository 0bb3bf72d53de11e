"""Confidences and estimated margins, against energies of single changes."""

import pickle

import numpy as np
import pytest
import torch

import densecrf
from densecrf.torch import DenseCRF as Layer
from oracles import dense_pairwise, energies, label_costs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def problem(seed, compatibility=None):
    rng = np.random.default_rng(seed)
    unary, features = rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    kernels = [densecrf.Features(features, weight=0.7)]
    return densecrf.DenseCRF(unary, kernels, filter="exact", compatibility=compatibility)


@pytest.mark.parametrize("tree", [None, densecrf.LabelTree(4, [([0, 1], 0.5)])])
def test_the_estimate_is_the_best_single_change(tree):
    for seed in range(5):
        crf = problem(seed, tree)
        result = crf.solve("lp", gap=0.0)
        table = energies(crf)
        own = table[tuple(result.labels)]
        for a in range(crf.n):
            changed = [table[(*result.labels[:a], i, *result.labels[a + 1 :])] for i in range(4)]
            best = min(energy for i, energy in enumerate(changed) if i != result.labels[a]) - own
            assert result.margin_estimate[a] == pytest.approx(best, abs=1e-5)
        assert (result.margin <= result.margin_estimate + 1e-5).all()


def test_confidence_is_the_softmax_of_the_pixels_share_of_the_energy():
    for seed in range(5):
        crf = problem(seed)
        result = crf.solve("mf5")  # of any method
        one = (np.arange(4)[:, None] == result.labels).astype(float)
        share = crf.unary + 0.5 * label_costs(crf) @ one @ dense_pairwise(crf)
        p = np.exp(-share) / np.exp(-share).sum(0)
        np.testing.assert_allclose(result.confidence, p[result.labels, range(5)], rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8])
def test_confidence_is_within_0_and_1(scale):
    unary = scale * np.random.default_rng(0).normal(size=(3, 4, 5))
    result = densecrf.DenseCRF(unary, [densecrf.Spatial(1.0, 1.0)]).solve("lp")
    assert result.confidence.shape == (4, 5)
    assert result.confidence.min() > 0
    assert result.confidence.max() < 1


def test_unsure_pixels_are_255():
    result = densecrf.DenseCRF([[0.0, 0.0, 9.0], [3.0, 0.1, 0.0]]).solve()
    assert result.confident(0.9).tolist() == [0, 255, 1]
    assert result.confident(0.9, unsure=-1).tolist() == [0, -1, 1]
    assert result.confident(0.5).tolist() == [0, 0, 1]
    assert result.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"threshold": 95}, "threshold=95: must be between 0 and 1"),
        ({"threshold": float("nan")}, "threshold=nan: must be between 0 and 1"),
        ({"unsure": 1}, "unsure=1: is one of the 2 labels"),
        ({"unsure": 1e9}, "unsure=1000000000.0: must be a whole number"),
        ({"unsure": -2}, "unsure=-2: must be -1 or greater"),
    ],
)
def test_bad_thresholds_and_values_are_refused(arguments, said):
    with pytest.raises(densecrf.ArgumentError, match=said):
        densecrf.DenseCRF(np.eye(2)).solve().confident(**arguments)


def test_a_result_without_a_model_says_so(tmp_path):
    result = densecrf.DenseCRF(np.eye(2)).solve()
    result.save(tmp_path / "result.npz")
    with pytest.raises(densecrf.ArgumentError, match=r"has no model .* before saving"):
        densecrf.Result.load(tmp_path / "result.npz").confident()
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.confidence, result.confidence)


def test_results_of_tiles_say_where_confidences_are():
    image = np.zeros((8, 12, 3), np.uint8)
    result = densecrf.large.refine(image, np.full((2, 8, 12), 0.5), tile=8, sigma_xy=2)
    with pytest.raises(AttributeError, match="'confident': not available with tiles"):
        result.confident(0.95)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        result.nothing  # noqa: B018


def test_batches_of_tensors_have_margins():
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 6, 7))).float()
    image = torch.zeros(2, 3, 6, 7)
    found = Layer().solve(logits=logits, image=image, method="lp")
    assert [each.shape for each in found.margin] == [(6, 7), (6, 7)]
    assert Layer().solve(logits=logits, image=image, method="mf5").margin == [None, None]
