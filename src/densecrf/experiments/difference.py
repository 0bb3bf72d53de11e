"""Two runs on the same images: the metrics of each, and their paired difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from densecrf.experiments.metrics import METRICS, Interval, bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from densecrf.experiments.records import Outcome

__all__ = ["Difference", "compare_runs"]


@dataclass(frozen=True)
class Difference:
    """A metric of two runs, and the difference, first minus second, paired by image."""

    metric: str
    images: int  # that both runs have done
    first: Interval
    second: Interval
    difference: Interval


def compare_runs(first: Iterable[Outcome], second: Iterable[Outcome]) -> tuple[Difference, ...]:
    """Compare two runs by every metric, on the labelled images that both have done.

    Parameters
    ----------
    first, second
        One outcome per image each.

    Raises
    ------
    ValueError
        When they have no labelled image in common.

    Examples
    --------
    >>> from densecrf.experiments.records import Outcome
    >>> good = [Outcome("lp", "a", 1.0, 0.1, confusion=np.array([[9, 1], [0, 10]]))]
    >>> poor = [Outcome("mf", "a", 1.0, 0.1, confusion=np.array([[5, 5], [0, 10]]))]
    >>> print(compare_runs(good, poor)[0].difference)
    0.2000 [0.2000, 0.2000]
    """
    counts = [{o.image: o.confusion for o in run if o.confusion is not None}
              for run in (first, second)]  # fmt: skip
    images = sorted(counts[0].keys() & counts[1].keys())
    if not images:
        raise ValueError("no image with ground truth was done by both")
    pair = [np.stack([run[image] for image in images]) for run in counts]
    return tuple(
        Difference(
            metric,
            len(images),
            bootstrap(pair[0], metric),
            bootstrap(pair[1], metric),
            bootstrap(pair[0], metric, minus=pair[1]),
        )
        for metric in METRICS
    )
