"""Triton kernels between planes of labels and rows of pixels: see `filter_kernels`."""

# ruff: noqa: N803  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, assignment, untyped-decorator"

import triton
import triton.language as tl

from densecrf.operators.triton.filter_kernels import (
    FIELDS,
    ITEM,
    LOW,
    NAMES,
    PIXEL,
    PIXELS,
    ROW,
    SCALE,
    TOP,
    VERTEX,
    WORK,
)


@triton.jit
def _number(unit, column):
    """Return a column of float32."""
    return tl.load(unit + column).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["stride"])
def to_rows(
    scores,
    offsets,
    rows,
    units,
    stride,
    LEVELS: tl.constexpr,
    OFFSETS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Transpose scores (labels, pixels), with OFFSETS added, into one row per pixel.

    LEVELS: 0 plain values, 1 levels t in [0, top], 2 whole levels.
    """
    unit = units + tl.program_id(1) * FIELDS
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, LANES)
    live = p < tl.load(unit + PIXELS)
    name = tl.load(unit + NAMES + lane)
    mask = live[None, :] & (name >= 0)[:, None]
    at = name.to(tl.int64)[:, None] * stride + (tl.load(unit + PIXEL) + p)[None, :]
    t = tl.load(scores + at, mask=mask, other=0)
    if OFFSETS:
        t += tl.load(offsets + at, mask=mask, other=0)
    if LEVELS > 0:
        t = (t - _number(unit, LOW)) * _number(unit, SCALE)
        t = tl.minimum(tl.maximum(t, 0.0), _number(unit, TOP))
        if LEVELS > 1:
            t = tl.floor(t)
        t = tl.where(mask, t, 0.0)
    to = (tl.load(unit + ROW) + p).to(tl.int64)[:, None] * LANES + lane[None, :]
    tl.store(rows + to, tl.trans(t), mask=live[:, None])


@triton.jit(do_not_specialize=["quads", "ramps", "corners", "first_row", "stride", "add", "one"])
def slice_rows(
    values,
    rows,
    corner,
    corner_weight,
    read,
    mass,
    out,
    units,
    quads,
    ramps,
    corners,
    first_row,
    stride,
    factor,
    mass_factor,
    add,
    one,
    ORDERED: tl.constexpr,
    SCALED: tl.constexpr,
    CORNERS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Read the blurred values at each pixel, and write (or add) `factor` times them, label-major.

    They begin at `first_row`, and are read CORNERS corners at a time. Ordered: with t = k + f, C_h
    the blurred ramp h-1 and C_0 = mass, the answer is mass - (1-f) C_k - C_{k+1} - f C_{k+2}.
    """
    unit = units + tl.program_id(1) * FIELDS
    first = tl.load(unit + PIXEL)
    count = tl.load(unit + PIXELS)
    lane = tl.arange(0, LANES)[:, None]
    acc = tl.zeros([LANES, BLOCK], values.dtype.element_ty)
    near = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :] * one
    near = tl.broadcast_to(near, [LANES, BLOCK])
    live = near < count
    if not ORDERED:
        live &= lane < 4 * quads
    p = (first + near).to(tl.int64)
    channel = tl.broadcast_to(lane * one, [LANES, BLOCK])
    if ORDERED:
        row = (tl.load(unit + ROW) + near).to(tl.int64) * LANES
        t = tl.load(rows + row + lane * one, mask=live, other=0)
        level = tl.minimum(t.to(tl.int32), ramps - 1)  # the top level is k = ramps - 1, f = 1
        f = t - level.to(t.dtype)
        channel += level * LANES
        lower, upper = live & (level > 0), live & (level < ramps - 1) & (f > 0)
    row = (first_row + tl.load(unit + WORK)).to(tl.int64) - tl.load(unit + VERTEX)
    base = values + row * (4 * quads)
    for group in range(0, corners, CORNERS):
        for j in tl.static_range(CORNERS):
            # Every lane loads the corner: cheaper than spreading it through shared memory.
            c = group + tl.full([1, 1], j, tl.int32)
            here = live & (c < corners)
            at = p * corners + c
            vertex = tl.load(corner + at, mask=here, other=0).to(tl.int64)
            weight = tl.load(corner_weight + at, mask=here, other=0).to(acc.dtype)
            value = base + vertex * (4 * quads) + channel
            if ORDERED:
                below = tl.load(value - LANES, mask=lower & here, other=0)
                above = tl.load(value, mask=here, other=0)
                beyond = tl.load(value + LANES, mask=upper & here, other=0)
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
def _row(units, LANES: tl.constexpr):
    """Return unit, label and pixels of a program of plane 1: one for each lane."""
    unit = units + tl.program_id(1) // LANES * FIELDS
    name = tl.load(unit + NAMES + tl.program_id(1) % LANES)
    return unit, name.to(tl.int64), tl.where(name >= 0, tl.load(unit + PIXELS), 0)


@triton.jit(do_not_specialize=["stride"])
def row_sums(values, parts, units, stride, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Sum a block of each unit's labels in float64."""
    unit, name, count = _row(units, LANES)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = p < count
    value = tl.load(values + name * stride + tl.load(unit + PIXEL) + p, mask=mask, other=0)
    to = parts + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(to, tl.sum(value.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["stride"])
def balance(
    values,
    mass,
    totals,
    parts,
    units,
    stride,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Subtract from a block of each such row its share of the row's sum, by mass."""
    unit, name, count = _row(units, LANES)
    excess = tl.zeros([TILE], tl.float64)
    for first in range(0, tl.num_programs(0), TILE):
        b = first + tl.arange(0, TILE)
        at = parts + tl.program_id(1) * tl.num_programs(0) + b
        excess += tl.load(at, mask=b < tl.num_programs(0), other=0)
    share = tl.sum(excess, axis=0) / tl.load(totals + tl.load(unit + ITEM))
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = p < count
    p = tl.load(unit + PIXEL) + p
    value = tl.load(values + name * stride + p, mask=mask, other=0)
    value -= share.to(tl.float32) * tl.load(mass + p, mask=mask, other=0)
    tl.store(values + name * stride + p, value, mask=mask)
