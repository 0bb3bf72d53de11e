r"""Certified large-margin learning of kernel weights and label costs.

The energy is linear in the numbers θ of a model (`densecrf.learning.energy_features`). A structured
support vector machine with margin rescaling asks that the true labelling y of each image have an
energy below that of every other labelling x by at least its loss:

.. math:: J(\theta) = \tfrac\lambda2 \lVert\theta - \theta^0\rVert^2
          + \frac1N \sum_n \max_x \bigl[\Delta_n(x) - E_\theta(x)\bigr] + E_\theta(y_n) .

The maximum is a MAP problem with the loss in its unaries. `lp` returns a labelling, which gives a
supporting plane and thereby a lower bound on min J, and a bound on every labelling's energy, which
gives an upper bound on J itself. The two together certify the learned model.

The regulariser is centred at a given model θ⁰ and weakens with the number of images.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from densecrf.label_prior import LabelPrior
from densecrf.learning.cutting_planes import Bundle, Vector
from densecrf.learning.energy_features import EnergyFeatures, energy_features
from densecrf.pairwise import Pairwise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from densecrf.filters import Filter
    from densecrf.learning.examples import Example
    from densecrf.model import DenseCRF
    from densecrf.presets import Model

    Labels = npt.NDArray[np.int64]

__all__ = ["Learned", "Oracle", "Plane", "Separates", "Stage", "Task", "learn"]

LEAST_SCALE, LEAST_COST = 0.1, 0.01
OFFSET_UNIT = 0.25  # nats: a label's offset of so much costs as much as doubling a weight
FINEST = 1e-5  # gap of the inference below which rounding errors matter
_MOST_KEPT = 1 << 23  # pixels of the images whose filters are kept, about 100 bytes each
LARGE = 1e4  # energy of a label that a known pixel does not have, when void pixels are filled


@dataclass(frozen=True)
class Plane:
    """A supporting plane of one image's hinge, and a bound on the hinge.

    Attributes
    ----------
    wrong : ndarray, (labels,)
        Share of the known pixels that the most violating labelling x has wrong, by true label.
    features : EnergyFeatures
        Of the truth minus those of x, per known pixel.
    hinge : float
        An upper bound of the hinge at the parameters where the plane was made.
    """

    wrong: Vector
    features: EnergyFeatures
    hinge: float


@dataclass(frozen=True, eq=False)
class Task:
    """A labelled image as the oracle sees it.

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

    def share(self, example: Example, model: Model, crf: DenseCRF) -> None:
        """Give an image's energy the filters that are kept, or keep those that it builds."""
        key = (id(example), repr((model.sigma, model.sigma_xy, model.sigma_color)))
        if key in self._kept:
            weights = [kernel.weight for kernel in crf.kernels]
            parts = list(zip(weights, self._kept[key], strict=True))
            vars(crf)["pairwise"] = Pairwise(parts, crf.n, "none")
        elif self._pixels + crf.n <= _MOST_KEPT:
            self._pixels += crf.n
            self._kept[key] = [part for _, part in crf.pairwise.parts]


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
    """

    class_weights: Vector
    threads: int | None = None
    device: Any = None
    filters: Filters = field(default_factory=Filters)

    def solve(self, crf: DenseCRF, gap: float = 1e-2, init: Any = None) -> Any:
        """Minimise with a certificate."""
        return crf.solve("lp", gap=gap, threads=self.threads, device=self.device, init=init)

    def fill(self, example: Example, model: Model) -> npt.NDArray[np.int64]:
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
        crf = stage.with_numbers(numbers.weights, numbers.costs).crf(augmented, image)
        self.filters.share(task.example, stage.model, crf)
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
            (truth_energy - float(found.lower_bound)) / pixels,
        )
        return plane, found.labels


class Numbers(NamedTuple):
    """The numbers that an energy is made of."""

    scale: float
    presence: float
    offsets: Vector
    weights: Vector
    costs: Vector


@dataclass(frozen=True)
class Stage:
    """Which numbers of a model are learned, the others held fixed.

    Attributes
    ----------
    model : Model
        The model at the regulariser's centre; its label costs are numbers, or none.
    labels : int
        Number of labels.
    learned : {"weights", "costs"}
        The kernels' weights and the label prior's trust and offsets, or the labels' costs; the
        scale of the unaries in both.
    """

    model: Model
    labels: int
    learned: str

    @property
    def prior(self) -> LabelPrior:
        """The label prior at the centre."""
        zero = (0.0,) * self.labels
        return self.model.prior or LabelPrior((1 / self.labels,) * self.labels, zero, zero)

    @property
    def centre(self) -> Numbers:
        """The numbers at the centre."""
        costs = self.model.label_costs
        return Numbers(
            1.0,
            1.0,
            np.array(self.prior.offsets),
            np.array([self.model.weight, self.model.bilateral_weight], np.float64),
            np.ones(self.labels) if costs is None else np.array(costs, np.float64),
        )

    def correction(self, shares: Vector) -> Vector:
        """Return what the prior's trust alone adds to the unaries of an image."""
        return np.asarray(self.prior.energies(shares) - np.array(self.prior.offsets))

    @property
    def anchor(self) -> Vector:
        """The parameters at the centre."""
        _, presence, offsets, weights, costs = self.centre
        if self.learned == "weights":
            return np.array([1.0, presence, *weights, *offsets])
        return np.array([1.0, *costs])

    @property
    def unit(self) -> Vector:
        """The change of each parameter that costs as much as any other."""
        size = np.maximum(self.anchor, 0.1)
        if self.learned == "weights":
            size[-self.labels :] = OFFSET_UNIT
        return size

    @property
    def floor(self) -> Vector:
        """The least parameters: unaries and labels always count for something."""
        if self.learned == "weights":
            return np.array([LEAST_SCALE, *[0.0] * 3, *[-np.inf] * self.labels])
        return np.array([LEAST_SCALE, *[LEAST_COST] * self.labels])

    def numbers(self, theta: Vector) -> Numbers:
        """Return the numbers of an energy with these parameters."""
        scale = float(theta[0])
        if self.learned == "weights":
            presence, weights, offsets = float(theta[1]), theta[2:4], theta[4:]
            return self.centre._replace(
                scale=scale, presence=presence, weights=weights, offsets=offsets
            )
        return self.centre._replace(scale=scale, costs=theta[1:])

    def plane(self, plane: Plane, shares: Vector, class_weights: Vector) -> tuple[float, Vector]:
        """Return a plane's offset and slope in the parameters."""
        centre, features = self.centre, plane.features
        loss, correction = float(class_weights @ plane.wrong), self.correction(shares)
        presence = float(features.areas @ correction)
        if self.learned == "weights":
            pairwise = features.cuts @ centre.costs
            return loss, np.array([features.unary, presence, *pairwise, *features.areas])
        constant = loss + presence + float(features.areas @ centre.offsets)
        return constant, np.array([features.unary, *(centre.weights @ features.cuts)])

    def learned_model(self, theta: Vector) -> Model:
        """Return the model of parameters: unaries at scale 1, the largest label cost 1."""
        scale, presence, offsets, weights, costs = self.numbers(theta)
        largest = max(float(costs.max()), 1e-6)
        trust = presence / scale * np.array(self.prior.trust)
        prior = replace(
            self.prior, trust=tuple(trust.tolist()), offsets=tuple((offsets / scale).tolist())
        )
        return replace(self.with_numbers(weights * largest / scale, costs / largest), prior=prior)

    def with_numbers(self, weights: Vector, costs: Vector) -> Model:
        """Return the model with these weights and label costs, and without a prior."""
        return replace(
            self.model,
            weight=float(weights[0]),
            bilateral_weight=float(weights[1]),
            label_costs=tuple(costs.tolist()),
            prior=None,
        )


class Separates(Protocol):
    """What `learn` needs of an oracle."""

    @property
    def class_weights(self) -> Vector:
        """The loss of a wrong pixel, by its true label."""
        ...

    def separate(
        self, task: Task, init: Labels | None, stage: Stage, theta: Vector, gap: float
    ) -> tuple[Plane, Labels]:
        """Return the plane of the labelling that violates its margin most, and the labelling."""
        ...


@dataclass(frozen=True)
class Learned:
    """The outcome of one stage.

    Attributes
    ----------
    theta : ndarray
        The best parameters found.
    objective, lower_bound : float
        An upper bound of J there, and a lower bound of J everywhere.
    passes : int
        Passes over the images.
    """

    theta: Vector
    objective: float
    lower_bound: float
    passes: int

    @property
    def gap(self) -> float:
        """(objective - lower_bound) / objective: how far from the optimum, at most."""
        return (self.objective - self.lower_bound) / max(self.objective, 1e-12)


def learn(
    stage: Stage,
    tasks: Sequence[Task],
    oracle: Separates,
    planes: Sequence[list[Plane]],
    *,
    strength: float,
    gap: float,
    tolerance: float,
    max_passes: int,
    jobs: int = 1,
    report: Callable[[int, float, float], object] | None = None,
) -> Learned:
    """Minimise J by cutting planes until its certificate is below a tolerance.

    Parameters
    ----------
    stage, tasks, oracle
        What is learned, from which images, with which inference.
    planes : sequence of list of Plane
        Planes of each image that are known already; those found are appended.
    strength : float
        The regulariser's factor for one image; it is divided by their number.
    gap : float
        Accuracy of the inference to begin with; it becomes finer where it limits the certificate.
    tolerance : float
        Relative gap between the bounds of the objective at which to stop.
    max_passes : int
        Most passes over the images.
    jobs : int
        Images at a time.
    report : callable, optional
        Told (passes, objective, lower bound) after each pass.
    """
    bundle = Bundle(stage.anchor, stage.unit, stage.floor, strength / len(tasks), len(tasks))
    for n, (task, known) in enumerate(zip(tasks, planes, strict=True)):
        for plane in known:
            bundle.add(n, *stage.plane(plane, task.shares, oracle.class_weights))
    best = Learned(stage.anchor, float("inf"), -float("inf"), 0)
    starts: list[Labels | None] = [None] * len(tasks)
    with ThreadPoolExecutor(jobs) as pool:
        for made in range(1, max_passes + 1):
            minimum = bundle.minimise()
            theta = minimum.theta
            separate = partial(oracle.separate, stage=stage, theta=theta, gap=gap)
            found = list(pool.map(separate, tasks, starts))
            starts = [labels for _, labels in found]
            reached = objective = bundle.regulariser(theta)
            for n, (plane, _) in enumerate(found):
                offset, slope = stage.plane(plane, tasks[n].shares, oracle.class_weights)
                objective += plane.hinge / len(found)
                reached += max(0.0, offset + float(slope @ theta)) / len(found)
                planes[n].append(plane)
                bundle.add(n, offset, slope)
            if objective < best.objective:
                best = replace(best, theta=theta, objective=objective)
            bound = max(best.lower_bound, minimum.lower_bound)
            best = replace(best, lower_bound=bound, passes=made)
            if report is not None:
                report(made, best.objective, best.lower_bound)
            # Where the planes meet the labellings found, what is left is the inference's own gap.
            exhausted = reached - minimum.lower_bound <= 0.1 * tolerance * max(reached, 1e-12)
            if best.gap <= tolerance or (exhausted and gap <= FINEST):
                break
            gap = max(0.25 * gap, FINEST) if exhausted else gap
    return best
