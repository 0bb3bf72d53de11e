"""Large-margin learning on small images: certificates, determinism, prudence."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("clarabel")

from densecrf import fit
from densecrf.learning.examples import make_examples, reduced
from densecrf.learning.fit import fit_examples
from densecrf.learning.oracle import Oracle
from densecrf.learning.training_set import Settings, TrainingSet, class_weights
from densecrf.model.parameters import Parameters
from densecrf.records import RecordStore

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


def test_the_objective_is_certified_and_learning_helps() -> None:
    told = []
    model = fit(
        [sample(seed) for seed in range(6)],
        model=START,
        strength=0.1,
        folds=3,
        report=lambda *values: told.append(values),
    )
    provenance = model.provenance
    for stage in provenance["stages"]:
        assert stage["certificate"] < 0.01
        assert stage["lower_bound"] <= stage["objective"]
    assert [stage["learned"] for stage in provenance["stages"]] == ["weights", "costs", "offsets"]
    # The second stage starts from the first one's energy, and its regulariser from zero.
    assert provenance["stages"][1]["objective"] <= 1.01 * provenance["stages"][0]["objective"]
    stages = {"weights", "costs", "offsets"}
    assert {values[0] for values in told if "fold" not in values[0]} == stages
    assert {values[0].split(", ")[0] for values in told if "fold" in values[0]} == {
        f"fold {n} of 3" for n in (1, 2, 3)
    }
    assert provenance["chosen"] in ("weights", "costs", "offsets")
    assert "held-out" in provenance["verdict"]
    assert model.weight + model.bilateral_weight > START.weight + START.bilateral_weight


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
    assert "is kept" in model.provenance["verdict"]
    assert replace(model, about=START.about) == START


def test_folds_do_not_depend_on_the_order_in_which_they_are_learned() -> None:
    # Planes found by the others are used again; a fold's own optimum is unique all the same.
    examples, labels = make_examples([sample(seed) for seed in range(4)])
    settings = Settings(0.1, 1e-3, 0.001, 60)
    losses = class_weights(examples, range(4), labels)
    found = []
    for earlier in ([], [[1, 2, 3], [0, 2, 3]]):
        data = TrainingSet(examples, labels, settings, Oracle(losses, 1))
        for inside in [*earlier, [0, 1, 2]]:
            (_, learned), *_ = data.learn(START, START, inside)
        found.append(learned)
    assert max(each.lower_bound for each in found) <= min(each.objective for each in found) + 1e-9
    np.testing.assert_allclose(found[0].theta, found[1].theta, atol=0.1)


def test_reduced_images() -> None:
    examples, _ = make_examples([sample(0)])
    half = reduced(examples[0], 2)
    unary, image = half.load()
    assert unary.shape == (3, 8, 10)
    assert image.shape == (8, 10, 3)
    whole, _ = examples[0].load()
    np.testing.assert_allclose(unary[:, 0, 0], whole[:, :2, :2].mean((1, 2)), rtol=1e-5)
    assert half.truth[3, 4] == examples[0].truth[6, 8]
    following = replace(START, scale_sigmas=True, pixels=16 * 20)
    model = fit([sample(seed) for seed in range(3)], model=following, reduce=2, folds=0)
    assert model.sigma_xy == following.sigma_xy
    with pytest.raises(ValueError, match="reduce"):
        fit([sample(0)], model=START, reduce=2)


def test_a_label_offset_is_learned() -> None:
    def biased(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        image, p, truth = sample(seed)
        wrong = p * np.array([1.0, 1.0, 6.0])[:, None, None]  # far too much of label 2
        return image, wrong / wrong.sum(0), truth

    model = fit([biased(seed) for seed in range(6)], model=START, strength=0.1, folds=0)
    assert model.prior is not None
    assert model.prior.offsets[2] > max(model.prior.offsets[:2]) + 0.3


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_truth_of_any_type_has_void_pixels(dtype: type) -> None:
    image, p, truth = sample(0)
    marked = truth.copy()
    marked[:8] = 255
    (example,), _ = make_examples([(image, p, marked.astype(dtype))])
    np.testing.assert_array_equal(example.truth, np.where(marked == 255, -1, marked))


def test_truth_of_0_and_255_is_a_mask_of_two_labels() -> None:
    image, _, truth = sample(0)
    mask = (truth == 1).astype(np.uint8) * 255
    foreground = np.where(mask > 0, 0.7, 0.2)
    (example,), labels = make_examples([(image, foreground, mask)])
    assert labels == 2
    np.testing.assert_array_equal(example.truth, truth == 1)


def test_void_pixels_are_filled() -> None:
    image, p, truth = sample(0)
    truth = truth.copy()
    truth[:8] = 255
    model = fit([(image, p, truth)] * 2, model=START, folds=0)
    assert model.provenance["images"] == 2


def test_a_journal_answers_the_second_run(tmp_path: Path) -> None:
    samples = [sample(seed) for seed in range(2)]
    examples, labels = make_examples(samples)
    settings = Settings(folds=2)
    options = {"model": START, "journal": RecordStore(tmp_path / "journal")}
    first = fit_examples(examples, labels, settings, **options)
    records = {path: path.read_bytes() for path in (tmp_path / "journal").rglob("*.json")}
    assert len(records) > 10
    missing, damaged = list(records)[:2]
    missing.unlink()
    damaged.write_text('{"half a rec')
    before = {path: path.stat().st_mtime_ns for path in records if path not in (missing, damaged)}
    second = fit_examples(examples, labels, settings, **options)
    assert first == second
    assert first.provenance == second.provenance
    assert {path: path.read_bytes() for path in records} == records
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def test_an_interrupt_keeps_the_model_so_far() -> None:
    def stop(stage: str, passes: int, objective: float, bound: float) -> None:
        if stage == "costs":
            raise KeyboardInterrupt

    model = fit([sample(seed) for seed in range(2)], model=START, report=stop)
    assert model.provenance["interrupted"]
    assert [stage["learned"] for stage in model.provenance["stages"]] == ["weights"]
    assert model != START


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("during", "learned"), [("search", []), ("costs", ["weights"]), ("fold 2 of 2, costs", ...)]
)
def test_ctrl_c_keeps_the_model_so_far(tmp_path: Path, during: str, learned: list[str]) -> None:
    """A signal, as from the keyboard, is noted by the threads; the next run goes on."""
    examples, labels = make_examples([sample(seed) for seed in range(3)])
    told: list[str] = []

    def report(stage: str, passes: int, *_: float) -> None:
        told.append(stage)
        if stage == during and passes == (2 if stage == "search" else 1):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    settings = Settings(folds=2, max_passes=2)
    options = {"journal": RecordStore(tmp_path / "journal"), "jobs": 2}
    stopped = fit_examples(examples, labels, settings, report=report, **options)
    assert signal.getsignal(signal.SIGINT) is before
    assert stopped.provenance["interrupted"]
    stages = [stage["learned"] for stage in stopped.provenance["stages"]]
    assert stages == (["weights", "costs", "offsets"] if learned is ... else learned)
    assert len(stopped.label_costs) == labels  # adapted at least
    assert told[-1] == during
    if learned is ...:
        whole = fit_examples(examples, labels, settings, **options)
        assert not whole.provenance["interrupted"]
        again = fit_examples(examples, labels, settings, **{**options, "journal": None})
        assert whole == again


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda i, p, _: (i, p), "give .image, probabilities, true labels."),
        (lambda i, p, t: (i, p, t[:4]), r"samples\[1\]: true labels of shape"),
        (lambda i, p, t: (i, p, t + 1), "true label 3 is not among the 3 labels"),
        (lambda i, p, t: (i, np.where(p > 0.5, np.nan, p), t), r"samples\[1\]: "),
        (lambda i, p, t: (i, p[:2] / p[:2].sum(0), np.minimum(t, 1)), "all must have as many"),
    ],
)
def test_a_wrong_sample_is_named(wrong, says: str) -> None:
    good = sample(0)
    with pytest.raises(ValueError, match=says):
        fit([good, wrong(*good)], model=START)


def test_nothing_known_is_refused() -> None:
    image, p, truth = sample(0)
    with pytest.raises(ValueError, match="nothing can be learned"):
        fit([(image, p, np.full_like(truth, 255))], model=START)


def test_one_image_cannot_be_checked() -> None:
    kept = fit([sample(0)], model=START)
    assert "one image cannot be checked" in kept.provenance["verdict"]
    assert replace(kept, about=START.about) == START
    learned = fit([sample(0)], model=START, folds=0)
    assert "verdict" not in learned.provenance
    assert learned.weight != START.weight


def test_an_objective_of_nothing_is_certified() -> None:
    image, _, truth = sample(0)
    p = np.full((3, *truth.shape), 0.005)
    np.put_along_axis(p, truth[None], 0.99, 0)
    model = fit([(image, p, truth)], model=START, folds=0)
    for stage in model.provenance["stages"]:
        assert 0 <= stage["certificate"] < 0.01


@pytest.mark.parametrize("gap", [-1e-3, 1.0, float("nan"), "much"])
def test_the_accuracy_of_the_inference_is_a_fraction(gap) -> None:
    with pytest.raises(ValueError, match="gap="):
        fit([sample(0)], gap=gap)
