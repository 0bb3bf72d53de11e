"""Launching Triton kernels with little work on the host.

A filtering is some ten launches of a few microseconds each, so that Triton's own dispatch, which
inspects every argument at every launch, would cost more than the kernels. Compiled kernels are kept
here by what their code depends on, and launched directly, with addresses in the place of tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from densecrf.torch.engine import interpreted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_compiled: dict[tuple[Any, ...], Any] = {}


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
    traits: list[Any] = []
    plain: list[Any] = []
    for a in arguments:
        if isinstance(a, torch.Tensor):
            address = a.data_ptr()
            traits.append(a.dtype)
            traits.append(address & 15)
            plain.append(address)
        else:
            traits.append(type(a) is int and a.bit_length() > 31)
            plain.append(a)
    device = arguments[0].device.index
    values = tuple(constants.values())
    key = (id(kernel), warps, device, *traits, *values)
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[tuple(grid)](*arguments, **constants, num_warps=warps)
        return
    x, y, z = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device)
    code, packed = compiled.function, compiled.packed_metadata
    compiled.run(x, y, z, stream, code, packed, None, None, None, *plain, *values)
