r"""The matrix K of pairwise weights on torch tensors: :math:`K = \sum_c w_c \tilde k_c`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from densecrf.torch.autograd import barycentric, filtered
from densecrf.torch.lattice import SMALLEST_MASS, Lattice, apply_sum, ordered_sum
from densecrf.torch.plans import Plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from densecrf.torch.engine import Engine
    from densecrf.torch.lattice import Order


@dataclass(frozen=True, eq=False)
class Kernel:
    """One normalised kernel.

    Attributes
    ----------
    lattice : Lattice
        The filter, normalised: what is used where nobody asks for gradients to the features.
    source : Lattice, optional
        The filter before it was normalised, where somebody does; its `corner_weight` is then
        attached to the features.
    normalized : bool
        Whether `lattice` is `source` normalised.
    """

    lattice: Lattice
    source: Lattice | None = None
    normalized: bool = True

    @cached_property
    def _g(self) -> Tensor | None:
        """The factors m^-1/2, attached to the features."""
        if self.source is None or not self.normalized:
            return None
        ones = torch.ones_like(self.source.corner_weight[:, 0])
        return self._raw(ones.unsqueeze(0))[0].clamp(min=SMALLEST_MASS).rsqrt()

    def _raw(self, values: Tensor) -> Tensor:
        assert self.source is not None
        weight = self.source.corner_weight
        plain = replace(self.source, corner_weight=weight.detach())
        return filtered(plain, values, weight)

    def apply(self, values: Tensor) -> Tensor:
        """Filter (channels, n) values, with gradients to them and to the features."""
        if self.source is None:
            return filtered(self.lattice, values)
        if self._g is None:
            return self._raw(values)
        return self._g * self._raw(self._g * values)

    @property
    def _attached(self) -> bool:
        return self.source is not None and torch.is_grad_enabled()

    @property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        if not self._attached:
            return self.lattice.mass
        return self.apply(torch.ones_like(self.lattice.mass).unsqueeze(0))[0]

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        if self.source is None or not self._attached:
            return self.lattice.diagonal()
        own = self.source.diagonal()
        return own if self._g is None else self._g**2 * own

    def ordered(self, t: Tensor, ramps: int) -> Tensor:
        """Filter the order of levels `t` (labels, n) in [0, ramps], which is held fixed.

        The same sums as `Lattice.ordered`, written as plain filterings of ramps, so that gradients
        reach the features.
        """
        labels, n = t.shape
        h = torch.arange(ramps, device=t.device, dtype=t.dtype).unsqueeze(1)
        above = self.apply((t.unsqueeze(1) - h).clamp(0, 1).reshape(-1, n)).view(labels, ramps, n)
        k = t.floor()
        f = t - k
        place = h + 1 - k.unsqueeze(1)
        taps = (place == 0) * (1 - f).unsqueeze(1) + (place == 1) + (place == 2) * f.unsqueeze(1)
        share = torch.where(k > 0, torch.ones_like(f), f)
        return self.mass * share - (above * taps).sum(1)


class Pairwise:
    """The sum of weighted, normalised kernels over label-major tensors (labels, n).

    Parameters
    ----------
    kernels : sequence of Kernel
        The kernels, over the same pixels.
    weights : Tensor or sequence of float
        A weight for each.
    like : Tensor
        (…, n), for n, dtype and device where there is no kernel.
    """

    def __init__(
        self, kernels: Sequence[Kernel], weights: Tensor | Sequence[float], like: Tensor
    ) -> None:
        self.kernels = tuple(kernels)
        self.lattices = [kernel.lattice for kernel in kernels]
        self.weights = weights
        self.factors: list[float] = (
            weights.tolist() if isinstance(weights, torch.Tensor) else [float(w) for w in weights]
        )
        self._like = like
        self._plans = Plans()
        self._kept: dict[tuple[str, bool], Tensor] = {}

    @classmethod
    def build(
        cls,
        features: Sequence[Tensor],
        weights: Tensor | Sequence[float],
        like: Tensor,
        *,
        normalized: bool = True,
        order: Order = "symmetric",
        engine: Engine = "auto",
        workspace: int | None = None,
    ) -> Pairwise:
        """Build the lattices of features, attached to these where they want gradients.

        Parameters
        ----------
        features : sequence of Tensor
            For each kernel, (n, d) or (items, n, d).
        weights, like
            As for the constructor.
        normalized : bool
            Whether to divide by the square roots of row sums.
        order, engine, workspace
            Of `Lattice.build`.
        """
        if not features:
            return cls((), (), like)
        sources = Lattice.build_all(features, order=order, engine=engine, workspace=workspace)
        kernels = []
        for feature, source in zip(features, sources, strict=True):
            lattice = source.normalized() if normalized else source
            if feature.requires_grad and torch.is_grad_enabled():
                attached = replace(source, corner_weight=barycentric(feature, source))
                kernels.append(Kernel(lattice, attached, normalized))
            else:
                kernels.append(Kernel(lattice))
        return cls(kernels, weights, like)

    @cached_property
    def learned(self) -> bool:
        """Whether weights or features want gradients."""
        return (isinstance(self.weights, torch.Tensor) and self.weights.requires_grad) or any(
            kernel.source is not None for kernel in self.kernels
        )

    def _attached(self, values: Tensor) -> bool:
        return torch.is_grad_enabled() and (self.learned or values.requires_grad)

    def _sum(self, terms: Sequence[Tensor]) -> Tensor:
        total = torch.zeros_like(self._like[0]) if not terms else self.weights[0] * terms[0]
        for weight, term in zip(self.weights[1:], terms[1:], strict=True):
            total = total + weight * term
        return total

    @property
    def mass(self) -> Tensor:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        return self._once("mass")

    @property
    def diagonal(self) -> Tensor:
        """The self terms :math:`K_{aa}`, (n,)."""
        return self._once("diagonal")

    def _once(self, name: str) -> Tensor:
        """Sum an attribute of the kernels; kept apart with and without gradients."""
        key = name, self.learned and torch.is_grad_enabled()
        if key not in self._kept:
            self._kept[key] = self._sum([getattr(kernel, name) for kernel in self.kernels])
        return self._kept[key]

    def apply(self, values: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab} v_b` for each channel."""
        if not self.kernels:
            return torch.zeros_like(values)
        if self._attached(values):
            return self._sum([kernel.apply(values) for kernel in self.kernels])
        return apply_sum(self.lattices, self.factors, values, plans=self._plans)

    def ordered(
        self, scores: Tensor, *, levels: int, low: float, high: float, soft: bool = True
    ) -> Tensor:
        r"""Return :math:`\sum_b K_{ab}\, s(t_{ai}, t_{bi})` with the order held fixed."""
        if not self.kernels:
            return torch.zeros_like(scores)
        if not self._attached(scores.detach()):
            return ordered_sum(
                self.lattices,
                self.factors,
                scores.detach(),
                levels=levels,
                soft=soft,
                low=low,
                high=high,
                plans=self._plans,
            )
        ramps = levels - 1
        t = ((scores.detach() - low) * (ramps / (high - low))).clamp(0, ramps)
        t = t if soft else t.floor()
        return self._sum([kernel.ordered(t, ramps) for kernel in self.kernels])
