"""The numbers of a model as parameters in which its energy is linear, and planes in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from densecrf.model.label_prior import LabelPrior

if TYPE_CHECKING:
    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.energy_features import EnergyFeatures
    from densecrf.model.parameters import Parameters

__all__ = ["Plane", "Stage"]

LEAST_SCALE, LEAST_COST = 0.1, 0.01
OFFSET_UNIT = 0.25  # nats: a label's offset of so much costs as much as doubling a weight


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
    model : Parameters
        The model at the regulariser's centre; its label costs are numbers, or none.
    labels : int
        Number of labels.
    learned : {"weights", "costs", "offsets"}
        The kernels' weights and the label prior's trust; the labels' costs; the label prior's
        offsets. The scale of the unaries in each.
    scale : float
        Of the energy at the centre: that of the model, whose unaries have scale 1, times this. The
        margin depends on it, the minimisers do not.
    """

    model: Parameters
    labels: int
    learned: str
    scale: float = 1.0

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
            self.scale,
            self.scale,
            self.scale * np.array(self.prior.offsets),
            self.scale * np.array([self.model.weight, self.model.bilateral_weight], np.float64),
            np.ones(self.labels) if costs is None else np.array(costs, np.float64),
        )

    def correction(self, shares: Vector) -> Vector:
        """Return what the prior's trust alone adds to the unaries of an image."""
        return np.asarray(self.prior.energies(shares) - np.array(self.prior.offsets))

    @property
    def anchor(self) -> Vector:
        """The parameters at the centre."""
        scale, presence, offsets, weights, costs = self.centre
        if self.learned == "weights":
            return np.array([scale, presence, *weights])
        return np.array([scale, *(costs if self.learned == "costs" else offsets)])

    @property
    def unit(self) -> Vector:
        """The change of each parameter that costs as much as any other."""
        size = np.maximum(self.anchor, 0.1)
        if self.learned == "offsets":
            size[1:] = OFFSET_UNIT
        return size

    @property
    def floor(self) -> Vector:
        """The least parameters: unaries and labels always count for something."""
        if self.learned == "weights":
            return np.array([LEAST_SCALE, 0.0, 0.0, 0.0])
        least = LEAST_COST if self.learned == "costs" else -np.inf
        return np.array([LEAST_SCALE, *[least] * self.labels])

    def numbers(self, theta: Vector) -> Numbers:
        """Return the numbers of an energy with these parameters."""
        scale = float(theta[0])
        if self.learned == "weights":
            return self.centre._replace(scale=scale, presence=float(theta[1]), weights=theta[2:])
        if self.learned == "costs":
            return self.centre._replace(scale=scale, costs=theta[1:])
        return self.centre._replace(scale=scale, offsets=theta[1:])

    def plane(self, plane: Plane, shares: Vector, class_weights: Vector) -> tuple[float, Vector]:
        """Return a plane's offset and slope in the parameters."""
        centre, features = self.centre, plane.features
        loss, correction = float(class_weights @ plane.wrong), self.correction(shares)
        presence = float(features.areas @ correction)
        offsets = float(features.areas @ centre.offsets)
        if self.learned == "weights":
            pairwise = features.cuts @ centre.costs
            return loss + offsets, np.array([features.unary, presence, *pairwise])
        constant = loss + centre.presence * presence
        if self.learned == "costs":
            return constant + offsets, np.array([features.unary, *(centre.weights @ features.cuts)])
        constant += float(centre.weights @ features.cuts @ centre.costs)
        return constant, np.array([features.unary, *features.areas])

    def learned_model(self, theta: Vector) -> Parameters:
        """Return the model of parameters: unaries at scale 1, the largest label cost 1."""
        scale, presence, offsets, weights, costs = self.numbers(theta)
        largest = max(float(costs.max()), 1e-6)
        trust = presence / scale * np.array(self.prior.trust)
        prior = replace(
            self.prior, trust=tuple(trust.tolist()), offsets=tuple((offsets / scale).tolist())
        )
        return replace(
            self.with_weights(weights * largest / scale),
            label_costs=tuple((costs / largest).tolist()),
            prior=prior,
        )

    def with_weights(self, weights: Vector) -> Parameters:
        """Return the model with these weights, without label costs and prior."""
        return replace(
            self.model,
            weight=float(weights[0]),
            bilateral_weight=float(weights[1]),
            label_costs=None,
            prior=None,
        )
