"""The specification of an energy: its numbers, and the reading of an image and its scores.

It holds the keywords of `densecrf.refine`, checked once; all functions that make an energy of an
image use it.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import color_range, without_alpha
from densecrf.model.parameters import NUMBERS, Parameters
from densecrf.model.presets import get_parameters
from densecrf.model.reading import KINDS, read
from densecrf.model.resolution import Measured, measure
from densecrf.model.unaries import energies, forget, plant
from densecrf.validation import check_choice, check_fraction, check_non_negative

__all__ = ["KEYWORDS", "Specification"]


@dataclass(frozen=True, eq=False)
class Specification:
    """How an image and its scores or labels become an energy.

    The attributes are the keywords of `densecrf.refine`; `model` may be a name or a file. ``sigma``
    to ``confidence`` are None for the model's own.

    Examples
    --------
    >>> import numpy as np
    >>> specification = Specification(strength=0.5, kind="labels")
    >>> labels = np.array([[0, 0, 1], [0, 1, 1]])
    >>> specification.crf(100 * labels, labels).n_labels
    2
    """

    model: Any = "default"
    strength: float = 1.0
    sigma: Any = None
    weight: float | None = None
    sigma_xy: Any = None
    sigma_color: Any = None
    bilateral_weight: float | None = None
    confidence: float | None = None
    scale_sigmas: bool | float | None = None
    kind: str | None = None
    axis: int | None = None
    channel_axis: int | None = None
    n_labels: int | None = None
    void: Any = "auto"
    clip: float = 1e-5
    image_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Find the model, and check the arguments that do not depend on an image."""
        object.__setattr__(self, "model", get_parameters(self.model))
        check_non_negative("strength", self.strength)
        check_fraction("clip", self.clip)
        if self.kind is not None:
            check_choice("kind", self.kind, KINDS)

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the energy that are given one by one."""
        named = {name: getattr(self, name) for name in (*NUMBERS, "confidence")}
        return {name: value for name, value in named.items() if value is not None}

    def keywords(self) -> dict[str, Any]:
        """Return the keywords that make it."""
        return {name: getattr(self, name) for name in KEYWORDS}

    @property
    def confidence_of_labels(self) -> float | None:
        """The probability that a hard label is right; None for a margin."""
        model: Parameters = self.model
        return model.confidence if self.confidence is None else self.confidence

    def parameters(self, grid: tuple[int, ...], found: Measured | None) -> Parameters:
        """Return the numbers of the energy on a grid of pixels, for what was measured of it.

        Standard deviations given one by one are in pixels, unless `scale_sigmas` is given.
        """
        model: Parameters = self.model if found is None else self.model.following(found)
        if self.scale_sigmas is None:
            chosen = replace(model.sized(grid), **self.numbers)
        else:
            chosen = replace(model, **self.numbers).sized(grid, self.scale_sigmas)
        return chosen.scaled(self.strength)

    def crf(self, image: Any, known: Any, *, ignore: Any = None, seeds: Any = None) -> DenseCRF:
        """Return the energy of an image and the scores or labels of its pixels."""
        reading = read(image, known, kind=self.kind, axis=self.axis, channel_axis=self.channel_axis)
        grid = reading.grid
        unary = energies(
            reading,
            kind=self.kind,
            n_labels=self.n_labels,
            void=self.void,
            confidence=self.confidence_of_labels,
            clip=self.clip,
        )
        pixels = reading.pixels
        if self.channel_axis is None:
            pixels = without_alpha(pixels, grid)
        pixels, largest = color_range(pixels, self.image_range)
        coarse = 0.0 if reading.content == "labels" else reading.enlarged  # hard labels: no cells
        found = measure(unary, pixels, coarse)
        if ignore is not None:
            forget(unary, ignore)
        if seeds is not None:
            plant(unary, seeds)
        unary.setflags(write=False)
        crf = self.parameters(grid, found).crf(unary, pixels, largest=largest)
        crf.measured = found
        return crf


#: The names of the keywords.
KEYWORDS = tuple(field.name for field in fields(Specification))
