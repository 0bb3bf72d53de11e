"""Units: blocks of labels of one item each, which a table lists for the kernels of the filters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from densecrf.operators.levels import Bands, Levels
    from densecrf.operators.torch.lattice import Lattice

MOST_LABELS = 32  # of a unit
LANES = (1, 4, 8)  # labels of a program, where an order is filtered
PLAIN_LANES = (*LANES, 32)  # and where plain values are, which take fewer registers
FIELDS, NAMES, BASES, FIRSTS, COUNTS = 140, 12, 44, 76, 108  # columns; where labels' numbers begin
MOST_KEPT = 256  # tables of a lattice
SUMMED = 4096  # pixels of a block of row sums
LONG, SHORT = 32, 8  # channels of a tile of the blurs; where rows are short


class Wanted(NamedTuple):
    """Labels of one item to be filtered.

    In order, they have levels, and `bands` of them (None: all). Where their indicators are
    filtered, `plane` is the labelling's number among those given.
    """

    item: int
    names: Sequence[int]
    levels: Levels | None = None
    bands: Bands | None = None
    plane: int | None = None

    @property
    def channels(self) -> list[int]:
        """Channels of each label: its ramps, or one of plain values."""
        if self.levels is None:
            return [1] * len(self.names)
        if self.bands is None:
            return [self.levels.ramps] * len(self.names)
        return [count for _, count in self.bands]

    def part(self, first: int, stop: int) -> Wanted:
        """Return some of the labels."""
        bands = None if self.bands is None else self.bands[first:stop]
        return self._replace(names=self.names[first:stop], bands=bands)


@dataclass(frozen=True, eq=False)
class Units:
    """Units that are worked on at once.

    The table, (count, FIELDS) int32, has first pixel and pixels, first vertex and vertices, first
    segment and segments of the item; the unit's first row among all rows of pixels (where
    indicators are filtered: the first pixel of its labelling), and where its rows of vertices
    begin, in quads of channels; the item; its levels' low and scale as float32; the quads of
    channels of its rows of vertices (so that kernels know to load whole ones). Then of each label:
    its name, -1 where there is none, its first channel, its lowest level, and its ramps.
    `channels`, (count, blocks of channels), has label + 256 · ramp.
    """

    table: Tensor
    channels: Tensor
    owners: list[int]  # of each, its place in what was wanted
    count: int
    ordered: bool
    lanes: int  # labels of a program
    labels: int  # the most labels of one, as the next four
    width: int  # channels
    pixels: int
    vertices: int
    segments: int
    rows: int  # of pixels, of all units
    quads: int  # of channels of rows of vertices and segments, of all units

    @property
    def sizes(self) -> tuple[int, ...]:
        """What the grids of launches depend on, beside the shapes of tensors."""
        return self.lanes, self.labels, self.width, self.pixels, self.vertices, self.segments

    @property
    def stride(self) -> int:
        """Numbers of a row of pixels."""
        return -(-self.labels // 4) * 4 if self.labels > 1 else 1

    @property
    def lane_blocks(self) -> int:
        """Programs for the labels of a pixel."""
        return -(-self.labels // self.lanes)

    def empty_rows(self, dtype: torch.dtype) -> Tensor:
        """Return rows of pixels to fill."""
        return torch.empty(self.rows, self.stride, dtype=dtype, device=self.table.device)

    def empty_work(self, slots: int, dtype: torch.dtype) -> Tensor:
        """Return a workspace: slots of rows of vertices."""
        return torch.empty(slots, 4 * self.quads, dtype=dtype, device=self.table.device)

    def empty_sums(self) -> Tensor:
        """Return the scratch memory of `balance`."""
        shape = (self.count * self.labels, -(-self.pixels // SUMMED))
        return torch.empty(shape, dtype=torch.float64, device=self.table.device)


def in_groups(
    lattice: Lattice, wanted: Sequence[Wanted], size: int = 4, slots: int | None = None
) -> list[Units]:
    """Return the units of what is wanted, as many at once as the lattice's workspace has room for.

    They are kept, since making and sending their tables takes time. Numbers have `size` bytes, and
    there are `slots` of vertex rows, if others than the lattice's.
    """
    kept: dict[Any, list[Units]] = vars(lattice).setdefault("_units", {})
    key = (size, slots, *[each._replace(names=tuple(each.names)) for each in wanted])
    found = kept.get(key)
    if found is None:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        found = kept[key] = list(_grouped(lattice, wanted, size, slots or lattice.slots))
    return found


def _grouped(lattice: Lattice, wanted: Sequence[Wanted], size: int, slots: int) -> Iterator[Units]:
    """Yield the units of each group that fits into the workspace."""
    room = [slots * (span.vertices + span.segments) * size for span in lattice.spans]
    most = [lattice.workspace // own for own in room]
    parts = [
        _Part(owner, part, _width(part, most[each.item]))
        for owner, each in enumerate(wanted)
        for part in _split(each, most[each.item])
    ]
    labels = max(len(part.wanted.names) for part in parts)
    sizes = PLAIN_LANES if wanted[0].levels is None else LANES
    lanes = next((size for size in sizes if size >= labels), sizes[-1])
    group: list[_Part] = []
    used = 0
    for part in parts:
        own = room[part.wanted.item] * part.width
        if group and used + own > lattice.workspace:
            yield _units(lattice, group, lanes)
            group, used = [], 0
        group.append(part)
        used += own
    yield _units(lattice, group, lanes)


class _Part(NamedTuple):
    """Labels of a unit, their owner's place in what was wanted, and channels of a row."""

    owner: int
    wanted: Wanted
    width: int


def _split(wanted: Wanted, most: int) -> Iterator[Wanted]:
    """Yield blocks of labels of at most so many channels, where one label has no more."""
    first = channels = 0
    for place, own in enumerate(wanted.channels):
        if place > first and (channels + own > most or place - first == MOST_LABELS):
            yield wanted.part(first, place)
            first, channels = place, 0
        channels += own
    if wanted.names:
        yield wanted.part(first, len(wanted.names))


def _width(wanted: Wanted, most: int) -> int:
    """Return the channels of a row, whole quads; in order whole tiles of the blurs, if they fit.

    A few more channels cost less than launches that are prepared anew for each number of them.
    """
    channels = sum(wanted.channels)
    tiles = -(-channels // LONG) * LONG
    rounded = wanted.levels is not None and channels > SHORT and tiles <= most
    return tiles if rounded else -(-channels // 4) * 4


@lru_cache(maxsize=1024)
def _described(wanted: Wanted, width: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return what a unit's line in the table has of its labels, and its channels."""
    line, channels = np.zeros(FIELDS, np.int32), np.zeros(width, np.int32)
    names, counts = len(wanted.names), wanted.channels
    bases = [0, *accumulate(counts)]
    line[11] = width // 4
    line[NAMES:BASES], line[COUNTS:] = -1, 1
    line[NAMES : NAMES + names] = wanted.names
    line[BASES : BASES + names] = bases[:-1]
    line[COUNTS : COUNTS + names] = counts
    if wanted.levels is not None:
        line.view(np.float32)[9:11] = wanted.levels.low, wanted.levels.scale
        if wanted.bands is not None:
            line[FIRSTS : FIRSTS + names] = [first for first, _ in wanted.bands]
        channels[:] = 256 * counts[0]  # a ramp above its highest level
        ramps = [label + 256 * h for label, count in enumerate(counts) for h in range(count)]
        channels[: bases[-1]] = ramps
    return line, channels


def _units(lattice: Lattice, group: Sequence[_Part], lanes: int) -> Units:
    """Return the units of a group."""
    width = max(part.width for part in group)
    table = np.zeros(len(group) * (FIELDS + width), np.int32)  # sent in one
    lines, maps = np.split(table, [len(group) * FIELDS])
    lines, maps = lines.reshape(-1, FIELDS), maps.reshape(-1, width)
    rows = quads = 0
    spans = [lattice.spans[part.wanted.item] for part in group]
    for place, ((_, each, own), span) in enumerate(zip(group, spans, strict=True)):
        alike = each._replace(item=0, names=tuple(each.names), plane=None)
        lines[place], maps[place, :own] = _described(alike, own)
        first_row = rows if each.plane is None else each.plane * lattice.n
        lines[place, :9] = (*span, first_row, quads, each.item)
        rows += span.pixels
        quads += (span.vertices + span.segments) * own // 4
    there = torch.from_numpy(table).to(lattice.device, non_blocking=True)
    return Units(
        table=there[: lines.size].view(-1, FIELDS),
        channels=there[lines.size :].view(-1, width),
        owners=[part.owner for part in group],
        count=len(group),
        ordered=group[0].wanted.levels is not None,
        lanes=lanes,
        labels=max(len(part.wanted.names) for part in group),
        width=width,
        pixels=max(span.pixels for span in spans),
        vertices=max(span.vertices for span in spans),
        segments=max(span.segments for span in spans),
        rows=rows,
        quads=quads,
    )
