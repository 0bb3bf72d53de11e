"""The default model follows the resolution of the scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

import densecrf
from densecrf.model.presets import PRESETS
from densecrf.model.resample import resize_bilinear
from densecrf.model.resolution import excess, measure, measure_parts, strength_of


def smooth(side: int, cells: int, labels: int = 3, seed: int = 0) -> np.ndarray:
    """Return energies of some labels that vary from cell to cell of a grid, enlarged."""
    x = np.arange(cells)
    phases = np.random.default_rng(seed).uniform(0, 6, (labels, 2))
    waves = [np.sin(x + a)[:, None] + np.cos(1.1 * x + b) for a, b in phases]
    return resize_bilinear(3 * np.array(waves), (side, side)).astype(np.float32)


FLAT = np.zeros((240, 240, 3), np.uint8)


@pytest.mark.parametrize("stride", [2, 3, 4, 6])
def test_the_grain_is_about_the_stride(stride):
    assert measure(smooth(240, 240 // stride), FLAT).grain == pytest.approx(stride, rel=0.25)


def test_probabilities_that_were_enlarged_have_the_same_grain():
    logits = smooth(60, 60)
    p = np.exp(-logits)
    enlarged = resize_bilinear(p / p.sum(0), (240, 240))
    as_energies = resize_bilinear(logits, (240, 240))
    ours, theirs = measure(-np.log(enlarged), FLAT).grain, measure(as_energies, FLAT).grain
    assert ours == pytest.approx(theirs, rel=0.3)


def test_a_known_factor_bounds_the_grain():
    unary = smooth(240, 40)
    assert measure(unary, FLAT, enlarged=2.0).grain == 2.0
    assert measure(unary, FLAT, enlarged=50.0) == measure(unary, FLAT)


def test_finer_scores_get_less_strength():
    strengths = [measure(smooth(240, 240 // d), FLAT).strength for d in (1, 2, 3, 4, 6)]
    assert strengths == sorted(strengths)
    assert strengths[1] < 0.25
    assert strengths[-1] == 1


def test_an_image_of_twice_the_size_has_the_same_strength():
    assert strength_of(3, 250) == strength_of(6, 500)
    assert strength_of(3, 1000) == strength_of(3, 5000)  # many scenes


@pytest.mark.parametrize(
    "unary",
    [
        3.0 * (np.arange(3)[:, None, None] != (np.arange(60) // 20)[None, :, None]) + np.zeros(60),
        np.random.default_rng(0).normal(0, 2, (3, 60, 60)),
        np.zeros((2, 60, 60)),
        np.zeros((2, 1, 60)),
    ],
    ids=["hard labels", "noise", "nothing", "a line"],
)
def test_scores_without_cells(unary):
    found = measure(unary, np.zeros(unary.shape[1:]))
    assert (found.grain, found.strength) == (2.0, 0.8)


def test_soft_maps_get_a_tenth_of_the_strength():
    unary = 0.2 * smooth(320, 20)
    assert measure(unary, np.zeros((320, 320))).strength == pytest.approx(0.1)
    assert measure(10 * unary, np.zeros((320, 320))).strength > 0.15


def test_a_sure_background_does_not_speak_for_a_small_unsure_object():
    inside = np.hypot(*(np.mgrid[:320, :320] - 160)) < 40
    cells = np.stack([1.0 - 0.8 * inside, 0.8 * inside])[:, 8::16, 8::16]
    p = resize_bilinear(0.99 * cells + 0.005, (320, 320))
    found = measure(-np.log(p), np.zeros((320, 320)))
    assert (p[0] > 0.9).mean() > 0.85  # the cube of this share would be 0.6
    assert found.strength < 0.2


def test_colours_follow_the_noise():
    rng = np.random.default_rng(0)
    unary = smooth(80, 20)
    found = [
        measure(unary, 128 + rng.normal(0, noise, (80, 80, 3))).sigma_color
        for noise in (0, 3, 6, 60)
    ]
    assert found[0] == 2.5
    assert found[1] < found[2]
    assert found[3] == 12


def test_parts_are_measured_as_a_whole():
    unary = smooth(240, 60)
    whole = measure(unary, FLAT)
    parts = [(unary[:, rows], FLAT[rows]) for rows in (slice(0, 120), slice(120, 240))]
    found = measure_parts(parts, (240, 240))
    assert found.grain == pytest.approx(whole.grain, rel=0.02)


def test_windows_of_a_large_image_are_like_all_of_it():
    unary = smooth(720, 180)
    image = np.random.default_rng(0).normal(128, 4, (720, 720))
    found = measure(unary, image)
    small = measure(smooth(480, 120), image[:480, :480])
    assert found.grain == pytest.approx(small.grain, rel=0.05)
    assert found.sigma_color == pytest.approx(small.sigma_color, rel=0.05)


def test_the_result_tells_every_number():
    scores = smooth(60, 30)[:, ::2, ::2]
    result = densecrf.refine(np.zeros((60, 60, 3), np.uint8), scores, kind="energies", axis=0)
    told = result.info["model"]
    assert told["sigma_xy"] == pytest.approx(8 * told["grain"])
    assert told["sigma"] == pytest.approx(told["grain"] / 4)
    assert told["bilateral_weight"] == pytest.approx(5 * told["strength"])
    assert told["sigma_color"] == 2.5
    text = str(result)
    assert f"strength {told['strength']:.2g}" in text
    assert "sigma_color 2.5" in text


def test_strength_multiplies_and_given_numbers_are_in_pixels():
    image, unary = FLAT, smooth(240, 60)
    options = {"kind": "energies", "axis": 0, "max_iterations": 1}
    once = densecrf.refine(image, unary, **options).info["model"]
    half = densecrf.refine(image, unary, strength=0.5, sigma_xy=7, **options).info["model"]
    assert half["weight"] == pytest.approx(0.5 * once["weight"])
    assert half["sigma_xy"] == 7


def test_input_without_hope_is_returned():
    unary = smooth(240, 240)
    result = densecrf.refine(FLAT, unary, kind="energies", axis=0)
    assert (result.labels == unary.argmin(0)).mean() > 0.99
    assert result.info["model"]["stands_aside"]
    assert "nearly the input" in str(result)
    helped = densecrf.refine(FLAT, smooth(240, 40), kind="energies", axis=0, max_iterations=1)
    assert "nearly the input" not in str(helped)


def test_weights_that_scores_do_not_bear_are_warned_of():
    unary = smooth(240, 120)
    with pytest.warns(densecrf.ArgumentWarning, match="times the usual ones for scores of this"):
        densecrf.refine(FLAT, unary, model="pydensecrf", kind="energies", axis=0)
    crf = PRESETS["default"].crf(unary, FLAT)
    assert excess(crf) is None


def test_the_margin_of_hard_labels_does_not_depend_on_their_number():
    labels = np.zeros((4, 5), int)
    labels[:, 2:] = 1
    for count in (2, 21):
        crf = densecrf.refinement.build(np.zeros((4, 5, 3), np.uint8), labels, n_labels=count)
        assert np.ptp(crf.unary, axis=0) == pytest.approx(3.0, abs=1e-5)


def test_a_volume_is_measured_along_all_axes():
    x = np.arange(12)
    field = np.sin(x)[:, None, None] + np.cos(1.1 * x)[:, None] + np.sin(0.9 * x)
    unary = resize_bilinear(np.array([field, -field]), (36, 36, 36))
    found = measure(unary, np.zeros((36, 36, 36)))
    assert found.grain == pytest.approx(3, rel=0.3)
    assert math.isfinite(found.strength)
