"""Search for a model by the measure itself: accuracy and IoU on images with true labels.

Neither is differentiable, and few images give uncertain estimates. So a few numbers are moved by
fixed factors, and a move is accepted only if its gain is significant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.metrics import Interval, bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from densecrf.model.parameters import Parameters

__all__ = ["Candidate", "gains", "search", "surely_better"]

#: What is moved, and by which factor up and down.
MOVES = (("strength", 2**0.5), ("reach", 1.6), ("trust", 2.0))
_MOST_MOVES, _ROUNDS = 4, 2  # in one direction; over all numbers
_WORSE = 0.003  # accuracy or IoU that a better model may lose where it gains in the other


@dataclass(frozen=True)
class Candidate:
    """A model with some of its numbers moved."""

    start: Parameters
    strength: float = 1.0  # factor of its weights; 0 leaves the input as it is
    reach: float = 1.0  # factor of its standard deviations of positions
    trust: float = 1.0  # factor of its label prior's trust

    def model(self) -> Parameters:
        """Return the model."""
        start = self.start
        return replace(
            start,
            sigma=np.multiply(start.sigma, self.reach).tolist(),
            sigma_xy=np.multiply(start.sigma_xy, self.reach).tolist(),
            weight=self.strength * start.weight,
            bilateral_weight=self.strength * start.bilateral_weight,
            prior=None if start.prior is None else start.prior.scaled(self.trust),
        )


def gains(ours: Any, theirs: Any) -> dict[str, Interval]:
    """Return the gains of one model's confusion matrices over another's."""
    return {metric: bootstrap(ours, metric, minus=theirs) for metric in ("accuracy", "iou")}


def surely_better(ours: Any, theirs: Any) -> bool:
    """Return whether accuracy and IoU together gain significantly, and neither loses much.

    The gain must be above a quarter of the intervals' lengths, about one standard error, and more
    with few images, whose intervals are too short.
    """
    found = gains(ours, theirs).values()
    total = sum(g.estimate for g in found)
    spread = sum(g.high - g.low for g in found)
    enough = (0.25 + 2 / len(ours)) * spread
    return total > enough and min(g.estimate for g in found) > -_WORSE


def search(first: Candidate, confusions: Callable[[Candidate], Any]) -> Iterator[Candidate]:
    """Yield ever better candidates, starting with the first, in at most two rounds of moves.

    `confusions` returns a candidate's confusion matrices, one per image.
    """
    best = first
    yield best
    moves = MOVES if first.start.prior is not None else MOVES[:-1]
    for _ in range(_ROUNDS):
        before = best
        for name, factor in moves:
            for times in (factor, 1 / factor):
                for _ in range(_MOST_MOVES):
                    other = replace(best, **{name: getattr(best, name) * times})
                    if not surely_better(confusions(other), confusions(best)):
                        break
                    best = other
                    yield best
        if best == before:
            break
