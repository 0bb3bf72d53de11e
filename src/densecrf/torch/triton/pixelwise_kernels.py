"""Triton kernels of what the solvers do to each pixel on its own (launched by `pixelwise`).

Tiles are (labels, pixels): loads run along the pixels, reductions along the labels stay within a
thread. Plane 1 of the grid is the item of the batch, so that no tile straddles two items.
"""

# ruff: noqa: N803  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

LARGEST = tl.constexpr(3.4028234663852886e38)  # of float32


@triton.jit
def _place(per_item, n, LABELS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets and mask of this program's tile, and the mask of its pixels."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, LANES)
    live = p < per_item
    pixel = tl.program_id(1).to(tl.int64) * per_item + p
    offset = lane[:, None].to(tl.int64) * n + pixel[None, :]
    return offset, live[None, :] & (lane < LABELS)[:, None], live


@triton.jit
def _projected(z, LABELS: tl.constexpr, LANES: tl.constexpr):
    """Nearest points of the probability simplex to the columns of z, its first LABELS rows.

    Michelot's active sets: raise the threshold tau from max(z) - 1, dropping what falls below,
    until nothing more does.
    """
    z = tl.where(z == z, z, -LARGEST)  # NaN: what overflow left
    z = tl.minimum(tl.maximum(z, -LARGEST), LARGEST)
    largest = tl.max(z, axis=0)
    # Relative: no cancellation for large z; what is below -1 is outside the support anyway.
    shifted = tl.maximum(z - largest[None, :], -2.0)
    shifted = tl.where((tl.arange(0, LANES) < LABELS)[:, None], shifted, -2.0)
    tau = largest * 0.0 - 1.0
    moving = 1
    rounds = 0
    while (moving > 0) & (rounds <= LABELS):
        above = shifted > tau[None, :]
        count = tl.sum(tl.where(above, 1.0, 0.0), axis=0)
        better = (tl.sum(tl.where(above, shifted, 0.0), axis=0) - 1.0) / count
        moving = tl.max(tl.where(better > tau, 1, 0), axis=0)
        tau = tl.maximum(tau, better)
        rounds += 1
    return tl.maximum(shifted - tau[None, :], 0.0)


@triton.jit(do_not_specialize=["n", "per_item"])
def project_simplex(
    z, out, n, per_item, LABELS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr
):
    """Project each pixel's labels onto the simplex."""
    offset, mask, live = _place(per_item, n, LABELS, LANES, BLOCK)
    value = tl.load(z + offset, mask=mask, other=float("-inf"))
    value = tl.where(live[None, :], value, 0.0)
    tl.store(out + offset, _projected(value, LABELS, LANES), mask=mask)


@triton.jit(do_not_specialize=["n", "per_item"])
def mean_field(
    phi,
    received,
    y,
    own,
    out,
    n,
    per_item,
    LABELS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Mean-field update: softmax over the labels of received - own · y - phi."""
    offset, mask, live = _place(per_item, n, LABELS, LANES, BLOCK)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(received + offset, mask=mask, other=0)
    part = tl.load(own + pixel, mask=live, other=0)[None, :]
    value -= part * tl.load(y + offset, mask=mask, other=0)
    value -= tl.load(phi + offset, mask=mask, other=float("inf"))
    value = tl.where(live[None, :], value, 0.0)
    value = tl.exp(value - tl.max(value, axis=0)[None, :])
    tl.store(out + offset, value / tl.sum(value, axis=0)[None, :], mask=mask)


@triton.jit(do_not_specialize=["n", "per_item"])
def lower_bound(
    phi,
    r,
    parts,
    n,
    per_item,
    factor,
    LABELS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum this tile's Σ_a min_i (phi_ai + factor · r_ai) in float64."""
    offset, mask, live = _place(per_item, n, LABELS, LANES, BLOCK)
    value = tl.load(phi + offset, mask=mask, other=float("inf"))
    value += factor * tl.load(r + offset, mask=mask, other=0)
    least = tl.where(live, tl.min(value, axis=0), 0.0).to(tl.float64)
    at = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(parts + at, tl.sum(least, axis=0))


@triton.jit(do_not_specialize=["n", "per_item"])
def descend(
    v,
    phi,
    r,
    previous,
    step,
    stiffness,
    out,
    parts,
    n,
    per_item,
    LABELS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Projected gradient step from v, and this tile's sums of `pixelwise.descend`, in float64."""
    offset, mask, live = _place(per_item, n, LABELS, LANES, BLOCK)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gradient = tl.load(phi + offset, mask=mask, other=0) + tl.load(r + offset, mask=mask, other=0)
    at = tl.load(v + offset, mask=mask, other=0)
    size = tl.load(step + pixel, mask=live, other=0)
    z = tl.where(live[None, :], tl.where(mask, at - size[None, :] * gradient, float("-inf")), 0.0)
    y = _projected(z, LABELS, LANES)
    tl.store(out + offset, y, mask=mask)
    least = tl.min(tl.where(mask, gradient, float("inf")), axis=0)
    value = tl.sum(gradient.to(tl.float64) * at.to(tl.float64), axis=0)
    back = tl.load(previous + offset, mask=mask, other=0)
    turn = tl.sum(tl.where(mask, (at - y) * (y - back), 0.0), axis=0)
    turn *= tl.load(stiffness + pixel, mask=live, other=0)
    to = parts + 3 * tl.program_id(0)
    tl.store(to, tl.sum(tl.where(live, least, 0.0).to(tl.float64), axis=0))
    tl.store(to + 1, tl.sum(value, axis=0))
    tl.store(to + 2, tl.sum(turn.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["n", "per_item"])
def alternatives(
    phi,
    received,
    own_mass,
    row,
    labels,
    best,
    gain,
    parts,
    n,
    per_item,
    LABELS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Best label of each pixel given the others', its gain, and the tile's sums (Potts).

    `received` holds what label `row[l]` of the filtered ones gets at each pixel, `own_mass` what of
    its own label's comes from the pixel itself; -1 where none of a label is about. Sums: unary
    energy, mass of agreeing pairs, all mass received, movers, pixels whose own label was not
    filtered.
    """
    offset, mask, live = _place(per_item, n, LABELS, LANES, BLOCK)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, LANES)
    place = tl.load(row + lane, mask=lane < LABELS, other=-1)
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
    to = parts + 5 * tl.program_id(0)
    tl.store(to, tl.sum(own_unary.to(tl.float64), axis=0))
    tl.store(to + 1, tl.sum(own_agreeing.to(tl.float64), axis=0))
    tl.store(to + 2, tl.sum((tl.sum(agreeing, axis=0) - itself).to(tl.float64), axis=0))
    tl.store(to + 3, tl.sum(tl.where(moves, 1.0, 0.0), axis=0).to(tl.float64))
    missing = tl.sum(tl.where(mine & (place < 0)[:, None], 1.0, 0.0), axis=0)
    tl.store(to + 4, tl.sum(missing, axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["count"])
def add_up(parts, out, count, COLUMNS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr):
    """Sum the columns of `count` rows of parts."""
    column = tl.arange(0, LANES)
    total = tl.zeros([TILE, LANES], tl.float64)
    for first in range(0, count, TILE):
        row = first + tl.arange(0, TILE)
        mask = (row < count)[:, None] & (column < COLUMNS)[None, :]
        total += tl.load(parts + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0)
    tl.store(out + column, tl.sum(total, axis=0), mask=column < COLUMNS)


@triton.jit(do_not_specialize=["n"])
def row_sums(values, names, parts, n, SOME: tl.constexpr, BLOCK: tl.constexpr):
    """Sum a block of row `program_id(1)`, or of the row that `names` has there, in float64."""
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    name = row.to(tl.int64)
    if SOME:
        name = tl.load(names + row)
    value = tl.load(values + name * n + p, mask=p < n, other=0).to(tl.float64)
    tl.store(parts + row * tl.num_programs(0) + tl.program_id(0), tl.sum(value, axis=0))


@triton.jit(do_not_specialize=["n"])
def balance(
    values,
    names,
    parts,
    mass,
    total,
    n,
    SOME: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Subtract from a block of such a row its share of the row's sum, by mass."""
    row = tl.program_id(1)
    name = row.to(tl.int64)
    if SOME:
        name = tl.load(names + row)
    excess = tl.zeros([TILE], tl.float64)
    for first in range(0, tl.num_programs(0), TILE):
        b = first + tl.arange(0, TILE)
        at = parts + row * tl.num_programs(0) + b
        excess += tl.load(at, mask=b < tl.num_programs(0), other=0)
    share = (tl.sum(excess, axis=0) / tl.load(total)).to(tl.float32)
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = values + name * n + p
    value = tl.load(at, mask=p < n, other=0) - share * tl.load(mass + p, mask=p < n, other=0)
    tl.store(at, value, mask=p < n)


@triton.jit(do_not_specialize=["size"])
def inner(u, v, parts, size, BLOCK: tl.constexpr):
    """Sum a block of u·v in float64."""
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = p < size
    product = tl.load(u + p, mask=mask, other=0).to(tl.float64)
    product *= tl.load(v + p, mask=mask, other=0).to(tl.float64)
    tl.store(parts + tl.program_id(0), tl.sum(product, axis=0))
