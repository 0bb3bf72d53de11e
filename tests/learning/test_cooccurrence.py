"""Learning which labels go together: derivatives, certificates, what is learned and what is not."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("clarabel")
from scipy.optimize import check_grad

from densecrf import fit
from densecrf.label_prior import label_shares, prior_from_shares
from densecrf.learning import cooccurrence
from densecrf.learning.cooccurrence import learn_cooccurrence, most_pixels, sample_pixels
from densecrf.learning.examples import make_examples
from densecrf.learning.stage import Stage
from densecrf.presets import Model

START = Model(1.0, 0.1, 5.0, 20.0, 0.1)
ADAPTED = replace(START, label_costs="image")  # to the images, before anything is learned


def sample(seed: int, telling: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an image with the labels 0 and 2, or 3 and 1; 1 and 2 are confused by the network.

    Where it is not telling, 1 and 2 go with 0 and 3 alike.
    """
    rng = np.random.default_rng(seed)
    with_zero = bool(seed % 2)
    second = (2 if with_zero else 1) if telling else (2 if seed % 4 < 2 else 1)
    truth = np.full((12, 16), 0 if with_zero else 3)
    truth[:, rng.integers(6, 10) :] = second
    logits = rng.normal(0, 0.3, (4, 12, 16))
    logits[truth, np.arange(12)[:, None], np.arange(16)] += 3
    unsure = (truth == 1) | (truth == 2)
    logits[1:3, unsure] = 3 + rng.normal(0, 0.3, (2, int(unsure.sum())))
    image = np.array([40, 120, 120, 220])[truth][..., None] + rng.normal(0, 5, (12, 16, 3))
    p = np.exp(logits - logits.max(0))
    return image.clip(0, 255).astype(np.uint8), p / p.sum(0), truth


def problem(count: int, telling: bool = True, most: int = 50):
    """Return a model adapted to some images, and their pixels."""
    examples, _ = make_examples([sample(seed, telling) for seed in range(count)])
    shares = [label_shares(each.load()[0].reshape(4, -1)) for each in examples]
    samples = [sample_pixels(*each, most) for each in zip(examples, shares, strict=True)]
    return replace(START, prior=prior_from_shares(shares)), samples


def test_the_gradient_is_that_of_the_objective() -> None:
    model, samples = problem(3)
    images = [cooccurrence._image(each, model.prior) for each in samples]

    def part(number: int):
        def evaluate(theta):
            found = cooccurrence._objective(theta.reshape(4, 4), images, 0.05)[number]
            return np.ravel(found) if number else found

        return evaluate

    theta = np.random.default_rng(0).normal(size=16)
    assert check_grad(part(0), part(1), theta) < 1e-5


def test_the_objective_is_what_the_prior_says_of_the_true_labels() -> None:
    model, samples = problem(4)
    learned, found = learn_cooccurrence(model, samples)
    penalty = cooccurrence.LAMBDA / 4 * np.sum(found.theta**2)
    losses = []
    for each in samples:
        energies = each.unary + learned.prior.energies(each.shares)
        p = np.exp(-energies) / np.exp(-energies).sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(len(p)), each.truth]).mean())
    assert found.objective == pytest.approx(penalty + np.mean(losses), rel=1e-6)


def test_bounds_enclose_the_optimum(monkeypatch) -> None:
    model, samples = problem(5)
    _, rough = learn_cooccurrence(model, samples)
    assert 0 <= rough.gap <= cooccurrence.ACCURACY
    monkeypatch.setattr(cooccurrence, "ACCURACY", 1e-9)
    _, exact = learn_cooccurrence(model, samples)
    assert rough.lower_bound <= exact.objective <= rough.objective
    # From any other matrix, too.
    images = [cooccurrence._image(each, model.prior) for each in samples]
    rng = np.random.default_rng(1)
    penalty = cooccurrence.LAMBDA / 5
    for _ in range(20):
        value, slope = cooccurrence._objective(rng.normal(size=(4, 4)), images, penalty)
        assert value - np.sum(slope**2) / (4 * penalty) <= exact.objective <= value


def test_jobs_and_strength() -> None:
    model, samples = problem(6)
    first, found = learn_cooccurrence(model, samples)
    assert learn_cooccurrence(model, samples, jobs=3)[0] == first
    _, weak = learn_cooccurrence(model, samples, strength=100)
    assert np.abs(weak.theta).max() < 0.1 * np.abs(found.theta).max()


def test_learning_goes_on_from_a_matrix() -> None:
    model, samples = problem(6)
    once, first = learn_cooccurrence(model, samples)
    twice, second = learn_cooccurrence(once, samples)
    assert second.objective < first.objective
    change = np.array(twice.prior.cooccurrence) - np.array(once.prior.cooccurrence)
    np.testing.assert_allclose(
        change, second.theta.reshape(4, 4) * (2 * np.array(model.prior.trust)), atol=1e-12
    )


@pytest.mark.parametrize("prior", [None, "without trust"])
def test_nothing_to_go_by_leaves_the_model(prior) -> None:
    model, samples = problem(3)
    model = replace(model, prior=prior and replace(model.prior, trust=(0.0,) * 4))
    same, found = learn_cooccurrence(model, samples)
    assert same is model
    assert found.passes == 1
    assert found.gap == 0


def test_pixels_are_sampled_evenly_where_they_can_be_learned_from() -> None:
    image, p, truth = sample(0)
    truth[:, :3] = 255
    p[:, :, 3:5] = 0.25  # nothing is known of these
    (example,), _ = make_examples([(image, p, truth)])
    rows = sample_pixels(example, np.full(4, 0.25), 12)
    assert rows.unary.shape == (12, 4)
    unary = example.load()[0][:, :, 5:].reshape(4, -1)
    np.testing.assert_array_equal(rows.unary, unary[:, :: 12 * 11 // 12].T)
    assert len(sample_pixels(example, np.full(4, 0.25), 10_000).truth) == 12 * 11
    assert most_pixels(59, 21) == 4000
    assert most_pixels(10_000, 150) * 10_000 * 150 <= 1 << 25
    blank = replace(example, truth=np.full_like(truth, -1))
    _, samples = problem(3)
    model, _ = problem(3)
    none = sample_pixels(blank, np.full(4, 0.25), 12)
    assert len(none.truth) == 0
    assert learn_cooccurrence(model, [*samples, none])[1].theta.any()
    assert learn_cooccurrence(model, [none])[0] is model


def test_later_stages_scale_it_with_the_trust() -> None:
    model, samples = problem(6)
    model, _ = learn_cooccurrence(model, samples)
    stage = Stage(model, 4, "weights", 2.0)
    shares = samples[0].shares
    assert model.prior.offsets == (0.0,) * 4
    np.testing.assert_allclose(stage.correction(shares), model.prior.energies(shares))
    assert stage.learned_model(stage.anchor).prior == model.prior
    learned = stage.learned_model(np.array([2.0, 3.0, *stage.anchor[2:]])).prior
    np.testing.assert_allclose(learned.energies(shares), 1.5 * model.prior.energies(shares))


def test_true_labels_as_probable_as_the_model_says_teach_nothing() -> None:
    model, samples = problem(12, most=192)
    rng = np.random.default_rng(3)
    drawn = []
    for each in samples:
        energies = each.unary + model.prior.energies(each.shares)
        p = np.exp(-energies) / np.exp(-energies).sum(1, keepdims=True)
        truth = (p.cumsum(1) < rng.random((len(p), 1))).sum(1)
        drawn.append(replace(each, truth=np.minimum(truth, 3)))
    _, telling = learn_cooccurrence(model, samples)
    _, nothing = learn_cooccurrence(model, drawn)
    assert np.abs(nothing.theta).max() < 0.1 * np.abs(telling.theta).max()


def test_fit_tells_labels_apart_by_their_company() -> None:
    samples = [sample(seed) for seed in range(8)]
    model = fit(samples, model=ADAPTED, strength=0.1, folds=4, threads=1)
    provenance = model.provenance
    first = provenance["stages"][0]
    assert first["learned"] == "cooccurrence"
    assert first["certificate"] < 1e-4
    gained = {
        name: provenance["held_out"][f"{name} minus start"]["accuracy"]["gain"]
        for name in ("adapted", "cooccurrence")
    }
    assert gained["cooccurrence"] > gained["adapted"] + 0.15
    assert "with cooccurrence" in provenance["verdict"]
    matrix = np.array(model.prior.cooccurrence)
    assert matrix[2, 0] > 0.3 > -0.3 > matrix[1, 0]
    image, p, truth = sample(101)
    found = model.crf(-np.log(p), image).solve("lp", threads=1).labels
    assert (found == truth).mean() > 0.95


def test_fit_drops_company_that_says_nothing() -> None:
    samples = [sample(seed, telling=False) for seed in range(8)]
    model = fit(samples, model=ADAPTED, strength=0.1, folds=4, threads=1)
    assert model.provenance["chosen"] in ("start", "adapted")
    assert "kept" in model.provenance["verdict"]
    assert model.prior is None or not model.prior.cooccurrence
