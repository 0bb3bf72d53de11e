"""What users of dense CRFs ask most, each with the words that they get here.

The rows follow the questions of the peers' trackers: shapes and order of axes, NaN, void and unsure
labels, one-label results, tiny standard deviations, ranges of images. Every message names the
argument, what is wrong with it, and what to do.
"""

from __future__ import annotations

import numpy as np
import pytest

import densecrf
import densecrf.drop_in.pydensecrf.densecrf as dcrf
from densecrf.model.parameters import Parameters

pytestmark = pytest.mark.filterwarnings("ignore:the constant labelling")

H, W, L = 12, 16, 3
RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (H, W, 3), dtype=np.uint8)
P = RNG.dirichlet(np.ones(L), (H, W)).transpose(2, 0, 1).astype(np.float32)
LABELS = P.argmax(0)


def with_value(value):
    spoiled = P.copy()
    spoiled[0, 2, 3] = value
    return spoiled


REFUSED = {
    "height and width swapped": (
        (IMAGE, P.swapaxes(1, 2)),
        {},
        r"shape \(3, 16, 12\) .* height and width look swapped \(numpy.swapaxes\)",
    ),
    "image and probabilities swapped": (
        (P, IMAGE),
        {},
        r"the arguments look swapped, the image comes first|the arguments being swapped",
    ),
    "pixels in one row, as for the original": (
        (IMAGE, P.reshape(L, -1)),
        {},
        r"probabilities: shape \(3, 192\) does not fit an image of shape \(12, 16, 3\); give",
    ),
    "lower resolution, out of proportion": (
        (IMAGE, P[:, ::2, ::3]),
        {},
        r"resized when you name its label axis by axis=",
    ),
    "NaN from a network": (
        (IMAGE, with_value(np.nan)),
        {},
        r"1 of 576 values are not finite, the first is nan at \(0, 2, 3\); clean them first",
    ),
    "infinity from log(0)": (
        (IMAGE, with_value(np.inf)),
        {},
        r"1 of 576 values are not finite, the first is inf at \(0, 2, 3\); clean them first",
    ),
    "NaN in the image": (
        (np.where(IMAGE > 250, np.nan, IMAGE), P),
        {},
        r"image: \d+ of 576 values are not finite",
    ),
    "255 that is not void": (
        (IMAGE, np.where(LABELS == 2, 255, LABELS)),
        {"void": None, "n_labels": 3},
        r"probabilities: value 255 is neither a label 0 … 2 nor void",
    ),
    "labels from 1": (
        (IMAGE, LABELS + 1),
        {"n_labels": 3},
        r"probabilities: value 3 is neither a label 0 … 2 nor void",
    ),
    "nothing but void": (
        (IMAGE, np.full((H, W), 255)),
        {"n_labels": 3},
        r"every pixel is void \(\[255\]\); nothing is known",
    ),
    "a normalised image": (
        ((IMAGE / 255 - 0.45) / 0.22, P),
        {},
        r"values from -2.* colour standard deviations are for 0 to 255.*image_range=",
    ),
    "sigmoids": (
        (IMAGE, np.full_like(P, 0.9)),
        {},
        r"do not add up to 1.*divide them by their sum.*or logits \(kind='logits'\)",
    ),
    "a tiny spatial sigma": (
        (IMAGE, P),
        {"model": Parameters(sigma=1e-8)},
        r"sigma=1e-08: .*give 1.1e-05 or greater",
    ),
    "a tiny colour sigma": (
        (IMAGE, P),
        {"model": Parameters(sigma_color=1e-8)},
        r"sigma_color=1e-08: .*give 0.000\d+ or greater",
    ),
    "a sigma of zero": (
        (IMAGE, P),
        {"model": Parameters(sigma_xy=0)},
        r"sigma_xy=0: must be a finite number greater than 0",
    ),
}


@pytest.mark.parametrize("question", REFUSED)
def test_refused_with_what_to_do(question):
    arguments, options, message = REFUSED[question]
    with pytest.raises(ValueError, match=message):
        densecrf.refine(*arguments, method="mf5", **options)


ACCEPTED = {
    "double precision": P.astype(np.float64),
    "half precision": P.astype(np.float16),
    "Fortran order": np.asfortranarray(P),
    "a view with strides": np.moveaxis(np.ascontiguousarray(np.moveaxis(P, 0, -1)), -1, 0),
    "labels last": np.moveaxis(P, 0, -1),
    "a batch of one": P[None],
}


@pytest.mark.parametrize("given", ACCEPTED)
def test_layouts_that_the_original_refuses_are_the_same_problem(given):
    expected = densecrf.refine(IMAGE, P, method="mf5").labels
    labels = densecrf.refine(IMAGE, ACCEPTED[given], method="mf5").labels
    assert (labels == expected).mean() > 0.99  # half precision rounds


def test_probabilities_of_zero_are_no_infinities():
    sure = (np.arange(L)[:, None, None] == LABELS).astype(np.float32)
    assert np.isfinite(densecrf.refine(IMAGE, sure, method="mf5").energy)


def test_label_zero_as_unsure_is_never_an_answer():
    unsure = LABELS + 1
    unsure[:3] = 0
    result = densecrf.refine(IMAGE, unsure, void=0, method="mf5")
    assert set(np.unique(result.labels)) <= {1, 2, 3}


def test_one_label_everywhere_is_explained():
    weak = np.full((L, H, W), 1 / L, np.float32) + 0.01 * (np.arange(L) == 0)[:, None, None]
    weak[:, ::2] = weak[[1, 0, 2]][:, ::2]  # every other row prefers another label
    strong = Parameters(weight=300, bilateral_weight=300)
    with pytest.warns(UserWarning, match=r"the constant labelling \d has energy .*lower"):
        densecrf.refine(IMAGE, weak / weak.sum(0), model=strong, method="unary")
    result = densecrf.refine(IMAGE, weak / weak.sum(0), model=strong)
    assert len(np.unique(result.labels)) == 1
    assert result.best_constant[1] == pytest.approx(result.energy, rel=1e-6)
    assert "for scale    all pixels labelled" in str(result)


def test_the_drop_in_modules_say_it_too():
    d = dcrf.DenseCRF2D(W, H, L)
    with pytest.raises(ValueError, match=r"3, 16, 12.*"):
        d.setUnaryEnergy(-np.log(P.swapaxes(1, 2)))
    d.setUnaryEnergy(-np.log(P))  # (L, H, W), where the original asks for (L, H * W)
    with pytest.raises(ValueError, match=r"sxy.*1e-08.*"):
        d.addPairwiseGaussian(sxy=1e-8, compat=3)
