"""Launching Triton kernels with little work on the host.

A filtering is some ten launches of a few microseconds each, so that Triton's own dispatch, which
inspects every argument at every launch, would cost more than the kernels. Compiled kernels are kept
here by what their code depends on, and launched directly, with addresses in the place of tensors.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.torch.engine import interpreted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_compiled: dict[tuple[Any, ...], Any] = {}
_local = threading.local()


class Launch(NamedTuple):
    """A launch that can be repeated: see `repeat`.

    `arguments` are addresses and numbers, `tensors` what the addresses belong to.
    """

    compiled: Any
    grid: tuple[int, int, int]
    arguments: list[Any]
    constants: tuple[Any, ...]
    tensors: list[torch.Tensor]


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect the launches that this thread makes meanwhile."""
    launches: list[Launch] = []
    _local.launches = launches
    try:
        yield launches
    finally:
        _local.launches = None


def repeat(launches: Sequence[Launch], device: int) -> None:
    """Launch again, on the current stream of the device."""
    stream = torch._C._cuda_getCurrentRawStream(device)
    for compiled, grid, arguments, constants, _ in launches:
        compiled.run(
            *grid,
            stream,
            compiled.function,
            compiled.packed_metadata,
            None,
            None,
            None,
            *arguments,
            *constants,
        )


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    constants: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch `kernel` on the current CUDA stream of the current device.

    Parameters
    ----------
    kernel : triton.JITFunction
        A kernel that specialises on no integer argument.
    grid : sequence of int
        Programs along one to three axes.
    arguments : sequence
        Tensors and numbers, in the order of the kernel's signature; the first is a tensor.
    constants : mapping
        The kernel's compile-time constants, in the order of its signature, after `arguments`.
    warps : int
        Warps of a program.
    """
    if interpreted():
        kernel[tuple(grid)](*arguments, **constants)
        return
    key: list[Any] = [id(kernel), warps]
    plain: list[Any] = []
    for a in arguments:
        if isinstance(a, torch.Tensor):
            address = a.data_ptr()
            key += (a.dtype, address & 15)
            plain.append(address)
        else:
            key.append(type(a) is int and a.bit_length() > 31)
            plain.append(a)
    device = arguments[0].device.index
    values = tuple(constants.values())
    compiled = _compiled.get(full := (device, *key, *values))
    x, y, z = (*grid, 1, 1)[:3]
    if compiled is None:
        compiled = _compiled[full] = kernel[tuple(grid)](*arguments, **constants, num_warps=warps)
    else:
        stream = torch._C._cuda_getCurrentRawStream(device)
        code, packed = compiled.function, compiled.packed_metadata
        compiled.run(x, y, z, stream, code, packed, None, None, None, *plain, *values)
    launches = getattr(_local, "launches", None)
    if launches is not None:
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        launches.append(Launch(compiled, (x, y, z), plain, values, tensors))
