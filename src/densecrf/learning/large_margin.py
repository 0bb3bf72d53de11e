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
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from densecrf.learning.cutting_planes import Bundle, Vector
from densecrf.learning.energy_features import EnergyFeatures, energy_features

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from densecrf.learning.examples import Example
    from densecrf.model import DenseCRF
    from densecrf.presets import Model

__all__ = ["Learned", "Oracle", "Plane", "Separates", "Stage", "learn", "make_bundle"]

LEAST_SCALE, LEAST_COST = 0.1, 0.01
FINEST = 1e-5  # gap of the inference below which rounding errors matter
LARGE = 1e4  # energy of a label that a known pixel does not have, when void pixels are filled


@dataclass(frozen=True)
class Plane:
    """A supporting plane of one image's hinge, and a bound on the hinge.

    Attributes
    ----------
    loss : float
        Of the most violating labelling x.
    features : EnergyFeatures
        Of the truth minus those of x.
    hinge : float
        An upper bound of the hinge at the parameters where the plane was made.
    """

    loss: float
    features: EnergyFeatures
    hinge: float


@dataclass(frozen=True)
class Oracle:
    """Loss-augmented MAP inference.

    Attributes
    ----------
    class_weights : ndarray, (labels,)
        The loss of a wrong pixel, by its true label.
    threads, device
        As for `densecrf.DenseCRF.solve`.
    """

    class_weights: Vector
    threads: int | None = None
    device: Any = None

    def solve(self, crf: DenseCRF, gap: float = 1e-2) -> Any:
        """Minimise with a certificate."""
        return crf.solve("lp", gap=gap, threads=self.threads, device=self.device)

    def fill(self, example: Example, model: Model) -> npt.NDArray[np.int64]:
        """Return the truth with its void pixels labelled by the MAP given the others."""
        truth = example.truth
        known = truth >= 0
        if known.all():
            return truth
        unary, image = example.load()
        others = np.arange(len(unary)).reshape(-1, *[1] * truth.ndim) != truth
        fixed = np.where(known & others, np.float32(LARGE), unary)
        crf = model.crf(fixed, image)
        labels: npt.NDArray[np.int64] = self.solve(crf).labels
        return np.where(known, truth, labels)

    def separate(
        self,
        example: Example,
        filled: npt.NDArray[np.int64],
        stage: Stage,
        theta: Vector,
        gap: float,
    ) -> Plane:
        """Return the plane of the labelling that violates its margin most."""
        unary, image = example.load()
        scale, weights, costs = stage.numbers(theta)
        known = example.truth >= 0
        count = float(known.sum())
        loss = np.where(known, self.class_weights[np.maximum(example.truth, 0)], 0)
        augmented = np.float32(scale) * unary - loss.astype(np.float32)
        np.put_along_axis(
            augmented,
            filled[None],
            np.take_along_axis(augmented, filled[None], 0) + loss[None].astype(np.float32),
            0,
        )
        crf = stage.with_numbers(weights, costs).crf(augmented, image)
        found = self.solve(crf, gap)
        of_truth = energy_features(unary, crf.pairwise, filled)
        wrong = found.labels != filled
        features = of_truth - energy_features(unary, crf.pairwise, found.labels)
        truth_energy = scale * of_truth.unary + float(weights @ of_truth.cuts @ costs)
        return Plane(
            float(loss[wrong].sum()) / count,
            EnergyFeatures(features.unary / count, features.cuts / count),
            (truth_energy - float(found.lower_bound)) / count,
        )


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
        The kernels' weights, or the labels' costs; the scale of the unaries in both.
    """

    model: Model
    labels: int
    learned: str

    @property
    def weights(self) -> Vector:
        """The kernels' weights at the centre."""
        return np.array([self.model.weight, self.model.bilateral_weight], np.float64)

    @property
    def costs(self) -> Vector:
        """The labels' costs at the centre."""
        given = self.model.label_costs
        return np.ones(self.labels) if given is None else np.array(given, np.float64)

    @property
    def anchor(self) -> Vector:
        """The parameters at the centre."""
        return np.array([1.0, *(self.weights if self.learned == "weights" else self.costs)])

    @property
    def floor(self) -> Vector:
        """The least parameters: unaries and labels always count for something."""
        least = 0.0 if self.learned == "weights" else LEAST_COST
        return np.array([LEAST_SCALE, *np.full(len(self.anchor) - 1, least)])

    def numbers(self, theta: Vector) -> tuple[float, Vector, Vector]:
        """Return the unary scale, the kernels' weights and the labels' costs."""
        if self.learned == "weights":
            return float(theta[0]), theta[1:], self.costs
        return float(theta[0]), self.weights, theta[1:]

    def slope(self, features: EnergyFeatures) -> Vector:
        """Return the gradient of the energy with respect to the parameters."""
        cuts = features.cuts
        rest = cuts @ self.costs if self.learned == "weights" else self.weights @ cuts
        return np.array([features.unary, *rest])

    def learned_model(self, theta: Vector) -> Model:
        """Return the model of parameters: unaries at scale 1, the largest label cost 1."""
        scale, weights, costs = self.numbers(theta)
        scale, largest = max(scale, 1e-6), max(float(costs.max()), 1e-6)
        return self.with_numbers(weights * largest / scale, costs / largest)

    def with_numbers(self, weights: Vector, costs: Vector) -> Model:
        """Return the model with these weights and label costs."""
        return replace(
            self.model,
            weight=float(weights[0]),
            bilateral_weight=float(weights[1]),
            label_costs=tuple(costs.tolist()),
        )


class Separates(Protocol):
    """What `learn` needs of an oracle."""

    def separate(
        self,
        example: Example,
        filled: npt.NDArray[np.int64],
        stage: Stage,
        theta: Vector,
        gap: float,
    ) -> Plane:
        """Return the plane of the labelling that violates its margin most."""
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
    examples: Sequence[Example],
    filled: Sequence[npt.NDArray[np.int64]],
    oracle: Separates,
    planes: list[tuple[int, Plane]],
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
    stage, examples, filled, oracle
        What is learned, from which images (void pixels filled), with which inference.
    planes : list of (example, Plane)
        Planes known already; those found are appended.
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
    bundle = make_bundle(stage, range(len(examples)), planes, strength)
    best = Learned(stage.anchor, float("inf"), -float("inf"), 0)
    with ThreadPoolExecutor(jobs) as pool:
        for made in range(1, max_passes + 1):
            minimum = bundle.minimise()
            theta = minimum.theta
            separate = partial(oracle.separate, stage=stage, theta=theta, gap=gap)
            found = list(pool.map(separate, examples, filled))
            objective = bundle.regulariser(theta) + float(np.mean([p.hinge for p in found]))
            reached = bundle.regulariser(theta)
            for n, plane in enumerate(found):
                slope = stage.slope(plane.features)
                reached += max(0.0, plane.loss + float(slope @ theta)) / len(found)
                planes.append((n, plane))
                bundle.add(n, plane.loss, slope)
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


def make_bundle(
    stage: Stage, chosen: Sequence[int], planes: list[tuple[int, Plane]], strength: float
) -> Bundle:
    """Return the planes of some examples as functions of a stage's parameters."""
    anchor = stage.anchor
    position = {example: n for n, example in enumerate(chosen)}
    bundle = Bundle(
        anchor,
        np.maximum(anchor, 0.1),
        stage.floor,
        strength / len(position),
        len(position),
    )
    for example, plane in planes:
        if example in position:
            bundle.add(position[example], plane.loss, stage.slope(plane.features))
    return bundle
