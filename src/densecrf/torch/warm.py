"""Compile the GPU's kernels before they are needed, all at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from densecrf.torch.dispatch import has_triton, interpreted
from densecrf.torch.lattice import on_device
from densecrf.validation import check_integer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["warm_up"]

MOST_PROCESSES = 16

_warm: dict[torch.device, set[int]] = {}
_lock = threading.Lock()


def warm_up(
    device: Any = "cuda", labels: int | Iterable[int] = 21, *, processes: int | None = None
) -> int:
    """Compile every kernel that problems of so many labels can launch; nothing compiles later.

    The first use of a GPU does this by itself. Compiled kernels are kept in Triton's cache
    (``~/.triton/cache``, or ``TRITON_CACHE_DIR``), where later processes find them.

    Parameters
    ----------
    device : str or torch.device
        The GPU; on other devices there is nothing to compile.
    labels : int or iterable of int
        Numbers of labels. Kernels are shared up to the next power of two.
    processes : int, optional
        How many processes compile; by default one for each CPU, at most 16.

    Returns
    -------
    int
        The number of kernels, 0 where none are used.

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
    most = os.cpu_count() or 1
    if processes is not None:
        most = check_integer("processes", processes, at_least=1)
    lanes = {1 << (count - 1).bit_length() for count in counts}
    with _lock, on_device(where):
        return _load(where, sorted(lanes), min(MOST_PROCESSES, most))


def first_use(device: torch.device, labels: int) -> None:
    """Compile what this process has not loaded yet for so many labels."""
    if device.type != "cuda":
        return
    lanes = 1 << (labels - 1).bit_length()
    device = _numbered(device)
    if lanes not in _warm.get(device, ()):
        warm_up(device, labels)


def _numbered(device: torch.device) -> torch.device:
    number = device.index if ":" in str(device) else torch.cuda.current_device()
    return torch.device("cuda", number)


def _load(device: torch.device, lanes: list[int], processes: int) -> int:
    from densecrf.torch.triton.variants import variants

    wanted = list(variants(lanes))
    major, minor = torch.cuda.get_device_capability(device)
    capability = 10 * major + minor
    stamp = _stamp(wanted, capability)
    if stamp is not None and not stamp.exists():
        began = time.perf_counter()
        _say(f"compiling {len(wanted)} GPU kernels, once for this machine ...")
        _compile(capability, lanes, processes)
        _load_all(wanted)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        _say(f"... done in {time.perf_counter() - began:.1f} s")
    else:
        _load_all(wanted)
    _warm.setdefault(device, set()).update(lanes)
    return len(wanted)


def _load_all(wanted: Iterable[Any]) -> None:
    """Let Triton load the kernels from its cache, compiling those that are not there."""
    for kernel, arguments, constants, warps in wanted:
        kernel.warmup(*arguments, grid=(1,), **constants, num_warps=warps)


def _compile(capability: int, lanes: list[int], processes: int) -> None:
    """Fill Triton's cache by several processes; what they fail to compile is left to this one."""
    if processes < 2 or getattr(sys, "frozen", False):
        return
    module = [sys.executable, "-m", "densecrf.torch.triton.compiler"]
    labels = ",".join(str(count) for count in lanes)
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    running = [
        subprocess.Popen(
            [*module, str(capability), labels, str(share), str(processes)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for share in range(processes)
    ]
    try:
        for each in running:
            each.wait()
    finally:
        for each in running:
            each.kill()


def _stamp(wanted: Iterable[Any], capability: int) -> Path | None:
    """Return the file that says that these kernels are in the cache; None where Triton differs."""
    try:
        import triton

        text = [triton.__version__, torch.__version__, str(capability)]
        text += sorted({each.kernel.cache_key for each in wanted})
        text += sorted(f"{each.kernel.__name__} {each.key[1:]}" for each in wanted)
    except AttributeError:
        return None
    default = Path.home() / ".triton" / "cache"
    folder = Path(os.environ.get("TRITON_CACHE_DIR", default))
    return folder / f"densecrf-{hashlib.sha256(repr(text).encode()).hexdigest()[:32]}"


def _say(message: str) -> None:
    print(f"densecrf: {message}", file=sys.stderr, flush=True)
