"""Triton kernels of the lattice filters (launched by `densecrf.operators.triton.filter`).

Work comes in units: labels of one item's pixels, with rows of their own, listed in a table
(`densecrf.operators.triton.units.Units`). Numbers of labels, levels, kernels and pixels are
arguments, so that few variants of each kernel serve all problems.

Values are rows, one per vertex, of channels: the ramps of one label after those of another (the
plain filter has one channel a label). A ramp is c_h(t) = clamp(t - h, 0, 1), the mass in levels
above h; ramps make the running sum over levels of the ordered filter part of the splat, where it
costs nothing. Levels t count from a label's lowest, which need not be stored, to its highest: most
labels have one ramp, while some have dozens.

Rows are float32 or float64, and sums are in their type. Weights are stored in float32: for rows of
float64 they are the same numbers, widened when they are loaded. With SCALED, what a pixel gives is
also multiplied by its factor `g`, and what it receives by its factor `read`: a normalised kernel
whose stored numbers are not rounded again.

The argument `one` is 1. Strides multiplied by it are not known to be 1 when a kernel is compiled,
which makes Triton lay a tile out with one label to a thread (the default is to load runs of
floats).
"""

# ruff: noqa: N803, N806, RUF005  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, assignment, untyped-decorator"

import triton
import triton.language as tl

# Columns of the table of units: see `densecrf.operators.triton.units.Units`.
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
QUADS = tl.constexpr(11)
NAMES = tl.constexpr(12)
BASES = tl.constexpr(44)
FIRSTS = tl.constexpr(76)
COUNTS = tl.constexpr(108)
FIELDS = tl.constexpr(140)


@triton.jit
def _number(unit, column):
    """Return a column of float32."""
    return tl.load(unit + column).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["stride", "row_stride"])
def to_rows(
    scores, offsets, rows, units,
    stride, row_stride,
    LEVELS: tl.constexpr, OFFSETS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Transpose scores (labels, pixels), with OFFSETS added, into one row per pixel.

    LEVELS: 0 plain values, 1 levels above the label's lowest, 2 whole ones. Plane 2 of the grid are
    blocks of LANES labels.
    """
    unit = units + tl.program_id(1) * FIELDS
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    live = p < tl.load(unit + PIXELS)
    name = tl.load(unit + NAMES + lane)
    mask = live[None, :] & (name >= 0)[:, None]
    at = name.to(tl.int64)[:, None] * stride + (tl.load(unit + PIXEL) + p)[None, :]
    t = tl.load(scores + at, mask=mask, other=0)
    if OFFSETS:
        t += tl.load(offsets + at, mask=mask, other=0)
    if LEVELS > 0:
        t = (t - _number(unit, LOW)) * _number(unit, SCALE)
        if LEVELS > 1:
            t = tl.floor(t)
        lowest = tl.load(unit + FIRSTS + lane).to(t.dtype)[:, None]
        highest = tl.load(unit + COUNTS + lane).to(t.dtype)[:, None]
        t = tl.where(mask, tl.minimum(tl.maximum(t - lowest, 0.0), highest), 0.0)
    to = (tl.load(unit + ROW) + p).to(tl.int64)[:, None] * row_stride + lane[None, :]
    tl.store(rows + to, tl.trans(t), mask=live[:, None] & (lane < row_stride)[None, :])


@triton.jit(do_not_specialize=["row_stride", "most", "one"])
def splat(
    rows, entry_pixel, entry_weight, g, row_begin, segment_vertex, work, units, channels,
    row_stride, most, one,
    ORDERED: tl.constexpr, SEGMENT: tl.constexpr, SCALED: tl.constexpr, LABELLED: tl.constexpr,
    TILE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Sum the entries of each vertex: a gather over its row of entries, in a fixed order.

    A program sums SEGMENT entries, vertex after vertex: a program for each vertex would have too
    little to do. Where a row begins in the segment, the vertex's row of the unit's workspace takes
    the sum; what continues from an earlier segment goes to row vertices + segment, and `join` adds
    the continuations to their heads. Plane 2 of the grid are blocks of LANES channels. ORDERED:
    `channels`, `most` of each unit, have label + 256 · ramp. LABELLED: `rows` are labels, and what
    is summed are the indicators of the unit's.
    """
    unit = units + tl.program_id(1) * FIELDS
    pid = tl.program_id(0)
    width = 4 * tl.load(unit + QUADS)
    block = tl.program_id(2) * LANES
    if (pid < tl.load(unit + SEGMENTS)) & (block < width):
        OCTET: tl.constexpr = min(LANES, 8)
        OCTETS: tl.constexpr = LANES // OCTET
        lane = tl.arange(0, OCTET)
        vertices, first_vertex = tl.load(unit + VERTICES), tl.load(unit + VERTEX)
        work += 4 * tl.load(unit + WORK).to(tl.int64) + block
        labels = ()
        ramps = ()
        there = ()
        for o in tl.static_range(OCTETS):
            place = block + o * OCTET + lane
            if ORDERED:
                code = tl.load(channels + tl.program_id(1) * most + place, mask=place < width)
                labels = labels + ((code & 255)[:, None],)
                ramps = ramps + ((code >> 8).to(work.dtype.element_ty)[:, None],)
                there = there + ((place < width)[:, None],)
            else:
                labels = labels + (place[:, None] * one,)
                there = there + ((place < row_stride)[:, None],)
        first = tl.load(unit + ROW)
        if not LABELLED:
            first -= tl.load(unit + PIXEL)
        segment = tl.load(unit + SEGMENT_AT) + pid
        vertex = tl.load(segment_vertex + segment)
        begin = segment * SEGMENT
        stop = tl.minimum(begin + SEGMENT, tl.load(row_begin + first_vertex + vertices))
        while begin < stop:
            end = tl.minimum(tl.load(row_begin + vertex + 1), stop)
            acc = ()
            for _ in tl.static_range(OCTETS):
                acc = acc + (tl.zeros([OCTET, TILE], work.dtype.element_ty),)
            # Every lane loads the entry, and its labels of the pixel's row, one of each octet: a
            # thread keeps to them, so that nothing is exchanged between threads. The next entries
            # are fetched ahead.
            e = tl.broadcast_to(begin + tl.arange(0, TILE)[None, :] * one, [OCTET, TILE])
            pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
            weight = tl.load(entry_weight + e, mask=e < end, other=0)
            for _ in range(begin, end, TILE):
                share = weight.to(work.dtype.element_ty)
                if SCALED:
                    share *= tl.load(g + pixel, mask=e < end, other=0).to(work.dtype.element_ty)
                live = e < end
                new = ()
                if LABELLED:
                    label = tl.load(rows + (first + pixel).to(tl.int64), mask=live, other=-2)
                    for o in tl.static_range(OCTETS):
                        name = tl.load(unit + NAMES + o * OCTET + lane)[:, None]
                        new = new + (acc[o] + tl.where(label == name, share, 0.0),)
                else:
                    at = rows + (first + pixel).to(tl.int64) * row_stride
                    for o in tl.static_range(OCTETS):
                        t = tl.load(at + labels[o], mask=live & there[o], other=0)
                        if ORDERED:
                            t = tl.minimum(tl.maximum(t - ramps[o], 0.0), 1.0)
                        new = new + (acc[o] + share * t,)
                acc = new
                e += TILE
                pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
                weight = tl.load(entry_weight + e, mask=e < end, other=0)
            continued = tl.load(row_begin + vertex) < begin
            to = (
                work
                + tl.where(continued, vertices + pid, vertex - first_vertex).to(tl.int64) * width
            )
            for o in tl.static_range(OCTETS):
                mask = block + o * OCTET + lane < width
                tl.store(to + o * OCTET + lane, tl.sum(acc[o], axis=1), mask=mask)
            begin = end
            vertex += 1


@triton.jit
def join(
    work, row_begin, segment_vertex, units,
    SEGMENT: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the sums of a long row's continuations to its head (first continuation does it)."""
    unit = units + tl.program_id(1) * FIELDS
    width = 4 * tl.load(unit + QUADS)
    if (tl.program_id(0) < tl.load(unit + SEGMENTS)) & (tl.program_id(2) * BLOCK < width):
        segment = tl.load(unit + SEGMENT_AT) + tl.program_id(0)
        c = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        vertex = tl.load(segment_vertex + segment)
        head = tl.load(row_begin + vertex)
        if (head < segment * SEGMENT) & (segment == head // SEGMENT + 1):
            last = (tl.load(row_begin + vertex + 1) - 1) // SEGMENT
            work += 4 * tl.load(unit + WORK).to(tl.int64)
            tail = (tl.load(unit + VERTICES) - tl.load(unit + SEGMENT_AT)).to(tl.int64)
            acc = tl.zeros([TILE, BLOCK], work.dtype.element_ty)
            for first in range(segment, last + 1, TILE):
                s = first + tl.arange(0, TILE)
                mask = (s <= last)[:, None] & (c < width)[None, :]
                acc += tl.load(work + (tail + s)[:, None] * width + c[None, :], mask=mask, other=0)
            at = work + (vertex - tl.load(unit + VERTEX)).to(tl.int64) * width + c
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


@triton.jit
def _tile(units, blocks, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return a tile's unit, rows, channels, their number, and which rows there are."""
    unit = units + (tl.program_id(1) // blocks) * FIELDS
    block = (tl.program_id(1) % blocks) * BLOCK
    width = 4 * tl.load(unit + QUADS)
    v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (block + tl.arange(0, BLOCK))[None, :]
    return unit, v, c, width, v < tl.where(block < width, tl.load(unit + VERTICES), 0)


@triton.jit(
    do_not_specialize=[
        "all_vertices", "slot_quads", "blocks", "forward_from", "forward_to", "forward_axis",
        "reversed_from", "reversed_to", "reversed_axis"
    ]
)  # fmt: skip
def blur(
    work, neighbour, units,
    all_vertices, slot_quads, blocks, forward_from, forward_to, forward_axis, reversed_from,
    reversed_to, reversed_axis,
    MEAN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One axis of the forward blur (plane 2 of the grid: 0) and of the reversed one (1).

    Plane 1 of the grid are `blocks` of channels of each unit. MEAN: the last axis of both, and
    their mean: the matrix of the whole is exactly symmetric.
    """
    unit, v, c, width, live = _tile(units, blocks, ROWS, BLOCK)
    mask = live[:, None] & (c < width)
    if tl.program_id(2) == 0:
        source, target, axis = forward_from, forward_to, forward_axis
    else:
        source, target, axis = reversed_from, reversed_to, reversed_axis
    first = tl.load(unit + VERTEX)
    work += 4 * tl.load(unit + WORK).to(tl.int64)
    slot = 4 * slot_quads.to(tl.int64)
    step = neighbour + axis.to(tl.int64) * 2 * all_vertices
    at = work + source * slot
    value = _blurred(at, step, first, v, c, live, mask, all_vertices, width)
    if MEAN:
        step = neighbour + reversed_axis.to(tl.int64) * 2 * all_vertices
        at = work + reversed_from * slot
        value += _blurred(at, step, first, v, c, live, mask, all_vertices, width)
        value = 0.5 * value
    at = work + target * slot
    tl.store(at + v.to(tl.int64)[:, None] * width + c, value, mask=mask)


@triton.jit(do_not_specialize=["slot_quads", "blocks", "left", "right"])
def overlap(
    work, vertex_weight, parts, units,
    slot_quads, blocks, left, right,
    WEIGHTED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the products of two slots over a tile of a unit's rows, in float64.

    WEIGHTED: times the vertices' weights. Plane 1 of the grid as for `blur`.
    """
    unit, v, c, width, live = _tile(units, blocks, ROWS, BLOCK)
    named = tl.load(unit + NAMES + c, mask=c < width, other=-1) >= 0  # what is beyond is arbitrary
    mask = live[:, None] & named
    at = 4 * tl.load(unit + WORK).to(tl.int64) + v.to(tl.int64)[:, None] * width + c
    slot = 4 * slot_quads.to(tl.int64)
    product = tl.load(work + left * slot + at, mask=mask, other=0).to(tl.float64)
    product *= tl.load(work + right * slot + at, mask=mask, other=0).to(tl.float64)
    total = tl.sum(product, axis=1)
    if WEIGHTED:
        weight = tl.load(vertex_weight + tl.load(unit + VERTEX) + v, mask=live, other=0)
        total *= weight.to(tl.float64)
    to = parts + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(to, tl.sum(total, axis=0))


@triton.jit(
    do_not_specialize=["row_stride", "corners", "slot", "slot_quads", "stride", "add", "one"]
)
def slice_rows(
    values, rows, corner, corner_weight, read, mass, out, units,
    row_stride, corners, slot, slot_quads, stride, factor, mass_factor, add, one,
    ORDERED: tl.constexpr, SCALED: tl.constexpr, CORNERS: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Read the blurred values at each pixel, and write (or add) `factor` times them, label-major.

    They are in a slot of `values`, and are read CORNERS corners at a time. Plane 2 of the grid are
    blocks of LANES labels. Ordered: with t = k + f, C_h the blurred ramp h-1 and C_0 = mass, the
    answer is mass - (1-f) C_k - C_{k+1} - f C_{k+2}.
    """
    unit = units + tl.program_id(1) * FIELDS
    first = tl.load(unit + PIXEL)
    count = tl.load(unit + PIXELS)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)[:, None]
    width = 4 * tl.load(unit + QUADS).to(tl.int64)
    acc = tl.zeros([LANES, BLOCK], values.dtype.element_ty)
    near = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :] * one
    near = tl.broadcast_to(near, [LANES, BLOCK])
    live = near < count
    if not ORDERED:
        live &= lane < width
    p = (first + near).to(tl.int64)
    channel = tl.broadcast_to(lane * one, [LANES, BLOCK])
    if ORDERED:
        row = (tl.load(unit + ROW) + near).to(tl.int64) * row_stride
        t = tl.load(rows + row + lane * one, mask=live & (lane < row_stride), other=0)
        ramps = tl.load(unit + COUNTS + lane)
        level = tl.minimum(t.to(tl.int32), ramps - 1)  # the top level is k = ramps - 1, f = 1
        f = t - level.to(t.dtype)
        channel = tl.load(unit + BASES + lane) + level
        lower, upper = live & (level > 0), live & (level < ramps - 1) & (f > 0)
    base = values + 4 * (slot.to(tl.int64) * slot_quads + tl.load(unit + WORK))
    base -= tl.load(unit + VERTEX) * width
    for group in range(0, corners, CORNERS):
        for j in tl.static_range(CORNERS):
            # Every lane loads the corner: cheaper than spreading it through shared memory.
            c = group + tl.full([1, 1], j, tl.int32)
            here = live & (c < corners)
            at = p * corners + c
            vertex = tl.load(corner + at, mask=here, other=0).to(tl.int64)
            weight = tl.load(corner_weight + at, mask=here, other=0).to(acc.dtype)
            value = base + vertex * width + channel
            if ORDERED:
                below = tl.load(value - 1, mask=lower & here, other=0)
                above = tl.load(value, mask=here, other=0)
                beyond = tl.load(value + 1, mask=upper & here, other=0)
                acc += weight * ((1.0 - f) * below + above + f * beyond)
            else:
                acc += weight * tl.load(value, mask=here, other=0)
    if SCALED:
        acc *= tl.load(read + p, mask=live, other=0)
    else:
        acc *= factor
    if ORDERED:
        total = tl.load(mass + p, mask=live, other=0) * mass_factor
        acc = total * tl.where(level > 0, 1.0, f) - acc
    near = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]  # written along the pixels
    name = tl.load(unit + NAMES + lane)
    mask = (near < count) & (name >= 0)
    at = out + name.to(tl.int64) * stride + first + near
    if add != 0:
        acc += tl.load(at, mask=mask, other=0)
    tl.store(at, acc, mask=mask)


@triton.jit
def _row(units):
    """Return unit, label and pixels of a program of planes 1 and 2, and the number of its row."""
    unit = units + tl.program_id(1) * FIELDS
    name = tl.load(unit + NAMES + tl.program_id(2))
    row = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    return unit, name.to(tl.int64), tl.where(name >= 0, tl.load(unit + PIXELS), 0), row


@triton.jit(do_not_specialize=["stride"])
def row_sums(values, parts, units, stride, BLOCK: tl.constexpr):
    """Sum a block of each unit's labels in float64."""
    unit, name, count, row = _row(units)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = p < count
    value = tl.load(values + name * stride + tl.load(unit + PIXEL) + p, mask=mask, other=0)
    to = parts + row * tl.num_programs(0) + tl.program_id(0)
    tl.store(to, tl.sum(value.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["stride"])
def balance(
    values, mass, totals, parts, units,
    stride,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Subtract from a block of each such row its share of the row's sum, by mass."""
    unit, name, count, row = _row(units)
    excess = tl.zeros([TILE], tl.float64)
    for first in range(0, tl.num_programs(0), TILE):
        b = first + tl.arange(0, TILE)
        at = parts + row * tl.num_programs(0) + b
        excess += tl.load(at, mask=b < tl.num_programs(0), other=0)
    share = tl.sum(excess, axis=0) / tl.load(totals + tl.load(unit + ITEM))
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = p < count
    p = tl.load(unit + PIXEL) + p
    value = tl.load(values + name * stride + p, mask=mask, other=0)
    value -= share.to(tl.float32) * tl.load(mass + p, mask=mask, other=0)
    tl.store(values + name * stride + p, value, mask=mask)
