"""Which code runs: fused Triton kernels, or plain torch operations.

Triton runs on float32 tensors on a CUDA device, and on CPU tensors in its interpreter
(``TRITON_INTERPRET=1``, as in the tests). Everything else, float64 lattices included, uses plain
torch. Proofs use double precision over the weights of a float32 lattice, so Triton runs them.
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

FIRST_TRITON = (3, 3)  # the first version that `triton.launch` supports


def has_triton() -> bool:
    """Return whether a supported Triton is installed."""
    return find_spec("triton") is not None and triton_version() >= FIRST_TRITON


@cache
def triton_version() -> tuple[int, int]:
    """Return the major and minor version of the installed Triton."""
    major, minor = re.findall(r"\d+", version("triton"))[:2]
    return int(major), int(minor)


@cache
def interpreted() -> bool:
    """Return whether Triton's kernels run in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def use_triton(tensor: Tensor, engine: Engine = "auto") -> bool:
    """Return whether Triton handles `tensor`, by its device and dtype.

    The engine "auto" uses Triton where possible; "triton" requires it.

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
            f"does not support a {tensor.dtype} tensor on {tensor.device}; use float32 on a CUDA "
            "device with Triton installed, or engine='torch'",
        )
    # On the CPU the interpreter is for tests: it runs only if named.
    return serves and (tensor.is_cuda or engine == "triton")
