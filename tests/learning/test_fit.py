"""Models from labelled images: what is better on images left out is taken."""

from dataclasses import replace

import numpy as np
import pytest

from densecrf import fit
from densecrf.model.parameters import Parameters

START = Parameters(1.0, 1.0, 5.0, 20.0, 1.0)


def sample(seed: int, noise: float = 1.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an image of two colours, noisy probabilities of three labels, and the truth."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((16, 20), int)
    truth[:, rng.integers(6, 14) :] = 1
    truth[rng.integers(2, 12) :, :4] = 2
    image = np.array([40, 120, 220])[truth][..., None] + rng.normal(0, 5, (16, 20, 3))
    logits = noise * rng.normal(size=(3, 16, 20))
    logits[truth, np.arange(16)[:, None], np.arange(20)] += 1.5
    p = np.exp(logits - logits.max(0))
    return image.clip(0, 255).astype(np.uint8), p / p.sum(0), truth


def test_a_stronger_model_is_found_where_it_helps() -> None:
    told = []
    model = fit(
        [sample(seed) for seed in range(6)],
        model=START,
        folds=3,
        report=lambda *values: told.append(values),
    )
    assert model.provenance["chosen"] == "searched"
    assert model.weight + model.bilateral_weight > START.weight + START.bilateral_weight
    gain = model.provenance["held_out"]["searched minus input"]["iou"]["gain"]
    assert gain > model.provenance["held_out"]["start minus input"]["iou"]["gain"]
    assert {values[0] for values in told} >= {"search", "fold 1 of 3"}


def test_two_runs_give_the_same_model() -> None:
    samples = [sample(seed) for seed in range(3)]
    first = fit(samples, model=START, folds=0, threads=1)
    second = fit(samples, model=START, folds=0, threads=2, jobs=2)
    assert first == second
    assert first.provenance == second.provenance


def test_no_better_on_held_out_images_keeps_the_start() -> None:
    rng = np.random.default_rng(5)
    samples = [sample(seed) for seed in range(4)]
    # Truth that has nothing to do with image or probabilities: nothing can be learned.
    samples = [(image, p, rng.integers(0, 3, truth.shape)) for image, p, truth in samples]
    model = fit(samples, model=START, folds=4)
    assert model.provenance["chosen"] == "start"
    assert replace(model, about=START.about) == START


def test_the_input_is_taken_where_smoothing_hurts() -> None:
    def fine(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        truth = np.random.default_rng(seed).integers(0, 2, (16, 20))
        p = np.where(truth == 1, 0.3, 0.7)
        return np.zeros((16, 20, 3), np.uint8), np.stack([p, 1 - p]), truth

    strong = replace(START, bilateral_weight=20.0)
    model = fit([fine(seed) for seed in range(6)], model=strong, folds=3)
    assert model.provenance["chosen"] in ("input", "searched")
    assert model.weight + model.bilateral_weight < 2


def test_one_image_keeps_the_start() -> None:
    assert fit([sample(0)], model=START).provenance["chosen"] == "start"


def test_truth_of_bytes_with_void_is_read() -> None:
    image, p, truth = sample(0)
    truth = truth.astype(np.uint8)
    truth[:8] = 255
    model = fit([(image, p, truth)] * 2, model=START, folds=0)
    assert model.provenance["images"] == 2


def test_how_to_read_is_passed_on() -> None:
    samples = [(image, np.log(p.transpose(1, 2, 0)), t) for image, p, t in map(sample, range(2))]
    found = fit(samples, model=START, folds=0, kind="logits", axis=-1)
    same = fit([sample(0), sample(1)], model=START, folds=0)
    assert found.provenance["strength"] == same.provenance["strength"]


def test_an_interrupt_keeps_the_model_so_far() -> None:
    def stop(stage: str, tried: int, accuracy: float, iou: float) -> None:
        if tried == 3:
            raise KeyboardInterrupt

    model = fit([sample(seed) for seed in range(2)], model=START, report=stop)
    assert model.provenance["interrupted"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda i, p, _: (i, p), "give .image, probabilities, true labels."),
        (lambda i, p, t: (i, p, t[:4]), r"samples\[1\]: true labels of shape"),
        (lambda i, p, t: (i, p, t + 1), "true label 3 is not among the 3 labels"),
        (lambda i, p, t: (i, np.where(p > 0.5, np.nan, p), t), r"samples\[1\]: "),
        (lambda i, p, t: (i, p[:2] / p[:2].sum(0), np.minimum(t, 1)), "give samples of one number"),
    ],
)
def test_a_wrong_sample_is_named(wrong, says: str) -> None:
    good = sample(0)
    with pytest.raises(ValueError, match=says):
        fit([good, wrong(*good)], model=START)


def test_nothing_known_is_refused() -> None:
    image, p, truth = sample(0)
    with pytest.raises(ValueError, match="all true labels are void"):
        fit([(image, p, np.full_like(truth, 255))], model=START)


def test_one_image_cannot_be_checked() -> None:
    kept = fit([sample(0)], model=START)
    assert "one image cannot be checked" in kept.provenance["verdict"]
    assert replace(kept, about=START.about) == START
    learned = fit([sample(0)], model=START, folds=0)
    assert "verdict" not in learned.provenance
    assert learned.weight != START.weight


@pytest.mark.parametrize("gap", [-1e-3, 1.0, float("nan"), "much"])
def test_the_accuracy_of_the_inference_is_a_fraction(gap) -> None:
    with pytest.raises(ValueError, match="gap="):
        fit([sample(0)], gap=gap)
