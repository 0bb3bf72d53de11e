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

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from densecrf.learning.cutting_planes import Bundle, Vector
from densecrf.parallel import run

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from densecrf.learning.oracle import Labels, Task
    from densecrf.learning.stage import Plane, Stage

__all__ = ["Learned", "Separates", "learn"]

ZERO = 1e-4  # loss per pixel that counts as none
FINEST = 1e-5  # gap of the inference below which rounding errors matter


class Separates(Protocol):
    """What `learn` needs of an oracle."""

    @property
    def class_weights(self) -> Vector:
        """The loss of a wrong pixel, by its true label."""
        ...

    @property
    def stop(self) -> threading.Event:
        """Set to end learning."""
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
        """(objective - lower_bound) / objective: how far from the optimum, at most.

        Objectives below the loss of one pixel in ten thousand count as that much.
        """
        return (self.objective - self.lower_bound) / max(self.objective, ZERO)


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
    for made in range(1, max_passes + 1):
        minimum = bundle.minimise()
        theta = minimum.theta
        separate = partial(oracle.separate, stage=stage, theta=theta, gap=gap)
        given = zip(tasks, starts, strict=True)
        done = run(separate, given, workers=jobs, ordered=True, stop=oracle.stop)
        found = [each.result() for each in done]
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
        # Where both are equal but for rounding, the bound may come out above.
        best = replace(best, lower_bound=min(bound, best.objective), passes=made)
        if report is not None:
            report(made, best.objective, best.lower_bound)
        # Where the planes meet the labellings found, what is left is the inference's own gap.
        exhausted = reached - minimum.lower_bound <= 0.1 * tolerance * max(reached, ZERO)
        if best.gap <= tolerance or (exhausted and gap <= FINEST):
            break
        gap = max(0.25 * gap, FINEST) if exhausted else gap
    return best
