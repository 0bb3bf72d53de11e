"""Adapt a model to a kind of images, without labels: `densecrf.adapt`.

One image does not tell whether a region that disappears was false. Many images do: the refinement
removes false regions of a label and completes true ones. If a label loses more than an eighth of
its evidence over all images, the strength is too high; if none does, it may rise. A label that few
images show may be false in all of them: only labels with evidence in half of the images, and in
four at least, lower the strength.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.model.label_prior import label_shares, prior_from_shares
from densecrf.model.presets import get_parameters
from densecrf.refinement import build
from densecrf.validation import check_gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from densecrf.model import DenseCRF
    from densecrf.model.parameters import Parameters

__all__ = ["Seen", "adapt", "adapted", "look_at", "unadapted"]

#: Share of a label's evidence, in nats over all images, that may be overruled.
OVERRULED = 0.12
#: Smallest and largest factor of the strength.
LEAST, MOST = 0.25, 2.0
#: Number of images that the strength needs, that a prior needs, and that a label must occur in.
MANY, MANY_FOR_PRIOR, OFTEN = 5, 10, 4
_SEEN = 0.0005  # share of all pixels below which a label is not judged


def adapt(
    images: Iterable[Any],
    probabilities: Iterable[Any],
    *,
    model: str | Parameters = "default",
    gap: float = 1e-2,
    threads: int | None = None,
    **reading: Any,
) -> Parameters:
    """Return a model for images of one kind, from a network's output without ground truth.

    Each image is refined. With five images or more, the strength is set so that no label that half
    of them show loses more than an eighth of its evidence. With ten or more, if most lack most
    labels, a prior makes labels less probable in images with little of them
    (`densecrf.model.label_prior`).

    Parameters
    ----------
    images, probabilities : iterable
        As for `densecrf.refine`, one each for every image.
    model : str or Parameters
        The model to adapt.
    gap : float
        Accuracy of the inference, as for `densecrf.refine`.
    threads : int, optional
        Number of threads; all by default.
    **reading
        How to read the input, as for `densecrf.refine`.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((8, 30, 3), np.uint8)
    >>> p = np.full((2, 8, 30), 0.1)
    >>> p[0] = 0.9
    >>> p[:, :, 15] = [[0.1], [0.9]]  # a line of label 1, which is removed
    >>> adapt([image] * 5, [p] * 5, axis=0).provenance["strength"] < 1
    True
    """
    check_gap(gap)
    chosen = unadapted(get_parameters(model))
    found: list[Seen] = []
    for number, (image, given) in enumerate(zip(images, probabilities, strict=True)):
        crf = build(image, given, model=chosen, **reading)
        found.append(look_at(crf, threads, gap))
        if len(found[-1].shares) != len(found[0].shares):
            raise ValueError(
                f"probabilities: image {number} has {len(found[-1].shares)} labels, earlier ones "
                f"have {len(found[0].shares)}"
            )
    if not found:
        raise ValueError("images: there are none to adapt to")
    return adapted(chosen, found)


@dataclass(frozen=True)
class Seen:
    """A network's output on one image and its refinement, by label, (labels,) each."""

    pixels: npt.NDArray[np.float64]  # of the label in the network's own labelling
    evidence: npt.NDArray[np.float64]  # their energies below those of the second best, together
    overruled: npt.NDArray[np.float64]  # the same of those whose label the refinement changed
    shares: npt.NDArray[np.float64]  # of the labels in the image


def look_at(
    crf: DenseCRF,
    threads: int | None = None,
    gap: float = 1e-2,
    device: Any = None,
    method: str = "lp",
) -> Seen:
    """Return the statistics of an image; its model is `unadapted`."""
    limit = gap if method == "lp" else None
    refined = crf.solve(method, gap=limit, threads=threads, device=device).labels.ravel()
    best, second = np.partition(crf.unary, 1, axis=0)[:2]
    labels = crf.unary.argmin(0)

    def by_label(weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.bincount(labels, weights, crf.n_labels).astype(np.float64)

    changed = labels != refined
    evidence = second - best
    shares = label_shares(crf.unary)
    return Seen(by_label(evidence > 0), by_label(evidence), by_label(evidence * changed), shares)


def unadapted(model: Parameters) -> Parameters:
    """Return a model without the changes of `adapted`."""
    return replace(model, prior=None)


def adapted(model: Parameters, found: Sequence[Seen]) -> Parameters:
    """Return a model with the strength and the prior from its statistics.

    Examples
    --------
    >>> from densecrf import Parameters
    >>> seen = Seen(np.array([9e4, 1e4]), np.array([9e4, 1e4]), np.array([10.0, 3e3]), np.ones(2))
    >>> round(adapted(Parameters(), [seen] * 5).provenance["strength"], 2)
    0.4
    """
    pixels, evidences, overruled = (
        np.array([getattr(each, name) for each in found])
        for name in ("pixels", "evidence", "overruled")
    )
    evidence = evidences.sum(0)
    judged = (pixels.sum(0) > _SEEN * pixels.sum()) & (evidence > 0)
    lost = np.divide(overruled.sum(0), evidence, out=np.zeros_like(evidence), where=judged)
    strength = 1.0
    if len(found) >= MANY:
        strength = OVERRULED / max(lost.max(), 1e-9)
        if strength < 1:
            # The number of images that a label's evidence is spread over, by Kish's formula.
            spread = evidence**2 / np.maximum((evidences**2).sum(0), 1e-9)
            often = lost[spread >= max(OFTEN, len(found) / 2)]
            strength = min(1.0, OVERRULED / max(often.max(initial=0), 1e-9))
        strength = float(np.clip(strength, LEAST, MOST))
    shares = [each.shares for each in found]
    provenance = {
        "made_by": "adapt",
        "images": len(found),
        "strength": strength,
        "overruled_by_label": lost.tolist(),
    }
    return replace(
        model,
        weight=strength * model.weight,
        bilateral_weight=strength * model.bilateral_weight,
        prior=prior_from_shares(shares) if len(found) >= MANY_FOR_PRIOR else None,
        about="strength and prior by adapt",
        provenance=provenance,
    )
