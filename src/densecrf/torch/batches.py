"""Batches of logits: the energies that they are, and what is found for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from densecrf.model.parameters import check_label_count
from densecrf.solvers.result import relative_gap

if TYPE_CHECKING:
    from torch import Tensor

    from densecrf.model.label_prior import LabelPrior

__all__ = ["BatchResult", "batched", "energies", "working_dtype"]


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What `DenseCRF.solve` found, item by item.

    Attributes
    ----------
    labels : Tensor, or list of Tensor
        (N, *spatial) int64, the best labelling of each item; a list where a list was given.
    marginals : Tensor, or list of Tensor
        (N, C, *spatial), the relaxed solutions.
    energy : list of float
        Energies of the labellings.
    lower_bound : list of float or None
        No labelling whatsoever has an energy below this.
    converged : list of bool
        Whether a method ended by itself, within the asked gap.
    iterations : list of int
        Iterations made.
    """

    labels: Any
    marginals: Any
    energy: list[float]
    lower_bound: list[float | None]
    converged: list[bool]
    iterations: list[int]

    @property
    def gap(self) -> list[float | None]:
        """(energy - lower_bound) / max(1, abs(energy)) of each item."""
        return [relative_gap(e, b) for e, b in zip(self.energy, self.lower_bound, strict=True)]


def working_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype that a batch is solved in."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def energies(logits: Tensor, dtype: torch.dtype, prior: LabelPrior | None = None) -> Tensor:
    """Return the unary energies of a batch, (C, N n).

    With a prior, each item's shares of the labels add theirs, as in `densecrf.model.label_prior`.
    """
    items, classes = logits.shape[:2]
    scores = logits.to(dtype).flatten(2).transpose(0, 1).reshape(classes, -1)
    unary = -torch.log_softmax(scores, 0)
    if prior is None:
        return unary
    check_label_count("prior", prior.frequencies, classes)
    by_item = unary.view(classes, items, -1)
    known = (by_item.amax(0) > by_item.amin(0)).to(dtype)
    seen = known.sum(1, keepdim=True).clamp(min=1)
    shares = torch.einsum("cia,ia->ic", (-by_item).exp(), known) / seen
    added: Tensor = prior.energies(shares, torch.log)
    return (by_item + added.T[:, :, None] * known).reshape(classes, -1)


def batched(values: Tensor, logits: Tensor) -> Tensor:
    """Return label-major (C, N n) values in the shape and dtype of the logits."""
    items, classes = logits.shape[:2]
    by_item = values.view(classes, items, -1).transpose(0, 1)
    return by_item.reshape(logits.shape).to(logits.dtype).contiguous()
