"""Accuracy and intersection over union, with bootstrap confidence intervals.

Everything is computed from confusion matrices, one per image. They add up, so that a data set's
accuracy and IoU are those of the summed matrix, and the bootstrap resamples images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.validation import ArgumentError, check_choice, check_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["METRICS", "Interval", "accuracy", "bootstrap", "confusion_matrix", "mean_iou"]

_BLOCK = 500  # resamples at a time, to bound the memory of the summed matrices


def confusion_matrix(labels: Any, truth: Any, classes: int, void: int = 255) -> NDArray[np.int64]:
    """Count pixels by true class (row) and predicted class (column); void truth is left out.

    Parameters
    ----------
    labels, truth
        Integer arrays of one shape: the predicted and the true classes.
    classes
        The number of classes.
    void
        The value in ``truth`` of pixels without a class.

    Examples
    --------
    >>> confusion_matrix([0, 1, 1, 1], [0, 0, 1, 255], classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    predicted, true = np.asarray(labels), np.asarray(truth)
    if predicted.shape != true.shape:
        shapes = f"shape {predicted.shape} and that of truth, {true.shape}"
        raise ArgumentError("labels", ..., f"{shapes}, must be the same")
    known = true != void
    predicted, true = predicted[known], true[known]
    for name, values in (("labels", predicted), ("truth", true)):
        if values.size == 0:
            continue
        if values.dtype.kind not in "uib":
            raise ArgumentError(name, ..., f"dtype {values.dtype}; must be integers")
        if values.min() < 0 or values.max() >= classes:
            span = f"{values.min()}..{values.max()}"
            raise ArgumentError(name, ..., f"range over {span}, outside the {classes} classes")
    counts = np.bincount(true.astype(np.intp) * classes + predicted, minlength=classes**2)
    return counts.reshape(classes, classes)


def accuracy(confusion: Any) -> Any:
    """Return the share of correct pixels; of matrices ``(..., L, L)``, one number each.

    Without any pixel it is NaN.

    Examples
    --------
    >>> float(accuracy([[3, 1], [0, 4]]))
    0.875
    """
    counts = np.asarray(confusion, np.float64)
    with np.errstate(invalid="ignore"):
        return counts.trace(axis1=-2, axis2=-1) / counts.sum(axis=(-2, -1))


def mean_iou(confusion: Any) -> Any:
    """Return the mean intersection over union of the classes in the ground truth.

    A class that is only predicted enlarges the unions of others, but has no term: otherwise a
    single pixel would change the number of terms.

    Examples
    --------
    >>> float(mean_iou([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    0.775
    """
    counts = np.asarray(confusion, np.float64)
    right = counts.diagonal(axis1=-2, axis2=-1)
    union = counts.sum(axis=-1) + counts.sum(axis=-2) - right
    true = counts.sum(axis=-1) > 0
    with np.errstate(invalid="ignore"):
        by_class = np.where(true, right / union, 0)
        return by_class.sum(axis=-1) / true.sum(axis=-1)


#: The metrics of tables and tuning, by name.
METRICS: dict[str, Callable[[Any], Any]] = {"accuracy": accuracy, "iou": mean_iou}


@dataclass(frozen=True)
class Interval:
    """An estimate on all images with a 95 % bootstrap confidence interval (percentiles).

    Examples
    --------
    >>> print(Interval(0.0213, 0.0101, 0.0334))
    0.0213 [0.0101, 0.0334]
    """

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


def bootstrap(
    confusions: Any,
    metric: str = "accuracy",
    *,
    minus: Any = None,
    resamples: int = 5000,
    seed: int = 0,
) -> Interval:
    """Estimate a metric over images, or the difference of two, with a confidence interval.

    Parameters
    ----------
    confusions
        ``(N, L, L)``, one matrix per image.
    metric
        ``"accuracy"`` or ``"iou"``, of the summed matrix.
    minus
        Matrices of another method, in the same order of images: the metric's difference is
        estimated, with both methods on the same resampled images.
    resamples, seed
        Number of resamples with replacement, and their seed.

    Examples
    --------
    >>> one = [[[9, 1], [0, 10]], [[10, 0], [2, 8]]]
    >>> print(bootstrap(one))
    0.9250 [0.9000, 0.9500]
    >>> bootstrap(one, minus=one).high
    0.0
    """
    groups = [np.asarray(group, np.float64) for group in (confusions, minus) if group is not None]
    shape = groups[0].shape
    if len(shape) != 3 or shape[1] != shape[2] or not len(groups[0]):
        remedy = f"shape {shape}; must be (N, L, L), one matrix per image"
        raise ArgumentError("confusions", ..., remedy)
    if groups[-1].shape != shape:
        shapes = f"shape {groups[-1].shape} and that of confusions, {shape}"
        raise ArgumentError("minus", ..., f"{shapes}, must be the same")
    check_choice("metric", metric, tuple(METRICS))
    check_integer("resamples", resamples, at_least=1)

    def measure(times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the metric, or the difference, with image i counted ``times[:, i]`` times."""
        sums = [(times @ g.reshape(len(g), -1)).reshape(-1, *shape[1:]) for g in groups]
        first, *second = (METRICS[metric](group) for group in sums)
        return np.asarray(first - second[0] if second else first)

    generator, count = np.random.default_rng(seed), shape[0]
    drawn = np.concatenate(
        [
            measure(generator.multinomial(count, np.full(count, 1 / count), size).astype(float))
            for size in np.diff([*range(0, resamples, _BLOCK), resamples])
        ]
    )
    # A resample may have no labelled pixel at all, and then no metric.
    known = drawn[~np.isnan(drawn)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return Interval(float(measure(np.ones((1, count)))[0]), float(low), float(high))
