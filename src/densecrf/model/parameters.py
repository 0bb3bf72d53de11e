"""Models: the numbers of an energy, by name or from a file.

Every model has one `Spatial` and one `Bilateral` kernel, on colours from 0 to 255, and a cost for
each label. The presets are ours and those in use in published projects; `densecrf.adapt` and
`densecrf.fit` make others.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from densecrf.io.atomic import write_json
from densecrf.io.errors import FileFormatError
from densecrf.model.compatibility import with_label_costs
from densecrf.model.crf import NORMALIZATIONS, DenseCRF
from densecrf.model.kernels import Bilateral, Spatial
from densecrf.model.label_prior import LabelPrior, label_shares, with_label_offsets
from densecrf.model.resolution import Measured, measure
from densecrf.validation import ArgumentError, check_non_negative, check_positive

__all__ = ["NUMBERS", "Parameters", "check_label_count", "read_parameters", "write_parameters"]

SMALLEST_FACTOR = 0.25  # standard deviations of tiny images stay above a pixel
FORMAT, VERSION = "densecrf-model", 1

NUMBERS = ("sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight")


@dataclass(frozen=True)
class Parameters:
    """The parameters of an energy: all numbers that do not come from the image.

    Attributes
    ----------
    sigma, weight : float
        Standard deviation (pixels) and weight of the spatial kernel.
    sigma_xy, sigma_color, bilateral_weight : float
        Standard deviations (pixels; colours from 0 to 255) and weight of the bilateral kernel.
    confidence : float, optional
        Probability that a hard label is right. None: a margin of 3 nats, however many labels there
        are.
    pixels : int
        Size of the images that it was made for.
    scale_sigmas : bool
        Whether the standard deviations of positions follow the size of an image: with sides twice
        as long they are twice as large, so that the labelling does not depend on the resolution.
    about : str
        Its source.
    grain : float, optional
        The grain of scores, in pixels, that the numbers are for. Where it is given, they follow the
        grain of each image's own scores, and `sigma_color` its noise: see
        `densecrf.model.resolution`.
    label_costs : tuple of float, optional
        Costs of labels: two pixels with labels i and j cost
        ``(label_costs[i] + label_costs[j]) / 2`` times the kernel. None: 1 for all (Potts).
    prior : LabelPrior, optional
        Energies added to the unaries by label, from the labels' shares in the image; see
        `densecrf.model.label_prior`.
    normalization : {"symmetric", "none"}
        As for `densecrf.DenseCRF`.
    caution : str
        A warning of methods that find the optimum.
    provenance : dict
        How it was made: by which function, from how many images, with which accuracy.

    Examples
    --------
    Change one number of a preset:

    >>> from dataclasses import replace
    >>> from densecrf.model.presets import PRESETS
    >>> replace(PRESETS["deeplab"], bilateral_weight=6).sigma_xy
    67
    """

    sigma: Any = 3
    weight: float = 3
    sigma_xy: Any = 80
    sigma_color: Any = 13
    bilateral_weight: float = 10
    confidence: float | None = 0.7
    pixels: int = 375 * 500
    about: str = ""
    scale_sigmas: bool = False
    grain: float | None = None
    label_costs: tuple[float, ...] | None = None
    prior: LabelPrior | None = None
    normalization: str = "symmetric"
    caution: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def sized(self, shape: tuple[int, ...], factor: bool | float | None = None) -> "Parameters":
        """Return the numbers with standard deviations in pixels of an image of this shape.

        `factor` is a number, or whether they follow the size of the image; by default
        `scale_sigmas`.
        """
        follow = self.scale_sigmas if factor is None else factor
        if follow is False:
            times = 1.0
        elif follow is True:
            side = math.prod(shape) ** (1 / len(shape))
            times = max(side / math.sqrt(self.pixels), SMALLEST_FACTOR)
        else:
            times = check_positive("scale_sigmas", follow)
        sigma, sigma_xy = _times(self.sigma, times), _times(self.sigma_xy, times)
        return replace(self, sigma=sigma, sigma_xy=sigma_xy, scale_sigmas=False)

    def following(self, found: Measured) -> "Parameters":
        """Return the parameters for scores of this grain, if they depend on it."""
        if self.grain is None:
            return self
        times = found.grain / self.grain
        return replace(
            self,
            sigma=_times(self.sigma, times),
            sigma_xy=_times(self.sigma_xy, times),
            sigma_color=found.sigma_color,
            weight=found.strength * self.weight,
            bilateral_weight=found.strength * self.bilateral_weight,
            grain=None,
        )

    def spaced(self, distances: Sequence[float]) -> "Parameters":
        """Return the numbers for pixels that lie at these distances along each axis.

        Standard deviations of positions, in units of such a distance, become those of each axis in
        pixels.

        Examples
        --------
        >>> Parameters(sigma=3, sigma_xy=80).spaced((5, 1, 1)).sigma
        (0.6, 3.0, 3.0)
        """

        def by_axis(sigma: Any) -> tuple[float, ...]:
            return tuple(float(each) for each in np.divide(sigma, distances))

        return replace(self, sigma=by_axis(self.sigma), sigma_xy=by_axis(self.sigma_xy))

    def kernels(self, image: Any, largest: float | None = None) -> list[Spatial | Bilateral]:
        """Return the kernels of an image, (*spatial) or (*spatial, channels), from 0 to 255.

        Its largest absolute value is given where it is known to be finite.
        """
        spatial = Spatial(self.sigma, self.weight)
        try:
            appearance = Bilateral(
                image, self.sigma_xy, self.sigma_color, self.bilateral_weight, largest=largest
            )
            return [spatial, appearance]
        except ArgumentError as error:
            raise error.renamed(weight="bilateral_weight") from error

    def scaled(self, strength: float) -> "Parameters":
        """Return the parameters with scaled influence; 0 leaves the input as it is."""
        check_non_negative("strength", strength)
        return replace(
            self,
            weight=strength * self.weight,
            bilateral_weight=strength * self.bilateral_weight,
            prior=None if self.prior is None else self.prior.scaled(strength),
        )

    def crf(
        self, unary: Any, image: Any, *, ignore: Any = None, largest: float | None = None
    ) -> DenseCRF:
        """Return the energy of an image.

        Parameters
        ----------
        unary : array_like, (labels, *spatial)
            Energies.
        image : array_like
            The image, colours from 0 to 255.
        ignore : array_like of bool, optional
            As for `densecrf.DenseCRF`.
        largest : float, optional
            The largest absolute value of the image, where it and the unaries are known to be
            finite.
        """
        if self.grain is not None:
            own = self.following(measure(np.asarray(unary), image))
            return own.crf(unary, image, ignore=ignore, largest=largest)
        kernels = self.sized(np.shape(unary)[1:]).kernels(image, largest)
        declared = DenseCRF if largest is None else DenseCRF.from_checked
        crf = declared(unary, kernels, self.normalization, ignore=ignore)
        crf.caution = self.caution
        if self.prior is not None:
            check_label_count("prior", self.prior.frequencies, crf.n_labels)
            crf = with_label_offsets(crf, self.prior.energies(label_shares(crf.unary)))
        if self.label_costs is None or self.weight == self.bilateral_weight == 0:
            return crf
        check_label_count("label_costs", self.label_costs, crf.n_labels)
        return with_label_costs(crf, self.label_costs)


def check_label_count(name: str, given: Sequence[float], labels: int) -> None:
    """Refuse a model of another number of labels."""
    if len(given) != labels:
        remedy = f"has {name} for {len(given)} labels, but there are {labels}; make one for these "
        raise ArgumentError("model", ..., remedy + "labels by densecrf.adapt or densecrf.fit")


def _times(sigma: Any, factor: float) -> Any:
    return sigma if factor == 1 else np.multiply(sigma, factor)


def write_parameters(path: str | os.PathLike[str], model: Parameters, **remarks: Any) -> None:
    """Write parameters as a JSON file that `read_parameters`, ``--params`` and ``--model`` read.

    Parameters
    ----------
    path : path-like
        The file, written atomically.
    model : Parameters
        The parameters.
    **remarks
        Further values for the file.
    """
    parameters = asdict(model)
    provenance = parameters.pop("provenance")
    for name in ("label_costs", "prior", "normalization", "caution"):
        if parameters[name] == getattr(Parameters, name):
            del parameters[name]
    head = {"format": FORMAT, "version": VERSION}
    write_json(path, {**head, "parameters": parameters, "provenance": provenance, **remarks})


def read_parameters(path: str | os.PathLike[str]) -> Parameters:
    """Read a file of parameters.

    It holds one JSON object with the numbers ``sigma``, ``weight``, ``sigma_xy``, ``sigma_color``
    and ``bilateral_weight``, or has that object under ``parameters``.

    Raises
    ------
    FileFormatError
        A ValueError that names the file and the error.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.json"
    >>> write_parameters(file, Parameters(sigma_xy=40, label_costs=(1.0, 0.5)))
    >>> read_parameters(file).label_costs
    (1.0, 0.5)
    """
    try:
        raw = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"is not JSON ({error})") from error
    values = raw.get("parameters", raw) if isinstance(raw, dict) else None
    flat = values is raw  # the numbers alone, without a version
    if not isinstance(values, dict):
        raise FileFormatError(path, "must hold one JSON object of parameters")
    if not flat and (version := raw.get("version", VERSION)) != VERSION:
        raise FileFormatError(
            path, f"has version {version!r} of the model format; this densecrf reads {VERSION}"
        )
    known = {field.name for field in fields(Parameters)} - {"provenance"}
    if missing := [name for name in NUMBERS if name not in values]:
        raise FileFormatError(path, f"lacks the parameters {', '.join(missing)}")
    if unknown := [name for name in values if name not in known]:
        raise FileFormatError(path, f"has unknown parameters: {', '.join(map(str, unknown))}")
    for name in NUMBERS:
        given = values[name]
        each = (
            given
            if isinstance(given, list) and given and name in ("sigma", "sigma_xy")
            else [given]
        )
        if not all(_number(one) and (one > 0 or not name.startswith("sigma")) for one in each):
            raise FileFormatError(path, f"{name} is {given!r}; it must be a positive number")
    if (normalization := values.get("normalization", "symmetric")) not in NORMALIZATIONS:
        reason = (
            f"normalization is {normalization!r}; it must be one of {', '.join(NORMALIZATIONS)}"
        )
        raise FileFormatError(path, reason)
    if not isinstance(values.get("caution", ""), str):
        raise FileFormatError(path, "caution must be a text")
    provenance = {} if flat else raw.get("provenance", {})
    if not isinstance(provenance, dict):
        raise FileFormatError(path, "provenance must be a JSON object")
    return Parameters(**{**values, **_by_label(path, values)}, provenance=provenance)


def _number(value: Any, least: float = 0.0) -> bool:
    """Whether a JSON value is a finite number that is not too small."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and math.isfinite(value) and value >= least


def _by_label(path: str | os.PathLike[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label costs and the prior of a file."""
    costs, prior = values.get("label_costs"), values.get("prior")
    least = {"frequencies": 1e-12, "trust": 0.0, "offsets": -math.inf}
    if costs is not None and not _numbers(costs):
        reason = "label_costs must be a list of non-negative numbers, one for each label"
        raise FileFormatError(path, reason)
    if prior is None:
        return {"label_costs": costs and tuple(costs)}
    if (
        not isinstance(prior, dict)
        or set(prior) != set(least)
        or not all(_numbers(prior[name], lowest) for name, lowest in least.items())
        or len({len(each) for each in prior.values()}) > 1
    ):
        reason = f"prior must hold lists of numbers {', '.join(least)}, one for each label"
        raise FileFormatError(path, reason)
    labels = len(prior["trust"])
    if costs is not None and len(costs) != labels:
        reason = f"has label_costs for {len(costs)} labels and a prior for {labels}"
        raise FileFormatError(path, reason)
    made = LabelPrior(**{name: tuple(each) for name, each in prior.items()})
    return {"label_costs": costs and tuple(costs), "prior": made}


def _numbers(value: Any, least: float = 0.0) -> bool:
    """Whether a JSON value is a list of two or more finite numbers that are not too small."""
    return isinstance(value, list) and len(value) > 1 and all(_number(x, least) for x in value)
