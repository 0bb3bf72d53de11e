r"""Tiles of a grid of pixels, and their margins.

The lattice filter splats a pixel's value to the corners of its simplex, moves it by at most one
step along each of the d + 1 axes, and slices it at the corners of other simplices. Feature i is, up
to the orthogonal map into the lattice's hyperplane, a linear function :math:`c_i` of lattice
coordinates with :math:`\lVert c_i \rVert_1 = 2 \sqrt{i / (i + 1)} / (\sqrt{2/3}\,(d + 1))`, i
counted from 1. One step along axis j changes it by :math:`(d + 1) c_{ij}`, so all blurs together by
at most :math:`(d + 1) \lVert c_i \rVert_1`; a corner of a simplex is no farther from a point in it
than half of that, and there are two simplices. The whole is

.. math:: R_i = 2 (d + 1) \lVert c_i \rVert_1 = 4 \sqrt{3/2} \sqrt{i / (i + 1)}

standard deviations, for any dimension: 3.5 along the first feature (x), 4 along the second (y), 4.3
along the third. The vertices between two pixels matter as well; the pixels that create them lie
within the same distance.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from densecrf.validation import IntArray

__all__ = ["REACH", "Box", "Tiling", "around", "channels", "common", "flat", "inside"]
__all__ += ["lattice_reach", "shape_of"]

SLACK = 1e-6  # standard deviations, against rounding
REACH = 4 * math.sqrt(1.5) + SLACK  # standard deviations, along any feature

#: A part of a grid: a slice for each axis, with start and stop.
Box: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class Tiling:
    """A grid cut into blocks, and into tiles of two blocks along each axis.

    Tiles of odd turns are shifted by one block along each axis, so that the borders of one turn are
    in the middle of tiles in the next.

    Attributes
    ----------
    shape : tuple of int
        The grid.
    block : tuple of int
        Sides of a block.

    Examples
    --------
    >>> tiling = Tiling((6,), (2,))
    >>> [(t.start, t.stop) for (t,) in tiling.tiles(0)]
    [(0, 4), (4, 6)]
    >>> [(t.start, t.stop) for (t,) in tiling.tiles(1)]
    [(0, 2), (2, 6)]
    """

    shape: tuple[int, ...]
    block: tuple[int, ...]

    @staticmethod
    def of(shape: Sequence[int], tile: Sequence[int]) -> "Tiling":
        """Return the tiling with tiles of this size."""
        return Tiling(tuple(shape), tuple(max(1, math.ceil(side / 2)) for side in tile))

    def tiles(self, turn: int) -> list[Box]:
        """Return the tiles of a turn, the last axis fastest."""
        axes = []
        for length, block in zip(self.shape, self.block, strict=True):
            moved = turn % 2 and length > 2 * block
            starts = [0, *range(block if moved else 2 * block, length, 2 * block)]
            axes.append([slice(a, b) for a, b in itertools.pairwise([*starts, length])])
        return list(itertools.product(*axes))

    def blocks(self, box: Box) -> list[Box]:
        """Return the blocks that a box touches."""
        axes = []
        for part, length, side in zip(box, self.shape, self.block, strict=True):
            first = part.start // side * side
            starts = range(first, part.stop, side)
            axes.append([slice(a, min(length, a + side)) for a in starts])
        return list(itertools.product(*axes))


def shape_of(box: Box) -> tuple[int, ...]:
    """Return the sides of a box."""
    return tuple(part.stop - part.start for part in box)


def around(box: Box, margin: Sequence[int], shape: Sequence[int]) -> Box:
    """Return the box with a margin, within the grid."""
    return tuple(
        slice(max(0, part.start - wide), min(length, part.stop + wide))
        for part, wide, length in zip(box, margin, shape, strict=True)
    )


def inside(box: Box, outer: Box) -> Box:
    """Return the position of a box within another one."""
    return tuple(
        slice(part.start - whole.start, part.stop - whole.start)
        for part, whole in zip(box, outer, strict=True)
    )


def common(box: Box, other: Box) -> Box:
    """Return the intersection of two boxes."""
    return tuple(
        slice(max(p.start, q.start), min(p.stop, q.stop)) for p, q in zip(box, other, strict=True)
    )


def channels(box: Box) -> tuple[slice, ...]:
    """Return the box with all channels in front."""
    return (slice(None), *box)


def flat(box: Box, outer: Box) -> IntArray:
    """Return the flat indices of a box's pixels within another one."""
    sides = shape_of(outer)
    return np.arange(math.prod(sides)).reshape(sides)[inside(box, outer)].ravel()


def lattice_reach(sigmas: Sequence[float]) -> tuple[int, ...]:
    """Return the margin in pixels along each axis, for standard deviations of positions.

    Positions are the first features, the last axis (x) first, as in `densecrf.model.kernels`.

    Examples
    --------
    >>> lattice_reach((10.0, 10.0))
    (41, 35)
    """
    axes = len(sigmas)
    return tuple(
        math.ceil((4 * math.sqrt(1.5 * i / (i + 1)) + SLACK) * sigmas[axis])
        for axis, i in enumerate(range(axes, 0, -1))
    )
