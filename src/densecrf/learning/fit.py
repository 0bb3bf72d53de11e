"""Learn a model from labelled images: `densecrf.fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.experiments.metrics import bootstrap, confusion_matrix
from densecrf.label_costs import border_statistics, sum_statistics
from densecrf.learning.adaptation import adapted
from densecrf.learning.examples import Example, make_examples
from densecrf.learning.large_margin import (
    Learned,
    Oracle,
    Plane,
    Separates,
    Stage,
    learn,
    make_bundle,
)
from densecrf.presets import Model, get_model
from densecrf.validation import ArgumentWarning, check_gap, check_integer, check_positive

if TYPE_CHECKING:
    import numpy.typing as npt

    from densecrf.learning.journal import Journal

__all__ = ["fit", "fit_examples"]

STAGES = ("weights", "costs")
#: The regulariser's factor for one image: how much one image may change the model.
STRENGTH = 1.0
#: Share of the loss that weighs classes alike, whatever their number of pixels.
BALANCE = 0.5
_HEAVIEST = 5.0  # a class's pixels weigh at most so much more than the average pixel

Report = Callable[[str, int, float, float], object]


def fit(
    samples: Iterable[Any],
    *,
    model: str | Model = "default",
    void: int = 255,
    strength: float = STRENGTH,
    folds: int = 5,
    tolerance: float = 0.01,
    max_passes: int = 30,
    gap: float = 1e-3,
    jobs: int = 1,
    threads: int | None = None,
    device: Any = None,
    report: Report | None = None,
) -> Model:
    """Learn kernel weights and label costs from labelled images.

    Parameters
    ----------
    samples : iterable of (image, probabilities, true labels)
        Images and network outputs as for `densecrf.refine`; true labels of the image's shape.
    model : str or Model
        Where learning starts and what it is drawn to; its standard deviations are kept.
    void : int
        The value of pixels without a true label.
    strength : float
        How strongly the result is drawn to `model`; the influence falls with the number of images.
    folds : int
        Parts of the images for the check on images that were not learned from; 0 for none.
    tolerance : float
        Largest relative gap between the bounds on the training objective.
    max_passes : int
        Most passes over the images for each of the two stages (weights, then label costs).
    gap : float
        Accuracy of the inference to begin with, as for `densecrf.DenseCRF.solve`.
    jobs, threads : int
        Images at a time, and threads for each.
    device : optional
        As for `densecrf.DenseCRF.solve`.
    report : callable, optional
        Told (stage, passes, objective, lower bound) after each pass.

    Returns
    -------
    Model
        The learned one, or `model` where the check found it no better; ``provenance`` says which
        and why, with the certificate of the training objective. After Ctrl-C, the best so far.
    """
    examples, labels = make_examples(samples, void)
    return fit_examples(
        examples,
        labels,
        model=model,
        strength=strength,
        folds=folds,
        tolerance=tolerance,
        max_passes=max_passes,
        gap=gap,
        jobs=jobs,
        threads=threads,
        device=device,
        report=report,
    )


def fit_examples(
    examples: Sequence[Example],
    labels: int,
    *,
    model: str | Model = "default",
    strength: float = STRENGTH,
    folds: int = 5,
    tolerance: float = 0.01,
    max_passes: int = 30,
    gap: float = 1e-3,
    jobs: int = 1,
    threads: int | None = None,
    device: Any = None,
    report: Report | None = None,
    journal: Journal | None = None,
) -> Model:
    """Do what `fit` does, with examples that are loaded when needed.

    Parameters
    ----------
    examples, labels
        The images, and the number of labels.
    journal : Journal, optional
        Keeps the oracle's answers, so that an interrupted run goes on.
    model, strength, folds, tolerance, max_passes, gap, jobs, threads, device, report
        As for `fit`.
    """
    check_positive("strength", strength)
    check_positive("tolerance", tolerance)
    check_gap(gap)
    check_integer("folds", folds, at_least=0)
    check_integer("max_passes", max_passes, at_least=1)
    check_integer("jobs", jobs, at_least=1)
    start = get_model(model)
    oracle = Oracle(class_weights(examples, labels), threads=threads, device=device)
    run = _Run(examples, labels, oracle, strength, jobs, journal)
    made: list[tuple[Stage, Learned]] = []
    current, interrupted = start, False
    check = None
    with warnings.catch_warnings():
        # On the way to the optimum, weights may be such that one label takes an image.
        warnings.simplefilter("ignore", ArgumentWarning)
        try:
            if start.label_costs == "image":
                current = run.adapted(start)
            centre = current
            for learned in STAGES:
                stage = Stage(current, labels, learned)
                found = run.learn(stage, gap, tolerance, max_passes, report)
                made.append((stage, found))
                current = stage.learned_model(found.theta)
            check = run.held_out(start, centre, [stage.learned for stage, _ in made], folds)
        except KeyboardInterrupt:
            interrupted = True
    provenance: dict[str, Any] = {
        "made_by": "fit",
        "images": len(examples),
        "interrupted": interrupted,
        "stages": [
            {
                "learned": stage.learned,
                "objective": found.objective,
                "lower_bound": found.lower_bound,
                "certificate": found.gap,
                "passes": found.passes,
            }
            for stage, found in made
        ],
        **({} if check is None else check),
    }
    kept = check is not None and not check["better"]
    return replace(start if kept else current, about="learned by fit", provenance=provenance)


def class_weights(examples: Sequence[Example], labels: int) -> npt.NDArray[np.float64]:
    """Return the loss of a wrong pixel by its true label: between 1 and the inverse frequency."""
    counts = np.zeros(labels)
    for example in examples:
        counts += np.bincount(example.truth[example.truth >= 0], minlength=labels)
    seen = int((counts > 0).sum())
    inverse = counts.sum() / (seen * np.maximum(counts, 1))
    return np.asarray(1 - BALANCE + BALANCE * np.minimum(inverse, _HEAVIEST))


class _Run:
    """The images of one call, and what is known of their hinges."""

    def __init__(
        self,
        examples: Sequence[Example],
        labels: int,
        oracle: Oracle,
        strength: float,
        jobs: int,
        journal: Journal | None,
    ) -> None:
        self.examples, self.labels = examples, labels
        self.oracle, self.strength, self.jobs = oracle, strength, jobs
        self.separates: Separates = oracle if journal is None else journal.around(oracle)
        self.planes: list[tuple[int, Plane]] = []
        self.filled: list[npt.NDArray[np.int64]] = []

    def learn(
        self,
        stage: Stage,
        gap: float,
        tolerance: float,
        max_passes: int,
        report: Report | None,
    ) -> Learned:
        """Learn one stage; void pixels are filled by the first stage's model."""
        if not self.filled:
            with ThreadPoolExecutor(self.jobs) as pool:
                self.filled = list(
                    pool.map(lambda e: self.oracle.fill(e, stage.model), self.examples)
                )
        return learn(
            stage,
            self.examples,
            self.filled,
            self.separates,
            self.planes,
            strength=self.strength,
            gap=gap,
            tolerance=tolerance,
            max_passes=max_passes,
            jobs=self.jobs,
            report=None if report is None else lambda *told: report(stage.learned, *told),
        )

    def adapted(self, start: Model) -> Model:
        """Return the model with the label costs that the unlabelled images give."""
        plain = replace(start, label_costs=None)
        with ThreadPoolExecutor(self.jobs) as pool:
            found = pool.map(lambda e: border_statistics(plain.crf(*e.load())), self.examples)
            return adapted(start, sum_statistics(found))

    def held_out(
        self, start: Model, centre: Model, stages: Sequence[str], folds: int
    ) -> dict[str, Any] | None:
        """Compare the start with models learned without the images that they are judged on.

        A fold's model minimises the objective of its own images over the planes found for them.
        """
        count = len(self.examples)
        folds = min(folds, count)
        if folds < 2:
            return None
        pairs: dict[int, tuple[Any, Any]] = {}
        for fold in range(folds):
            inside = [n for n in range(count) if n % folds != fold]
            outside = [n for n in range(count) if n % folds == fold]
            model = centre
            for learned in stages:
                stage = Stage(model, self.labels, learned)
                bundle = make_bundle(stage, inside, self.planes, self.strength)
                model = stage.learned_model(bundle.minimise().theta)
            with ThreadPoolExecutor(self.jobs) as pool:
                scored = pool.map(
                    lambda n, m=model: (self.confusion(n, m), self.confusion(n, start)), outside
                )
                pairs.update(zip(outside, scored, strict=True))
        ours = [pairs[n][0] for n in range(count)]
        theirs = [pairs[n][1] for n in range(count)]
        gains = {metric: bootstrap(ours, metric, minus=theirs) for metric in ("accuracy", "iou")}
        better = _better(gains["accuracy"], gains["iou"])
        return {
            "folds": folds,
            "held_out": {
                name: {"gain": g.estimate, "low": g.low, "high": g.high}
                for name, g in gains.items()
            },
            "better": better,
            "verdict": _verdict(better, gains, folds),
        }

    def confusion(self, number: int, model: Model) -> Any:
        """Return the confusion matrix of an example under a model."""
        example = self.examples[number]
        unary, image = example.load()
        labels = self.oracle.solve(model.crf(unary, image)).labels
        return confusion_matrix(labels, example.truth, self.labels, void=-1)


def _better(accuracy: Any, iou: Any) -> bool:
    """Whether held-out images gain, more surely than by chance."""
    total = accuracy.estimate + iou.estimate
    spread = (accuracy.high - accuracy.low) + (iou.high - iou.low)
    return bool(total > 0.25 * spread and min(accuracy.estimate, iou.estimate) > -0.003)


def _verdict(better: bool, gains: dict[str, Any], folds: int) -> str:
    told = " and ".join(
        f"{100 * g.estimate:+.2f} [{100 * g.low:+.2f}, {100 * g.high:+.2f}] points of {name}"
        for name, g in gains.items()
    )
    if better:
        return f"better than the start on {folds} held-out folds ({told}): use it"
    return f"no better than the start on {folds} held-out folds ({told}): the start is kept"
