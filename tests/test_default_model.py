"""The default model: it keeps what it is given, at any resolution, on any data set at hand."""

import numpy as np
import pytest

import densecrf
from densecrf import ArgumentWarning
from densecrf.experiments.metrics import accuracy, confusion_matrix, mean_iou
from densecrf.io import Dataset

skimage = pytest.importorskip("skimage")


def iou(first: np.ndarray, second: np.ndarray) -> float:
    return float((first & second).sum() / (first | second).sum())


def ellipse(shape: tuple[int, ...], center: tuple[int, int], radii: tuple[int, int]) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]]
    return ((y - center[0]) / radii[0]) ** 2 + ((x - center[1]) / radii[1]) ** 2 < 1


@pytest.mark.parametrize(
    ("photograph", "center", "radii"),
    [("astronaut", (150, 230), (140, 90)), ("chelsea", (150, 220), (120, 150))],
)
def test_a_mask_with_noise_stays_a_mask(photograph, center, radii):
    image = getattr(skimage.data, photograph)()
    mask = ellipse(image.shape, center, radii)
    noisy = mask ^ (np.random.default_rng(0).random(mask.shape) < 0.02)
    result = densecrf.refine(image, noisy.astype(int), n_labels=2, gap=1e-2)
    assert iou(result.labels == 1, mask) > max(0.95, iou(noisy, mask))
    assert result.changes.changed < 0.06 * mask.size


def blobs(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image and probabilities of three labels, the same scene at any resolution."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    y, x = (y + 0.5) / shape[0], (x + 0.5) / shape[1]
    sky, disk = y < 0.4, (y - 0.6) ** 2 + (x - 0.3) ** 2 < 0.04
    colors = np.where(sky[..., None], (120, 160, 220), (80, 120, 60))
    colors = np.where(disk[..., None], (180, 60, 50), colors)
    shade = 12 * np.sin(9 * x + 4 * y)[..., None]
    # The scores are shifted against the image, as a coarse network's are.
    scores = [np.tanh(6 * (0.43 - y)), np.tanh(6 * (y - 0.43)) - 0.2]
    scores.append(1.5 - 25 * ((y - 0.57) ** 2 + (x - 0.33) ** 2))
    p = np.exp(2 * np.array(scores))
    return (colors + shade).clip(0, 255).astype(np.uint8), p / p.sum(0)


def test_labels_do_not_depend_on_the_resolution():
    results = {}
    for times in (1, 2, 4):
        image, p = blobs((60 * times, 80 * times))
        results[times] = densecrf.refine(image, p, gap=1e-3).labels
    changed = results[2] != blobs((120, 160))[1].argmax(0)
    assert changed.mean() > 0.01  # something was refined
    assert (results[1] == results[2][::2, ::2]).mean() > 0.98
    assert (results[2] == results[4][::2, ::2]).mean() > 0.98


def test_strength_goes_from_the_input_to_the_model():
    image, p = blobs((60, 80))
    changed = [
        densecrf.refine(image, p, strength=strength, gap=1e-3).changes.changed
        for strength in (0, 0.3, 1)
    ]
    assert changed[0] == 0
    assert changed == sorted(changed)
    assert changed[-1] > 0


def test_strong_weights_warn_and_the_default_is_silent(recwarn):
    image, p = blobs((60, 80))
    densecrf.refine(image, p)
    assert not recwarn
    with pytest.warns(ArgumentWarning, match=r"takes all .*strength=0\.5"):
        densecrf.refine(image, p, model="pydensecrf", sigma=60, weight=1000)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split"), [("msrc", "val"), ("camvid", "val")])
def test_the_default_does_not_hurt(shared_data, name, split):
    dataset = Dataset.open(shared_data / name)
    before, after = [], []
    for item in dataset.names(split)[::4]:
        sample = dataset.items[item].load()
        unary = sample.scores.energies()
        result = densecrf.refine(sample.image, unary, kind="energies", axis=0, gap=1e-2)
        count = len(dataset.palette)
        before.append(confusion_matrix(unary.argmin(0), sample.labels, count))
        after.append(confusion_matrix(result.labels, sample.labels, count))
    assert accuracy(np.sum(after, 0)) >= accuracy(np.sum(before, 0))
    assert mean_iou(np.sum(after, 0)) >= mean_iou(np.sum(before, 0)) - 0.003
