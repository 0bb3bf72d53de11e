"""The numbers of a layer: fixed ones, and those that are learned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from densecrf.validation import ArgumentError, check_choice, check_non_negative, check_positive

if TYPE_CHECKING:
    from densecrf.model.compatibility import LabelTree
    from densecrf.model.label_prior import LabelPrior

__all__ = ["KERNEL_NUMBERS", "LEARNABLE", "LayerParameters", "Sigma"]

LEARNABLE = ("weights", "sigmas", "compatibility")
KERNEL_NUMBERS = (
    "spatial_weight",
    "bilateral_weight",
    "spatial_sigma",
    "bilateral_sigma_xy",
    "bilateral_sigma_color",
)
Sigma = float | Sequence[float]


class LayerParameters(nn.Module):
    """Weights and standard deviations of the kernels, and costs of pairs of labels.

    Parameters
    ----------
    learn : iterable of {"weights", "sigmas", "compatibility"}
        What becomes a parameter. Weights and sigmas are stored as logarithms, so they stay
        positive.
    compatibility : Tensor, optional
        (C, C) costs of pairs of labels.
    numbers : dict
        The `KERNEL_NUMBERS`.
    """

    costs: Tensor | None

    def __init__(
        self, learn: Iterable[str], compatibility: Tensor | None, numbers: dict[str, Any]
    ) -> None:
        super().__init__()
        self._learn = frozenset(check_choice("learn", each, LEARNABLE) for each in learn)
        self._given = {name: _checked(name, numbers[name]) for name in KERNEL_NUMBERS}
        self._fixed: dict[str, Tensor | None] = {}
        for name, value in self._given.items():
            self._store(name, value)
        self._store_costs(compatibility)
        self._tree: LabelTree | None = None
        self._prior: LabelPrior | None = None

    def _store(self, name: str, value: Any) -> None:
        """Keep a positive number: its logarithm as a parameter, or itself, on the host."""
        weight = name.endswith("_weight")
        number = torch.tensor(value) if weight else torch.tensor(value, dtype=torch.float64)
        if weight and value == 0:
            self._fixed[name] = None
        elif ("weights" if weight else "sigmas") in self._learn:
            self.register_parameter(f"log_{name}", nn.Parameter(number.log().float()))
        else:
            self._fixed[name] = number

    def _store_costs(self, compatibility: Tensor | None) -> None:
        learned = "compatibility" in self._learn
        if compatibility is None:
            if learned:
                remedy = "give the compatibility to start from"
                raise ArgumentError("learn", "compatibility", remedy)
            self.register_buffer("costs", None)
            return
        costs = torch.as_tensor(compatibility, dtype=torch.float32).clone()
        if costs.ndim != 2 or costs.shape[0] != costs.shape[1]:
            shape = tuple(costs.shape)
            raise ArgumentError("compatibility", ..., f"shape {shape}; give (C, C)")
        if learned:
            self.costs = nn.Parameter(costs)
        else:
            self.register_buffer("costs", costs, persistent=False)

    def _value(self, name: str) -> Tensor | None:
        log: Tensor | None = getattr(self, f"log_{name}", None)
        return self._fixed.get(name) if log is None else log.exp()

    def _tensors(self) -> list[Tensor | None]:
        return [*self.parameters(), self.costs]

    def _declared(self, image: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Return weight and deviations of position and colour (None: smoothness) per kernel."""
        axes = image.ndim - 2
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        smoothness, appearance = self._value("spatial_weight"), self._value("bilateral_weight")
        if smoothness is not None:
            found.append((smoothness, self._deviations("spatial_sigma", axes, "axes"), None))
        if appearance is not None:
            sigma_xy = self._deviations("bilateral_sigma_xy", axes, "axes")
            color = self._deviations("bilateral_sigma_color", image.shape[1], "channels")
            found.append((appearance, sigma_xy, color))
        return found

    def _deviations(self, name: str, count: int, of_what: str) -> Tensor:
        sigma = self._value(name)
        assert sigma is not None
        if sigma.ndim and len(sigma) != count:
            remedy = f"{len(sigma)} numbers for an image of {count} {of_what}"
            raise ArgumentError(name, ..., remedy)
        return sigma.double()

    def _symmetric_costs(self, unary: Tensor) -> Tensor | None:
        if self.costs is None:
            return None
        if len(self.costs) != len(unary):
            remedy = f"{len(unary)} classes, but a compatibility of {len(self.costs)}"
            raise ArgumentError("logits", ..., remedy)
        return ((self.costs + self.costs.T) / 2).to(unary.device, unary.dtype)


def _checked(name: str, value: Any) -> float | list[float]:
    if name.endswith("_weight"):
        return check_non_negative(name, value)
    if isinstance(value, Sequence):
        return [check_positive(name, number) for number in value]
    return check_positive(name, value)
