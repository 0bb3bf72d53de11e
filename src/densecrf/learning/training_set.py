"""The images of one run of learning, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from densecrf.learning.adaptation import Seen, unadapted
from densecrf.learning.journal import Journaled, answer
from densecrf.learning.large_margin import Learned, learn
from densecrf.learning.oracle import Oracle, Task
from densecrf.learning.search import Candidate, search
from densecrf.learning.stage import Plane, Stage
from densecrf.metrics import accuracy, mean_iou
from densecrf.model.label_prior import label_shares
from densecrf.model.presets import PRESETS
from densecrf.parallel import run
from densecrf.records import digest
from densecrf.validation import check_gap, check_integer, check_positive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from densecrf.learning.examples import Example
    from densecrf.model.parameters import Parameters
    from densecrf.records import RecordStore

__all__ = ["Report", "Settings", "TrainingSet", "class_weights"]

#: What is learned, one after the other: few numbers first.
STAGES = ("weights", "costs", "offsets")
#: Share of the loss that weighs classes alike, whatever their number of pixels.
BALANCE = 0.5
_HEAVIEST = 5.0  # a class's pixels weigh at most so much more than the average pixel
Report = Callable[[str, int, float, float], object]


@dataclass(frozen=True)
class Settings:
    """How to learn; the attributes are keywords of `densecrf.fit`."""

    strength: float = 1.0
    gap: float = 1e-2
    tolerance: float = 0.01
    max_passes: int = 30
    folds: int = 5
    reduce: int = 1

    def __post_init__(self) -> None:
        """Refuse wrong numbers."""
        check_positive("strength", self.strength)
        check_positive("tolerance", self.tolerance)
        check_gap(self.gap)
        check_integer("folds", self.folds, at_least=0)
        check_integer("max_passes", self.max_passes, at_least=1)
        check_integer("reduce", self.reduce, at_least=1)


@dataclass(eq=False)
class TrainingSet:
    """Labelled images, and what does not depend on which of them are learned from.

    Attributes
    ----------
    examples, labels
        The images, and the number of labels.
    settings : Settings
        How to learn.
    oracle : Oracle
        The inference, with the loss of all images.
    jobs : int
        Images at a time.
    journal : RecordStore, optional
        Keeps the oracle's answers.
    reached : Parameters, optional
        The best model of the search so far.
    """

    examples: Sequence[Example]
    labels: int
    settings: Settings
    oracle: Oracle
    jobs: int = 1
    journal: RecordStore | None = None
    reached: Parameters | None = None
    _seen: dict[str, list[Seen]] = field(default_factory=dict)
    _confusions: dict[tuple[str, int], Any] = field(default_factory=dict)
    _planes: dict[str, list[list[Plane]]] = field(default_factory=dict)
    _tasks: list[Task] = field(default_factory=list)

    @property
    def all(self) -> Sequence[int]:
        """The numbers of all images."""
        return range(len(self.examples))

    def centre(
        self, start: Parameters, chosen: Sequence[int], report: Report | None = None
    ) -> Parameters:
        """Return where learning starts: the start, adapted to some images without their labels.

        For the default model, the numbers that are no part of the stages are searched, with the
        true labels of these images.
        """
        if start.label_costs != "image":
            return start
        tried: set[Candidate] = set()

        def confusions(candidate: Candidate) -> Any:
            # Statistics of all images: they need no labels, and folds share the outcomes.
            model = candidate.adapted(self._look(candidate.kernels))
            found = self.confusions(model, chosen)
            tried.add(candidate)
            if report is not None:
                total = np.sum(found, axis=0)
                report("search", len(tried), accuracy(total), mean_iou(total))
            return found

        first = Candidate(start)
        for best in search(first, confusions) if start == PRESETS["default"] else (first,):
            seen = self._look(best.kernels)
            self.reached = best.adapted([seen[n] for n in chosen])
        return cast("Parameters", self.reached)

    def learn(
        self,
        start: Parameters,
        centre: Parameters,
        chosen: Sequence[int],
        report: Report | None = None,
        tolerance: float = 0.0,
    ) -> Iterator[tuple[Stage, Learned]]:
        """Learn the stages from some images, one after the other.

        Planes of an image hold for every choice of the others, so those found once are used again;
        passes over the chosen images alone make sure that none is missing.
        """
        if not self._tasks:
            self._tasks = self._each(lambda n: self._task(n, start), self.all)
        widths = repr((centre.sigma, centre.sigma_xy, centre.sigma_color))
        planes = self._planes.setdefault(widths, [[] for _ in self.all])
        losses = class_weights(self.examples, chosen, self.labels)
        oracle = replace(self.oracle, class_weights=losses)
        settings = self.settings
        scale = 1.0
        for learned in STAGES:
            stage = Stage(centre, self.labels, learned, scale)
            found = learn(
                stage,
                [self._tasks[n] for n in chosen],
                oracle if self.journal is None else Journaled(oracle, self.journal),
                [planes[n] for n in chosen],
                strength=settings.strength,
                gap=settings.gap,
                tolerance=max(tolerance, settings.tolerance),
                max_passes=settings.max_passes,
                jobs=self.jobs,
                report=None if report is None else partial(report, learned),
            )
            yield stage, found
            centre, scale = stage.learned_model(found.theta), float(found.theta[0])

    def confusions(self, model: Parameters, chosen: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        """Return the confusion matrices of some images under a model."""
        key = repr(model)
        missing = [n for n in chosen if (key, n) not in self._confusions]
        found = self._each(lambda n: self._confusion(n, model), missing)
        self._confusions.update(zip([(key, n) for n in missing], found, strict=True))
        return [self._confusions[key, n] for n in chosen]

    def _confusion(self, number: int, model: Parameters) -> npt.NDArray[np.int64]:
        example = self.examples[number]
        work = partial(self.oracle.confusion, example, model, self.labels)
        question = digest(repr(replace(model, provenance={})), *example.load(), example.truth)
        return np.array(answer(self.journal, question, work))

    def _look(self, model: Parameters) -> list[Seen]:
        """Return the statistics of all images with a model's kernels."""
        plain = unadapted(model)
        key = repr(plain)
        if key not in self._seen:
            self._seen[key] = self._each(
                lambda n: self.oracle.look(self.examples[n], plain), self.all
            )
        return self._seen[key]

    def _task(self, number: int, start: Parameters) -> Task:
        """Return an image with its void pixels filled by the start, apart from the others."""
        example = self.examples[number]
        unary, _ = example.load()
        shares = label_shares(unary.reshape(len(unary), -1))
        return Task(example, self.oracle.fill(example, start), shares)

    def _each(self, function: Callable[[int], Any], chosen: Iterable[int]) -> list[Any]:
        arguments = ((number,) for number in chosen)
        stop = self.oracle.stop
        found = run(function, arguments, workers=self.jobs, ordered=True, stop=stop)
        return [done.result() for done in found]


def class_weights(
    examples: Sequence[Example], chosen: Iterable[int], labels: int
) -> npt.NDArray[np.float64]:
    """Return the loss of a wrong pixel by its true label: between 1 and the inverse frequency."""
    counts = np.zeros(labels)
    for n in chosen:
        truth = examples[n].truth
        counts += np.bincount(truth[truth >= 0], minlength=labels)
    seen = int((counts > 0).sum())
    inverse = counts.sum() / (seen * np.maximum(counts, 1))
    return np.asarray(1 - BALANCE + BALANCE * np.minimum(inverse, _HEAVIEST))
