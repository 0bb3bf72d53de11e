"""Learn a model from labelled images: `densecrf.fit`."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from densecrf.deadline import Interrupted, on_interrupt
from densecrf.extras import check_installed
from densecrf.learning.examples import Example, make_examples, reduced
from densecrf.learning.held_out import held_out
from densecrf.learning.oracle import ClusterOracle, Oracle
from densecrf.learning.training_set import Report, Settings, TrainingSet, class_weights
from densecrf.model.presets import get_parameters
from densecrf.validation import ArgumentError, ArgumentWarning, check_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from densecrf.learning.large_margin import Learned
    from densecrf.learning.stage import Stage
    from densecrf.model.parameters import Parameters
    from densecrf.records import RecordStore

__all__ = ["fit", "fit_examples"]


def fit(
    samples: Iterable[Any],
    *,
    model: str | Parameters = "default",
    void: Any = "auto",
    strength: float = 1.0,
    folds: int = 5,
    tolerance: float = 0.01,
    max_passes: int = 30,
    gap: float = 1e-2,
    reduce: int = 1,
    jobs: int = 1,
    threads: int | None = None,
    device: Any = None,
    client: Any = None,
    report: Report | None = None,
) -> Parameters:
    """Learn kernel weights, label costs and a label prior from labelled images.

    Parameters
    ----------
    samples : iterable of (image, probabilities, true labels)
        Images and network outputs as for `densecrf.refine`; true labels of the image's shape.
    model : str or Parameters
        Where learning starts and what it is drawn to. Where it is the default, it is adapted to
        the images first (`densecrf.adapt`), with the best of a few standard deviations; those of
        other models are kept.
    void : int, sequence of int, None or "auto"
        Values of pixels without a true label, as for `densecrf.refine`.
    strength : float
        How strongly the result is drawn to `model`; the influence falls with the number of images.
    folds : int
        Parts of the images for the check on images that were not learned from; 0 for none, and
        what was learned is returned.
    tolerance : float
        Largest relative gap between the bounds on the training objective.
    max_passes : int
        Most passes over the images for each of the stages: weights, label costs, label offsets.
    gap : float
        Accuracy of the inference to begin with, as for `densecrf.DenseCRF.solve`.
    reduce : int
        Learn from images of a fraction of the resolution, 2 for half of it: faster, and nearly as
        good, for a model whose standard deviations follow the size of an image, as the default's.
    jobs, threads : int
        Images at a time, and threads for each.
    device : optional
        As for `densecrf.DenseCRF.solve`.
    client : dask.distributed.Client, optional
        Whose workers run the images, one thread each unless `threads` says otherwise; the learned
        model is the same.
    report : callable, optional
        Told (stage, passes, objective, lower bound) after each pass, and for the stage "search"
        (models tried, accuracy and IoU of the last one).

    Returns
    -------
    densecrf.Parameters
        The learned one; or the adapted one, or `model` itself, where the check found learning no
        better. ``provenance`` says which and why, with the certificate of the training objective.
        After Ctrl-C, the best so far.
    """
    check_installed("densecrf.fit", "clarabel", "scipy")
    settings = Settings(strength, gap, tolerance, max_passes, folds, reduce)
    examples, labels = make_examples(samples, void)
    return fit_examples(
        examples,
        labels,
        settings,
        model=model,
        jobs=jobs,
        threads=threads,
        device=device,
        client=client,
        report=report,
    )


def fit_examples(
    examples: Sequence[Example],
    labels: int,
    settings: Settings,
    *,
    model: str | Parameters = "default",
    jobs: int = 1,
    threads: int | None = None,
    device: Any = None,
    client: Any = None,
    report: Report | None = None,
    journal: RecordStore | None = None,
) -> Parameters:
    """Do what `fit` does, with examples that are loaded when needed.

    Parameters
    ----------
    examples, labels
        The images, and the number of labels.
    settings : Settings
        How to learn.
    journal : RecordStore, optional
        Keeps the oracle's answers, so that an interrupted run goes on.
    model, jobs, threads, device, client, report
        As for `fit`.
    """
    check_integer("jobs", jobs, at_least=1)
    start = get_parameters(model)
    reduce = settings.reduce
    if reduce > 1 and not start.scale_sigmas:
        raise ArgumentError(
            "reduce", reduce, "the model's standard deviations do not follow the size of an image"
        )
    examples = [reduced(example, reduce) for example in examples]
    losses = class_weights(examples, range(len(examples)), labels)
    stop = threading.Event()
    oracle = Oracle(losses, threads, device, stop=stop)
    if client is not None:
        if device is not None:
            raise ArgumentError("device", device, "workers of a cluster learn on processors")
        own = 1 if threads is None else threads
        oracle = ClusterOracle(losses, own, stop=stop, client=client)
        jobs = max(jobs, 2 * sum(client.nthreads().values()))
    data = TrainingSet(examples, labels, settings, oracle, jobs, journal)
    made: list[tuple[Stage, Learned]] = []
    models = {"start": start}
    current, interrupted, check = start, False, None
    with on_interrupt(stop.set), warnings.catch_warnings():
        # On the way to the optimum, weights may be such that one label takes an image.
        warnings.simplefilter("ignore", ArgumentWarning)
        try:
            current = models["adapted"] = data.centre(start, data.all, report)
            for stage, found in data.learn(start, current, data.all, report):
                made.append((stage, found))
                current = models[stage.learned] = stage.learned_model(found.theta)
            check = held_out(data, start, settings.folds, report)
            if check is not None:
                current = models[check["chosen"]]
        except (KeyboardInterrupt, Interrupted):
            interrupted = True
            if len(models) == 1 and data.reached is not None:
                current = data.reached
    provenance: dict[str, Any] = {
        "made_by": "fit",
        "images": len(examples),
        "interrupted": interrupted,
        "stages": [_outcome(stage, found) for stage, found in made],
        **({} if check is None else check),
    }
    return replace(current, about="by fit", provenance=provenance)


def _outcome(stage: Stage, found: Learned) -> dict[str, Any]:
    """Return what a stage learned, with the certificate of its objective."""
    return {
        "learned": stage.learned,
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "certificate": found.gap,
        "passes": found.passes,
    }
