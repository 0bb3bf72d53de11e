r"""Learn which labels go together in an image: the matrix W of `densecrf.label_prior`.

Let :math:`z_n` be the logarithms of the labels' shares in image n over those in the data set, as
the label prior has them, with zero in place of negative ones, and :math:`P_n` its pixels with a
true label y. W is the matrix by which the true labels are most probable, each image weighing the
same (multinomial logistic regression):

.. math:: J(V) = \lambda \lVert V \rVert^2 + \frac1N \sum_n \frac1{|P_n|} \sum_{a \in P_n}
          -\log p_a(y_a), \qquad p_a(i) \propto e^{-\phi_a(i) + (W z_n)_i}, \qquad
          W = V \operatorname{diag}(2\tau) .

The unaries :math:`\phi` have the rest of the prior in them. The trust :math:`\tau_j` scales the
features: shares that hardly differ from image to image are noise, and say little of other labels,
too. J is strongly convex, with the modulus :math:`2\lambda`, so every V proves a lower bound,

.. math:: \min J \ge J(V) - \frac{\lVert \nabla J(V) \rVert^2}{4\lambda} .

It is minimised by L-BFGS until that certificate is good enough. Where V = 0 is, nothing is learned.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from densecrf.learning.cutting_planes import fit_extra
from densecrf.learning.large_margin import Learned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from densecrf.label_prior import LabelPrior
    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.examples import Example
    from densecrf.presets import Model
    from densecrf.validation import FloatArray

__all__ = ["Sample", "learn_cooccurrence", "most_pixels", "sample_pixels"]

#: The regulariser's factor λ for one image.
LAMBDA = 0.4
#: The certificate is that good at least, relative to the objective: a pass is cheap.
ACCURACY = 1e-4
MOST_PASSES = 300
_MOST_PIXELS, _MOST_NUMBERS = 4000, 1 << 25  # per image; of all images and labels together


@dataclass(frozen=True, eq=False)
class Sample:
    """Some pixels of an image that have unaries and a true label.

    Attributes
    ----------
    unary : ndarray, (pixels, labels)
        Their energies.
    truth : ndarray of int, (pixels,)
        Their true labels.
    shares : ndarray, (labels,)
        The labels' shares in the whole image.
    """

    unary: FloatArray
    truth: npt.NDArray[np.int64]
    shares: Vector


def most_pixels(images: int, labels: int) -> int:
    """Return how many pixels of each image to sample: all of them together fit into memory."""
    return max(1, min(_MOST_PIXELS, _MOST_NUMBERS // (images * labels)))


def sample_pixels(example: Example, shares: Vector, most: int) -> Sample:
    """Return pixels of an image at even distances among those that can be learned from."""
    unary, _ = example.load()
    energies, truth = unary.reshape(len(unary), -1), example.truth.reshape(-1)
    usable = np.flatnonzero((truth >= 0) & (energies.max(0) > energies.min(0)))
    count = min(len(usable), most)
    chosen = usable[np.arange(count) * len(usable) // max(count, 1)]
    return Sample(np.ascontiguousarray(energies[:, chosen].T), truth[chosen], shares)


def learn_cooccurrence(
    model: Model,
    samples: Sequence[Sample],
    *,
    strength: float = 1.0,
    tolerance: float = ACCURACY,
    jobs: int = 1,
    report: Callable[[int, float, float], object] | None = None,
) -> tuple[Model, Learned]:
    """Return the model with a matrix of co-occurrences added to its label prior, and V.

    A model without a label prior, or whose prior has no trust, is returned as it is.

    Parameters
    ----------
    model : Model
        The model, adapted to the images.
    samples : sequence of Sample
        Pixels of each image.
    strength : float
        Factor of the regulariser, which is divided by the number of images.
    tolerance : float
        Relative gap between the bounds of the objective at which to stop.
    jobs : int
        Images at a time.
    report : callable, optional
        Told (passes, objective, lower bound) after each pass.
    """
    optimize = fit_extra("scipy.optimize")
    labels = len(samples[0].shares)
    prior, size = model.prior, (labels, labels)
    images = [_image(sample, prior) for sample in samples if len(sample.truth)]
    penalty = LAMBDA * strength / max(len(images), 1)
    best = Learned(np.zeros(labels**2), float("inf"), -float("inf"), 0)

    def objective(theta: Vector) -> tuple[float, Vector]:
        nonlocal best
        value, gradient = _objective(theta.reshape(size), images, penalty, pool.map)
        bound = max(best.lower_bound, value - float(np.sum(gradient**2)) / (4 * penalty))
        if value < best.objective:
            best = replace(best, theta=theta.copy(), objective=value)
        best = replace(best, lower_bound=min(bound, best.objective), passes=best.passes + 1)
        if report is not None:
            report(best.passes, best.objective, best.lower_bound)
        if best.gap <= min(tolerance, ACCURACY):
            raise _CertifiedError
        return value, gradient.reshape(-1)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            options = {"maxfun": MOST_PASSES, "maxiter": MOST_PASSES, "ftol": 0, "gtol": 0}
            optimize.minimize(objective, best.theta, jac=True, method="L-BFGS-B", options=options)
        except _CertifiedError:
            pass
    if prior is None or not best.theta.any():
        return model, best
    matrix = best.theta.reshape(size) * (2 * np.array(prior.trust))
    if prior.cooccurrence:
        matrix += np.array(prior.cooccurrence)
    rows = tuple(tuple(row) for row in matrix.tolist())
    return replace(model, prior=replace(prior, cooccurrence=rows)), best


class _CertifiedError(Exception):
    """The objective is near enough to its minimum."""


@dataclass(frozen=True, eq=False)
class _Image:
    """One image's part of the objective: scores (pixels, labels), truth, features 2 τ max(z, 0)."""

    scores: FloatArray
    truth: npt.NDArray[np.int64]
    features: Vector


def _image(sample: Sample, prior: LabelPrior | None) -> _Image:
    if prior is None:
        return _Image(-sample.unary, sample.truth, np.zeros(len(sample.shares)))
    added = prior.energies(sample.shares)
    features = 2 * np.array(prior.trust) * prior.log_ratios(sample.shares).clip(0)
    return _Image(-sample.unary - added.astype(np.float32), sample.truth, features)


def _objective(
    matrix: Vector,
    images: Sequence[_Image],
    penalty: float,
    each: Callable[..., Iterable[tuple[float, Vector]]] = map,
) -> tuple[float, Vector]:
    """Return J(V) and its gradient."""
    value = penalty * float(np.sum(matrix**2))
    gradient = 2 * penalty * matrix
    for image, (entropy, slope) in zip(
        images, each(partial(_cross_entropy, matrix), images), strict=True
    ):
        value += entropy / len(images)
        gradient += slope[:, None] * image.features / len(images)
    return value, gradient


def _cross_entropy(matrix: Vector, image: _Image) -> tuple[float, Vector]:
    """Return the mean of -log p(y) over an image's pixels, and its gradient by label."""
    scores = image.scores + (matrix * image.features).sum(1)
    scores -= scores.max(1, keepdims=True)
    p = np.exp(scores)
    total = p.sum(1)
    of_truth = scores[np.arange(len(scores)), image.truth]
    truth = np.bincount(image.truth, minlength=len(matrix)) / len(scores)
    return float(np.mean(np.log(total) - of_truth)), (p / total[:, None]).mean(0) - truth
