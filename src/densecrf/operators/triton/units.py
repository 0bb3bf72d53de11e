"""What a filter call works on: blocks of labels of one item each, listed in a table for kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from densecrf.operators.levels import Levels
    from densecrf.operators.torch.lattice import Lattice

LANES = (1, 4, 8)  # labels of a unit
PLAIN_LANES = (*LANES, 32)  # and of plain values, whose rows are short
RUNS = (4, 8, 12)  # ramps that one program of the splat sums
FIELDS, NAMES = 44, 12  # columns of the table, and where the labels' names begin


class Wanted(NamedTuple):
    """Labels of one item to be filtered, and their levels (None: plain values).

    Where their indicators are filtered, `plane` is the labelling's number among those given.
    """

    item: int
    names: Sequence[int]
    levels: Levels | None = None
    plane: int | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """Units that are worked on at once.

    Attributes
    ----------
    table : Tensor
        (count, FIELDS) int32: first pixel and pixels, first vertex and vertices, first segment and
        segments of the item; the unit's first row among all rows of pixels (where indicators are
        filtered: the first pixel of its labelling) and of vertices; the
        item; its levels' low, scale and top as float32; the labels, -1 where there is none.
    count, lanes, labels : int
        Units, room for labels in each, and the most labels of one.
    pixels, vertices, segments : int
        The most that an item has.
    rows, work : int
        Rows of pixels, and of vertices and segments, of all units.
    """

    table: Tensor
    count: int
    lanes: int
    labels: int
    pixels: int
    vertices: int
    segments: int
    rows: int
    work: int


def split_ramps(ramps: int) -> tuple[int, int]:
    """Return how many ramps a program sums, and how many such runs there are; 0: plain values.

    Examples
    --------
    >>> split_ramps(0), split_ramps(3), split_ramps(9), split_ramps(13), split_ramps(48)
    ((0, 1), (4, 1), (12, 1), (8, 2), (12, 4))
    """
    if ramps == 0:
        return 0, 1
    counts = [(run, -(-ramps // run)) for run in RUNS]
    return min(counts, key=lambda each: each[0] * each[1] + 2 * each[1])


def width(labels: int, lanes: int, ramps: int) -> int:
    """Return the channels of a row of so many labels, rounded up to whole quads.

    Examples
    --------
    >>> width(21, 32, 0), width(5, 8, 9)
    (24, 72)
    """
    return -(-(lanes * ramps if ramps else labels) // 4) * 4


def in_groups(
    lattice: Lattice,
    wanted: Sequence[Wanted],
    ramps: int,
    size: int = 4,
    slots: int | None = None,
) -> list[Units]:
    """Return the units of what is wanted, as many at once as the lattice's workspace has room for.

    They are kept, since making and sending their tables takes time.

    Parameters
    ----------
    lattice : Lattice
        The lattice.
    wanted : sequence of Wanted
        The labels of each item, distinct.
    ramps : int
        The most ramps; 0 for the plain filter.
    size : int
        Bytes of a number.
    slots : int, optional
        Arrays of vertex rows, if others than the lattice's.
    """
    kept: dict[Any, list[Units]] = vars(lattice).setdefault("_units", {})
    asked = [(each.item, tuple(each.names), each.levels, each.plane) for each in wanted]
    key = (ramps, size, slots, *asked)
    found = kept.get(key)
    if found is None:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        groups = _grouped(lattice, wanted, ramps, size, lattice.slots if slots is None else slots)
        found = kept[key] = [_units(lattice, group, lanes) for group, lanes in groups]
    return found


_MOST_KEPT = 256  # tables of a lattice


def _grouped(
    lattice: Lattice, wanted: Sequence[Wanted], ramps: int, size: int, slots: int
) -> Iterator[tuple[list[Wanted], int]]:
    """Yield the units of each group, and their lanes."""
    spans = lattice.spans
    count = max(len(each.names) for each in wanted)
    sizes = LANES if ramps else PLAIN_LANES
    place = sum(lanes < count for lanes in sizes[:-1])
    room = [slots * (span.vertices + span.segments) * size for span in spans]
    most = max(room[each.item] for each in wanted)
    while (
        place > 0
        and most * width(min(count, sizes[place]), sizes[place], ramps) > lattice.workspace
    ):
        place -= 1
    lanes = sizes[place]
    channels = width(min(count, lanes), lanes, ramps)
    group: list[Wanted] = []
    used = 0
    for each in wanted:
        own = room[each.item] * channels
        for first in range(0, len(each.names), lanes):
            if group and used + own > lattice.workspace:
                yield group, lanes
                group, used = [], 0
            group.append(each._replace(names=each.names[first : first + lanes]))
            used += own
    if group:
        yield group, lanes


def _units(lattice: Lattice, group: Sequence[Wanted], lanes: int) -> Units:
    """Return the units of a group."""
    table = np.empty((len(group), FIELDS), np.int32)
    numbers = table.view(np.float32)
    rows = work = 0
    pixels = vertices = segments = 1
    for line, own, (item, names, levels, plane) in zip(table, numbers, group, strict=True):
        span = lattice.spans[item]
        line[:9] = (*span, rows if plane is None else plane * lattice.n, work, item)
        if levels is not None:
            own[9:NAMES] = levels.low, levels.scale, levels.ramps
        line[NAMES:] = -1
        line[NAMES : NAMES + len(names)] = names
        rows += span.pixels
        work += span.vertices + span.segments
        pixels, vertices = max(pixels, span.pixels), max(vertices, span.vertices)
        segments = max(segments, span.segments)
    there = torch.from_numpy(table).to(lattice.device, non_blocking=True)
    labels = max(len(each.names) for each in group)
    return Units(there, len(group), lanes, labels, pixels, vertices, segments, rows, work)
