"""Replaying the same device work at the cost of one launch (CUDA graphs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

_MOST_ELEMENTS = 1 << 26  # of an input: beyond, launches cost nothing beside the work


class Replays:
    """Calls functions of tensors; from the second call with the same key, as recorded graphs.

    A solver repeats a few functions, each of some twenty short kernels whose launches take longer
    than they do. A recorded graph launches them all at once. Functions must do the same work for
    the same key (same shapes, same numbers besides tensors) and must not wait for the device.

    Examples
    --------
    >>> replays = Replays()
    >>> replays("twice", lambda x: 2 * x, torch.ones(1))
    tensor([2.])
    """

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[Any, Tensor, Tensor]] = {}
        self._pool: Any = None

    def __call__(self, key: Hashable, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return ``function(x)``, a tensor of its own."""
        if not x.is_cuda or torch.is_grad_enabled() or x.numel() > _MOST_ELEMENTS:
            return function(x)
        key = (key, x.shape, x.dtype)
        if key not in self._seen:  # this compiles kernels and fills caches as well
            self._seen.add(key)
            return function(x)
        if key not in self._recorded:
            self._recorded[key] = self._record(function, x)
        graph, given, answer = self._recorded[key]
        given.copy_(x)
        graph.replay()
        return answer.clone()

    def _record(
        self, function: Callable[[Tensor], Tensor], x: Tensor
    ) -> tuple[Any, Tensor, Tensor]:
        # Not torch.cuda.graph: it collects garbage and empties caches, tens of milliseconds.
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        given = x.clone()
        graph = torch.cuda.CUDAGraph()
        stream = _side_stream(x.device)
        stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                answer = function(given)
            finally:
                graph.capture_end()
        torch.cuda.current_stream(x.device).wait_stream(stream)
        return graph, given, answer


_streams: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]
