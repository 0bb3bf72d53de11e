"""How good is a labelling: accuracy, intersection over union, and how sure we are of it.

Everything is computed from confusion matrices, one an image. They add up, so that a data set's
accuracy and IoU are those of the summed matrix, and the bootstrap resamples images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "METRICS",
    "Interval",
    "accuracy",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_mean",
    "class_iou",
    "confusion_matrix",
    "mean_iou",
]

# Resamples are drawn in blocks of this many, to bound the memory of the summed matrices.
_BLOCK = 500


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
        raise ValueError(
            f"labels of shape {predicted.shape} and truth of shape {true.shape} must be the same"
        )
    known = true != void
    predicted, true = predicted[known], true[known]
    for name, values in (("labels", predicted), ("truth", true)):
        if values.size == 0:
            continue
        if values.dtype.kind not in "uib":
            raise ValueError(f"{name} of type {values.dtype} must be integers")
        if values.min() < 0 or values.max() >= classes:
            raise ValueError(
                f"{name} range over {values.min()}..{values.max()}, outside the {classes} classes"
            )
    counts = np.bincount(true.astype(np.intp) * classes + predicted, minlength=classes**2)
    return counts.reshape(classes, classes)


def accuracy(confusion: Any) -> Any:
    """Return the share of pixels labelled right; of matrices ``(..., L, L)``, one number each.

    Without any pixel it is NaN.

    Examples
    --------
    >>> float(accuracy([[3, 1], [0, 4]]))
    0.875
    """
    counts = np.asarray(confusion, np.float64)
    with np.errstate(invalid="ignore"):
        return counts.trace(axis1=-2, axis2=-1) / counts.sum(axis=(-2, -1))


def class_iou(confusion: Any) -> NDArray[np.float64]:
    """Return intersection over union by class; NaN where a class is neither true nor predicted.

    Examples
    --------
    >>> class_iou([[3, 1, 0], [0, 4, 0], [0, 0, 0]]).tolist()
    [0.75, 0.8, nan]
    """
    counts = np.asarray(confusion, np.float64)
    right = counts.diagonal(axis1=-2, axis2=-1)
    union = counts.sum(axis=-1) + counts.sum(axis=-2) - right
    with np.errstate(invalid="ignore"):
        return np.asarray(right / union)


def mean_iou(confusion: Any) -> Any:
    """Return the mean IoU over the classes that are true or predicted somewhere.

    Examples
    --------
    >>> float(mean_iou([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    0.775
    """
    by_class = class_iou(confusion)
    present = ~np.isnan(by_class)
    with np.errstate(invalid="ignore"):
        return np.where(present, by_class, 0).sum(axis=-1) / present.sum(axis=-1)


#: The metrics that tables and tuning know by name.
METRICS: dict[str, Callable[[Any], Any]] = {"accuracy": accuracy, "iou": mean_iou}


@dataclass(frozen=True)
class Interval:
    """An estimate on all images with a bootstrap confidence interval (percentiles).

    Examples
    --------
    >>> print(Interval(0.0213, 0.0101, 0.0334, 0.95))
    0.0213 [0.0101, 0.0334]
    """

    estimate: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


def bootstrap(
    confusions: Any,
    metric: str = "accuracy",
    *,
    resamples: int = 5000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate a metric over images with a confidence interval.

    Parameters
    ----------
    confusions
        ``(N, L, L)``, one matrix an image.
    metric
        ``"accuracy"`` or ``"iou"``, of the summed matrix.
    resamples, level, seed
        How many times the images are drawn with replacement, the confidence, the seed.

    Examples
    --------
    >>> interval = bootstrap([[[9, 1], [0, 10]], [[10, 0], [2, 8]]])
    >>> interval.estimate, interval.low, interval.high
    (0.925, 0.9, 0.95)
    """
    values, measure = _matrices("confusions", confusions), _metric(metric)
    drawn = _resample([values], measure, resamples, seed)[0]
    return _interval(float(measure(values.sum(axis=0))), drawn, level)


def bootstrap_difference(
    first: Any,
    second: Any,
    metric: str = "accuracy",
    *,
    resamples: int = 5000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate ``metric(first) - metric(second)``, both methods on the same drawn images.

    Parameters
    ----------
    first, second
        ``(N, L, L)`` each, in the same order of images.
    metric, resamples, level, seed
        As in `bootstrap`.

    Examples
    --------
    >>> one = [[[9, 1], [0, 10]], [[10, 0], [2, 8]]]
    >>> bootstrap_difference(one, one).high
    0.0
    """
    pair = [_matrices("first", first), _matrices("second", second)]
    if pair[0].shape != pair[1].shape:
        raise ValueError(
            f"first of shape {pair[0].shape} and second of shape {pair[1].shape} must hold the "
            "same images and classes"
        )
    measure = _metric(metric)
    drawn = _resample(pair, measure, resamples, seed)
    estimate = float(measure(pair[0].sum(axis=0)) - measure(pair[1].sum(axis=0)))
    return _interval(estimate, drawn[0] - drawn[1], level)


def bootstrap_mean(
    values: Any, *, resamples: int = 5000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Estimate the mean of one number an image (an energy difference, say).

    Examples
    --------
    >>> bootstrap_mean([2.0, 2.0, 2.0]).low
    2.0
    """
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
        raise ValueError(f"values of shape {numbers.shape} must be finite numbers, one an image")
    as_matrices = numbers[:, None, None]
    count = len(numbers)
    drawn = _resample([as_matrices], lambda sums: sums[..., 0, 0] / count, resamples, seed)[0]
    return _interval(float(numbers.mean()), drawn, level)


def _matrices(name: str, confusions: Any) -> NDArray[np.float64]:
    values = np.asarray(confusions, np.float64)
    if values.ndim != 3 or values.shape[1] != values.shape[2] or not len(values):
        raise ValueError(f"{name} of shape {values.shape} must be (N, L, L), one matrix an image")
    return values


def _metric(name: str) -> Callable[[Any], Any]:
    if name not in METRICS:
        raise ValueError(f"metric={name!r} is unknown; choose one of {', '.join(METRICS)}")
    return METRICS[name]


def _resample(
    groups: list[NDArray[np.float64]],
    measure: Callable[[Any], Any],
    resamples: int,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Measure each group on the same images, drawn again and again with replacement."""
    if resamples < 1:
        raise ValueError(f"resamples={resamples} must be at least 1")
    count = len(groups[0])
    generator = np.random.default_rng(seed)
    measured: list[list[Any]] = [[] for _ in groups]
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        times = generator.multinomial(count, np.full(count, 1 / count), size).astype(np.float64)
        for group, found in zip(groups, measured, strict=True):
            sums = times @ group.reshape(count, -1)
            found.append(measure(sums.reshape(size, *group.shape[1:])))
    return [np.concatenate(found) for found in measured]


def _interval(estimate: float, drawn: NDArray[np.float64], level: float) -> Interval:
    if not 0 < level < 1:
        raise ValueError(f"level={level} must be between 0 and 1")
    # A drawn set may have no known pixel at all, which says nothing about the metric.
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn):
        return Interval(estimate, float("nan"), float("nan"), level)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level)
