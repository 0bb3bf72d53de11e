"""Adapt a model to a kind of images, without labels: `densecrf.adapt`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from densecrf.label_costs import (
    TOLERATED_BY_MANY,
    BorderStatistics,
    border_statistics,
    sum_statistics,
)
from densecrf.label_prior import label_shares, prior_from_shares
from densecrf.presets import Model, get_model
from densecrf.refinement import build
from densecrf.validation import check_positive, check_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from densecrf.model import DenseCRF

__all__ = ["Seen", "adapt", "adapted", "look_at", "unadapted"]


def adapt(
    images: Iterable[Any],
    probabilities: Iterable[Any],
    *,
    model: str | Model = "default",
    tolerated: float = TOLERATED_BY_MANY,
    threads: int | None = None,
    **reading: Any,
) -> Model:
    """Return a model for images of one kind, from a network's output alone.

    Labels whose regions are thin or scattered in the network's own labelling pay less for their
    borders, so that the refinement does not remove them (`densecrf.label_costs`). Where most images
    lack most labels, labels of which an image shows little become less probable there
    (`densecrf.label_prior`). Ten images or more of one data set give better numbers than each
    image's own, which the default model uses.

    Parameters
    ----------
    images, probabilities : iterable
        As for `densecrf.refine`, one each for every image.
    model : str or Model
        Whose kernels are used.
    tolerated : float
        Nats per pixel that a label's border may cost on average; more removes more.
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
    chosen = unadapted(get_model(model))
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
    shares : ndarray, (labels,)
        The labels' shares in the image.
    """

    borders: BorderStatistics
    shares: npt.NDArray[np.float64]


def look_at(crf: DenseCRF, threads: int = 0) -> Seen:
    """Return the statistics of an image; its model is `unadapted`."""
    return Seen(border_statistics(crf, threads), label_shares(crf.unary))


def unadapted(model: Model) -> Model:
    """Return a model without what `adapted` finds."""
    return replace(model, label_costs=None, prior=None)


def adapted(model: Model, found: Sequence[Seen], tolerated: float = TOLERATED_BY_MANY) -> Model:
    """Return a model with the label costs and the prior of what was seen."""
    total = sum_statistics(each.borders for each in found)
    provenance = {
        "made_by": "adapt",
        "images": total.images,
        "tolerated": tolerated,
        "pixels_by_label": total.pixels.tolist(),
    }
    return replace(
        model,
        label_costs=total.label_costs(tolerated),
        prior=prior_from_shares([each.shares for each in found]),
        about="label costs and prior by adapt",
        provenance=provenance,
    )
