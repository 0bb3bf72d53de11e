"""Adapt a model to a kind of images, without labels: `densecrf.adapt`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from densecrf.label_costs import (
    TOLERATED_BY_MANY,
    BorderStatistics,
    border_statistics,
    sum_statistics,
)
from densecrf.presets import Model, get_model
from densecrf.refinement import build
from densecrf.validation import check_positive, check_threads

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["adapt", "adapted"]


def adapt(
    images: Iterable[Any],
    probabilities: Iterable[Any],
    *,
    model: str | Model = "default",
    tolerated: float = TOLERATED_BY_MANY,
    threads: int | None = None,
    **reading: Any,
) -> Model:
    """Return a model with label costs for images of one kind, from a network's output alone.

    Labels whose regions are thin or scattered in the network's own labelling pay less for their
    borders, so that the refinement does not remove them. Ten images or more of one data set give
    better costs than each image's own, which the default model uses.

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
    chosen = replace(get_model(model), label_costs=None)
    found = []
    for number, (image, given) in enumerate(zip(images, probabilities, strict=True)):
        crf = build(image, given, model=chosen, **reading)
        found.append(border_statistics(crf, check_threads(threads)))
        if len(crf.unary) != len(found[0].pixels):
            raise ValueError(
                f"probabilities: image {number} has {len(crf.unary)} labels, those before "
                f"{len(found[0].pixels)}"
            )
    if not found:
        raise ValueError("images: there are none to adapt to")
    return adapted(chosen, sum_statistics(found), tolerated)


def adapted(model: Model, total: BorderStatistics, tolerated: float = TOLERATED_BY_MANY) -> Model:
    """Return a model with the label costs of some statistics."""
    provenance = {
        "made_by": "adapt",
        "images": total.images,
        "tolerated": tolerated,
        "pixels_by_label": total.pixels.tolist(),
    }
    costs = total.label_costs(tolerated, exponent=2)
    return replace(model, label_costs=costs, about="label costs by adapt", provenance=provenance)
