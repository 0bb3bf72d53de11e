"""Triton kernels of the lattice filters (launched by `densecrf.torch.triton.filter`).

Values are rows, one per vertex: channel h·LABELS + l is ramp h of label l (the plain filter has
one channel a label). A ramp is c_h(t) = clamp(t - h, 0, 1), the mass in levels above h; ramps make
the running sum over levels of the ordered filter part of the splat, where it costs nothing, and
level 0 need not be stored.

Rows are float32 or float64, and sums are in their type. Weights are stored in float32: for rows of
float64 they are the same numbers, widened when they are loaded. With SCALED, what a pixel gives is
also multiplied by its factor `g`, and what it receives by its factor `read`: a normalised kernel
whose stored numbers are not rounded again.

The argument `one` is 1. Strides multiplied by it are not known to be 1 when a kernel is compiled,
which makes Triton lay a tile out with one label to a thread (the
default is to load runs of floats).
"""

# ruff: noqa: N803, RUF005  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, assignment, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def _names(names, lane, LABELS: tl.constexpr, SOME: tl.constexpr):
    """Labels of the lanes."""
    name = lane.to(tl.int64)
    if SOME:
        name = tl.load(names + lane, mask=lane < LABELS, other=0)
    return name


@triton.jit(do_not_specialize=["n", "score_stride"])
def to_rows(
    scores,
    rows,
    names,
    n,
    score_stride,
    low,
    scale,
    top,
    LABELS: tl.constexpr,
    PITCH: tl.constexpr,
    LEVELS: tl.constexpr,
    HARD: tl.constexpr,
    SOME: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Transpose (labels, n) scores into one row per pixel, as levels t in [0, top] if LEVELS.

    With SOME, only the labels listed in `names`.
    """
    p = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    lane = tl.arange(0, LANES)
    mask = (p < n)[None, :] & (lane < LABELS)[:, None]
    name = _names(names, lane, LABELS, SOME)
    t = tl.load(scores + name[:, None] * score_stride + p[None, :], mask=mask, other=0)
    t = t.to(tl.float32)
    if LEVELS:
        t = tl.minimum(tl.maximum((t - low) * scale, 0.0), top)
        if HARD:
            t = tl.floor(t)
    t = tl.where(mask, t, 0.0)
    mask = (p < n)[:, None] & (lane < PITCH)[None, :]
    tl.store(rows + p[:, None] * PITCH + lane[None, :], tl.trans(t), mask=mask)


@triton.jit(do_not_specialize=["n"])
def indicator_rows(
    labels,
    rows,
    names,
    n,
    LABELS: tl.constexpr,
    PITCH: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row per pixel: 1 for its label among `names`, 0 for the others."""
    p = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    lane = tl.arange(0, LANES)
    name = tl.load(names + lane, mask=lane < LABELS, other=-1)
    label = tl.load(labels + p, mask=p < n, other=-2)
    mask = (p < n)[:, None] & (lane < PITCH)[None, :]
    value = tl.where(label[:, None] == name[None, :], 1.0, 0.0)
    tl.store(rows + p[:, None] * PITCH + lane[None, :], value, mask=mask)


@triton.jit(do_not_specialize=["vertices", "one"])
def splat(
    rows,
    entry_pixel,
    entry_weight,
    g,
    row_begin,
    segment_vertex,
    out,
    vertices,
    one,
    LABELS: tl.constexpr,
    PITCH: tl.constexpr,
    RAMPS: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENT: tl.constexpr,
    SCALED: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Sum the entries of each vertex: a gather over its row of entries, in a fixed order.

    Long rows are cut at multiples of SEGMENT. Program v < vertices sums the head of row v; program
    vertices + b sums what continues from an earlier segment into segment b. Row `pid` of `out`
    takes the sum, and `join` adds the continuations to their heads.
    """
    pid = tl.program_id(0)
    lane = tl.arange(0, LANES)
    segment = pid - vertices
    if pid < vertices:
        vertex = pid
        begin = tl.load(row_begin + pid)
    else:
        vertex = tl.load(segment_vertex + segment)
        begin = segment * SEGMENT
    head = tl.load(row_begin + vertex)
    end = tl.minimum(tl.load(row_begin + vertex + 1), (begin // SEGMENT + 1) * SEGMENT)
    if (pid < vertices) | (head < begin):
        acc = ()
        for _ in tl.static_range(max(RAMPS, 1)):
            acc = acc + (tl.zeros([LANES, TILE], rows.dtype.element_ty),)
        # Every lane loads the entry, and its label of the pixel's row: a thread keeps to one label,
        # so that nothing is exchanged between threads. The next entries are fetched ahead.
        e = tl.broadcast_to(begin + tl.arange(0, TILE)[None, :] * one, [LANES, TILE])
        pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
        weight = tl.load(entry_weight + e, mask=e < end, other=0)
        for _ in range(begin, end, TILE):
            at = rows + pixel.to(tl.int64) * PITCH + lane[:, None] * one
            t = tl.load(at, mask=(lane < LABELS)[:, None], other=0)
            share = weight.to(rows.dtype.element_ty)
            if SCALED:
                share *= tl.load(g + pixel).to(rows.dtype.element_ty)
            e += TILE
            pixel = tl.load(entry_pixel + e, mask=e < end, other=0)
            ahead = tl.load(entry_weight + e, mask=e < end, other=0)
            if RAMPS == 0:
                acc = (acc[0] + share * t,)
            else:
                new = ()
                for h in tl.static_range(RAMPS):
                    new = new + (acc[h] + share * tl.minimum(tl.maximum(t - h, 0.0), 1.0),)
                acc = new
            weight = ahead
        to = out + pid.to(tl.int64) * WIDTH
        for h in tl.static_range(max(RAMPS, 1)):
            tl.store(to + h * LABELS + lane, tl.sum(acc[h], axis=1), mask=lane < LABELS)


@triton.jit(do_not_specialize=["vertices"])
def join(
    values,
    row_begin,
    segment_vertex,
    vertices,
    SEGMENT: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the sums of a long row's continuations to its head (first continuation does it)."""
    segment = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    vertex = tl.load(segment_vertex + segment)
    head = tl.load(row_begin + vertex)
    last = (tl.load(row_begin + vertex + 1) - 1) // SEGMENT
    if (head < segment * SEGMENT) & (segment == head // SEGMENT + 1):
        acc = tl.zeros([TILE, BLOCK], values.dtype.element_ty)
        for first in range(segment, last + 1, TILE):
            s = first + tl.arange(0, TILE)
            row = (vertices + s).to(tl.int64)[:, None] * WIDTH + c[None, :]
            mask = (s <= last)[:, None] & (c < WIDTH)[None, :]
            acc += tl.load(values + row, mask=mask, other=0)
        at = values + vertex.to(tl.int64) * WIDTH + c
        tl.store(at, tl.load(at, mask=c < WIDTH) + tl.sum(acc, axis=0), mask=c < WIDTH)


@triton.jit
def _blurred(source, neighbour, v, c, mask, vertices, WIDTH: tl.constexpr):
    """Three-point blur (1/2, 1, 1/2) of rows v; a missing neighbour counts as zero."""
    live = v < vertices
    plus = tl.load(neighbour + v, mask=live, other=-1)
    minus = tl.load(neighbour + vertices + v, mask=live, other=-1)
    centre = tl.load(source + v.to(tl.int64)[:, None] * WIDTH + c, mask=mask, other=0)
    above = tl.load(
        source + plus.to(tl.int64)[:, None] * WIDTH + c, mask=mask & (plus >= 0)[:, None], other=0
    )
    below = tl.load(
        source + minus.to(tl.int64)[:, None] * WIDTH + c, mask=mask & (minus >= 0)[:, None], other=0
    )
    return centre + 0.5 * (above + below)


@triton.jit(
    do_not_specialize=[
        "vertices",
        "slot_rows",
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
    vertices,
    slot_rows,
    forward_from,
    forward_to,
    forward_axis,
    reversed_from,
    reversed_to,
    reversed_axis,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One axis of the forward blur (plane 0 of the grid) and of the reversed one (plane 1)."""
    v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (v < vertices)[:, None] & (c < WIDTH)
    if tl.program_id(2) == 0:
        source, target, axis = forward_from, forward_to, forward_axis
    else:
        source, target, axis = reversed_from, reversed_to, reversed_axis
    slot = slot_rows.to(tl.int64) * WIDTH
    step = neighbour + axis.to(tl.int64) * 2 * vertices
    value = _blurred(work + source * slot, step, v, c, mask, vertices, WIDTH)
    tl.store(work + target * slot + v.to(tl.int64)[:, None] * WIDTH + c, value, mask=mask)


@triton.jit(
    do_not_specialize=[
        "vertices",
        "slot_rows",
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
    vertices,
    slot_rows,
    forward_from,
    forward_axis,
    reversed_from,
    reversed_axis,
    target,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Last axis of both orders, and their mean: the matrix of the whole is exactly symmetric."""
    v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (v < vertices)[:, None] & (c < WIDTH)
    slot = slot_rows.to(tl.int64) * WIDTH
    step = neighbour + forward_axis.to(tl.int64) * 2 * vertices
    value = _blurred(work + forward_from * slot, step, v, c, mask, vertices, WIDTH)
    step = neighbour + reversed_axis.to(tl.int64) * 2 * vertices
    value += _blurred(work + reversed_from * slot, step, v, c, mask, vertices, WIDTH)
    tl.store(work + target * slot + v.to(tl.int64)[:, None] * WIDTH + c, 0.5 * value, mask=mask)


@triton.jit(do_not_specialize=["n", "out_stride", "one"])
def slice_rows(
    values,
    rows,
    corner,
    corner_weight,
    read,
    mass,
    out,
    names,
    n,
    out_stride,
    factor,
    mass_factor,
    one,
    CORNERS: tl.constexpr,
    LABELS: tl.constexpr,
    PITCH: tl.constexpr,
    RAMPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    SOME: tl.constexpr,
    SCALED: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Read the blurred values at each pixel, and write (or add) `factor` times them, label-major.

    Ordered: with t = k + f, C_h the blurred ramp h-1 and C_0 = mass, the answer is
    mass - (1-f) C_k - C_{k+1} - f C_{k+2}. With SOME, lanes go to the rows listed in `names`.
    """
    first = tl.program_id(0) * BLOCK
    p = (first + tl.arange(0, BLOCK)[None, :] * one).to(tl.int64)
    lane = tl.arange(0, LANES)[:, None]
    mask = (p < n) & (lane < LABELS)
    acc = tl.zeros([LANES, BLOCK], values.dtype.element_ty)
    p = tl.broadcast_to(p, [LANES, BLOCK])
    if RAMPS:
        t = tl.load(rows + p * PITCH + lane * one, mask=mask, other=0)
        level = tl.minimum(t.to(tl.int32), RAMPS - 1)  # the top level is k = RAMPS - 1, f = 1
        f = t - level.to(t.dtype)
        channel = level * LABELS + lane
        lower, upper = mask & (level > 0), mask & (level < RAMPS - 1) & (f > 0)
    for j in tl.static_range(CORNERS):
        # Every lane loads the corner: cheaper than spreading it through shared memory.
        vertex = tl.load(corner + p * CORNERS + j, mask=mask, other=0).to(tl.int64)
        weight = tl.load(corner_weight + p * CORNERS + j, mask=mask, other=0).to(acc.dtype)
        row = values + vertex * WIDTH
        if RAMPS:
            at = row + channel
            here = tl.load(at - LABELS, mask=lower, other=0)
            above = tl.load(at, mask=mask, other=0)
            beyond = tl.load(at + LABELS, mask=upper, other=0)
            acc += weight * ((1.0 - f) * here + above + f * beyond)
        else:
            acc += weight * tl.load(row + lane * one, mask=mask, other=0)
    if SCALED:
        acc *= tl.load(read + p, mask=mask, other=0)
    else:
        acc *= factor
    if RAMPS:
        total = tl.load(mass + p, mask=mask, other=0) * mass_factor
        acc = total * tl.where(level > 0, 1.0, f) - acc
    p = (first + tl.arange(0, BLOCK)[None, :]).to(tl.int64)  # written along the pixels
    mask = (p < n) & (lane < LABELS)
    at = out + _names(names, lane, LABELS, SOME) * out_stride + p
    if ADD:
        acc += tl.load(at, mask=mask, other=0)
    tl.store(at, acc, mask=mask)
