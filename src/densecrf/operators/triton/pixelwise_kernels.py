"""Triton kernels of what the solvers do to each pixel on its own (launched by `pixelwise`).

Tiles are (labels, pixels): loads run along the pixels, reductions along the labels stay within a
thread. Plane 1 of the grid is the item of the batch, whose first pixel, pixels and two numbers of
float32 `spans` lists, so that no tile straddles two items.
"""

# ruff: noqa: N803  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

LARGEST = tl.constexpr(3.4028234663852886e38)  # of float32
SPAN = tl.constexpr(4)  # columns of `spans`


@triton.jit
def _pixels(spans, BLOCK: tl.constexpr):
    """Pixels of this program, and their mask."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    span = spans + tl.program_id(1) * SPAN
    return tl.load(span) + p, p < tl.load(span + 1)


@triton.jit
def _plane(spans, n, BLOCK: tl.constexpr):
    """Offsets of a block of a plane (plane 2 of the grid) and their mask."""
    pixel, live = _pixels(spans, BLOCK)
    return tl.program_id(2).to(tl.int64) * n + pixel, live


@triton.jit
def _place(spans, n, classes, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets and mask of this program's tile, its pixels, and their mask."""
    pixel, live = _pixels(spans, BLOCK)
    lane = tl.arange(0, LANES)
    offset = lane[:, None].to(tl.int64) * n + pixel[None, :]
    return offset, live[None, :] & (lane < classes)[:, None], pixel, live


@triton.jit
def _number(spans, column: tl.constexpr):
    """Return one of the item's numbers."""
    return tl.load(spans + tl.program_id(1) * SPAN + column).to(tl.float32, bitcast=True)


@triton.jit
def _parts(parts, COLUMNS: tl.constexpr):
    """Return where this tile's sums go."""
    return parts + COLUMNS * (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))


@triton.jit
def _projected(z, classes, LANES: tl.constexpr):
    """Nearest points of the probability simplex to the columns of z, its first `classes` rows.

    Michelot's active sets: raise the threshold tau from max(z) - 1, dropping what falls below,
    until nothing more does.
    """
    z = tl.where(z == z, z, -LARGEST)  # NaN: what overflow left
    z = tl.minimum(tl.maximum(z, -LARGEST), LARGEST)
    largest = tl.max(z, axis=0)
    # Relative: no cancellation for large z; what is below -1 is outside the support anyway.
    shifted = tl.maximum(z - largest[None, :], -2.0)
    shifted = tl.where((tl.arange(0, LANES) < classes)[:, None], shifted, -2.0)
    tau = largest * 0.0 - 1.0
    moving = 1
    rounds = 0
    while (moving > 0) & (rounds <= classes):
        above = shifted > tau[None, :]
        count = tl.sum(tl.where(above, 1.0, 0.0), axis=0)
        better = (tl.sum(tl.where(above, shifted, 0.0), axis=0) - 1.0) / count
        moving = tl.max(tl.where(better > tau, 1, 0), axis=0)
        tau = tl.maximum(tau, better)
        rounds += 1
    return tl.maximum(shifted - tau[None, :], 0.0)


@triton.jit(do_not_specialize=["n", "classes"])
def project_simplex(z, out, spans, n, classes, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Project each pixel's labels onto the simplex."""
    offset, mask, _, live = _place(spans, n, classes, LANES, BLOCK)
    value = tl.load(z + offset, mask=mask, other=float("-inf"))
    value = tl.where(live[None, :], value, 0.0)
    tl.store(out + offset, _projected(value, classes, LANES), mask=mask)


@triton.jit(do_not_specialize=["n", "classes"])
def mean_field(
    phi, received, y, own, out, spans,
    n, classes,
    LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mean-field update: softmax over the labels of received - own · y - phi."""
    offset, mask, pixel, live = _place(spans, n, classes, LANES, BLOCK)
    value = tl.load(received + offset, mask=mask, other=0)
    part = tl.load(own + pixel, mask=live, other=0)[None, :]
    value -= part * tl.load(y + offset, mask=mask, other=0)
    value -= tl.load(phi + offset, mask=mask, other=float("inf"))
    value = tl.where(live[None, :], value, 0.0)
    value = tl.exp(value - tl.max(value, axis=0)[None, :])
    tl.store(out + offset, value / tl.sum(value, axis=0)[None, :], mask=mask)


@triton.jit(do_not_specialize=["n", "classes"])
def lower_bound(phi, r, parts, spans, n, classes, factor, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Sum this tile's Σ_a min_i (phi_ai + factor · r_ai) in float64."""
    offset, mask, _, live = _place(spans, n, classes, LANES, BLOCK)
    value = tl.load(phi + offset, mask=mask, other=float("inf"))
    value += factor * tl.load(r + offset, mask=mask, other=0)
    least = tl.where(live, tl.min(value, axis=0), 0.0).to(tl.float64)
    tl.store(_parts(parts, 1), tl.sum(least, axis=0))


@triton.jit(do_not_specialize=["n", "classes"])
def descend(
    v, phi, r, previous, step, stiffness, out, parts, spans,
    n, classes,
    LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Projected gradient step from v, and this tile's sums of `pixelwise.descend`, in float64."""
    offset, mask, pixel, live = _place(spans, n, classes, LANES, BLOCK)
    gradient = tl.load(phi + offset, mask=mask, other=0) + tl.load(r + offset, mask=mask, other=0)
    at = tl.load(v + offset, mask=mask, other=0)
    size = tl.load(step + pixel, mask=live, other=0)
    z = tl.where(live[None, :], tl.where(mask, at - size[None, :] * gradient, float("-inf")), 0.0)
    y = _projected(z, classes, LANES)
    tl.store(out + offset, y, mask=mask)
    least = tl.min(tl.where(mask, gradient, float("inf")), axis=0)
    value = tl.sum(gradient.to(tl.float64) * at.to(tl.float64), axis=0)
    back = tl.load(previous + offset, mask=mask, other=0)
    turn = tl.sum(tl.where(mask, (at - y) * (y - back), 0.0), axis=0)
    turn *= tl.load(stiffness + pixel, mask=live, other=0)
    to = _parts(parts, 3)
    tl.store(to, tl.sum(tl.where(live, least, 0.0).to(tl.float64), axis=0))
    tl.store(to + 1, tl.sum(value, axis=0))
    tl.store(to + 2, tl.sum(turn.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["n", "classes"])
def alternatives(
    phi, received, own_mass, row, labels, best, gain, parts, spans,
    n, classes,
    LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Best label of each pixel given the others', its gain, and the tile's sums (Potts).

    `received` holds what label `row[item, l]` of the filtered ones gets at each pixel, `own_mass`
    what of its own label's comes from the pixel itself; -1 where none of a label is about. Sums:
    unary energy, mass of agreeing pairs, all mass received, movers, pixels whose own label was not
    filtered.
    """
    offset, mask, pixel, live = _place(spans, n, classes, LANES, BLOCK)
    lane = tl.arange(0, LANES)
    place = tl.load(row + tl.program_id(1) * classes + lane, mask=lane < classes, other=-1)
    there = mask & (place >= 0)[:, None]
    at = received + place.to(tl.int64)[:, None] * n + pixel[None, :]
    agreeing = tl.load(at, mask=there, other=0)
    unary = tl.load(phi + offset, mask=mask, other=0)
    own = tl.load(labels + pixel, mask=live, other=0).to(tl.int32)
    mine = (lane[:, None] == own[None, :]) & mask
    itself = tl.load(own_mass + pixel, mask=live, other=0)
    own_unary = tl.sum(tl.where(mine, unary, 0.0), axis=0)
    own_agreeing = tl.sum(tl.where(mine, agreeing, 0.0), axis=0) - itself
    others = tl.where(mask & ~mine, unary - agreeing, float("inf"))
    least, choice = tl.min(others, axis=0, return_indices=True, return_indices_tie_break_left=True)
    gained = tl.where(live, tl.maximum(own_unary - own_agreeing - least, 0.0), 0.0)
    moves = gained > 0
    tl.store(best + pixel, tl.where(moves, choice, own).to(tl.int64), mask=live)
    tl.store(gain + pixel, gained, mask=live)
    to = _parts(parts, 5)
    tl.store(to, tl.sum(own_unary.to(tl.float64), axis=0))
    tl.store(to + 1, tl.sum(own_agreeing.to(tl.float64), axis=0))
    tl.store(to + 2, tl.sum((tl.sum(agreeing, axis=0) - itself).to(tl.float64), axis=0))
    tl.store(to + 3, tl.sum(tl.where(moves, 1.0, 0.0), axis=0).to(tl.float64))
    missing = tl.sum(tl.where(mine & (place < 0)[:, None], 1.0, 0.0), axis=0)
    tl.store(to + 4, tl.sum(missing, axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["count", "columns"])
def add_up(parts, out, count, columns, LANES: tl.constexpr, TILE: tl.constexpr):
    """Sum the columns of each item's `count` rows of parts."""
    item = tl.program_id(0)
    column = tl.arange(0, LANES)
    total = tl.zeros([TILE, LANES], tl.float64)
    for first in range(0, count, TILE):
        row = first + tl.arange(0, TILE)
        mask = (row < count)[:, None] & (column < columns)[None, :]
        at = parts + (item * count + row)[:, None] * columns + column[None, :]
        total += tl.load(at, mask=mask, other=0)
    tl.store(out + item * columns + column, tl.sum(total, axis=0), mask=column < columns)


@triton.jit(do_not_specialize=["n"])
def extents(nodes, offsets, parts, spans, n, OFFSETS: tl.constexpr, BLOCK: tl.constexpr):
    """Least and largest number of a block of a node's plane (plane 2 of the grid)."""
    at, live = _plane(spans, n, BLOCK)
    value = tl.load(nodes + at, mask=live, other=0)
    if OFFSETS:
        value += tl.load(offsets + at, mask=live, other=0)
    row = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    to = parts + 2 * (row * tl.num_programs(0) + tl.program_id(0))
    # The largest is stored with its sign turned: both are minima.
    tl.store(to, tl.min(tl.where(live, value, float("inf")), axis=0))
    tl.store(to + 1, tl.min(tl.where(live, -value, float("inf")), axis=0))


@triton.jit(do_not_specialize=["n"])
def compress(nodes, offsets, extents, out, spans, n, OFFSETS: tl.constexpr, BLOCK: tl.constexpr):
    """Compress (offsets +) nodes - their least, per node and item: `projections.compressed`.

    `extents` are minima as above; the item's numbers are the span and the edge.
    """
    at, live = _plane(spans, n, BLOCK)
    value = tl.load(nodes + at, mask=live, other=0)
    if OFFSETS:
        value += tl.load(offsets + at, mask=live, other=0)
    own = extents + 2 * (tl.program_id(1) * tl.num_programs(2) + tl.program_id(2))
    low = tl.load(own)
    top = tl.full([BLOCK], -1.0, tl.float32) * tl.load(own + 1) - low
    length, edge = _number(spans, 2), _number(spans, 3)
    u = value - low
    slope = (length - 2 * edge) / tl.maximum(top - 2 * edge, 1e-6)
    folded = tl.where(u >= top - edge, u - (top - length), edge + (u - edge) * slope)
    tl.store(out + at, tl.where((top <= length) | (u <= edge), u, folded), mask=live)


@triton.jit(do_not_specialize=["n"])
def extrapolate(y, previous, out, spans, n, BLOCK: tl.constexpr):
    """Extrapolate planes: previous + number · (y - previous)."""
    at, live = _plane(spans, n, BLOCK)
    back = tl.load(previous + at, mask=live, other=0)
    value = back + _number(spans, 2) * (tl.load(y + at, mask=live, other=0) - back)
    tl.store(out + at, value, mask=live)


@triton.jit(do_not_specialize=["n"])
def add_extrapolated(u, y, previous, spans, n, BLOCK: tl.constexpr):
    """Add extrapolated planes to others: previous + 2 (y - previous)."""
    at, live = _plane(spans, n, BLOCK)
    back = tl.load(previous + at, mask=live, other=0)
    value = back + 2.0 * (tl.load(y + at, mask=live, other=0) - back)
    tl.store(u + at, tl.load(u + at, mask=live, other=0) + value, mask=live)


@triton.jit(do_not_specialize=["n", "classes"])
def raised_argmax(y, out, spans, n, classes, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Largest label of each pixel after one label, the item's first number, is raised."""
    offset, mask, pixel, live = _place(spans, n, classes, LANES, BLOCK)
    raised = tl.arange(0, LANES) == _number(spans, 2).to(tl.int32)
    value = tl.load(y + offset, mask=mask, other=0)
    value += tl.where(raised, _number(spans, 3), 0.0)[:, None]
    value = tl.where(mask, value, float("-inf"))
    _, choice = tl.max(value, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(out + pixel, choice.to(tl.int64), mask=live)


@triton.jit(do_not_specialize=["n"])
def undecided(y, parts, spans, n, BLOCK: tl.constexpr):
    """Sum y (1 - y) over a block of a label's plane (plane 2 of the grid) in float64."""
    at, live = _plane(spans, n, BLOCK)
    value = tl.load(y + at, mask=live, other=0)
    row = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    to = parts + row * tl.num_programs(0) + tl.program_id(0)
    tl.store(to, tl.sum((value * (1.0 - value)).to(tl.float64), axis=0))


@triton.jit
def differing(labels, others, parts, spans, BLOCK: tl.constexpr):
    """Count the pixels of a block whose labels differ, in float64."""
    pixel, live = _pixels(spans, BLOCK)
    own = tl.load(labels + pixel, mask=live, other=0)
    other = tl.load(others + pixel, mask=live, other=0)
    tl.store(_parts(parts, 1), tl.sum(tl.where(own != other, 1.0, 0.0), axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["n", "classes"])
def own_unaries(
    phi, row, labels, parts, spans,
    n, classes,
    LANES: tl.constexpr, BLOCK: tl.constexpr,  # noqa: ARG001 - as all kernels over tiles
):  # fmt: skip
    """Sum the tile's unaries of the pixels' own labels, and pixels whose label has no row.

    The item's first number is the plane of `labels` (planes, n) that is summed; `row` as for
    `alternatives`.
    """
    pixel, live = _pixels(spans, BLOCK)
    plane = _number(spans, 2).to(tl.int64)
    label = tl.load(labels + plane * n + pixel, mask=live, other=0)
    place = tl.load(row + tl.program_id(1) * classes + label, mask=live, other=0)
    unary = tl.load(phi + label * n + pixel, mask=live, other=0).to(tl.float64)
    to = _parts(parts, 2)
    tl.store(to, tl.sum(unary, axis=0))
    tl.store(to + 1, tl.sum(tl.where(live & (place < 0), 1.0, 0.0), axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["size"])
def inner(u, v, parts, size, BLOCK: tl.constexpr):
    """Sum a block of u·v in float64."""
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = p < size
    product = tl.load(u + p, mask=mask, other=0).to(tl.float64)
    product *= tl.load(v + p, mask=mask, other=0).to(tl.float64)
    tl.store(parts + tl.program_id(0), tl.sum(product, axis=0))
