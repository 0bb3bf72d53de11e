"""Checks of users' tensors: every error names the argument, its value and the remedy."""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch

from densecrf.validation import ArgumentError

__all__ = [
    "as_tensor",
    "check_all_finite",
    "check_finite",
    "check_mask",
    "checked_items",
    "checked_pair",
    "total",
]


def as_tensor(name: str, value: Any) -> torch.Tensor:
    """Return a plain tensor that shares the memory of the given array."""
    if isinstance(value, torch.Tensor):
        return value if type(value) is torch.Tensor else value.as_subclass(torch.Tensor)
    if not hasattr(value, "__dlpack__"):
        raise ArgumentError(name, ..., f"a {type(value).__name__}; give a tensor")
    try:
        shared: torch.Tensor = torch.utils.dlpack.from_dlpack(value)
        return shared
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(name, ..., f"cannot be shared with torch ({error})") from error


def checked_pair(
    logits: Any, image: Any, names: tuple[str, str] = ("logits", "image")
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of logits (N, C, *spatial) and its images (N, k, *spatial), as tensors."""
    logits, image = map(as_tensor, names, (logits, image))
    _check_axes("logits", logits, "(N, C, *spatial)")
    if not logits.is_floating_point():
        remedy = f"dtype {logits.dtype} holds integers; give scores, not labels (labels "
        raise ArgumentError("logits", ..., remedy + "have no gradient)")
    if logits.shape[1] < 2:
        remedy = f"shape {tuple(logits.shape)} has fewer than 2 classes on axis 1"
        raise ArgumentError("logits", ..., remedy)
    _check_axes("image", image, "(N, k, *spatial)")
    if image.device != logits.device:
        remedy = f"on {image.device}, but logits on {logits.device}; move one of them, for "
        raise ArgumentError("image", ..., remedy + "example image.to(logits.device)")
    if image.shape[0] != logits.shape[0]:
        remedy = f"{image.shape[0]} images for {logits.shape[0]} items of logits"
        raise ArgumentError("image", ..., remedy)
    if image.shape[2:] != logits.shape[2:]:
        remedy = f"shape {tuple(image.shape)} for logits of shape {tuple(logits.shape)}; bring "
        remedy += "them to one size, for example torch.nn.functional.interpolate(logits, "
        remedy += f"size={tuple(image.shape[2:])}, mode='bilinear')"
        raise ArgumentError("image", ..., remedy)
    if image.is_complex():
        raise ArgumentError("image", ..., f"dtype {image.dtype} holds no real numbers")
    return logits, image


def _check_axes(name: str, value: torch.Tensor, form: str) -> None:
    shape = tuple(value.shape)
    if value.ndim < 3:
        raise ArgumentError(name, ..., f"shape {shape}; give {form} (unsqueeze a batch axis)")
    if value.numel() == 0:
        raise ArgumentError(name, ..., f"shape {shape} holds nothing; skip empty batches")


def checked_items(logits: Any, image: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return logits (1, C, *spatial) and image (1, k, *spatial) of each item, checked.

    `logits` and `image` are batches, or lists of items of any sizes.
    """
    if not isinstance(logits, (list, tuple)):
        logits, image = checked_pair(logits, image)
        return list(zip(logits.split(1), image.split(1), strict=True))
    if not isinstance(image, (list, tuple)):
        raise ArgumentError("logits", ..., "a list; give a tensor, or lists of both")
    if len(image) != len(logits) or not logits:
        raise ArgumentError("image", ..., f"{len(image)} images for {len(logits)} logits")
    pairs = [
        checked_pair(as_tensor(f"logits[{i}]", one)[None], as_tensor(f"image[{i}]", own)[None])
        for i, (one, own) in enumerate(zip(logits, image, strict=True))
    ]
    if len({(scores.shape[1], scores.device) for scores, _ in pairs}) > 1:
        raise ArgumentError("logits", ..., "items differ in classes or device")
    return pairs


def check_mask(name: str, mask: Any, logits: torch.Tensor) -> torch.Tensor:
    """Return a mask (N, *spatial) or (N, 1, *spatial) as (N, *spatial) of bool."""
    grid = (logits.shape[0], *logits.shape[2:])
    mask = as_tensor(name, mask)
    if tuple(mask.shape) == (grid[0], 1, *grid[1:]):
        mask = mask[:, 0]
    if tuple(mask.shape) != grid:
        raise ArgumentError(name, ..., f"shape {tuple(mask.shape)}; give {grid}")
    if mask.device != logits.device:
        raise ArgumentError(name, ..., f"on {mask.device}, but logits on {logits.device}")
    inside: torch.Tensor = mask != 0
    return inside


def check_finite(name: str, value: torch.Tensor) -> None:
    """Refuse NaN and infinities, naming the first."""
    if not value.is_floating_point() or isfinite(float(total(value))):
        return
    finite = torch.isfinite(value)
    if not bool(finite.all()):
        index = tuple((~finite).nonzero()[0].tolist())
        where = f"{name}[{', '.join(map(str, index))}]"
        remedy = "is not finite; clean it first (torch.nan_to_num)"
        raise ArgumentError(where, float(value[index]), remedy)


def check_all_finite(name: str, value: Any) -> None:
    """Refuse NaN and infinities in a batch, or in a list of items."""
    if isinstance(value, (list, tuple)):
        for item, each in enumerate(value):
            check_finite(f"{name}[{item}]", as_tensor(name, each))
    else:
        check_finite(name, as_tensor(name, value))


def total(value: torch.Tensor) -> torch.Tensor:
    """Return a sum on the device that is finite only if all of `value` is."""
    return value.detach().sum(dtype=torch.float32)
