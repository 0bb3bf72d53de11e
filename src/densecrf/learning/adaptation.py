"""Adapt a model to a kind of images, without labels: `densecrf.adapt`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.model.compatibility import (
    TOLERATED,
    BorderStatistics,
    border_statistics,
    sum_statistics,
)
from densecrf.model.label_prior import label_shares, prior_from_shares
from densecrf.model.presets import get_parameters
from densecrf.refinement import build
from densecrf.validation import check_positive, check_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from densecrf.model.crf import DenseCRF
    from densecrf.model.parameters import Parameters

__all__ = ["Seen", "adapt", "adapted", "look_at", "unadapted"]

#: Nats by which a pixel's label is better than the next one: usually, and the least that counts.
ORDINARY_EVIDENCE, LEAST_EVIDENCE = 3.5, 0.05


def adapt(
    images: Iterable[Any],
    probabilities: Iterable[Any],
    *,
    model: str | Parameters = "default",
    tolerated: float = TOLERATED,
    threads: int | None = None,
    **reading: Any,
) -> Parameters:
    """Return a model for images of one kind, from a network's output alone.

    Labels whose regions are thin or scattered in the network's own labelling pay less for their
    borders, and so do those that the network is not sure of, so that the refinement does not remove
    them (`densecrf.model.compatibility`). Where most images
    lack most labels, labels of which an image shows little become less probable there
    (`densecrf.model.label_prior`). Ten images or more of one data set give better numbers than each
    image's own, which the default model uses.

    Parameters
    ----------
    images, probabilities : iterable
        As for `densecrf.refine`, one each for every image.
    model : str or Parameters
        Whose kernels are used.
    tolerated : float
        Nats per pixel that the border of a label may cost on average, where the network is as sure
        of it as of most; more removes more.
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
    >>> p[:, :, 15] = [[0.1], [0.9]]  # a line of label 1
    >>> thick, thin = adapt([image], [p], axis=0).label_costs
    >>> thick > thin
    True
    """
    check_positive("tolerated", tolerated)
    chosen = unadapted(get_parameters(model))
    found: list[Seen] = []
    for number, (image, given) in enumerate(zip(images, probabilities, strict=True)):
        found.append(look_at(build(image, given, model=chosen, **reading), check_threads(threads)))
        if len(found[-1].shares) != len(found[0].shares):
            raise ValueError(
                f"probabilities: image {number} has {len(found[-1].shares)} labels, those before "
                f"{len(found[0].shares)}"
            )
    if not found:
        raise ValueError("images: there are none to adapt to")
    return adapted(chosen, found, tolerated)


@dataclass(frozen=True)
class Seen:
    """Statistics of a network's output on one image, per label.

    Attributes
    ----------
    borders : BorderStatistics
        What the labels pay for their borders.
    evidence : ndarray, (labels,)
        By how much the energy of each label's pixels is below that of their second best label,
        together.
    shares : ndarray, (labels,)
        The labels' shares in the image.
    """

    borders: BorderStatistics
    evidence: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]


def look_at(crf: DenseCRF, threads: int = 0) -> Seen:
    """Return the statistics of an image; its model is `unadapted`."""
    best, second = np.partition(crf.unary, 1, axis=0)[:2]
    ahead = np.bincount(crf.unary.argmin(0), second - best, minlength=crf.n_labels)
    evidence = ahead.astype(np.float64)
    return Seen(border_statistics(crf, threads), evidence, label_shares(crf.unary))


def unadapted(model: Parameters) -> Parameters:
    """Return a model without what `adapted` finds."""
    return replace(model, label_costs=None, prior=None)


def adapted(model: Parameters, found: Sequence[Seen], tolerated: float = TOLERATED) -> Parameters:
    """Return a model with the label costs and the prior of what was seen."""
    total = sum_statistics(each.borders for each in found)
    evidence = total.per_pixel(np.sum([each.evidence for each in found], axis=0))
    prices = tolerated * np.sqrt(np.maximum(evidence, LEAST_EVIDENCE) / ORDINARY_EVIDENCE)
    provenance = {
        "made_by": "adapt",
        "images": total.images,
        "tolerated": tolerated,
        "pixels_by_label": total.pixels.tolist(),
    }
    return replace(
        model,
        label_costs=total.label_costs(prices),
        prior=prior_from_shares([each.shares for each in found]),
        about="label costs and prior by adapt",
        provenance=provenance,
    )
