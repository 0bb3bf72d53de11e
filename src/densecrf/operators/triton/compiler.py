"""Compile a kernel into Triton's cache without using a GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

if TYPE_CHECKING:
    from densecrf.operators.triton.variants import Variant

_SIGNATURE = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def compile_variant(variant: Variant, capability: int) -> Any:
    """Compile a variant as a launch with aligned tensors does, and what launches it.

    Some versions of Triton have a C compiler make a launcher for each signature.
    """
    names = variant.kernel.arg_names
    signature, attributes = {}, {}
    for place, (name, given) in enumerate(zip(names, variant.arguments, strict=False)):
        if isinstance(given, torch.dtype):
            signature[name] = _SIGNATURE[given]
            attributes[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if isinstance(given, int) else "fp32"
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    signature |= dict.fromkeys(variant.constants, "constexpr")
    source = ASTSource(variant.kernel, signature, constants, attributes)
    target = GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": variant.warps})
    with suppress(Exception):  # private: where it is not the known one, the first launch does it
        triton.runtime.driver.active.launcher_cls(compiled.src, compiled.metadata)
    return compiled
