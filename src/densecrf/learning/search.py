"""Search for the model that learning starts from, by its labellings of images with true labels.

The energy is not linear in standard deviations, nor accuracy and IoU in anything. So a few numbers
are moved by fixed factors, and a move is made only if it is better on the images more surely than
by chance: a small set of images moves little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from densecrf.learning.adaptation import adapted, unadapted
from densecrf.metrics import Interval, bootstrap
from densecrf.model.compatibility import TOLERATED
from densecrf.model.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from densecrf.learning.adaptation import Seen
    from densecrf.model.parameters import Parameters

__all__ = ["Candidate", "gains", "search", "surely_better"]

#: Models whose kernels are tried besides the default's.
OTHERS = tuple(
    replace(PRESETS[name], scale_sigmas=True, confidence=PRESETS["default"].confidence)
    for name in ("tuned", "deeplab")
)
#: What is moved, and by which factor up and down.
MOVES = (("tolerated", 2.0), ("strength", 2**0.5), ("trust", 1.5))
_MOST_MOVES, _ROUNDS = 3, 2  # in one direction; over all numbers
_WORSE = 0.003  # accuracy or IoU that a better model may lose where it gains in the other


@dataclass(frozen=True)
class Candidate:
    """A model to be adapted.

    Attributes
    ----------
    kernels : Parameters
        Whose kernels.
    strength : float
        Factor of their weights.
    tolerated : float
        Nats per pixel that a label's border may cost on average.
    trust : float
        Factor of the label prior's trust.
    """

    kernels: Parameters
    strength: float = 1.0
    tolerated: float = TOLERATED
    trust: float = 1.0

    def adapted(self, seen: Sequence[Seen]) -> Parameters:
        """Return the model adapted to what was seen with its kernels (`unadapted`)."""
        kernels = unadapted(self.kernels)
        model = adapted(kernels, seen, self.tolerated / self.strength)
        prior = None if model.prior is None else model.prior.scaled(self.trust)
        return replace(
            model,
            weight=self.strength * kernels.weight,
            bilateral_weight=self.strength * kernels.bilateral_weight,
            prior=prior,
        )


def gains(ours: Any, theirs: Any) -> dict[str, Interval]:
    """Return by how much one model's confusion matrices are better than another's."""
    return {metric: bootstrap(ours, metric, minus=theirs) for metric in ("accuracy", "iou")}


def surely_better(ours: Any, theirs: Any) -> bool:
    """Whether accuracy and IoU together gain more surely than by chance, and neither loses much.

    The gain must be above a quarter of the intervals' lengths, about one standard error, and more
    with few images, whose intervals are too short.
    """
    found = gains(ours, theirs).values()
    total = sum(g.estimate for g in found)
    spread = sum(g.high - g.low for g in found)
    enough = (0.25 + 2 / len(ours)) * spread
    return total > enough and min(g.estimate for g in found) > -_WORSE


def search(first: Candidate, confusions: Callable[[Candidate], Any]) -> Iterator[Candidate]:
    """Give better and better candidates; the last is one that no move improves.

    There are two rounds of moves at most.

    Parameters
    ----------
    first : Candidate
        Where to start.
    confusions : callable
        Returns a candidate's confusion matrices, one per image.
    """
    best = first
    yield best

    def improves(other: Candidate) -> bool:
        return surely_better(confusions(other), confusions(best))

    for _ in range(_ROUNDS):
        before = best
        for name, factor in MOVES:
            for times in (factor, 1 / factor):
                for _ in range(_MOST_MOVES):
                    other = replace(best, **{name: getattr(best, name) * times})
                    if not improves(other):
                        break
                    best = other
                    yield best
        for kernels in (first.kernels, *OTHERS):
            other = replace(best, kernels=kernels)
            if kernels != best.kernels and improves(other):
                best = other
                yield best
        if best == before:
            break
