"""The changes of a labelling relative to its input, and when they cause a warning.

The input is the labelling of the unaries alone: each pixel's best label, with probability
softmax(-unary). A certified minimiser may still be far from it, if the pairwise weights are too
strong for the data; these numbers show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from densecrf.model.resolution import best_labels
from densecrf.validation import mention

__all__ = ["Changes", "compare", "warning_of_many"]

#: A pixel is confident where its input probability exceeds this.
CONFIDENT = 0.9

_LOST = 0.75  # share of a label's confident pixels whose loss is reported
_SUBSTANTIAL = 0.02  # share of the image below which a label's confident area is not judged
_OVERTURNED = 0.1  # share of the confident pixels whose reversal is reported
_PRESENT = 0.05  # share of the image that a label must have had for "one label takes all"
_MANY = 5  # images from which on labels are judged by their areas in all of them together
_KEPT = 0.5  # share of its pixels in all images that a label usually keeps
_HARMFUL = 1.0  # squared excess of weights times expected loss of IoU: above it, most images lose
_SEEN = 0.0005  # share of all pixels below which a label is not judged by that

_REMEDY = (
    f"lower the weights ({mention('strength', 0.5)}, or {mention('bilateral_weight')}), or let "
    "densecrf.adapt or densecrf.fit find a model for such images"
)


@dataclass(frozen=True)
class Changes:
    """The difference between a labelling and the input that it was made from.

    Attributes
    ----------
    pixels : int
        Pixels of the image.
    changed : int
        Pixels whose label is not the input's; those with no input do not
        count.
    area_before, area_after : tuple of int
        Pixels of each label in the input and in the labelling.
    confident : int
        Pixels whose input probability is above 0.9.
    overturned : int
        Confident pixels whose label changed.
    confident_by_label, overturned_by_label : tuple of int
        The same for each label of the input.
    loss_by_label : tuple of float
        The decrease of each label's IoU as expected from the input's probabilities; 0 for labels
        without probable pixels.
    loss : float
        Its mean over the other labels.
    excess : float or None
        The weights over those of the default model for scores of this resolution
        (`densecrf.model.resolution`), if it was measured.
    """

    pixels: int
    changed: int
    area_before: tuple[int, ...]
    area_after: tuple[int, ...]
    confident: int
    overturned: int
    confident_by_label: tuple[int, ...]
    overturned_by_label: tuple[int, ...]
    loss_by_label: tuple[float, ...] = ()
    loss: float = 0.0
    excess: float | None = None

    @staticmethod
    def of(tally: "Tally", excess: float | None = None) -> "Changes":
        """Return the changes that were counted."""
        loss = tally.loss()

        def counts(values: npt.NDArray[Any]) -> tuple[int, ...]:
            return tuple(map(int, values))

        return Changes(
            pixels=tally.pixels,
            changed=tally.changed,
            area_before=counts(tally.before),
            area_after=counts(tally.after),
            confident=int(tally.confident.sum()),
            overturned=int(tally.overturned.sum()),
            confident_by_label=counts(tally.confident),
            overturned_by_label=counts(tally.overturned),
            loss_by_label=tuple(loss.tolist()),
            loss=float(loss.sum() / max(tally.judged.sum(), 1)),
            excess=excess,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    def warning(self) -> str:
        """Return a description of suspicious changes with a remedy, for `ArgumentWarning`.

        Empty for changes of the usual kind: false labels removed, borders moved.
        """
        found = self._suspicions()
        return f"{'; '.join(found)}: {_REMEDY}" if found else ""

    def _suspicions(self) -> list[str]:
        found = [
            f"label {label} keeps {self.area_after[label]:,} of {self.area_before[label]:,} pixels "
            f"({wrong:,} of its {sure:,} confident ones changed)"
            for label, (sure, wrong) in enumerate(
                zip(self.confident_by_label, self.overturned_by_label, strict=True)
            )
            if sure > _SUBSTANTIAL * self.pixels
            and wrong > _LOST * sure
            and self.area_after[label] < (1 - _LOST) * self.area_before[label]
        ]
        if self.confident and self.overturned > _OVERTURNED * self.confident:
            found.append(
                f"{self.overturned:,} of {self.confident:,} confident pixels "
                f"({100 * self.overturned / self.confident:.0f} %; input probability above "
                f"{CONFIDENT:g}) changed their label"
            )
        present = sum(area > _PRESENT * self.pixels for area in self.area_before)
        if max(self.area_after) == self.pixels and present > 1:
            found.append(
                f"label {self.area_after.index(self.pixels)} takes all {self.pixels:,} pixels, "
                f"where {present} labels had more than {100 * _PRESENT:g} % of them each"
            )
        if self.excess is not None and self.excess**2 * self.loss > _HARMFUL:
            most = max(self.loss_by_label)
            found.append(
                f"the weights are {self.excess:.1f} times the usual ones for scores of this "
                "resolution, and the mean IoU expected from the input falls by "
                f"{100 * self.loss:.1f} points, that of label {self.loss_by_label.index(most)} by "
                f"{100 * most:.1f}"
            )
        return found


def warning_of_many(
    area_before: Sequence[Sequence[int]], area_after: Sequence[Sequence[int]]
) -> str:
    """Return the labels that lose over half of their pixels in many images, with a remedy.

    In one image a label that disappears may have been false. Over many images, false regions are
    removed, true ones completed, and labels keep most of their area; one that does not is too thin
    for the weights. Empty if there is none, and with fewer than five images.

    Parameters
    ----------
    area_before, area_after : sequence of sequence of int
        Pixels of each label in the input and in the labelling, as in `Changes`, of each image.

    Examples
    --------
    >>> warning_of_many([[900, 90, 10]] * 5, [[950, 48, 2]] * 5)[:44]
    'over all 5 images label 2 keeps 10 of 50 pix'
    >>> warning_of_many([[900, 90, 10]] * 5, [[800, 192, 8]] * 5)
    ''
    """
    if len(area_before) < _MANY or len({len(areas) for areas in area_before}) > 1:
        return ""
    before, after = np.sum(area_before, axis=0), np.sum(area_after, axis=0)
    lost = np.flatnonzero((before > _SEEN * before.sum()) & (after < _KEPT * before))
    found = [f"label {n} keeps {after[n]:,} of {before[n]:,} pixels" for n in lost]
    return f"over all {len(area_before)} images {', '.join(found)}: {_REMEDY}" if found else ""


def compare(
    unary: npt.NDArray[np.floating[Any]],
    labels: npt.NDArray[np.integer[Any]],
    excess: float | None = None,
    certain: Sequence[int] | None = None,
) -> Changes:
    """Return how a labelling differs from that of the unaries alone.

    Parameters
    ----------
    unary : ndarray, (labels, n)
        The energies.
    labels : ndarray of int, (n,) or of the image's shape
        The labelling.
    excess : float, optional
        As in `Changes`.
    certain : sequence of int, optional
        How many pixels of each label there are beside these that keep it, and have it with
        certainty.

    Examples
    --------
    >>> unary = np.array([[0.0, 0.0, 3.0], [3.0, 0.1, 0.0]])  # the second pixel is unsure
    >>> found = compare(unary, np.array([0, 1, 0]))
    >>> found.changed, found.confident, found.overturned
    (2, 2, 1)
    """
    count = len(unary)
    after = labels.reshape(-1)
    before = best_labels(unary)
    # The best label's probability is 1 / sum(exp(best - energy)).
    p = np.exp(unary.min(0) - unary)
    likelihood = p.sum(0)
    confident = likelihood * CONFIDENT < 1
    known = likelihood < count * (1 - 1e-6)  # pixels whose labels are not all alike
    changed = known & (before != after)
    p *= known / likelihood
    every = np.arange(after.size)

    def by_label(labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> Any:
        return np.bincount(labels, weights, minlength=count)

    tally = Tally(
        after.size,
        int(changed.sum()),
        by_label(before[known]),
        by_label(after),
        by_label(after[known]),
        by_label(before[confident]),
        by_label(before[confident & changed]),
        p.sum(1, dtype=np.float64),
        by_label(before, p[before, every]),
        by_label(after, p[after, every]),
    )
    if certain is not None:
        tally = tally.with_certain(np.asarray(certain))
    return Changes.of(tally, excess)


class Tally(NamedTuple):
    """What `Changes` are made of, counted by label; known pixels are those that have an input."""

    pixels: int
    changed: int
    before: npt.NDArray[Any]  # known pixels
    after: npt.NDArray[Any]
    known_after: npt.NDArray[Any]
    confident: npt.NDArray[Any]  # by the label before
    overturned: npt.NDArray[Any]
    mass: npt.NDArray[Any]  # sums of probabilities
    hit_before: npt.NDArray[Any]  # of those of the pixels' own labels
    hit_after: npt.NDArray[Any]

    def with_certain(self, count: npt.NDArray[Any]) -> "Tally":
        """Add so many pixels of each label that have it with certainty, before and after."""
        return Tally(
            self.pixels + int(count.sum()),
            self.changed,
            self.before + count,
            self.after + count,
            self.known_after + count,
            self.confident + count,
            self.overturned,
            self.mass + count,
            self.hit_before + count,
            self.hit_after + count,
        )

    def loss(self) -> npt.NDArray[np.float64]:
        """Return by how much the expected IoU of each label falls; 0 where it hardly occurs."""
        fall = self._iou(self.hit_before, self.before) - self._iou(self.hit_after, self.known_after)
        return np.where(self.judged, fall, 0.0)

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """The labels that some pixels are expected to have."""
        return np.asarray(self.mass > _SEEN * self.pixels)

    def _iou(self, hit: npt.NDArray[Any], area: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return expected intersections over expected unions."""
        return np.asarray(hit / np.maximum(self.mass + area - hit, 1e-9))
