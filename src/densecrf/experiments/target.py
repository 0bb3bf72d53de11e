"""What to tune: a method on labelled images, the search ranges, and how parameters score."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.experiments.metrics import METRICS, confusion_matrix
from densecrf.experiments.protocols import Minimised
from densecrf.io import Dataset, ItemError
from densecrf.presets import NUMBERS, Preset
from densecrf.solvers import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from densecrf.io import Sample

__all__ = ["RANGES", "Target", "ranges_around"]

#: Where to search, on logarithmic scales.
RANGES: dict[str, tuple[float, float]] = {
    "sigma": (0.5, 10.0),
    "weight": (0.1, 30.0),
    "sigma_xy": (5.0, 200.0),
    "sigma_color": (2.0, 50.0),
    "bilateral_weight": (0.1, 50.0),
}


def ranges_around(preset: Preset, factor: float) -> dict[str, tuple[float, float]]:
    """Return ranges that keep every number within a factor of a preset's.

    Examples
    --------
    >>> ranges_around(Preset(sigma=3), 2)["sigma"]
    (1.5, 6)
    """
    if not 1 < factor < math.inf:
        raise ValueError(f"within={factor} must be a factor above 1")
    values = {name: getattr(preset, name) for name in NUMBERS}
    return {name: (value / factor, value * factor) for name, value in values.items()}


@dataclass(frozen=True)
class Target:
    """What to tune.

    Attributes
    ----------
    dataset, images
        The data set, and the names of the images to score on.
    method
        One of `densecrf.METHODS`.
    metric
        ``"accuracy"`` or ``"iou"``.
    normalization
        Of the energy.
    limits
        ``gap``, ``time_limit``, ``max_iterations`` and the method's own options.
    ranges
        Where to search.
    start
        Parameters that are tried first.
    seed
        Of the search and of the order of images.
    first_batch
        After how many images a trial may be given up, again and again with twice as many.
    threads
        Threads an image.
    """

    dataset: Dataset
    images: tuple[str, ...]
    method: str = "lp"
    metric: str = "accuracy"
    normalization: str = "symmetric"
    limits: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(RANGES))
    start: tuple[Preset, ...] = (Preset(3, 3, 60, 13, 10), Preset())
    seed: int = 0
    first_batch: int = 8
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is unknown; choose from {', '.join(METHODS)}")
        if self.metric not in METRICS:
            raise ValueError(
                f"metric {self.metric!r} is unknown; choose one of {', '.join(METRICS)}"
            )
        if self.first_batch < 1:
            raise ValueError(f"first_batch={self.first_batch} must be at least 1")
        for name in NUMBERS:
            low, high = self.ranges.get(name, (math.nan, math.nan))
            if not 0 < low <= high < math.inf:
                raise ValueError(
                    f"ranges[{name!r}]=({low}, {high}) must be two positive numbers, low to high"
                )

    def settings(self) -> str:
        """Return, as one text, all that scores depend on."""
        values = {
            "dataset": str(self.dataset.path.resolve()),
            "images": list(self.images),
            "method": self.method,
            "metric": self.metric,
            "normalization": self.normalization,
            "limits": dict(self.limits),
            "ranges": {name: list(self.ranges[name]) for name in NUMBERS},
            "seed": self.seed,
        }
        return json.dumps(values, sort_keys=True)

    def usable(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Load every image once; return the names of those that can be scored, and why not.

        Raises
        ------
        ValueError
            When none can.
        """
        usable, failures = [], {}
        for name in self.images:
            if name not in self.dataset.items:
                failures[name] = f"{self.dataset.path} has no such image"
                continue
            try:
                sample = self.dataset.items[name].load()
            except ItemError as error:
                failures[name] = error.reason
                continue
            if sample.labels is None:
                failures[name] = f"{self.dataset.path} has no labels/ to score against"
            else:
                usable.append(name)
        if not usable:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(failures.items())[:3])
            raise ValueError(f"{self.dataset.path}: no image can be scored ({why})")
        return tuple(usable), failures

    def pixels(self) -> int:
        """Return how many pixels half of the images have at most."""
        shapes = (self.dataset.items[name].image().shape for name in self.images)
        return int(np.median([shape[0] * shape[1] for shape in shapes]))

    def confusion(self, preset: Preset, sample: Sample) -> NDArray[np.int64]:
        """Run the method on an image and count its pixels by class."""
        energies = sample.scores.energies()
        model = Minimised(self.normalization).model(energies, sample.image, preset)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = model.solve(self.method, threads=self.threads, **self.limits)
        palette = self.dataset.palette
        return confusion_matrix(result.labels, sample.labels, len(palette), palette.void)

    def confusions(self, preset: Preset) -> NDArray[np.int64]:
        """Return ``(N, L, L)``, the confusion matrices of all images with these parameters."""
        samples = (self.dataset.items[name].load() for name in self.images)
        return np.stack([self.confusion(preset, sample) for sample in samples])
