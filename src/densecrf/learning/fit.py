"""Learn a model from labelled images: `densecrf.fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.learning.adaptation import MANY, adapted, look_at, unadapted
from densecrf.learning.examples import Example, make_examples
from densecrf.learning.search import Candidate, gains, search, surely_better
from densecrf.metrics import accuracy, confusion_matrix, mean_iou
from densecrf.model.presets import get_parameters
from densecrf.model.resolution import measure
from densecrf.validation import ArgumentWarning, check_gap, check_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from densecrf.model import DenseCRF
    from densecrf.model.parameters import Parameters

__all__ = ["LabelledImages", "fit", "fit_images"]

#: Called with (stage, models tried, accuracy, IoU) after each model.
Report = Callable[[str, int, float, float], object]
CANDIDATES = ("start", "adapted", "input", "searched")


def fit(
    samples: Iterable[Any],
    *,
    model: str | Parameters = "default",
    void: Any = "auto",
    folds: int = 5,
    gap: float = 1e-2,
    jobs: int = 1,
    threads: int | None = None,
    device: Any = None,
    report: Report | None = None,
    **reading: Any,
) -> Parameters:
    """Find the best model on labelled images, by accuracy and mean IoU.

    Candidates are the input itself (strength 0), the start, the start adapted to the images
    (`densecrf.adapt`; with five images or more), and the best of a search over strength, reach and
    the prior's trust from there. The adapted model is returned unless another one is significantly
    better in cross-validation.

    Parameters
    ----------
    samples : iterable of (image, probabilities, true labels)
        Images and network outputs as for `densecrf.refine`; true labels of the image's shape.
    model : str or Parameters
        The model to start from.
    void : int, sequence of int, None or "auto"
        Values of pixels without a true label, as for `densecrf.refine`.
    folds : int
        Folds of the cross-validation; 0 skips it and returns the best model found.
    gap : float
        Accuracy of the inference, as for `densecrf.refine`.
    jobs, threads : int
        Images at a time, and threads for each.
    device : optional
        As for `densecrf.refine`.
    report : callable, optional
        Called with (stage, models tried, accuracy, IoU) after each model.
    **reading
        How to read the input, as for `densecrf.refine`.

    Returns
    -------
    densecrf.Parameters
        The chosen one; ``provenance`` says which and why. After Ctrl-C, the best so far.
    """
    examples, labels = make_examples(samples, void, **reading)
    images = LabelledImages(examples, labels, gap, jobs, threads, device, report)
    return fit_images(images, model, folds)


def fit_images(
    data: LabelledImages, model: str | Parameters = "default", folds: int = 5
) -> Parameters:
    """Return `fit` of images that are loaded when needed."""
    check_integer("folds", folds, at_least=0)
    start = get_parameters(model)
    found = {"start": Candidate(start)}
    chosen, check, interrupted = "start", {}, False
    with warnings.catch_warnings():
        # Some models on the way are such that one label takes an image.
        warnings.simplefilter("ignore", ArgumentWarning)
        try:
            found["input"] = Candidate(start, strength=0.0)
            found["adapted"] = Candidate(data.adapted(start))
            for best in search(found["adapted"], partial(data.confusions, data.all)):
                found["searched"] = best
            chosen = "searched"
            if folds > 0:
                check = _held_out(data, found, folds)
                chosen = check["chosen"]
        except KeyboardInterrupt:
            interrupted, chosen = True, list(found)[-1]
    provenance = {
        "made_by": "fit",
        "images": len(data.examples),
        "interrupted": interrupted,
        "strength": found[chosen].strength,
        "reach": found[chosen].reach,
        "trust": found[chosen].trust,
        **check,
    }
    return replace(found[chosen].model(), about="by fit", provenance=provenance)


@dataclass(eq=False)
class LabelledImages:
    """Labelled images and the results of models on them; fields as the arguments of `fit`."""

    examples: Sequence[Example]
    labels: int
    gap: float = 1e-2
    jobs: int = 1
    threads: int | None = None
    device: Any = None
    report: Report | None = None
    stage: str = "search"
    _kept: dict[str, dict[int, npt.NDArray[np.int64]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the accuracy and the number of images at a time."""
        check_gap(self.gap)
        check_integer("jobs", self.jobs, at_least=1)

    @property
    def all(self) -> Sequence[int]:
        """The numbers of all images."""
        return range(len(self.examples))

    def adapted(self, start: Parameters) -> Parameters:
        """Return a model adapted to all images, which needs no labels."""
        plain = unadapted(start)
        crfs = (self._crf(n, plain) for n in self.all)
        seen = [look_at(crf, self.threads, self.gap, self.device) for crf in crfs]
        return adapted(plain, seen)

    def confusions(self, chosen: Sequence[int], candidate: Candidate) -> list[Any]:
        """Return the confusion matrices of some images under a model."""
        kept = self._kept.setdefault(repr(candidate), {})
        missing = [n for n in chosen if n not in kept]
        if missing:
            model = candidate.model()
            with ThreadPoolExecutor(self.jobs) as pool:
                judged = pool.map(lambda n: self._judge(n, model), missing)
                kept.update(zip(missing, judged, strict=True))
            if self.report is not None:
                total = np.sum([kept[n] for n in chosen], axis=0)
                self.report(self.stage, len(self._kept), accuracy(total), mean_iou(total))
        return [kept[n] for n in chosen]

    def _crf(self, number: int, model: Parameters) -> DenseCRF:
        example = self.examples[number]
        unary, image = example.load()
        found = example.measured or measure(unary, image)
        return model.following(found).crf(unary, image)

    def _judge(self, number: int, model: Parameters) -> npt.NDArray[np.int64]:
        truth = self.examples[number].truth
        crf = self._crf(number, model)
        if model.weight == model.bilateral_weight == 0:
            labels = crf.unary.argmin(0).reshape(crf.shape)
        else:
            labels = crf.solve("lp", gap=self.gap, threads=self.threads, device=self.device).labels
        return confusion_matrix(labels, truth, self.labels, void=-1)


def _held_out(data: LabelledImages, found: dict[str, Candidate], folds: int) -> dict[str, Any]:
    """Compare the candidates on images that the search did not see; return the verdict."""
    if len(data.examples) == 1:
        told = "one image cannot be checked on others: the start is kept"
        return {"folds": 0, "chosen": "start", "verdict": told}
    folds = min(max(folds, 2), len(data.examples))
    scores: dict[str, dict[int, Any]] = {name: {} for name in CANDIDATES}
    for fold in range(folds):
        inside = [n for n in data.all if n % folds != fold]
        outside = [n for n in data.all if n % folds == fold]
        data.stage = f"fold {fold + 1} of {folds}"
        *_, best = search(found["adapted"], partial(data.confusions, inside))
        for name, candidate in {**found, "searched": best}.items():
            confusions = data.confusions(outside, candidate)
            scores[name].update(zip(outside, confusions, strict=True))
    by_image = {name: [scores[name][n] for n in data.all] for name in CANDIDATES}
    chosen = "adapted" if len(data.examples) >= MANY else "start"
    for name in CANDIDATES:
        if name != chosen and surely_better(by_image[name], by_image[chosen]):
            chosen = name
    held_out, lines = {}, []
    for name in CANDIDATES:
        if name != "input":
            gained = gains(by_image[name], by_image["input"])
            held_out[f"{name} minus input"] = {
                metric: {"gain": g.estimate, "low": g.low, "high": g.high}
                for metric, g in gained.items()
            }
            spans = (
                f"{100 * g.estimate:+.2f} [{100 * g.low:+.2f}, {100 * g.high:+.2f}] {metric}"
                for metric, g in zip(("accuracy", "IoU"), gained.values(), strict=True)
            )
            lines.append(f"{name} {' and '.join(spans)}")
    verdict = f"{chosen} is taken ({folds} folds; over the input: {'; '.join(lines)})"
    return {"folds": folds, "chosen": chosen, "held_out": held_out, "verdict": verdict}
