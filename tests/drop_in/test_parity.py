"""Existing scripts give the numbers that they gave with pydensecrf."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import densecrf.drop_in.pydensecrf.densecrf as ours
from densecrf.drop_in.pydensecrf import eigen as our_eigen
from densecrf.drop_in.pydensecrf import utils as our_utils
from densecrf.io import Dataset

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("pydensecrf_scripts", HERE / "scripts.py")
scripts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scripts)

RECORDED = json.loads((HERE / "recorded.json").read_text())


def assert_same(ours_, theirs):
    """The promise: marginals within 1e-3, labels equal at 99.9 % of the pixels."""
    assert np.abs(ours_ - theirs).max() < 1e-3
    assert (ours_.argmax(0) == theirs.argmax(0)).mean() >= 0.999


@pytest.mark.parametrize("iterations", [5, 10])
@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_script_matches_the_recorded_numbers(name, iterations):
    q = scripts.SCRIPTS[name](ours, our_utils, iterations)
    expected = RECORDED[f"{name}/{iterations}"]
    assert list(q.shape) == expected["shape"]
    assert np.abs(q.ravel()[:: scripts.EVERY] - expected["marginals"]).max() < 1e-3
    counts = np.bincount(q.argmax(0).ravel(), minlength=len(q))
    assert np.abs(counts - expected["label_counts"]).sum() <= 2e-3 * counts.sum()


@pytest.mark.parametrize("iterations", [5, 10])
@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_script_matches_pydensecrf(name, iterations, pydensecrf):
    theirs = scripts.SCRIPTS[name](pydensecrf.densecrf, pydensecrf.utils, iterations)
    assert_same(scripts.SCRIPTS[name](ours, our_utils, iterations), theirs)


def test_divergence_matches_pydensecrf(pydensecrf):
    scripts.stepwise(pydensecrf.densecrf, pydensecrf.utils)
    theirs = scripts.stepwise.divergences
    scripts.stepwise(ours, our_utils)
    np.testing.assert_allclose(scripts.stepwise.divergences, theirs, rtol=1e-4)


def test_divergence_matches_the_recorded_numbers():
    scripts.stepwise(ours, our_utils, 10)
    np.testing.assert_allclose(
        scripts.stepwise.divergences, RECORDED["stepwise/divergences"], rtol=1e-4
    )


@pytest.mark.parametrize("normalization", range(4))
@pytest.mark.parametrize("name", ["10_19_s", "12_5_s", "1_2_s", "6_21_s"])
def test_real_images_match_pydensecrf(name, normalization, pydensecrf, shared_data):
    sample = Dataset.open(shared_data / "msrc").items[name].load()
    h, w = sample.image.shape[:2]
    unary = np.ascontiguousarray(sample.scores.energies().reshape(21, -1))
    smooth, bilateral = (3, 10) if normalization else (0.03, 0.01)
    for iterations in (5, 10):
        q = []
        for module in (ours, pydensecrf.densecrf):
            d = module.DenseCRF2D(w, h, 21)
            d.setUnaryEnergy(unary)
            way = module.NormalizationType(normalization)
            d.addPairwiseGaussian(3, smooth, normalization=way)
            d.addPairwiseBilateral(60, 13, sample.image, bilateral, normalization=way)
            q.append(np.array(d.inference(iterations)))
        assert_same(*q)


LABELS = np.array([[0, 1, 2], [2, 1, 0]])
SOFTMAX = np.array([[[0.2, 0.0, 1.0]], [[0.8, 1.0, 0.0]]])
CALLS = {
    "labels": lambda u: u.unary_from_labels(LABELS, 2, 0.7),
    "labels from zero": lambda u: u.unary_from_labels(LABELS, 3, 0.9, zero_unsure=False),
    "softmax": lambda u: u.unary_from_softmax(SOFTMAX),
    "softmax scaled": lambda u: u.unary_from_softmax(SOFTMAX, scale=0.7),
    "softmax clipped": lambda u: u.unary_from_softmax(SOFTMAX, scale=0.5, clip=0.3),
    "positions": lambda u: u.create_pairwise_gaussian((2, 3, 4), (2, 3, 2)),
    "colours": lambda u: u.create_pairwise_bilateral(
        (2, 3), (1, 2, 3), scripts.photograph(), chdim=2
    ),
    "colours first": lambda u: u.create_pairwise_bilateral(
        (2, 3), 7, scripts.photograph().transpose(2, 0, 1), chdim=0
    ),
    "grey": lambda u: u.create_pairwise_bilateral((2, 3), (2,), scripts.photograph()[..., 0]),
}


#: Numbers whose type decides the precision of the division.
DEVIATIONS = {
    "float": (10.1, 11.3),
    "float64": (np.float64(10.1), np.float64(11.3)),
    "float64 array": np.array([10.1, 11.3]),
    "float32 array": np.array([10.1, 11.3], np.float32),
    "int64": (np.int64(7), np.int64(11)),
}
CALLS |= {
    f"positions over {kind}": lambda u, s=s: u.create_pairwise_gaussian(s, (23, 29))
    for kind, s in DEVIATIONS.items()
}
CALLS |= {
    f"colours over {kind}": lambda u, s=s: u.create_pairwise_bilateral(
        s, [*s, s[0]], scripts.photograph() + 0.123, chdim=2
    )
    for kind, s in DEVIATIONS.items()
}
#: Accepted by the original; the facade does the same, and warns.
WARNED_CALLS = {
    "a channel axis that is not named": (
        lambda u: u.create_pairwise_bilateral((10,) * 3, (5,), np.ones((1, 4, 5, 6)), -1),
        "only the first 3 of the 4 axes",
    ),
    "label -1": (
        lambda u: u.unary_from_labels(LABELS - 1, 3, 0.7, zero_unsure=False),
        "count from the last label",
    ),
    "label -1, zero unsure": (
        lambda u: u.unary_from_labels(LABELS - 1, 3, 0.7),
        "count from the last label",
    ),
    "one label": (
        lambda u: u.unary_from_labels(np.minimum(LABELS, 1), np.int64(1), 0.7),
        "with one label all pixels have it",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_utils_match_pydensecrf(name, pydensecrf):
    theirs, mine = CALLS[name](pydensecrf.utils), CALLS[name](our_utils)
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
    assert mine.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", WARNED_CALLS)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_warned_utils_match_pydensecrf(name, pydensecrf):
    call, word = WARNED_CALLS[name]
    with pytest.warns(UserWarning, match=word):
        mine = call(our_utils)
    np.testing.assert_array_equal(mine, call(pydensecrf.utils))


MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("matrixXf", MATRIX),
        ("vectorXf", MATRIX[0]),
        ("matrixXf", MATRIX.astype(float)),
        ("vectorXf", MATRIX[0].astype(int)),
        ("matrixXf", MATRIX[0]),
        ("matrixXf", None),
        ("vectorXf", [1.0, 2.0]),
    ],
)
def test_conversions_of_eigen_match_pydensecrf(name, given, pydensecrf):
    def outcome(module):
        try:
            return np.array(getattr(module, name)(given)).tolist()
        except (TypeError, ValueError) as error:
            return TypeError if isinstance(error, TypeError) else ValueError

    assert outcome(our_eigen) == outcome(pydensecrf.eigen)


def test_constants_match_pydensecrf(pydensecrf):
    for name in ours.KernelType.__members__.keys() | ours.NormalizationType.__members__.keys():
        assert int(getattr(ours, name)) == int(getattr(pydensecrf.densecrf, name))
