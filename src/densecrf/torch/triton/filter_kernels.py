"""Triton kernels of the lattice filters (launched by `densecrf.torch.triton.filter`).

Work comes in units: up to LANES labels of one item's pixels, with rows of their own, listed in a
table (`densecrf.torch.triton.units`). Numbers of labels, levels, kernels and pixels are arguments,
so that few variants of each kernel serve all problems.

Values are rows, one per vertex: channel h·LANES + l is ramp h of label l (the plain filter has one
channel a label). A ramp is c_h(t) = clamp(t - h, 0, 1), the mass in levels above h; ramps make the
running sum over levels of the ordered filter part of the splat, where it costs nothing, and level 0
need not be stored.

Rows are float32 or float64, and sums are in their type. Weights are stored in float32: for rows of
float64 they are the same numbers, widened when they are loaded. With SCALED, what a pixel gives is
also multiplied by its factor `g`, and what it receives by its factor `read`: a normalised kernel
whose stored numbers are not rounded again.

The argument `one` is 1. Strides multiplied by it are not known to be 1 when a kernel is compiled,
which makes Triton lay a tile out with one label to a thread (the default is to load runs of
floats).
"""

# ruff: noqa: N803, RUF005  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, assignment, untyped-decorator"

import triton
import triton.language as tl

# Columns of the table of units: see `densecrf.torch.triton.units`.
PIXEL = tl.constexpr(0)
PIXELS = tl.constexpr(1)
VERTEX = tl.constexpr(2)
VERTICES = tl.constexpr(3)
SEGMENT_AT = tl.constexpr(4)
SEGMENTS = tl.constexpr(5)
ROW = tl.constexpr(6)
WORK = tl.constexpr(7)
ITEM = tl.constexpr(8)
LOW = tl.constexpr(9)
SCALE = tl.constexpr(10)
TOP = tl.constexpr(11)
NAMES = tl.constexpr(12)
FIELDS = tl.constexpr(44)


@triton.jit(do_not_specialize=["quads", "one"])
def splat(
    rows,
    entry_pixel,
    entry_weight,
    g,
    row_begin,
    segment_vertex,
    work,
    units,
    quads,
    one,
    RAMPS: tl.constexpr,
    SEGMENT: tl.constexpr,
    SCALED: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Sum the entries of each vertex: a gather over its row of entries, in a fixed order.

    Long rows are cut at multiples of SEGMENT. Program v < vertices sums the head of row v; program
    vertices + b sums what continues from an earlier segment into segment b. Row `pid` of the unit's
    workspace takes the sum, and `join` adds the continuations to their heads. Plane 2 of the grid
    are runs of RAMPS ramps.
    """
    unit = units + tl.program_id(1) * FIELDS
    pid = tl.program_id(0)
    vertices = tl.load(unit + VERTICES)
    if pid < vertices + tl.load(unit + SEGMENTS):
        lane = tl.arange(0, LANES)
        ramp = tl.program_id(2) * max(RAMPS, 1)
        segment = tl.load(unit + SEGMENT_AT) + pid - vertices
        if pid < vertices:
            vertex = tl.load(unit + VERTEX) + pid
            begin = tl.load(row_begin + vertex)
        else:
            vertex = tl.load(segment_vertex + segment)
            begin = segment * SEGMENT
        head = tl.load(row_begin + vertex)
        end = tl.minimum(tl.load(row_begin + vertex + 1), (begin // SEGMENT + 1) * SEGMENT)
        if (pid < vertices) | (head < begin):
            acc = ()
            for _ in tl.static_range(max(RAMPS, 1)):
                acc = acc + (tl.zeros([LANES, TILE], rows.dtype.element_ty),)
            # Every lane loads the entry, and its label of the pixel's row: a thread keeps to one
            # label, so that nothing is exchanged between threads. The next entries are fetched
            # ahead.
            first = tl.load(unit + ROW) - tl.load(unit + PIXEL)
            e = tl.broadcast_to(begin + tl.arange(0, TILE)[None, :] * one, [LANES, TILE])
            pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
            weight = tl.load(entry_weight + e, mask=e < end, other=0)
            for _ in range(begin, end, TILE):
                at = (first + pixel).to(tl.int64) * LANES + lane[:, None] * one
                t = tl.load(rows + at, mask=e < end, other=0)
                share = weight.to(rows.dtype.element_ty)
                if SCALED:
                    share *= tl.load(g + pixel, mask=e < end, other=0).to(rows.dtype.element_ty)
                e += TILE
                pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
                ahead = tl.load(entry_weight + e, mask=e < end, other=0)
                if RAMPS == 0:
                    acc = (acc[0] + share * t,)
                else:
                    t -= ramp
                    new = ()
                    for h in tl.static_range(RAMPS):
                        new = new + (acc[h] + share * tl.minimum(tl.maximum(t - h, 0.0), 1.0),)
                    acc = new
                weight = ahead
            to = work + (tl.load(unit + WORK) + pid).to(tl.int64) * (4 * quads) + ramp * LANES
            for h in tl.static_range(max(RAMPS, 1)):
                tl.store(to + h * LANES + lane, tl.sum(acc[h], axis=1))


@triton.jit(do_not_specialize=["quads"])
def join(
    work,
    row_begin,
    segment_vertex,
    units,
    quads,
    SEGMENT: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the sums of a long row's continuations to its head (first continuation does it)."""
    width = 4 * quads
    unit = units + tl.program_id(1) * FIELDS
    if tl.program_id(0) < tl.load(unit + SEGMENTS):
        segment = tl.load(unit + SEGMENT_AT) + tl.program_id(0)
        c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        vertex = tl.load(segment_vertex + segment)
        head = tl.load(row_begin + vertex)
        if (head < segment * SEGMENT) & (segment == head // SEGMENT + 1):
            last = (tl.load(row_begin + vertex + 1) - 1) // SEGMENT
            row = tl.load(unit + WORK).to(tl.int64)
            tail = row + tl.load(unit + VERTICES) - tl.load(unit + SEGMENT_AT)
            acc = tl.zeros([TILE, BLOCK], work.dtype.element_ty)
            for first in range(segment, last + 1, TILE):
                s = first + tl.arange(0, TILE)
                mask = (s <= last)[:, None] & (c < width)[None, :]
                acc += tl.load(work + (tail + s)[:, None] * width + c[None, :], mask=mask, other=0)
            at = work + (row + vertex - tl.load(unit + VERTEX)) * width + c
            tl.store(at, tl.load(at, mask=c < width) + tl.sum(acc, axis=0), mask=c < width)


@triton.jit
def _blurred(source, neighbour, first, v, c, live, mask, all_vertices, width):
    """Three-point blur (1/2, 1, 1/2) of rows v; a missing neighbour counts as zero."""
    plus = tl.load(neighbour + first + v, mask=live, other=-1)
    minus = tl.load(neighbour + all_vertices + first + v, mask=live, other=-1)
    centre = tl.load(source + v.to(tl.int64)[:, None] * width + c, mask=mask, other=0)
    at = (plus - first).to(tl.int64)[:, None] * width + c
    above = tl.load(source + at, mask=mask & (plus >= 0)[:, None], other=0)
    at = (minus - first).to(tl.int64)[:, None] * width + c
    below = tl.load(source + at, mask=mask & (minus >= 0)[:, None], other=0)
    return centre + 0.5 * (above + below)


@triton.jit(
    do_not_specialize=[
        "all_vertices",
        "slot_rows",
        "quads",
        "blocks",
        "forward_from",
        "forward_to",
        "forward_axis",
        "reversed_from",
        "reversed_to",
        "reversed_axis",
    ]
)
def blur(
    work,
    neighbour,
    units,
    all_vertices,
    slot_rows,
    quads,
    blocks,
    forward_from,
    forward_to,
    forward_axis,
    reversed_from,
    reversed_to,
    reversed_axis,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One axis of the forward blur (plane 2 of the grid: 0) and of the reversed one (1).

    Rows are 4 `quads` wide. Plane 1 of the grid are `blocks` of channels of each unit.
    """
    width = 4 * quads
    unit = units + (tl.program_id(1) // blocks) * FIELDS
    v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = ((tl.program_id(1) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    live = v < tl.load(unit + VERTICES)
    mask = live[:, None] & (c < width)
    if tl.program_id(2) == 0:
        source, target, axis = forward_from, forward_to, forward_axis
    else:
        source, target, axis = reversed_from, reversed_to, reversed_axis
    first = tl.load(unit + VERTEX)
    row = tl.load(unit + WORK).to(tl.int64)
    step = neighbour + axis.to(tl.int64) * 2 * all_vertices
    at = work + (source * slot_rows.to(tl.int64) + row) * width
    value = _blurred(at, step, first, v, c, live, mask, all_vertices, width)
    at = work + (target * slot_rows.to(tl.int64) + row) * width
    tl.store(at + v.to(tl.int64)[:, None] * width + c, value, mask=mask)


@triton.jit(
    do_not_specialize=[
        "all_vertices",
        "slot_rows",
        "quads",
        "blocks",
        "forward_from",
        "forward_axis",
        "reversed_from",
        "reversed_axis",
        "target",
    ]
)
def blur_mean(
    work,
    neighbour,
    units,
    all_vertices,
    slot_rows,
    quads,
    blocks,
    forward_from,
    forward_axis,
    reversed_from,
    reversed_axis,
    target,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Last axis of both orders, and their mean: the matrix of the whole is exactly symmetric."""
    width = 4 * quads
    unit = units + (tl.program_id(1) // blocks) * FIELDS
    v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = ((tl.program_id(1) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    live = v < tl.load(unit + VERTICES)
    mask = live[:, None] & (c < width)
    first = tl.load(unit + VERTEX)
    row = tl.load(unit + WORK).to(tl.int64)
    slot = slot_rows.to(tl.int64)
    step = neighbour + forward_axis.to(tl.int64) * 2 * all_vertices
    at = work + (forward_from * slot + row) * width
    value = _blurred(at, step, first, v, c, live, mask, all_vertices, width)
    step = neighbour + reversed_axis.to(tl.int64) * 2 * all_vertices
    at = work + (reversed_from * slot + row) * width
    value += _blurred(at, step, first, v, c, live, mask, all_vertices, width)
    at = work + (target * slot + row) * width
    tl.store(at + v.to(tl.int64)[:, None] * width + c, 0.5 * value, mask=mask)
