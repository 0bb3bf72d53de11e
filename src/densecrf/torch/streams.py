"""Solving the items of a batch side by side on one GPU.

A solver waits for the device several times in an iteration, to learn an energy or a bound. Several
of them, each in a thread and on a stream of its own, fill each other's pauses. The items do not
depend on each other, so the answers are the same as one after the other.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")

WORKERS = 4


def each_item(
    task: Callable[[int, threading.Event], Answer],
    count: int,
    device: torch.device,
    workers: int = WORKERS,
) -> list[Answer]:
    """Return ``task(item, stop)`` for each item, without gradients; in threads on a CUDA device.

    Parameters
    ----------
    task : callable
        Takes the item and an event; once that is set it should come to an end soon.
    count : int
        Number of items.
    device : torch.device
        Where the tasks work.
    workers : int
        Most threads. With one, or away from CUDA, the tasks run here, one after the other.

    Examples
    --------
    >>> each_item(lambda item, stop: item**2, 3, torch.device("cpu"))
    [0, 1, 4]
    """
    stop = threading.Event()
    workers = min(workers, count)
    if device.type != "cuda" or workers < 2:
        return [task(item, stop) for item in range(count)]
    here = torch.cuda.current_stream(device)
    local = threading.local()
    streams: list[torch.cuda.Stream] = []

    def begin() -> None:
        local.stream = torch.cuda.Stream(device)
        local.stream.wait_stream(here)
        streams.append(local.stream)

    def run(item: int) -> Answer:
        # Streams, gradients and autocast are settings of a thread.
        with (
            torch.cuda.device(device),
            torch.cuda.stream(local.stream),
            torch.no_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            return task(item, stop)

    with ThreadPoolExecutor(workers, "densecrf", begin) as pool:
        futures = [pool.submit(run, item) for item in range(count)]
        try:
            answers = [future.result() for future in futures]
        except KeyboardInterrupt:
            stop.set()
            answers = [future.result() for future in futures]
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
        finally:
            for stream in streams:
                here.wait_stream(stream)
    return answers
