"""Launching Triton kernels with little work on the host.

A filtering is some ten launches of a few microseconds each, so that Triton's own dispatch, which
inspects every argument at every launch, would cost more than the kernels. Compiled kernels are kept
here by what their code depends on, and launched directly.
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
    """Launch `kernel` on the current CUDA stream.

    Parameters
    ----------
    kernel : triton.JITFunction
        A kernel that specialises on no integer argument.
    grid : sequence of int
        Programs along one to three axes.
    arguments : sequence
        Tensors and numbers, in the order of the kernel's signature.
    constants : mapping
        The kernel's compile-time constants, in the order of its signature, after `arguments`.
    warps : int
        Warps of a program.
    """
    if interpreted():
        kernel[tuple(grid)](*arguments, **constants)
        return
    traits = [
        (a.dtype, a.data_ptr() % 16 == 0)
        if isinstance(a, torch.Tensor)
        else (isinstance(a, int) and a.bit_length() > 31)
        for a in arguments
    ]
    key = (id(kernel), warps, arguments[0].device.index, *traits, *constants.values())
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[tuple(grid)](*arguments, **constants, num_warps=warps)
    else:
        compiled[(*grid, 1, 1)[:3]](*arguments, *constants.values())
