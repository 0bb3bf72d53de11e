"""Loss-augmented MAP inference: the most violating labelling of an image, with a certificate."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from densecrf.deadline import Interrupted
from densecrf.learning.adaptation import Seen, look_at
from densecrf.learning.energy_features import energy_features
from densecrf.learning.stage import Plane
from densecrf.metrics import confusion_matrix
from densecrf.model.compatibility import with_label_costs
from densecrf.operators.pairwise import Pairwise
from densecrf.parallel import run
from densecrf.validation import ArgumentWarning

if TYPE_CHECKING:
    import numpy.typing as npt

    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.examples import Example
    from densecrf.learning.stage import Stage
    from densecrf.model.crf import DenseCRF
    from densecrf.model.parameters import Parameters
    from densecrf.operators import Filter

    Labels = npt.NDArray[np.int64]

__all__ = ["ClusterOracle", "Oracle", "Task"]

_MOST_KEPT = 1 << 23  # pixels of the images whose filters are kept, about 100 bytes each
_MOST_ITERATIONS = 40  # what is found by then is a plane and a bound, whatever the gap
LARGE = 1e4  # energy of a label that a known pixel does not have, when void pixels are filled


@dataclass(frozen=True, eq=False)
class Task:
    """A labelled image in the form that the oracle needs.

    Attributes
    ----------
    example : Example
        The image.
    filled : ndarray of int, (*spatial)
        The truth, void pixels filled.
    shares : ndarray, (labels,)
        The labels' shares in the network's output.
    """

    example: Example
    filled: npt.NDArray[np.int64]
    shares: Vector


class Filters:
    """The filters of the first images of a data set: their kernels stay, whatever their weights."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[Filter]] = {}
        self._pixels = 0

    def shared(self, example: Example, model: Parameters, crf: DenseCRF) -> DenseCRF:
        """Return an image's energy with the filters that are kept, or keep those that it builds."""
        key = (id(example), repr((model.sigma, model.sigma_xy, model.sigma_color)))
        if key in self._kept:
            weights = [kernel.weight for kernel in crf.kernels]
            parts = list(zip(weights, self._kept[key], strict=True))
            return crf.with_pairwise(Pairwise(parts, crf.n, "none"))
        if self._pixels + crf.n <= _MOST_KEPT:
            self._pixels += crf.n
            self._kept[key] = [part for _, part in crf.pairwise.parts]
        return crf


@dataclass(frozen=True)
class Oracle:
    """Loss-augmented MAP inference.

    Attributes
    ----------
    class_weights : ndarray, (labels,)
        The loss of a wrong pixel, by its true label.
    threads, device
        As for `densecrf.DenseCRF.solve`.
    filters : Filters
        The filters of the images, as far as they are kept.
    stop : threading.Event
        Set to end learning: every thread then raises `Interrupted` soon.
    """

    class_weights: Vector
    threads: int | None = None
    device: Any = None
    filters: Filters = field(default_factory=Filters)
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise `Interrupted` where learning is to end."""
        if self.stop.is_set():
            raise Interrupted

    def solve(self, crf: DenseCRF, gap: float = 1e-2, init: Any = None) -> Any:
        """Minimise with a certificate."""
        self.check()
        found = crf.solve(
            "lp",
            gap=gap,
            max_iterations=_MOST_ITERATIONS,
            threads=self.threads,
            device=self.device,
            init=init,
            callback=lambda _: self.stop.is_set(),
        )
        self.check()  # what was cut short must not be taken for an answer
        return found

    def look(self, example: Example, model: Parameters) -> Seen:
        """Return an image's statistics with a model's kernels."""
        return look_at(model.crf(*example.load()))

    def confusion(self, example: Example, model: Parameters, labels: int) -> list[list[int]]:
        """Return an image's confusion matrix under a model."""
        found = self.solve(model.crf(*example.load())).labels
        counts: list[list[int]] = confusion_matrix(found, example.truth, labels, void=-1).tolist()
        return counts

    def fill(self, example: Example, model: Parameters) -> npt.NDArray[np.int64]:
        """Return the truth with its void pixels labelled by the MAP given the others."""
        truth = example.truth
        known = truth >= 0
        if known.all():
            return truth
        unary, image = example.load()
        others = np.arange(len(unary)).reshape(-1, *[1] * truth.ndim) != truth
        fixed = np.where(known & others, np.float32(LARGE), unary)
        labels: npt.NDArray[np.int64] = self.solve(model.crf(fixed, image)).labels
        return np.where(known, truth, labels)

    def separate(
        self, task: Task, init: Labels | None, stage: Stage, theta: Vector, gap: float
    ) -> tuple[Plane, Labels]:
        """Return the plane of the labelling that violates its margin most, and the labelling.

        Parameters
        ----------
        task : Task
            The image.
        init : ndarray of int, (*spatial), optional
            Where the inference starts.
        stage, theta
            What is learned, and its present value.
        gap : float
            Accuracy of the inference.
        """
        unary, image = task.example.load()
        truth, filled = task.example.truth, task.filled
        numbers = stage.numbers(theta)
        added = numbers.presence * stage.correction(task.shares) + numbers.offsets
        known = truth >= 0
        loss = np.where(known, self.class_weights[np.maximum(truth, 0)], 0).astype(np.float32)
        described = unary.max(0) > unary.min(0)
        scored = np.float32(numbers.scale) * unary
        scored += added.astype(np.float32).reshape(-1, *[1] * truth.ndim) * described
        augmented = scored - loss
        at_truth = np.take_along_axis(scored, filled[None], 0)
        np.put_along_axis(augmented, filled[None], at_truth, 0)
        potts = stage.with_weights(numbers.weights).crf(augmented, image)
        potts = self.filters.shared(task.example, stage.model, potts)
        crf = with_label_costs(potts, numbers.costs.tolist())
        found = self.solve(crf, gap, init)
        of_truth = energy_features(unary, crf.pairwise, filled)
        features = of_truth - energy_features(unary, crf.pairwise, found.labels)
        mistaken = truth[known & (found.labels != filled)]
        truth_energy = float(at_truth.sum(dtype=np.float64)) + float(
            numbers.weights @ of_truth.cuts @ numbers.costs
        )
        pixels = float(known.sum())
        plane = Plane(
            np.bincount(mistaken, minlength=len(unary)) / pixels,
            features / pixels,
            max(truth_energy - float(found.lower_bound), 0.0) / pixels,  # negative by rounding
        )
        return plane, found.labels


@dataclass(frozen=True)
class ClusterOracle(Oracle):
    """An oracle whose answers the workers of a cluster find.

    Attributes
    ----------
    client : dask.distributed.Client
        Whose workers.
    """

    client: Any = None

    def look(self, example: Example, model: Parameters) -> Seen:
        """Return an image's statistics with a model's kernels."""
        return cast("Seen", self._asked("look", example, model))

    def confusion(self, example: Example, model: Parameters, labels: int) -> list[list[int]]:
        """Return an image's confusion matrix under a model."""
        return cast("list[list[int]]", self._asked("confusion", example, model, labels))

    def fill(self, example: Example, model: Parameters) -> npt.NDArray[np.int64]:
        """Return the truth with its void pixels labelled by the MAP given the others."""
        return cast("Labels", self._asked("fill", example, model))

    def separate(
        self, task: Task, init: Labels | None, stage: Stage, theta: Vector, gap: float
    ) -> tuple[Plane, Labels]:
        """Return the plane of the labelling that violates its margin most, and the labelling."""
        return cast("tuple[Plane, Labels]", self._asked("separate", task, init, stage, theta, gap))

    def _asked(self, question: str, *given: Any) -> Any:
        asked = [(question, self.class_weights, self.threads, given)]
        self.check()
        (done,) = run(_answer, asked, client=self.client, batch=1, name=question)
        return done.result()


def _answer(question: str, losses: Vector, threads: int | None, given: tuple[Any, ...]) -> Any:
    """Answer a question on a worker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ArgumentWarning)  # as in `fit`
        return getattr(Oracle(losses, threads), question)(*given)
