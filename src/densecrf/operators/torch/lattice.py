"""The permutohedral lattice filter on torch tensors: plain and ordered, on CPU or GPU."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from densecrf.cached import cached_property
from densecrf.operators.levels import SMALLEST_MASS, Levels
from densecrf.operators.torch.dispatch import Engine, use_triton
from densecrf.operators.torch.topology import MAX_DIMENSION, Topology, build_topologies
from densecrf.validation import ArgumentError, check_choice, check_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

Order = Literal["symmetric", "forward"]


class Span(NamedTuple):
    """Runs of pixels, vertices and segments of entries: the first, and how many."""

    pixel: int
    pixels: int
    vertex: int
    vertices: int
    segment: int
    segments: int


@dataclass(frozen=True, eq=False)
class Lattice:
    """Gaussian filter of n pixels with (n, d) features on the permutohedral lattice.

    The matrix k ≈ exp(-½ ‖f_a - f_b‖²) is applied by splatting onto the vertices of the simplices
    that enclose the features, blurring with (½, 1, ½) along each of the d+1 axes, and slicing.
    Deterministic, bit by bit. Made by `Lattice.build` or `Lattice.build_all`.

    Attributes
    ----------
    topology : Topology
        Vertices, corners and neighbours.
    corner_weight, entry_weight : Tensor
        Barycentric weights (n, d+1), and the same numbers in the order of the vertices' entries.
    items : int
        Number of batch items.
    order : {"symmetric", "forward"}
        Order of the blurs.
    workspace : int
        Limit on scratch memory, in bytes.
    triton : bool
        Whether fused kernels are used.
    scale : float
        A factor of the slice, by convention 1 / (1 + 2^-d).
    shares : tuple of (int, float)
        Runs of vertices, and the factors of their values in the slice.
    own_spans : tuple of Span
        The items that are filtered separately, if several.

    Examples
    --------
    >>> lattice = Lattice.build(torch.linspace(0, 3, 10).reshape(-1, 1))
    >>> ones = lattice.apply(torch.ones(1, 10))
    >>> bool((ones > 1).all())
    True
    """

    topology: Topology
    corner_weight: Tensor
    entry_weight: Tensor
    items: int
    order: Order
    workspace: int
    triton: bool
    scale: float
    shares: tuple[tuple[int, float], ...]
    own_spans: tuple[Span, ...] = ()

    @classmethod
    def build(
        cls,
        features: Tensor,
        *,
        order: Order = "symmetric",
        engine: Engine = "auto",
        workspace: int | None = None,
    ) -> Lattice:
        """Build the lattice of `features`.

        Parameters
        ----------
        features : Tensor
            (n, d) positions and colours divided by standard deviations, d from 1 to 64; or
            (items, n, d) for a batch, whose items never mix (pixels are then items · n in a row).
        order : {"symmetric", "forward"}
            "symmetric" is the mean of the blurs in forward and reversed order of the axes, whose
            matrix is exactly symmetric; "forward" the usual single order.
        engine : {"auto", "triton", "torch"}
            Fused kernels or plain operations.
        workspace : int, optional
            Limit on scratch memory in bytes, exceeded only if one label does not fit; by default a
            sixteenth of the device's memory, at most 2 GiB (512 MiB on the CPU).
        """
        return cls.build_all([features], order=order, engine=engine, workspace=workspace)[0]

    @classmethod
    def build_all(
        cls,
        features: Sequence[Tensor],
        *,
        order: Order = "symmetric",
        engine: Engine = "auto",
        workspace: int | None = None,
        precision: torch.dtype | None = None,
    ) -> list[Lattice]:
        """Build several lattices over the same pixels together, waiting for the device only twice.

        Parameters are those of `build`, and `precision`, the dtype of the weights, by default that
        of the features. Pixels are always located in double precision.
        """
        check_choice("order", order, ("symmetric", "forward"))
        checked = [_checked(each) for each in features]
        precisions = {precision or flat.dtype for flat, _ in checked}
        if len(precisions) > 1 or len({(len(flat), flat.device, k) for flat, k in checked}) > 1:
            remedy = "differ in pixels, device, precision or number of items"
            raise ArgumentError("features", ..., remedy)
        flat, items = checked[0]
        stored = precisions.pop()
        triton = use_triton(flat.new_empty(0, dtype=stored), engine)
        workspace = _default_workspace(flat.device) if workspace is None else workspace
        with on_device(flat.device):
            built = build_topologies([flat for flat, _ in checked], items, triton, stored)
        lattices = []
        for each in built:
            scale, vertices = 1 / (1 + 2.0 ** -each[0].dimension), each[0].vertices
            shares = ((vertices, scale),)
            lattices.append(cls(*each, items, order, workspace, triton, scale, shares))
        return lattices

    @property
    def n(self) -> int:
        """Number of pixels, of all items together."""
        return self.topology.pixels

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.topology.dimension

    @property
    def vertices(self) -> int:
        """Number of lattice vertices."""
        return self.topology.vertices

    @property
    def slots(self) -> int:
        """Arrays of vertex rows that a filter call needs at once."""
        return 4 if self.order == "symmetric" else 2

    @cached_property
    def spans(self) -> Sequence[Span]:
        """The spans of the items that are filtered separately."""
        segments = len(self.topology.segment_vertex)
        return self.own_spans or (Span(0, self.n, 0, self.vertices, 0, segments),)

    @cached_property
    def vertex_weight(self) -> Tensor:
        """The factors of the vertices, (vertices,)."""
        parts = [torch.full((count,), share, device=self.device) for count, share in self.shares]
        return torch.cat(parts)

    @cached_property
    def mass(self) -> Tensor:
        """Row sums m_a = Σ_b k_ab, (n,)."""
        ones = torch.ones(1, self.n, dtype=self.corner_weight.dtype, device=self.device)
        return self.apply(ones)[0]

    @property
    def device(self) -> torch.device:
        """The device of the lattice."""
        return self.corner_weight.device

    @cached_property
    def transposed(self) -> Lattice:
        """The filter with the transposed matrix: the same blurs in reversed order of the axes."""
        if self.order == "symmetric":
            return self
        flipped = replace(self.topology, neighbour=self.topology.neighbour.flip(0))
        return replace(self, topology=flipped)

    def scaled(self, g: Tensor) -> Lattice:
        """Return the filter of g_a k_ab g_b; it shares the topology with this one.

        Parameters
        ----------
        g : Tensor
            (n,) factors.
        """
        return replace(
            self,
            corner_weight=self.corner_weight * g.unsqueeze(1),
            entry_weight=self.entry_weight * g[self.topology.entry_pixel],
        )

    def normalized(self) -> Lattice:
        """Return the symmetrically normalised filter, k_ab / sqrt(m_a m_b)."""
        return self.scaled(self.mass.clamp(min=SMALLEST_MASS).rsqrt())

    def apply(self, values: Tensor) -> Tensor:
        """Filter plainly: out_ca = Σ_b k_ab values_cb.

        Parameters
        ----------
        values : Tensor
            (channels, n).

        Returns
        -------
        Tensor
            (channels, n), float32 (float64 for a float64 lattice).
        """
        return apply_sum([self], [1.0], values)

    def ordered(
        self,
        scores: Tensor,
        *,
        levels: int = 10,
        soft: bool = True,
        low: float = 0.0,
        high: float = 1.0,
    ) -> Tensor:
        """Filter signs of score differences: out_ia = Σ_b k_ab s(t_ia, t_ib), per label i.

        t = (score - low) / (high - low) · (levels - 1), clamped; s is the sign of t_a - t_b for
        whole levels and bilinear in between: antisymmetric and within [-1, 1].

        Parameters
        ----------
        scores : Tensor
            (labels, n).
        levels : int
            Number of levels H, at least 2.
        soft : bool
            Linear weights to the two nearest levels; otherwise t is floored.
        low, high : float
            Scores of the lowest and the highest level.

        Returns
        -------
        Tensor
            (labels, n), within [-m_a, m_a].
        """
        return ordered_sum([self], [1.0], scores, levels=levels, soft=soft, low=low, high=high)

    def ordered_by(self, scores: Tensor, levels: Levels) -> Tensor:
        """Filter as `ordered` does, with given levels."""
        return _filter([self], [1.0], scores, levels)

    def blurred(self, values: Tensor) -> Tensor:
        """Splat and blur (channels, n) values; returns them at the vertices, (vertices, channels).

        Slicing with the corners' weights, times `scale`, completes `apply`.
        """
        if not self.triton:
            return _blurred(self, values.T)
        from densecrf.operators.triton.filter import blurred_planes

        with on_device(self.device):
            return blurred_planes(self, values)

    def diagonal(self) -> Tensor:
        """Return the diagonal k_aa of the filter's matrix, (n,), exactly.

        It sums weights times blur over the pairs of a pixel's corners, differentiable in the
        weights. Both orders of axes have the same diagonal (each is the other's transpose), so
        their mean is right for either `order`.
        """
        weight = self.corner_weight
        if not self.triton:
            shares = pair_shares(self.topology).to(weight.dtype)
        else:
            from densecrf.operators.triton import topology as engine

            if not weight.requires_grad:
                out = torch.empty(self.n, dtype=torch.float32, device=self.device)
                engine.add_diagonal(self, torch.ones_like(out), 1.0, out, add=False)
                return out
            shares = engine.pair_shares(self.topology)
        first, second = torch.triu_indices(
            self.dimension + 1, self.dimension + 1, device=self.device
        )
        return (shares * weight[:, first] * weight[:, second]).sum(1) * self.scale


def apply_sum(
    lattices: Sequence[Lattice],
    factors: Sequence[float],
    values: Tensor,
) -> Tensor:
    """Filter plainly with Σ_c factor_c k_c; `Lattice.apply` for a sum of kernels.

    Examples
    --------
    >>> lattice = Lattice.build(torch.rand(20, 2))
    >>> twice = apply_sum([lattice, lattice], [1.0, 1.0], torch.ones(3, 20))
    >>> torch.testing.assert_close(twice, 2 * lattice.apply(torch.ones(3, 20)))
    """
    return _filter(lattices, factors, values, None)


def ordered_sum(
    lattices: Sequence[Lattice],
    factors: Sequence[float],
    scores: Tensor,
    *,
    levels: int = 10,
    soft: bool = True,
    low: float = 0.0,
    high: float = 1.0,
) -> Tensor:
    """Filter in order with Σ_c factor_c k_c; `Lattice.ordered` for a sum of kernels."""
    check_integer("levels", levels, at_least=2)
    if not high > low:
        raise ArgumentError("high", high, f"must be above low={low}")
    scale = Levels(levels, low, (levels - 1) / (high - low), not soft)
    return _filter(lattices, factors, scores, scale)


def _filter(
    lattices: Sequence[Lattice], factors: Sequence[float], values: Tensor, levels: Levels | None
) -> Tensor:
    """Filter with each lattice in turn."""
    if not lattices:
        raise ArgumentError("lattices", ..., "give at least one")
    lattice = lattices[0]
    if values.ndim != 2 or values.shape[1] != lattice.n:
        raise ArgumentError(
            "values", ..., f"shape {tuple(values.shape)}; give (channels, {lattice.n})"
        )
    if values.device != lattice.device:
        raise ArgumentError("values", ..., f"on {values.device}, the lattice on {lattice.device}")
    filter_planes = _filter_planes
    if lattice.triton:
        from densecrf.operators.triton.filter import filter_planes
    values = values.to(lattice.corner_weight.dtype)
    out = torch.empty(values.shape, dtype=values.dtype, device=lattice.device)
    with on_device(lattice.device):
        for c, (each, factor) in enumerate(zip(lattices, factors, strict=True)):
            filter_planes(each, values, levels, out, factor, add=c > 0)
    return out


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one, for the kernels."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _default_workspace(device: torch.device) -> int:
    if device.type != "cuda":
        return 1 << 29
    return min(2 << 30, int(torch.cuda.get_device_properties(device).total_memory) // 16)


def _checked(features: Tensor) -> tuple[Tensor, int]:
    """Validate features; returns them as (all pixels, d), and the number of items."""
    if features.ndim not in (2, 3):
        raise ArgumentError(
            "features", ..., f"shape {tuple(features.shape)}; give (n, d), or (items, n, d)"
        )
    if not features.is_floating_point():
        raise ArgumentError("features", ..., f"dtype {features.dtype}; use a floating dtype")
    if features.numel() == 0:
        raise ArgumentError("features", ..., f"shape {tuple(features.shape)}: nothing to filter")
    d = features.shape[-1]
    if d > MAX_DIMENSION:
        raise ArgumentError("features", ..., f"{d} dimensions; use at most {MAX_DIMENSION}")
    items = features.shape[0] if features.ndim == 3 else 1
    dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
    return features.detach().reshape(-1, d).to(dtype), items


# --- by plain torch operations: any device, any floating dtype ---------------------------------


def _filter_planes(
    lattice: Lattice,
    planes: Tensor,
    levels: Levels | None,
    out: Tensor,
    factor: float,
    *,
    add: bool,
) -> None:
    """Write (or add) `factor` times the filtered planes (labels, n) to the planes `out`."""
    block = _at_once(lattice, len(planes), levels)
    for first in range(0, len(planes), block):
        part = slice(first, first + block)
        rows = planes[part].T
        if levels is None:
            result = _plain(lattice, rows)
        else:
            result = _ordered(lattice, levels.of(rows, torch), levels)
        if add:
            out[part].add_(result.T, alpha=factor)
        else:
            torch.mul(result.T, factor, out=out[part])


def _at_once(lattice: Lattice, channels: int, levels: Levels | None) -> int:
    """Split labels into blocks of even size whose entries fit into the workspace."""
    ramps = levels.ramps if levels else 1
    label = 2 * lattice.n * (lattice.dimension + 1) * ramps * lattice.corner_weight.element_size()
    fitting = max(1, min(channels, lattice.workspace // label))
    blocks = -(-channels // fitting)
    return max(1, -(-channels // blocks)) if blocks else 1


def _blurred(lattice: Lattice, rows: Tensor) -> Tensor:
    """Splat and blur rows of pixels into rows of vertices."""
    topology = lattice.topology
    entries = rows[topology.entry_pixel] * lattice.entry_weight.unsqueeze(1)
    splatted = torch.segment_reduce(entries, "sum", offsets=topology.row_begin.long(), axis=0)
    return _blur(lattice, splatted)


def _ordered(lattice: Lattice, t: Tensor, levels: Levels) -> Tensor:
    """Return mass - (1-f) C_k - C_{k+1} - f C_{k+2} with t = k + f, C_h the filtered ramp h-1."""
    n, labels = t.shape
    h = torch.arange(levels.ramps, device=t.device, dtype=t.dtype)
    ramps = (t.unsqueeze(2) - h).clamp(0, 1)
    filtered = _plain(lattice, ramps.reshape(n, -1)).view(n, labels, levels.ramps)
    k = t.floor()
    f = t - k
    above = h + 1 - k.unsqueeze(2)  # index of C_h relative to k
    f_ = f.unsqueeze(2)
    taps = (above == 0) * (1 - f_) + (above == 1) + (above == 2) * f_
    share = torch.where(k > 0, torch.ones_like(f), f)  # C_0 = mass cancels part of the mass
    return lattice.mass.unsqueeze(1) * share - (filtered * taps).sum(2)


def _plain(lattice: Lattice, rows: Tensor) -> Tensor:
    """Splat, blur and slice (n, channels) values."""
    topology = lattice.topology
    blurred = _blurred(lattice, rows)
    result = torch.zeros_like(rows)
    for k in range(topology.corner.shape[1]):
        result += lattice.corner_weight[:, k : k + 1] * blurred[topology.corner[:, k]]
    return result * lattice.scale


def _blur(lattice: Lattice, values: Tensor) -> Tensor:
    axes = range(lattice.dimension + 1)
    forward = _blur_axes(lattice, values, axes)
    if lattice.order == "forward":
        return forward
    return (forward + _blur_axes(lattice, values, reversed(axes))) / 2


def _blur_axes(lattice: Lattice, values: Tensor, axes: Iterable[int]) -> Tensor:
    # A last row of zeros: the index -1 of a missing neighbour points at it.
    padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
    for axis in axes:
        plus, minus = lattice.topology.neighbour[axis]
        blurred = padded[:-1] + 0.5 * (padded[plus] + padded[minus])
        padded = torch.cat([blurred, padded[-1:]])
    return padded[:-1]


def pair_shares(topology: Topology) -> Tensor:
    """Blur between corners k <= m of each pixel, both ways, (n, pairs), by following paths.

    Corners k and m > k of a simplex differ by one step along each axis of rank d-m+1 .. d-k; since
    steps along all d+1 axes cancel, the complement of those axes leads back the other way. A path
    that one order of the axes takes from m to k is one that the other takes from k to m, so paths
    from k to m, in both orders, are enough.
    """
    d = topology.dimension
    columns = []
    for k in range(d + 1):
        for m in range(k, d + 1):
            inside = (topology.rank > d - m) & (topology.rank <= d - k)
            share = torch.full_like(topology.corner[:, k], -(k == m), dtype=torch.float64)
            for axes in (range(d + 1), range(d, -1, -1)):
                share += _path(topology, k, m, inside, 1, axes)
                share += _path(topology, k, m, ~inside, 0, axes)
            columns.append(share)
    return torch.stack(columns, 1)


def _path(
    topology: Topology, k: int, m: int, chosen: Tensor, direction: int, axes: range
) -> Tensor:
    """Weight of the path from corner k along the `chosen` axes of each pixel; 0 if not to m."""
    at = topology.corner[:, k].long()
    steps = torch.zeros_like(at)
    for axis in axes:
        table = torch.cat([topology.neighbour[axis, direction], at.new_full((1,), -1)])
        at = torch.where(chosen[:, axis], table[at].long(), at)
        steps += chosen[:, axis]
    return torch.where(at == topology.corner[:, m], 0.5 ** steps.double(), 0.0)
