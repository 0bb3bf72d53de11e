"""Runs of pixels that kernels work on: the items of a batch."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Spans(NamedTuple):
    """Items to work on: for each its first pixel, pixels and two numbers, (items, 4) int32."""

    table: Tensor
    items: int
    pixels: int  # the most of an item

    @staticmethod
    def of(
        runs: Sequence[tuple[int, int]],
        device: torch.device,
        numbers: Sequence[tuple[float, float]] | None = None,
    ) -> Spans:
        """Return the items of some runs of pixels, with their numbers."""
        return _kept(tuple(runs), device, None if numbers is None else tuple(numbers))


def whole(n: int, device: torch.device) -> Spans:
    """Return all pixels as one item."""
    return _kept(((0, n),), device, None)


def _kept(
    runs: tuple[tuple[int, int], ...],
    device: torch.device,
    numbers: tuple[tuple[float, float], ...] | None,
) -> Spans:
    """Return tables that were sent by the current stream: another one would not wait for them."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _sent(runs, device, numbers, stream)


@lru_cache(maxsize=256)
def _sent(
    runs: tuple[tuple[int, int], ...],
    device: torch.device,
    numbers: tuple[tuple[float, float], ...] | None,
    stream: int,  # noqa: ARG001 - by which tables are kept, too
) -> Spans:
    """Return `Spans.of`; tables are kept, since sending one takes time."""
    table = np.zeros((len(runs), 4), np.int32)
    table[:, :2] = runs
    if numbers is not None:
        table.view(np.float32)[:, 2:] = numbers
    there = torch.from_numpy(table).to(device, non_blocking=True)
    return Spans(there, len(runs), max(pixels for _, pixels in runs))
