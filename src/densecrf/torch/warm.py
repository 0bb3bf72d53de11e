"""Compile all GPU kernels in advance."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from densecrf.operators.torch.dispatch import has_triton, interpreted
from densecrf.operators.torch.lattice import on_device
from densecrf.validation import check_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["warm_up"]

MOST_PROCESSES = 16

_warm: dict[torch.device, set[int]] = {}
_lock = threading.Lock()


def warm_up(
    device: Any = "cuda", labels: int | Iterable[int] = 21, *, processes: int | None = None
) -> int:
    """Compile every kernel for problems with these numbers of labels.

    The first use of a GPU calls it. Compiled kernels are stored in Triton's cache
    (``~/.triton/cache``, or ``TRITON_CACHE_DIR``) for later processes.

    Parameters
    ----------
    device : str or torch.device
        The GPU; on other devices there is nothing to compile.
    labels : int or iterable of int
        Numbers of labels. Kernels are shared up to the next power of two.
    processes : int, optional
        Number of processes; by default one per CPU, at most 16.

    Returns
    -------
    int
        The number of kernels, 0 if none are used.

    Examples
    --------
    >>> warm_up("cpu", labels=[2, 21])
    0
    """
    where = torch.device(device)
    counts = [labels] if isinstance(labels, int) else list(labels)
    for count in counts:
        check_integer("labels", count, at_least=1)
    if where.type != "cuda" or not has_triton() or interpreted():
        return 0
    where = _numbered(where)
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if processes is not None:
        most = check_integer("processes", processes, at_least=1)
    lanes = sorted({_lanes(count) for count in counts})
    with _lock, on_device(where):
        return _compiled(where, lanes, min(MOST_PROCESSES, most))


def first_use(device: torch.device, labels: int) -> None:
    """Compile the kernels for these labels that this process has not loaded."""
    if device.type == "cuda" and _lanes(labels) not in _warm.get(_numbered(device), ()):
        warm_up(device, labels)


def _lanes(labels: int) -> int:
    return 1 << (labels - 1).bit_length()


def _numbered(device: torch.device) -> torch.device:
    number = device.index if ":" in str(device) else torch.cuda.current_device()
    return torch.device("cuda", number)


def _compiled(device: torch.device, lanes: list[int], processes: int) -> int:
    """Ensure that the kernels are in Triton's cache; return their number."""
    from densecrf.operators.triton.variants import variants

    wanted = list(variants(lanes))
    major, minor = torch.cuda.get_device_capability(device)
    stamp = _stamp(wanted, 10 * major + minor)
    if not stamp.exists():
        with _one_process(stamp.with_suffix(".lock")):
            if not stamp.exists():
                began = time.perf_counter()
                _say(f"compiling {len(wanted)} GPU kernels, once per machine ...")
                _compile(wanted, 10 * major + minor, processes)
                for kernel, arguments, constants, warps in wanted:  # cached, or compiled here
                    kernel.warmup(*arguments, grid=(1,), **constants, num_warps=warps)
                stamp.touch()
                _say(f"... done in {time.perf_counter() - began:.1f} s")
    _warm.setdefault(device, set()).update(lanes)
    return len(wanted)


@contextmanager
def _one_process(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of a file, and hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(wanted: list[Any], capability: int, processes: int) -> None:
    """Fill Triton's cache in forked processes without a GPU; failures are compiled later."""
    import triton

    if processes < 2 or not hasattr(os, "fork"):
        return
    # The slowest ones, with all labels in a tile, are last in the list: they go first.
    shares = [wanted[::-1][share::processes] for share in range(processes)]
    with suppress(Exception):  # as those who launch have it; forks of it compile launchers
        triton.runtime.driver.active.launcher_cls  # noqa: B018 - made when it is asked for
    running = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in programs with threads: these only compile
        for share in shares:
            own = os.fork()
            if own == 0:
                try:
                    for variant in share:
                        variant.compile(capability)
                finally:
                    os._exit(0)
            running.append(own)
    for own in running:
        os.waitpid(own, 0)


def _stamp(wanted: list[Any], capability: int) -> Path:
    """Return the file that marks these kernels as cached."""
    import triton

    text = [triton.__version__, torch.__version__, str(capability)]
    text += sorted({each.kernel.cache_key for each in wanted})
    text += sorted(f"{each.kernel.__name__} {each.key[1:]}" for each in wanted)
    folder = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    return folder / f"densecrf-{hashlib.sha256(repr(text).encode()).hexdigest()[:32]}"


def _say(message: str) -> None:
    print(f"densecrf: {message}", file=sys.stderr, flush=True)
