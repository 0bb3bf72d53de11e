"""From images to features: scaled positions and colours, differentiable in the deviations.

Standard deviations and features are float64: rounded to float32, a feature may cross the face of
its simplex, and the lattice has other vertices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def positions(shape: Sequence[int], sigma: Tensor, device: torch.device) -> Tensor:
    """Return the positions of a grid over standard deviations, (n, axes), last axis (x) first.

    `sigma` is one standard deviation, or one for each axis in the order of `shape`.

    Examples
    --------
    >>> positions((1, 3), torch.tensor(2.0), torch.device("cpu"))
    tensor([[0.0000, 0.0000],
            [0.5000, 0.0000],
            [1.0000, 0.0000]])
    """
    sigma = sigma.flip(0).to(device) if sigma.ndim else sigma
    return _grid(tuple(shape), device, sigma.dtype) / sigma


def bilateral(image: Tensor, sigma_xy: Tensor, sigma_color: Tensor) -> Tensor:
    """Return positions and colours of images (items, channels, *spatial) over standard deviations.

    Give one standard deviation, or one for each axis and channel; the result is (items, n, d).
    """
    where = positions(image.shape[2:], sigma_xy, image.device).expand(image.shape[0], -1, -1)
    sigma_color = sigma_color.to(image.device) if sigma_color.ndim else sigma_color
    colours = image.flatten(2).transpose(1, 2).to(sigma_color.dtype) / sigma_color
    return torch.cat([where, colours], 2)


@lru_cache(maxsize=4)
def _grid(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the positions of a grid in pixels, (n, axes), last axis first."""
    lines = [torch.arange(length, device=device, dtype=dtype) for length in shape]
    grid = torch.stack(torch.meshgrid(*lines, indexing="ij")[::-1], -1)
    return grid.reshape(-1, len(shape))
