"""Compile a share of the kernels into Triton's cache: `densecrf.torch.warm_up` runs several.

    python -m densecrf.torch.triton.compiler CAPABILITY LABELS,... SHARE SHARES

needs no GPU.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from densecrf.torch.triton.variants import Variant, variants

_SIGNATURE = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def compile_variant(variant: Variant, capability: int) -> Any:
    """Compile a variant as a launch with aligned tensors does."""
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
    return triton.compile(source, target=target, options={"num_warps": variant.warps})


def main(capability: str, labels: str, share: str, shares: str) -> None:
    """Compile every `shares`-th variant."""
    wanted = list(variants(int(count) for count in labels.split(",")))
    for variant in wanted[int(share) :: int(shares)]:
        compile_variant(variant, int(capability))


if __name__ == "__main__":
    main(*sys.argv[1:])
