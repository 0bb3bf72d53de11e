"""Which code runs: fused Triton kernels, or plain torch operations.

Triton serves float32 tensors on a CUDA device, and CPU tensors when its interpreter is switched on
(``TRITON_INTERPRET=1``, as the tests do). Everything else, lattices of float64 among it, takes the
plain path. Proofs are in double precision over the weights of a float32 lattice: Triton serves.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

import torch

from densecrf.validation import ArgumentError, check_choice

if TYPE_CHECKING:
    from torch import Tensor

Engine = Literal["auto", "triton", "torch"]

FIRST_TRITON = (3, 3)  # whose launcher `triton.launch` knows; before it, plain torch operations


def has_triton() -> bool:
    """Whether there is a Triton that runs the kernels."""
    return find_spec("triton") is not None and triton_version() >= FIRST_TRITON


@cache
def triton_version() -> tuple[int, int]:
    """Return the major and minor version of the Triton that is installed."""
    major, minor = re.findall(r"\d+", version("triton"))[:2]
    return int(major), int(minor)


@cache
def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def use_triton(tensor: Tensor, engine: Engine = "auto") -> bool:
    """Whether the kernels for `tensor` come from Triton: its device and dtype decide.

    The engine "auto" takes Triton wherever it serves; "triton" insists on it.

    Examples
    --------
    >>> use_triton(torch.zeros(3, dtype=torch.float64))
    False
    """
    check_choice("engine", engine, get_args(Engine))
    if engine == "torch":
        return False
    on_device = tensor.is_cuda or (interpreted() and tensor.device.type == "cpu")
    serves = has_triton() and on_device and tensor.dtype != torch.float64
    if engine == "triton" and not serves:
        raise ArgumentError(
            "engine",
            engine,
            f"cannot serve a {tensor.dtype} tensor on {tensor.device}; use float32 on a CUDA "
            "device with Triton installed, or engine='torch'",
        )
    # On the CPU the interpreter is a test bench: it runs only when asked for by name.
    return serves and (tensor.is_cuda or engine == "triton")
