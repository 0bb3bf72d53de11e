r"""Relaxed energies as training losses for weak supervision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from densecrf.model.presets import PRESETS
from densecrf.operators.torch.autograd import filtered
from densecrf.operators.torch.lattice import Lattice
from densecrf.torch.batches import features_of, working_dtype
from densecrf.torch.inputs import check_finite, check_mask, checked_pair
from densecrf.torch.problem import computed
from densecrf.validation import check_choice, check_integer, check_non_negative, check_positive

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DenseCRFLoss"]

_DEFAULT = PRESETS["default"]


class DenseCRFLoss(nn.Module):
    r"""The pairwise energy of a network's probabilities, to be added to a loss on few labels.

    With :math:`s` = softmax(logits) and :math:`K` as in `DenseCRF`:

    - ``"quadratic"``, the regulariser of Tang et al. (2018), the expected energy:
      :math:`\sum_{a<b} K_{ab} \sum_i s_{ai} (1 - s_{bi})`;
    - ``"lp"``, the relaxation that `densecrf` minimises:
      :math:`\sum_{a<b} K_{ab} \tfrac12 \sum_i |s_{ai} - s_{bi}|`. It is lower, convex, and has no
      gradient where two pixels have equal probabilities.

    Both equal the Potts energy for probabilities of 0 and 1, and are divided by the number of
    pixels that count.

    Parameters
    ----------
    form : {"quadratic", "lp"}
        The form of the loss.
    spatial_sigma, spatial_weight, bilateral_sigma_xy, bilateral_sigma_color, bilateral_weight
        As for `DenseCRF`, with its standard deviations; by default only the appearance kernel, with
        weight 1. Weight 0 leaves a kernel out.
    levels : int
        Number of levels of the LP form.
    reduction : {"mean", "none"}
        The mean over items, or one value for each.

    Examples
    --------
    >>> loss = DenseCRFLoss(bilateral_sigma_xy=3.0)
    >>> image = torch.zeros(1, 3, 6, 6)
    >>> agree, differ = torch.zeros(1, 2, 6, 6), torch.randn(1, 2, 6, 6)
    >>> agree[:, 0] = 9.0
    >>> bool(loss(logits=agree, image=image) < loss(logits=differ, image=image))
    True
    """

    def __init__(
        self,
        form: str = "quadratic",
        *,
        spatial_sigma: float = _DEFAULT.sigma,
        spatial_weight: float = 0.0,
        bilateral_sigma_xy: float = _DEFAULT.sigma_xy,
        bilateral_sigma_color: float = _DEFAULT.sigma_color,
        bilateral_weight: float = 1.0,
        levels: int = 10,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.form = check_choice("form", form, ("quadratic", "lp"))
        self.spatial_sigma = check_positive("spatial_sigma", spatial_sigma)
        self.spatial_weight = check_non_negative("spatial_weight", spatial_weight)
        self.bilateral_sigma_xy = check_positive("bilateral_sigma_xy", bilateral_sigma_xy)
        self.bilateral_sigma_color = check_positive("bilateral_sigma_color", bilateral_sigma_color)
        self.bilateral_weight = check_non_negative("bilateral_weight", bilateral_weight)
        self.levels = check_integer("levels", levels, at_least=2)
        self.reduction = check_choice("reduction", reduction, ("mean", "none"))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self,
        *,
        logits: Tensor,
        image: Tensor,
        roi: Tensor | None = None,
        void: Tensor | None = None,
    ) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        logits, image
            As for `DenseCRF.forward`.
        roi : Tensor, optional
            (N, *spatial), the region of interest: pixels outside (padding) do not count.
        void : Tensor, optional
            (N, *spatial), pixels without a class, which do not count either.
        """
        logits, image = checked_pair(logits, image)

        def attempt(workspace: int | None) -> Tensor:
            check_finite("logits", logits)
            taking_part = torch.ones_like(logits[:, 0], dtype=torch.bool)
            if roi is not None:
                taking_part = taking_part & check_mask("roi", roi, logits)
            if void is not None:
                taking_part = taking_part & ~check_mask("void", void, logits)
            return self._loss(logits, image, taking_part, workspace)

        what = f"logits of shape {tuple(logits.shape)}"
        return computed(attempt, logits.device, logits.shape[1], what)

    def _loss(
        self, logits: Tensor, image: Tensor, taking_part: Tensor, workspace: int | None
    ) -> Tensor:
        dtype = working_dtype(logits)
        items, classes = logits.shape[:2]
        scores = torch.softmax(logits.to(dtype), 1).flatten(2).transpose(0, 1)
        y = scores.reshape(classes, -1)
        total = y.new_zeros(y.shape[1])
        for weight, lattice in self._lattices(image, taking_part.reshape(-1).to(dtype), workspace):
            total = total + weight * self._pairs(lattice, y)
        pixels = taking_part.flatten(1).sum(1).clamp(min=1)
        values = total.view(items, -1).sum(1) / pixels
        return values.mean() if self.reduction == "mean" else values

    def _pairs(self, lattice: Lattice, y: Tensor) -> Tensor:
        """Return each pixel's part of the pairwise energy, (n,)."""
        if self.form == "lp":
            with torch.no_grad():
                r = 0.5 * lattice.ordered(y, levels=self.levels)
            return (r * y).sum(0)
        own = lattice.diagonal()
        received = filtered(lattice, y) - own * y
        return 0.5 * (y * (lattice.mass - own - received)).sum(0)

    def _lattices(
        self, image: Tensor, mask: Tensor, workspace: int | None
    ) -> list[tuple[float, Lattice]]:
        """Return weights and filters, normalised over all pixels, of the pixels that count."""
        declared = (
            (self.spatial_weight, self.spatial_sigma, None),
            (self.bilateral_weight, self.bilateral_sigma_xy, self.bilateral_sigma_color),
        )
        counting = [each for each in declared if each[0] > 0]
        features = [features_of(image, xy, color, mask.dtype) for _, xy, color in counting]
        if not features:
            return []
        try:
            built = Lattice.build_all(features, workspace=workspace)
        except ValueError:
            check_finite("image", image)  # the lattice is built from features alone
            raise
        pairs = zip(counting, built, strict=True)
        return [(weight, each.normalized().scaled(mask)) for (weight, _, _), each in pairs]

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.form!r}, levels={self.levels}"
