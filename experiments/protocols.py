"""Which energy each method minimises, which one is reported, and with which parameters.

The authors' program compares methods that minimise different energies. Its protocol is kept here
as ``paper``, next to ``shared``, where all methods minimise the energy that is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.validation import check_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = [
    "PARAMETERS",
    "PROTOCOLS",
    "Minimised",
    "Protocol",
    "get_parameters",
    "get_protocol",
]


def _from_the_paper(
    weight: float, sigma: float, bilateral_weight: float, sigma_xy: float, sigma_color: float
) -> Parameters:
    """Convert a row of Table 3: the paper sums over ordered pairs, so our weights are doubled."""
    return Parameters(
        sigma,
        2 * weight,
        sigma_xy,
        sigma_color,
        2 * bilateral_weight,
        pixels=213 * 320,
        about="the paper's Table 3, weights doubled for unordered pairs",
    )


#: Named parameter sets: the presets, and the paper's cross-validated ones (Appendix C.1).
PARAMETERS: dict[str, Parameters] = {
    "msrc-mf": _from_the_paper(7.467846, 1.0, 4.028773, 35.865959, 11.209644),
    "msrc-dc": _from_the_paper(2.247081, 3.535267, 1.699011, 31.232626, 7.949970),
    "pascal-mf": _from_the_paper(100.0, 1.0, 74.877398, 50.0, 5.454272),
    "pascal-dc": _from_the_paper(0.5, 3.071772, 0.960811, 49.785678, 1.0),
    "usual": Parameters(3, 3, 60, 13, 10, about="3/3 and 60/13/10, usual for small images"),
    "tuned-mf": Parameters(
        0.643, 1.67, 104, 10.9, 5.74, pixels=213 * 320, about="tuned for mf, MSRC Val, accuracy"
    ),
    "tuned-lp": PRESETS["tuned"],
    **PRESETS,
}


def get_parameters(name: str) -> Parameters:
    """Return a parameter set by its name.

    Examples
    --------
    >>> get_parameters("msrc-dc").weight
    4.494162
    """
    return PARAMETERS[check_choice("params", name, tuple(PARAMETERS))]


@dataclass(frozen=True)
class Minimised:
    """The energy that a method minimises, relative to the parameters."""

    normalization: str  # of the kernels, as for `densecrf.DenseCRF`
    factor: float = 1.0  # of the kernels' weights
    options: Mapping[str, Any] = field(default_factory=dict)  # the method's, by protocol

    @property
    def energy(self) -> dict[str, Any]:
        """What distinguishes one energy from another."""
        return {"normalization": self.normalization, "factor": self.factor}

    def model(self, unary: NDArray[Any], image: NDArray[Any], parameters: Parameters) -> DenseCRF:
        """Return the model of an image."""
        scaled = replace(
            parameters,
            weight=self.factor * parameters.weight,
            bilateral_weight=self.factor * parameters.bilateral_weight,
        )
        return DenseCRF(unary, scaled.kernels(image), normalization=self.normalization)


_FROM_DC = ("sg-lp", "cg-lp", "prox-lp", "prox-lp-l", "prox-lp-acc")


@dataclass(frozen=True)
class Protocol:
    """How methods are compared."""

    name: str
    about: str  # one line
    reported: Minimised  # the energy that all methods are evaluated in
    # Of methods that do not minimise the reported energy.
    exceptions: Mapping[str, Minimised] = field(default_factory=dict)
    # Methods that start from the result of another, for *its* energy.
    starts: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(_FROM_DC, "dc-neg"))
    default: str = "usual"  # parameters

    def minimised(self, method: str) -> Minimised:
        """Return the energy that a method minimises."""
        return self.exceptions.get(method, self.reported)

    def certified(self, method: str) -> bool:
        """Whether a bound of this method bounds the reported energy."""
        return self.minimised(method).energy == self.reported.energy

    def describe(self, method: str) -> dict[str, Any]:
        """Return, as plain values, what a method does under this protocol."""
        own = self.minimised(method)
        energies = {"minimises": own.energy, "reports": self.reported.energy}
        return {**energies, "options": dict(own.options), "start": self.starts.get(method)}


_NORMALISED = Minimised("symmetric")
# The weights of Table 3 as they are, not doubled, and the pixel's own term kept: with these our
# mean field returns, pixel for pixel, the labellings of the authors' program.
_MEAN_FIELD = Minimised("symmetric", 0.5, {"self_term": True})

#: The protocols by name.
PROTOCOLS: dict[str, Protocol] = {
    "shared": Protocol(
        "shared",
        "all methods minimise and report one energy, with symmetrically normalised kernels",
        _NORMALISED,
    ),
    "paper": Protocol(
        "paper",
        "as the authors' program: mean field, QP and DC minimise normalised energies (mean field "
        "with half the weights), the linear programs the unnormalised one, which is reported",
        Minimised("none"),
        exceptions={
            "mf5": _MEAN_FIELD,
            "mf": _MEAN_FIELD,
            "qp": _NORMALISED,
            "qp-cccp": _NORMALISED,
            "dc-neg": _NORMALISED,
        },
        default="msrc-dc",
    ),
    "shared-unnormalised": Protocol(
        "shared-unnormalised",
        "all methods minimise and report one energy, with kernels as they are",
        Minimised("none"),
        default="msrc-dc",
    ),
}


def get_protocol(name: str | Protocol) -> Protocol:
    """Return a protocol by its name, or the given one.

    Examples
    --------
    >>> get_protocol("paper").minimised("dc-neg").normalization
    'symmetric'
    >>> get_protocol("paper").certified("prox-lp"), get_protocol("paper").certified("mf")
    (True, False)
    """
    if isinstance(name, Protocol):
        return name
    return PROTOCOLS[check_choice("protocol", name, tuple(PROTOCOLS))]
