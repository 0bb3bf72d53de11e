"""All variants of the kernels that problems of some numbers of labels can launch.

A kernel's code depends on the types of its tensors and on a few constants, none of which depends on
the image: what is listed here is all that is ever compiled, for up to seven features of a pixel.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch import diagonal, lattice_sum, pixelwise
from densecrf.operators.torch.topology import SEGMENT
from densecrf.operators.triton import filter as engine
from densecrf.operators.triton import filter_kernels as filters
from densecrf.operators.triton import lattice_sum_kernels as sums
from densecrf.operators.triton import pixelwise_kernels as pixels
from densecrf.operators.triton import plane_kernels as planes
from densecrf.operators.triton import topology
from densecrf.operators.triton import topology_kernels as lattices
from densecrf.operators.triton.units import LANES, PLAIN_LANES, RUNS

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
            constants, warps = engine.blur_constants(short=short), engine.SHAPES.blur[2]
            yield _variant(filters.blur, values + "ii" + "n" * 10, constants, warps)
            yield _variant(filters.blur_mean, values + "ii" + "n" * 9, constants, warps)
            weight = {"WEIGHTED": values == "f", **engine.overlap_constants(short=short)}
            yield _variant(filters.overlap, values * 2 + "dinnnnn", weight)
    for values in "fd":
        yield _variant(filters.join, values + "iiin", engine.JOIN, 1)
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
    own = {"BLOCK": diagonal.BLOCK}
    yield _variant(lattices.pair_shares, "ibifnnn", own)
    for d in range(1, MOST_FEATURES + 1):
        yield _variant(lattices.diagonal, "ibifffnnxn", {"D": d, **own})
    block = {"BLOCK": lattice_sum.BLOCK}
    yield _variant(sums.place, "iiifiiiiifii" + "n" * 12, block)
    for normalized in (True, False):
        constants = {"NORMALIZED": normalized, **block}
        yield _variant(sums.read_weights, "fifffnnnnxx", constants)
    yield _variant(sums.scale_entries, "iffn", block)


def _filters(lanes: int) -> Iterator[Variant]:
    """Yield what filters units of so many labels."""
    shape = engine.row_constants(lanes)
    levels = (1, 2) if lanes in LANES else ()
    for values, kind, offsets in (
        *(("d", 0, False), ("f", 0, False)),
        *(("f", kind, offsets) for kind in levels for offsets in (False, True)),
    ):
        constants = {"LEVELS": kind, "OFFSETS": offsets, **shape}
        yield _variant(planes.to_rows, values * 3 + "in", constants)
    for values, scaled in (("f", False), ("d", True)):
        dtype = _TYPES[values]
        runs = (0, *RUNS) if levels else (0,)
        for rows, run in (*((values, run) for run in runs), ("l", 0)):
            constants = engine.splat_constants(
                lanes, run, dtype, scaled=scaled, labelled=rows == "l"
            )
            arguments = f"{rows}iffii{values}inn"
            yield _variant(filters.splat, arguments, constants, engine.SHAPES.splat[2])
        kinds = product((False, True) if levels else (False,), engine.CORNERS)
        for ordered, corners in kinds:
            constants = engine.slice_constants(lanes, corners, ordered=ordered, scaled=scaled)
            arguments = f"{values}{values}if{values * 3}innnnnxxnn"
            yield _variant(planes.slice_rows, arguments, constants, engine.SHAPES.slice[1])
    if levels:
        constants = engine.sum_constants(lanes)
        yield _variant(planes.row_sums, "fdin", constants)
        yield _variant(planes.balance, "ffddin", {**constants, "TILE": engine.SUMS})


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
    yield _variant(pixels.undecided, "fdin", block)
    yield _variant(pixels.add_up, "ddnn", pixelwise.ADD_UP)
    yield _variant(pixels.inner, "ffdn", block)
