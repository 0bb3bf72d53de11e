"""All variants of the kernels that problems of some numbers of labels can launch.

A kernel's code depends on the types of its tensors and on a few constants, none of which depends on
the image: what is listed here is all that is ever compiled, for up to seven features of a pixel.
`Variant.compile` compiles one into Triton's cache without using a GPU.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from densecrf.operators.torch import pixelwise
from densecrf.operators.torch.topology import SEGMENT
from densecrf.operators.triton import filter as engine
from densecrf.operators.triton import filter_kernels as filters
from densecrf.operators.triton import pixelwise_kernels as pixels
from densecrf.operators.triton import topology
from densecrf.operators.triton import topology_kernels as lattices
from densecrf.operators.triton.units import LANES, PLAIN_LANES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_FEATURES = 7

_TYPES: dict[str, Any] = {
    "f": torch.float32,
    "d": torch.float64,
    "b": torch.int8,
    "i": torch.int32,
    "l": torch.int64,
}
_POINTERS = dict(zip(_TYPES.values(), ("*fp32", "*fp64", "*i8", "*i32", "*i64"), strict=True))


class Variant(NamedTuple):
    """A kernel, its arguments (types of tensors, and numbers), constants and warps."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int = 4

    @property
    def key(self) -> tuple[Any, ...]:
        """What its code depends on, as `densecrf.operators.triton.launch.launched` has it."""
        types = [each for each in self.arguments if isinstance(each, torch.dtype)]
        return (self.kernel.fn, self.warps, *types, *self.constants.values())

    def compile(self, capability: int) -> None:
        """Compile the kernel as a launch with aligned tensors does, and its launcher.

        Some versions of Triton have a C compiler make a launcher for each signature.
        """
        names = self.kernel.arg_names
        signature, attributes = {}, {}
        for place, (name, given) in enumerate(zip(names, self.arguments, strict=False)):
            if isinstance(given, torch.dtype):
                signature[name] = _POINTERS[given]
                attributes[(place,)] = [["tt.divisibility", 16]]
            else:
                signature[name] = "i32" if isinstance(given, int) else "fp32"
        constants = {(names.index(name),): value for name, value in self.constants.items()}
        signature |= dict.fromkeys(self.constants, "constexpr")
        source = ASTSource(self.kernel, signature, constants, attributes)
        target = GPUTarget("cuda", capability, 32)
        compiled = triton.compile(source, target=target, options={"num_warps": self.warps})
        with suppress(Exception):  # private: where it is not the known one, a launch does it
            triton.runtime.driver.active.launcher_cls(compiled.src, compiled.metadata)


def variants(labels: Iterable[int]) -> Iterator[Variant]:
    """Yield the variants for problems of so many labels.

    Arguments of a kernel are written as letters: a tensor's type, or n for a whole number and x for
    another.
    """
    yield from _lattices()
    for lanes in PLAIN_LANES:
        yield from _filters(lanes)
    for short in (True, False):
        for values in "fd":
            for mean in (False, True):
                constants = engine.blur_constants(short=short, mean=mean)
                arguments = values + "ii" + "n" * 9
                yield _variant(filters.blur, arguments, constants, engine.BLUR_WARPS)
            weight = {"WEIGHTED": values == "f", **engine.overlap_constants(short=short)}
            yield _variant(filters.overlap, values * 2 + "dinnnn", weight)
    for values in "fd":
        yield _variant(filters.join, values + "iii", engine.JOIN, 1)
        for lanes in engine.ORDERED_LANES:
            yield _splat(values, values, lanes, ordered=True)
    yield _variant(filters.row_sums, "fdin", engine.ROW_SUMS)
    yield _variant(filters.balance, "ffddin", engine.BALANCE)
    yield from _pixelwise(labels)


def _variant(kernel: Any, arguments: str, constants: dict[str, Any], warps: int = 4) -> Variant:
    numbers = {"n": 17, "x": 0.5}  # nothing is specialised on 17
    given = tuple(_TYPES[each] if each in _TYPES else numbers[each] for each in arguments)
    return Variant(kernel, given, constants, warps)


def _lattices() -> Iterator[Variant]:
    """Yield what builds lattices."""
    for d in (3, MOST_FEATURES):
        yield _variant(lattices.embed, "fdibfnn", topology.embed_constants(d))
    block = {"BLOCK": topology.BLOCK}
    entries = {"SEGMENT": SEGMENT, "BLOCK": topology.ENTRIES}
    for key in "il":
        yield _variant(lattices.pack, f"ibl{key}nnn", block)
        yield _variant(lattices.index_entries, f"li{key}fiifi{key}innn", entries)
        yield _variant(lattices.find_neighbours, f"{key}linnn", block)
    yield _variant(lattices.pair_shares, "ibifnnn", block)
    for d in range(1, MOST_FEATURES + 1):
        yield _variant(lattices.diagonal, "ibifffnnxn", {"D": d, **block})
    block = {"BLOCK": topology.MERGED}
    yield _variant(lattices.place, "iiifiiiiifii" + "n" * 12, block)
    for normalized in (True, False):
        constants = {"NORMALIZED": normalized, **block}
        yield _variant(lattices.read_weights, "fifffnnnnxx", constants)
    yield _variant(lattices.scale_entries, "iffn", block)


def _splat(rows: str, values: str, lanes: int, *, ordered: bool = False) -> Variant:
    kind = {"scaled": values == "d", "labelled": rows == "l"}
    constants = engine.splat_constants(lanes, _TYPES[values], ordered=ordered, **kind)
    arguments = f"{rows}iffii{values}iinnn"
    return _variant(filters.splat, arguments, constants, engine.SPLAT_WARPS)


def _filters(lanes: int) -> Iterator[Variant]:
    """Yield what filters so many labels of a unit at once."""
    shape = engine.row_constants(lanes)
    ordered = lanes in LANES
    kinds = product((1, 2), (False, True)) if ordered else ()
    for values, kind, offsets in (
        *(("d", 0, False), ("f", 0, False)),
        *((("d", 1, False),) if ordered else ()),
        *(("f", *each) for each in kinds),
    ):
        constants = {"LEVELS": kind, "OFFSETS": offsets, **shape}
        yield _variant(filters.to_rows, values * 3 + "inn", constants)
    for values in "fd":
        yield _splat(values, values, lanes)
        yield _splat("l", values, lanes)
        orders = (False, True) if ordered else (False,)
        for order, corners in product(orders, engine.CORNERS):
            constants = engine.slice_constants(lanes, corners, ordered=order, scaled=values == "d")
            arguments = f"{values}{values}if{values * 3}innnnnxxnn"
            yield _variant(filters.slice_rows, arguments, constants, engine.SLICE_WARPS)


def _pixelwise(labels: Iterable[int]) -> Iterator[Variant]:
    for lanes in sorted({1 << (count - 1).bit_length() for count in labels}):
        shape, warps = pixelwise.tile_constants(lanes)
        yield _variant(pixels.project_simplex, "ffinn", shape, warps)
        yield _variant(pixels.mean_field, "fffffinn", shape, warps)
        yield _variant(pixels.lower_bound, "ffdinnx", shape, warps)
        yield _variant(pixels.descend, "fffffffdinn", shape, warps)
        yield _variant(pixels.alternatives, "fffillfdinn", shape, warps)
        yield _variant(pixels.raised_argmax, "flinn", shape, warps)
        yield _variant(pixels.own_unaries, "fildinn", shape, warps)
    block = {"BLOCK": pixelwise.ELEMENTS}
    for offsets in (False, True):
        constants = {"OFFSETS": offsets, **block}
        yield _variant(pixels.extents, "fffin", constants)
        yield _variant(pixels.compress, "ffffin", constants)
    yield _variant(pixels.extrapolate, "fffin", block)
    yield _variant(pixels.add_extrapolated, "fffin", block)
    yield _variant(pixels.undecided, "fdin", block)
    yield _variant(pixels.differing, "lldi", block)
    yield _variant(pixels.add_up, "ddnn", pixelwise.ADD_UP)
    yield _variant(pixels.inner, "ffdn", block)
