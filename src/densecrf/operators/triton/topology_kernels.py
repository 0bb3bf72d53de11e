"""Triton kernels that build lattices, their diagonals and sums (launched by `topology`)."""

# ruff: noqa: N803  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "d"])
def embed(
    features, elevation, base, rank_out, weight_out,
    n, d,
    FAR: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Locate each pixel's simplex: remainder-0 point, rank of the axes, barycentric weights.

    `base` gets the first d coordinates of the remainder-0 point divided by d+1, or -2^31 where a
    feature is not finite or too far out. Float64 throughout, so that far features keep weights.
    """
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = tl.arange(0, WIDTH)
    pixel = (p < n)[:, None]
    real = (i <= d)[None, :]
    row = p.to(tl.int64)
    elevated = tl.zeros([BLOCK, WIDTH], tl.float64)
    for j in range(d):
        f = tl.load(features + row * d + j, mask=p < n, other=0).to(tl.float64)
        column = tl.load(elevation + i * d + j, mask=i <= d, other=0)
        elevated += f[:, None] * column[None, :]
    nearest = tl.floor(elevated / (d + 1) + 0.5)
    good = (tl.abs(nearest) < FAR) | ~real
    # NaN compares false, so it is caught as well.
    bad = tl.sum(tl.where(good, 0, 1), axis=1) > 0
    nearest = tl.where(bad[:, None] | ~real, 0.0, nearest)
    delta = tl.where(bad[:, None] | ~real, 0.0, elevated - nearest * (d + 1))
    excess = tl.sum(nearest, axis=1).to(tl.int32)
    rank = tl.zeros([BLOCK, WIDTH], tl.int32)
    for j in range(d + 1):
        other = tl.sum(tl.where((i == j)[None, :], delta, 0.0), axis=1)[:, None]
        before = (other > delta) | ((other == delta) & (j < i)[None, :])
        rank += tl.where(before, 1, 0)
    rank += excess[:, None]  # back onto the plane of zero sum
    step = tl.where(rank < 0, 1, 0) - tl.where(rank > d, 1, 0)
    rank = tl.where(real, rank + step * (d + 1), WIDTH)
    zero = nearest.to(tl.int32) + step
    delta = (delta - step * (d + 1)) / (d + 1)
    zero = tl.where(bad[:, None], -2147483648, zero)
    tl.store(base + row[:, None] * d + i[None, :], zero, mask=pixel & (i < d)[None, :])
    tl.store(rank_out + row[:, None] * (d + 1) + i[None, :], rank.to(tl.int8), mask=pixel & real)
    # b_k = s_{d-k} - s_{d-k+1} for the differences s sorted by rank, and b_0 takes the rest.
    before_last = tl.sum(tl.where(rank == d, delta, 0.0), axis=1)
    first = tl.sum(tl.where(rank == 0, delta, 0.0), axis=1)
    weight = tl.maximum(1.0 + before_last - first, 0.0)
    tl.store(weight_out + row * (d + 1), weight.to(tl.float32), mask=p < n)
    for k in range(1, d + 1):
        current = tl.sum(tl.where(rank == d - k, delta, 0.0), axis=1)
        weight = tl.maximum(current - before_last, 0.0)  # rounding may go below
        tl.store(weight_out + row * (d + 1) + k, weight.to(tl.float32), mask=p < n)
        before_last = current


@triton.jit(do_not_specialize=["n", "per_item", "d"])
def pack(base, rank, table, keys, n, per_item, d, BLOCK: tl.constexpr):
    """Write the packed keys of the d+1 corners of each pixel's simplex.

    A corner of remainder k has coordinates (d+1) q_i + k; the key's digits are the item, the q_i
    and k. `table` holds the places of the q_i and of the item, then the lowest q_i.
    """
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = p < n
    row = p.to(tl.int64)
    total = (row // per_item) * tl.load(table + d)
    for i in range(d):
        q = tl.load(base + row * d + i, mask=mask, other=0) - tl.load(table + d + 1 + i)
        total += q.to(tl.int64) * tl.load(table + i)
    for k in range(d + 1):
        for i in range(d):
            axis_rank = tl.load(rank + row * (d + 1) + i, mask=mask, other=0)
            total -= tl.where(axis_rank == d - k + 1, tl.load(table + i), 0)
        key = total * (d + 1) + k
        tl.store(keys + row * (d + 1) + k, key.to(keys.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["entries", "vertices", "d"])
def index_entries(
    order, number, sorted_keys, weight, corner, entry_pixel, entry_weight, row_begin, unique_keys,
    segment_vertex,
    entries, vertices, d,
    SEGMENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn the sorted entries into corners (by pixel) and rows of entries (by vertex)."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = s < entries
    entry = tl.load(order + s, mask=mask, other=0)
    vertex = tl.load(number + s - 1, mask=mask & (s > 0), other=0)
    previous = tl.load(number + s - 2, mask=mask & (s > 1), other=0)
    tl.store(corner + entry, vertex, mask=mask)
    tl.store(entry_pixel + s, (entry // (d + 1)).to(tl.int32), mask=mask)
    tl.store(entry_weight + s, tl.load(weight + entry, mask=mask, other=0), mask=mask)
    first = mask & ((vertex != previous) | (s == 0))
    tl.store(row_begin + vertex, s, mask=first)
    tl.store(unique_keys + vertex, tl.load(sorted_keys + s, mask=first, other=0), mask=first)
    tl.store(row_begin + vertices + s * 0, entries + s * 0, mask=s == 0)
    tl.store(segment_vertex + s // SEGMENT, vertex, mask=mask & (s % SEGMENT == 0))


@triton.jit(do_not_specialize=["vertices", "steps", "d"])
def find_neighbours(unique_keys, table, neighbour, vertices, steps, d, BLOCK: tl.constexpr):
    """Find each vertex's neighbour along +axis by bisection, and enter it in both directions.

    One step along axis i adds d to coordinate i and takes 1 from the others: remainder k falls by
    one and q_i grows by one; from remainder 0 it wraps to d, and every q falls by one first.
    """
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    axis = tl.program_id(1)
    mask = v < vertices
    key = tl.load(unique_keys + v, mask=mask, other=0).to(tl.int64)
    everywhere = tl.full([], 0, tl.int64)
    for i in range(d):
        everywhere += tl.load(table + i)
    along = tl.load(table + axis, mask=axis < d, other=0)
    wraps = key % (d + 1) == 0
    target = key + along * (d + 1) + tl.where(wraps, d - everywhere * (d + 1), -1)
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.zeros([BLOCK], tl.int32) + vertices
    for _ in range(steps):
        middle = (low + high) // 2
        probe = tl.load(unique_keys + middle, mask=middle < vertices, other=0).to(tl.int64)
        right = (probe < target) & (low < high)
        low = tl.where(right, middle + 1, low)
        high = tl.where(right, high, tl.minimum(middle, high))
    probe = tl.load(unique_keys + low, mask=low < vertices, other=0).to(tl.int64)
    found = mask & (low < vertices) & (probe == target)
    plus = neighbour + (axis * 2).to(tl.int64) * vertices
    tl.store(plus + v, low, mask=found)
    tl.store(plus + vertices + low, v, mask=found)


@triton.jit
def _share(corner, rank, neighbour, row, live, k, m, vertices, d):
    """Blur between corners k <= m of each pixel, both ways: see `diagonal`."""
    start = tl.load(corner + row + k, mask=live, other=-1)
    end = tl.load(corner + row + m, mask=live, other=-2)
    share = tl.where(live, tl.where(k == m, -1.0, 0.0), 0.0)
    # Up the axes between the corners, or down the others; in either order of the axes.
    for way in range(4):
        at = start
        weight = tl.where(live, 1.0, 0.0)
        for step in range(d + 1):
            axis = step + (way // 2) * (d - 2 * step)
            place = tl.load(rank + row + axis, mask=live, other=0).to(tl.int32)
            between = (place > d - m) & (place <= d - k)
            taken = between.to(tl.int32) != way % 2
            table = neighbour + (axis * 2 + 1 - way % 2) * vertices.to(tl.int64)
            there = tl.load(table + at, mask=taken & (at >= 0), other=-1)
            at = tl.where(taken, there, at)
            weight = tl.where(taken, 0.5 * weight, weight)
        share += tl.where(at == end, weight, 0.0)
    return share


@triton.jit(do_not_specialize=["n", "vertices", "d"])
def pair_shares(corner, rank, neighbour, out, n, vertices, d, BLOCK: tl.constexpr):
    """Blur between corner k (plane 1 of the grid) and each m >= k, both ways."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(1)
    row = p.to(tl.int64) * (d + 1)
    first = k * (d + 1) - k * (k - 1) // 2  # pairs before (k, k)
    for m in range(k, d + 1):
        share = _share(corner, rank, neighbour, row, p < n, k, m, vertices, d)
        tl.store(out + (first + m - k) * n.to(tl.int64) + p, share, mask=p < n)


@triton.jit(do_not_specialize=["n", "vertices", "add"])
def diagonal(
    corner, rank, neighbour, weight, g, out,
    n, vertices, scale, add,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum over pairs of corners of their weights and the blur between them, times scale g²."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = p.to(tl.int64) * (D + 1)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(D + 1):
        first = tl.load(weight + row + k, mask=p < n, other=0)
        for m in range(k, D + 1):
            second = tl.load(weight + row + m, mask=p < n, other=0)
            share = _share(corner, rank, neighbour, row, p < n, k, m, vertices, D)
            total += share * first * second
    own = tl.load(g + p, mask=p < n, other=0)
    total *= scale * own * own
    if add != 0:
        total += tl.load(out + p, mask=p < n, other=0)
    tl.store(out + p, total, mask=p < n)


@triton.jit(
    do_not_specialize=[
        "entries", "padded", "vertices", "segments", "first_entry", "first_vertex",
        "first_segment", "all_vertices", "corners", "first_corner", "all_corners", "axes"
    ]
)  # fmt: skip
def place(
    corner, row_begin, entry_pixel, entry_weight, segment_vertex, neighbour, to_corner, to_begin,
    to_pixel, to_weight, to_segment, to_neighbour,
    entries, padded, vertices, segments, first_entry, first_vertex, first_segment, all_vertices,
    corners, first_corner, all_corners, axes,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one lattice's incidence to its place among all lattices'."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < entries
    vertex = tl.load(corner + i, mask=live, other=0) + first_vertex
    at = (i // corners).to(tl.int64) * all_corners + first_corner + i % corners
    tl.store(to_corner + at, vertex, mask=live)
    # Padding up to whole segments carries no weight; it falls to the last vertex.
    pixel = tl.load(entry_pixel + i, mask=live, other=0)
    tl.store(to_pixel + first_entry + i, pixel, mask=i < padded)
    weight = tl.load(entry_weight + i, mask=live, other=0)
    tl.store(to_weight + first_entry + i, weight, mask=i < padded)
    segment = tl.load(segment_vertex + i, mask=i < segments, other=0) + first_vertex
    tl.store(to_segment + first_segment + i, segment, mask=i < segments)
    begin = tl.load(row_begin + i, mask=i < vertices, other=0)
    begin = tl.where(i < vertices, begin, padded) + first_entry
    tl.store(to_begin + first_vertex + i, begin, mask=i <= vertices)
    live = i < vertices
    for plane in range(2 * axes):
        there = tl.full([BLOCK], -1, tl.int32)
        if plane < 2 * corners:
            there = tl.load(neighbour + plane * vertices.to(tl.int64) + i, mask=live, other=-1)
            there = tl.where(there >= 0, there + first_vertex, -1)
        tl.store(
            to_neighbour + plane * all_vertices.to(tl.int64) + first_vertex + i, there, mask=live
        )


@triton.jit(do_not_specialize=["n", "corners", "first_corner", "all_corners"])
def read_weights(
    blurred, corner, weight, g, to_weight,
    n, corners, first_corner, all_corners, scale, factor,
    NORMALIZED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalising factors g of one lattice, and the weights that its pixels are read with."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = p < n
    row = p.to(tl.int64)
    own = tl.full([BLOCK], 1.0, tl.float32)
    if NORMALIZED:
        mass = tl.zeros([BLOCK], tl.float32)
        for k in range(corners):
            vertex = tl.load(corner + row * all_corners + first_corner + k, mask=live, other=0)
            value = tl.load(blurred + vertex, mask=live, other=0)
            mass += value * tl.load(weight + row * corners + k, mask=live, other=0)
        own = 1.0 / tl.sqrt(tl.maximum(mass * scale, 1e-20))
    tl.store(g + p, own, mask=live)
    for k in range(corners):
        value = tl.load(weight + row * corners + k, mask=live, other=0)
        at = to_weight + row * all_corners + first_corner + k
        tl.store(at, value * own * (factor * scale), mask=live)


@triton.jit(do_not_specialize=["entries"])
def scale_entries(pixel, weight, g, entries, BLOCK: tl.constexpr):
    """Multiply entries by their pixels' factors."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < entries
    own = tl.load(g + tl.load(pixel + e, mask=live, other=0), mask=live, other=0)
    tl.store(weight + e, own * tl.load(weight + e, mask=live, other=0), mask=live)
