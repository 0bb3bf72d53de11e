"""Triton kernels that lay lattices side by side (launched by `merged`)."""

# ruff: noqa: N803  (constants of a kernel are in capitals)
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=[
        "entries",
        "padded",
        "vertices",
        "segments",
        "first_entry",
        "first_vertex",
        "first_segment",
        "all_vertices",
        "corners",
        "first_corner",
        "all_corners",
        "axes",
    ]
)
def place(
    corner,
    row_begin,
    entry_pixel,
    entry_weight,
    segment_vertex,
    neighbour,
    to_corner,
    to_begin,
    to_pixel,
    to_weight,
    to_segment,
    to_neighbour,
    entries,
    padded,
    vertices,
    segments,
    first_entry,
    first_vertex,
    first_segment,
    all_vertices,
    corners,
    first_corner,
    all_corners,
    axes,
    BLOCK: tl.constexpr,
):
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
    blurred,
    corner,
    weight,
    g,
    to_weight,
    n,
    corners,
    first_corner,
    all_corners,
    scale,
    factor,
    NORMALIZED: tl.constexpr,
    BLOCK: tl.constexpr,
):
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
