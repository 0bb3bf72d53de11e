"""Checks at the torch door: every message names the argument, what it is, and the remedy."""

from __future__ import annotations

from typing import Any

import torch


def check_scores(logits: Any) -> None:
    """Refuse what is no batch of finite scores (N, C, *spatial)."""
    _check_tensor("logits", logits, "(N, C, *spatial)")
    if not logits.is_floating_point():
        raise ValueError(
            f"logits: dtype {logits.dtype} holds whole numbers; give scores, not labels (labels "
            "have no gradient)"
        )
    if logits.shape[1] < 2:
        raise ValueError(f"logits: shape {tuple(logits.shape)} has fewer than 2 classes on axis 1")
    check_finite("logits", logits)


def check_image(image: Any, logits: torch.Tensor) -> None:
    """Refuse images (N, k, *spatial) that do not go with the logits."""
    _check_tensor("image", image, "(N, k, *spatial)")
    if image.device != logits.device:
        raise ValueError(
            f"image: on {image.device}, but logits on {logits.device}; move one of them, for "
            "example image.to(logits.device)"
        )
    if image.shape[0] != logits.shape[0]:
        raise ValueError(f"image: {image.shape[0]} images for {logits.shape[0]} items of logits")
    if image.shape[2:] != logits.shape[2:]:
        raise ValueError(
            f"image: shape {tuple(image.shape)} for logits of shape {tuple(logits.shape)}; bring "
            "them to one size, for example torch.nn.functional.interpolate(logits, "
            f"size={tuple(image.shape[2:])}, mode='bilinear')"
        )
    if image.is_complex():
        raise ValueError(f"image: dtype {image.dtype} holds no real numbers")


def check_mask(name: str, mask: Any, logits: torch.Tensor) -> torch.Tensor:
    """Return a mask (N, *spatial) or (N, 1, *spatial) as one of 0 and 1, (N, *spatial)."""
    grid = (logits.shape[0], *logits.shape[2:])
    if not isinstance(mask, torch.Tensor):
        raise ValueError(f"{name}: a {type(mask).__name__}; give a tensor {grid}")
    if tuple(mask.shape) == (grid[0], 1, *grid[1:]):
        mask = mask[:, 0]
    if tuple(mask.shape) != grid:
        raise ValueError(f"{name}: shape {tuple(mask.shape)}; give {grid}")
    if mask.device != logits.device:
        raise ValueError(f"{name}: on {mask.device}, but logits on {logits.device}")
    inside: torch.Tensor = mask != 0
    return inside


def _check_tensor(name: str, value: Any, form: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name}: a {type(value).__name__}; give a tensor {form}")
    if value.ndim < 3:
        raise ValueError(
            f"{name}: shape {tuple(value.shape)}; give {form} (unsqueeze a batch axis)"
        )
    if value.numel() == 0:
        raise ValueError(f"{name}: shape {tuple(value.shape)} holds nothing; skip empty batches")


def check_finite(name: str, value: torch.Tensor) -> None:
    """Refuse NaN and infinities, naming the first."""
    if not value.is_floating_point():
        return
    if bool(torch.isfinite(value.detach().sum(dtype=torch.float32))):
        return  # one reduction; a sum that overflows is looked at closely
    finite = torch.isfinite(value)
    if not bool(finite.all()):
        index = tuple((~finite).nonzero()[0].tolist())
        raise ValueError(
            f"{name}[{', '.join(map(str, index))}] = {float(value[index])} is not finite; clean it "
            "first (torch.nan_to_num)"
        )
