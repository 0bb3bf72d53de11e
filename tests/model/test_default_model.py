"""What the default model does to a photograph: it keeps a good mask, at any resolution."""

import warnings

import numpy as np
import pytest

import densecrf

data = pytest.importorskip("skimage.data")
transform = pytest.importorskip("skimage.transform")

SIDE = 128


@pytest.fixture(scope="module")
def photograph() -> np.ndarray:
    """Return an astronaut before a flag and a shuttle: texture and colours of all kinds."""
    return np.ascontiguousarray(data.astronaut()[:384, 64:448])


def sized(image: np.ndarray, side: int) -> np.ndarray:
    small = transform.resize(image, (side, side), anti_aliasing=True, preserve_range=True)
    return small.round().astype(np.uint8)


def portrait(side: int) -> np.ndarray:
    """Return a mask of head and shoulders, as somebody would draw it."""
    y, x = (np.mgrid[:side, :side] + 0.5) / side
    head = ((x - 0.42) / 0.15) ** 2 + ((y - 0.3) / 0.24) ** 2 < 1
    shoulders = ((x - 0.45) / 0.42) ** 2 + ((y - 1.0) / 0.5) ** 2 < 1
    return head | shoulders


def overlap(labels: np.ndarray, truth: np.ndarray) -> float:
    return float((labels & truth).sum() / (labels | truth).sum())


@pytest.mark.parametrize("seed", range(2))
def test_a_mask_with_independent_noise_is_kept(photograph: np.ndarray, seed: int) -> None:
    truth = portrait(SIDE)
    flipped = np.random.default_rng(seed).random(truth.shape) < 0.02
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = densecrf.refine(sized(photograph, SIDE), (truth ^ flipped).astype(np.uint8))
    assert overlap(result.labels.astype(bool), truth) >= 0.95


def test_labels_of_coarse_scores_agree_at_once_and_twice_the_resolution(
    photograph: np.ndarray,
) -> None:
    rng = np.random.default_rng(0)
    coarse = rng.normal(size=(3, 8, 8))  # a network at a low resolution
    coarse[portrait(8).astype(int), np.arange(8)[:, None], np.arange(8)] += 3
    found = {}
    for side in (192, 384):
        labels = densecrf.refine(sized(photograph, side), coarse, kind="logits", axis=0).labels
        found[side] = labels.repeat(384 // side, 0).repeat(384 // side, 1)
    assert len(np.unique(found[192])) > 1
    assert (found[384] != found[192]).mean() < 0.02
