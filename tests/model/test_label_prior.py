"""The correction of unaries by the labels' shares in an image."""

from dataclasses import replace

import numpy as np
import pytest

import densecrf
from densecrf.model.label_prior import (
    LabelPrior,
    label_shares,
    prior_from_shares,
    without_label_offsets,
)
from densecrf.model.parameters import Parameters

PRIOR = LabelPrior((0.2, 0.3, 0.5), (0.5, 0.4, 0.3), (0.1, 0.0, -0.1))
PLAIN = Parameters(2, 1.0, 8, 30, 2.0)
KNOWING = replace(PLAIN, prior=PRIOR)


def image_and_unary(seed: int = 0):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 255, (9, 11, 3)).astype(np.uint8)
    return image, rng.normal(size=(3, 9, 11)).astype(np.float32)


def test_bayes_rule_with_full_trust():
    frequencies, shares = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    prior = LabelPrior(tuple(frequencies), (1.0,) * 3, (0.0,) * 3)
    p = np.array([0.5, 0.3, 0.2])
    corrected = np.exp(-(-np.log(p) + prior.energies(shares)))
    expected = p * (shares / frequencies + 0.1)
    np.testing.assert_allclose(corrected / corrected.sum(), expected / expected.sum(), rtol=1e-12)


def test_shares_are_mean_probabilities():
    _, unary = image_and_unary()
    flat = unary.reshape(3, -1)
    p = np.exp(-flat) / np.exp(-flat).sum(0)
    np.testing.assert_allclose(label_shares(flat), p.mean(1), rtol=1e-5)


def test_pixels_without_unaries_neither_count_nor_change():
    image, unary = image_and_unary()
    ignore = np.zeros(unary.shape[1:], bool)
    ignore[:4] = True
    crf = KNOWING.crf(unary, image, ignore=ignore)
    assert not crf.unary[:, ignore.reshape(-1)].any()
    others = unary.reshape(3, -1)[:, ~ignore.reshape(-1)]
    added = PRIOR.energies(label_shares(others)).astype(np.float32)
    np.testing.assert_allclose(
        crf.unary[:, ~ignore.reshape(-1)], others + added[:, None], rtol=1e-5, atol=1e-6
    )
    blank = KNOWING.crf(np.zeros_like(unary), image)
    assert not blank.unary.any()


def test_changes_are_counted_from_what_the_network_said():
    image, unary = image_and_unary()
    model = replace(KNOWING, weight=0.0, bilateral_weight=0.0)
    result = model.crf(unary, image).solve("lp")
    given = without_label_offsets(result.crf, result.crf.label_offsets)
    np.testing.assert_allclose(given, unary.reshape(3, -1), atol=1e-6)
    before = unary.argmin(0)
    assert result.changes.changed == (result.labels != before).sum() > 0
    assert result.changes.area_before == tuple(np.bincount(before.reshape(-1), minlength=3))


def test_strength_zero_leaves_the_input():
    image, unary = image_and_unary()
    result = KNOWING.scaled(0.0).crf(unary, image).solve("lp")
    np.testing.assert_array_equal(result.labels, unary.argmin(0))


def test_a_data_set_of_like_images_or_of_one_corrects_nothing():
    same = np.array([0.7, 0.2, 0.1])
    for shares in ([same], [same] * 5):
        prior = prior_from_shares(shares)
        np.testing.assert_allclose(prior.energies(same), 0, atol=1e-12)
        np.testing.assert_allclose(prior.energies(same[::-1].copy()), 0, atol=1e-12)


def test_a_label_never_seen_has_no_say():
    prior = prior_from_shares([np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])])
    assert prior.frequencies[2] > 0
    assert prior.trust[2] == 0
    assert prior.trust[0] > 0.1


def test_another_number_of_labels_is_refused():
    image, unary = image_and_unary()
    with pytest.raises(ValueError, match="has prior for 3 labels, but there are 2; make one"):
        KNOWING.crf(unary[:2], image)


def test_two_labels(tmp_path):
    image, unary = image_and_unary()
    prior = LabelPrior((0.9, 0.1), (0.5, 0.5), (0.0, 0.5))
    file = tmp_path / "two.json"
    densecrf.model.presets.write_parameters(
        file, replace(PLAIN, prior=prior, label_costs=(1.0, 0.4))
    )
    model = densecrf.model.presets.read_parameters(file)
    assert model.prior == prior
    result = densecrf.refine(image, unary[:2], model=file, kind="energies", axis=0)
    assert model.crf(unary[:2], image).energy(result.labels) == pytest.approx(result.energy)


def test_the_layer_has_the_same_energy():
    torch = pytest.importorskip("torch")
    import densecrf.torch

    image, logits = image_and_unary(3)
    layer = densecrf.torch.DenseCRF.from_model(KNOWING, shape=image.shape[:2], method="mf5")
    pixels = torch.from_numpy(image.transpose(2, 0, 1).copy())[None].float()
    here = layer.solve(logits=torch.from_numpy(logits)[None], image=pixels, method="mf5")
    there = densecrf.refine(image, logits, model=KNOWING, kind="logits", axis=0, method="mf5")
    assert here.energy[0] == pytest.approx(there.energy, rel=2e-3)
    two = torch.from_numpy(np.stack([logits, -logits]))
    each = [layer(logits=one[None], image=pixels) for one in two]
    both = layer(logits=two, image=torch.cat([pixels, pixels]))
    torch.testing.assert_close(both, torch.cat(each), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="prior for 3 labels"):
        layer.solve(logits=torch.zeros(1, 4, 9, 11), image=pixels)
