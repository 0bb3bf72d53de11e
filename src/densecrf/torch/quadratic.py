"""The steps of the quadratic relaxation's solvers, in plain tensor operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["QuadraticSteps"]


class QuadraticSteps(ABC):
    """What `densecrf.solvers.quadratic` asks of a problem; see `densecrf.problem.Problem`."""

    @abstractmethod
    def inner(self, u: Tensor, v: Tensor) -> float:
        """Return the inner product."""

    @abstractmethod
    def indicator(self, labels: Tensor) -> Tensor:
        """Return the labelling as a vertex of the product of simplices."""

    def difference(self, u: Tensor, v: Tensor) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""
        distance = (u - v).abs()
        return float(distance.sum()), float(distance.max())

    def lmo(
        self, linear: Tensor, received: Tensor, diagonal: Tensor, y: Tensor
    ) -> tuple[Tensor, float, float]:
        """Return the gradient's vertex, the Frank-Wolfe gap, and the objective."""
        product = received + diagonal * y
        gradient = linear + product
        least, labels = gradient.min(0)
        gap = self.inner(gradient, y) - float(least.double().sum())
        return labels, gap, self.inner(linear, y) + 0.5 * self.inner(product, y)

    def curvature(
        self, labels: Tensor, y: Tensor, target: Tensor, received: Tensor, diagonal: Tensor
    ) -> float:
        """Return the quadratic's curvature in the direction of a vertex."""
        direction = self.indicator(labels) - y
        return self.inner(direction, target - received + diagonal * direction)

    def step_to_vertex(self, labels: Tensor, y: Tensor, step: float) -> Tensor:
        """Return `y` moved by `step` of the way to a vertex."""
        return y + step * (self.indicator(labels) - y)
