"""Dense CRFs beside what else a user could take.

Every method that has settings gets the same budget: a few of them, tried on the validation images;
the best (sum of accuracy and IoU) is judged on the test images. Each image's outcome is a record,
so that an interrupted run goes on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.learning.adaptation import adapted, look_at, unadapted
from densecrf.learning.examples import Example, checked_truth
from densecrf.learning.fit import LabelledImages, fit_images
from densecrf.metrics import accuracy, bootstrap, confusion_matrix, mean_iou
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.parallel import run
from experiments import other_methods as other

if TYPE_CHECKING:
    from densecrf.io import Dataset, Sample
    from densecrf.records import RecordStore

__all__ = ["ALTERNATIVES", "Alternative", "Judge", "Judged", "as_fitted"]

USUAL = Parameters(3, 3, 60, 13, 10)
#: Models that methods without learning may choose from.
MODELS: dict[str, Parameters] = {
    "usual": USUAL,
    **{n: PRESETS[n] for n in ("tuned", "deeplab", "afa")},
}
#: Pixels on either side of a true border that count as its neighbourhood (the trimap).
TRIMAP = 5

Refine = Callable[..., Any]


@dataclass(frozen=True)
class Alternative:
    """A method, and the settings that are tried on the validation images.

    Attributes
    ----------
    name : str
        As in the table.
    refine : callable
        Takes the unaries, the image and one of the settings; returns labels.
    settings : dict
        Keywords by name.
    """

    name: str
    refine: Refine
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})


def _argmax(unary: Any, _: Any) -> Any:
    return unary.argmin(0)


def solved(
    unary: Any,
    image: Any,
    *,
    model: Parameters,
    method: str = "lp",
    threads: int | None = None,
    device: Any = None,
) -> Any:
    """Return the labels of a model."""
    gap = 1e-2 if method == "lp" else None
    crf = model.crf(unary, image)
    return crf.solve(method, threads=threads, device=device, gap=gap).labels


def _models(**more: Any) -> dict[str, dict[str, Any]]:
    return {name: {"model": model, **more} for name, model in MODELS.items()}


#: What is compared, in the table's order; adapted and learned models follow.
ALTERNATIVES: tuple[Alternative, ...] = (
    Alternative("input", _argmax),
    Alternative("pydensecrf, 5 iterations", other.pydensecrf, _models(iterations=5)),
    Alternative("pydensecrf, 10 iterations", other.pydensecrf, _models(iterations=10)),
    Alternative("mf5", solved, _models(method="mf5")),
    Alternative(
        "guided filter",
        other.guided_filter,
        {f"{r}, {e:g}": {"radius": r, "eps": e} for r in (4, 8) for e in (1e-4, 1e-3)},
    ),
    Alternative(
        "global smoother",
        other.global_smoother,
        {f"{s:g}, {c:g}": {"smooth": s, "color": c} for s in (100, 500) for c in (2, 5)},
    ),
    Alternative(
        "alpha-expansion",
        other.alpha_expansion,
        {f"{s:g}": {"smooth": s} for s in (0.5, 1, 2, 4)},
    ),
    Alternative("lp, default", solved, {"": {"model": PRESETS["default"]}}),
    Alternative("lp, chosen", solved, _models()),
)


@dataclass(frozen=True)
class Judged:
    """One method on the test images.

    Attributes
    ----------
    name, setting : str
        The method, and which of its settings.
    confusions, trimaps : ndarray, (images, labels, labels)
        Of all pixels, and of those near true borders.
    seconds : float
        Per image.
    """

    name: str
    setting: str
    confusions: Any
    trimaps: Any
    seconds: float

    def row(self, base: Judged) -> dict[str, Any]:
        """Return accuracies in per cent, and paired gains over the input with intervals."""
        gains = {}
        pairs = (
            ("accuracy", "accuracy", self.confusions, base.confusions),
            ("IoU", "iou", self.confusions, base.confusions),
            ("trimap", "accuracy", self.trimaps, base.trimaps),
        )
        for title, metric, ours, theirs in pairs:
            value = bootstrap(ours, metric).estimate
            gain = bootstrap(ours, metric, minus=theirs)
            gains[title] = f"{100 * value:.2f}"
            gains[f"{title} gain"] = (
                f"{100 * gain.estimate:+.2f} [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"
            )
        named = f"{self.name} ({self.setting})" if self.setting else self.name
        return {"method": named, **gains, "seconds": f"{self.seconds:.2f}"}


@dataclass(frozen=True)
class Judge:
    """Runs methods on the images of one data set.

    Attributes
    ----------
    dataset : Dataset
        The data set.
    validation, test : sequence of str
        Names of images to choose settings on, and to judge on.
    store : RecordStore
        Keeps outcomes.
    threads, device : optional
        As for `densecrf.DenseCRF.solve`.
    jobs : int
        Images at a time, each in a process; 1: in this one.
    progress : callable, optional
        Told (done, total, words) after each image.
    """

    dataset: Dataset
    validation: Sequence[str]
    test: Sequence[str]
    store: RecordStore
    threads: int | None = None
    device: Any = None
    jobs: int = 1
    progress: Callable[[int, int | None, str], object] | None = None

    def judge(self, alternative: Alternative) -> Judged:
        """Choose the best setting on the validation images, and run it on the test images."""
        chosen, settings = next(iter(alternative.settings.items()))
        if len(alternative.settings) > 1:
            scores = {
                name: self._score(self._run(alternative, name, self.validation))
                for name in alternative.settings
            }
            chosen = max(scores, key=lambda name: scores[name])
            settings = alternative.settings[chosen]
        return self._run(replace(alternative, settings={chosen: settings}), chosen, self.test)

    def adapted(self) -> Alternative:
        """Return the default model adapted to the test images, without their labels."""
        start = unadapted(PRESETS["default"])
        samples = (self.dataset.items[name].load() for name in self.test)
        found = [look_at(start.crf(_energies(sample), sample.image)) for sample in samples]
        return Alternative("lp, adapted", solved, {"": {"model": adapted(start, found)}})

    def fitted(self) -> Alternative:
        """Return the model learned from the validation images."""
        samples = [self.dataset.items[name].load() for name in self.validation]
        examples = [e for s in samples if (e := self._example(s)) is not None]
        labels = len(self.dataset.palette)
        data = LabelledImages(
            examples, labels, jobs=self.jobs, threads=self.threads, device=self.device
        )
        return as_fitted(fit_images(data))

    def _example(self, sample: Sample) -> Example | None:
        palette = self.dataset.palette
        shape = sample.image.shape[:2]
        truth = checked_truth(sample.name, sample.labels, shape, len(palette), palette.void)
        if truth is None:
            return None
        return Example(sample.name, truth, partial(_loaded, self.dataset, sample.name))

    def _score(self, judged: Judged) -> float:
        total = judged.confusions.sum(0)
        return float(accuracy(total) + mean_iou(total))

    def _run(self, alternative: Alternative, setting: str, names: Sequence[str]) -> Judged:
        work = partial(
            _outcome, self.dataset, self.store, alternative, setting, self.threads, self.device
        )
        outcomes = []
        workers = None if self.jobs == 1 else self.jobs
        arguments = [(name,) for name in names]
        for done in run(work, arguments, workers=workers, processes=self.jobs > 1, ordered=True):
            outcomes.append(done.result())
            if self.progress is not None:
                self.progress(len(outcomes), len(names), f"{alternative.name} {setting}")
        confusions = np.array([o["confusion"] for o in outcomes])
        if not confusions.any():
            raise ValueError(
                f"{self.dataset.path}: none of the {len(names)} images of a split has a pixel with "
                "a known label"
            )
        trimaps = np.array([o["trimap"] for o in outcomes])
        seconds = float(np.mean([o["seconds"] for o in outcomes]))
        return Judged(alternative.name, setting, confusions, trimaps, seconds)


def as_fitted(model: Parameters) -> Alternative:
    """Return a learned model as what is compared."""
    return Alternative("lp, fitted", solved, {"": {"model": model}})


def _outcome(
    dataset: Dataset,
    store: RecordStore,
    alternative: Alternative,
    setting: str,
    threads: int | None,
    device: Any,
    name: str,
) -> dict[str, Any]:
    """Return one method's outcome on one image, from its record where there is one."""
    keywords = alternative.settings[setting]
    key = ("alternatives", dataset.name, alternative.name, setting or "own", name)
    known = {"device": str(device), **_plain(keywords)}
    ours = {"threads": threads, "device": device} if alternative.refine is solved else {}
    refine = partial(alternative.refine, **keywords, **ours)
    values = store.load(key, known)
    if values is None:
        values = _judged(dataset, refine, name)
        store.save(key, known, values)
    return dict(values)


def _judged(dataset: Dataset, refine: Refine, name: str) -> dict[str, Any]:
    """Refine an image and count its pixels, all and those near borders."""
    sample = dataset.items[name].load()
    if sample.labels is None:
        raise ValueError(f"{dataset.path}: {name} has no ground truth")
    unary = _energies(sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        started = time.perf_counter()
        labels = refine(unary, sample.image)
        seconds = time.perf_counter() - started
    palette = dataset.palette
    near = np.where(trimap(sample.labels, palette.void), sample.labels, palette.void)
    count = len(palette)
    return {
        "confusion": confusion_matrix(labels, sample.labels, count, palette.void).tolist(),
        "trimap": confusion_matrix(labels, near, count, palette.void).tolist(),
        "seconds": seconds,
    }


def _energies(sample: Sample) -> Any:
    return np.asarray(sample.scores.energies(), np.float32)


def _loaded(dataset: Dataset, name: str) -> tuple[Any, Any]:
    sample = dataset.items[name].load()
    return _energies(sample), sample.image


def _plain(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON values."""
    model = keywords.get("model")
    numbers = {} if model is None else {"model": {**asdict(model), "provenance": {}}}
    return {**{key: value for key, value in keywords.items() if key != "model"}, **numbers}


def trimap(truth: Any, void: int, radius: int = TRIMAP) -> Any:
    """Return which pixels are within a distance (in steps) of a border between two classes.

    Examples
    --------
    >>> trimap(np.array([[0, 0, 0, 1, 1, 1]]), 255, radius=2).astype(int)
    array([[0, 1, 1, 1, 1, 0]])
    """
    near = np.zeros(truth.shape, bool)
    for axis in (0, 1):
        first = np.moveaxis(truth, axis, 0)[:-1]
        second = np.moveaxis(truth, axis, 0)[1:]
        border = (first != second) & (first != void) & (second != void)
        view = np.moveaxis(near, axis, 0)
        view[:-1] |= border
        view[1:] |= border
    for _ in range(radius - 1):
        wider = near.copy()
        wider[1:] |= near[:-1]
        wider[:-1] |= near[1:]
        wider[:, 1:] |= near[:, :-1]
        wider[:, :-1] |= near[:, 1:]
        near = wider
    return near & (truth != void)
