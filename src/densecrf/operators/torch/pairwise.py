r"""The matrix K of pairwise weights on torch tensors: :math:`K = \sum_c w_c \tilde k_c`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.backend import Moves
from densecrf.cached import cached_property
from densecrf.deadline import check_deadline
from densecrf.operators.levels import SMALLEST_MASS, Levels, ordered_by_ramps
from densecrf.operators.torch.autograd import barycentric, filtered
from densecrf.operators.torch.blocks import block_diagonal
from densecrf.operators.torch.lattice import Lattice
from densecrf.operators.torch.lattice_sum import merge
from densecrf.operators.torch.pixelwise import balanced, icm_moves
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from densecrf.backend import QuadraticStep
    from densecrf.operators.levels import Bands, Doubles
    from densecrf.operators.torch.dispatch import Engine
    from densecrf.operators.torch.lattice import Order
    from densecrf.operators.triton.repeated_filter import DoubleFilter, RepeatedFilter
    from densecrf.validation import FloatArray, IntArray

__all__ = ["TensorKernel", "TensorPairwise", "TorchOperator"]

ROUNDED = 1e-4  # levels by which extents of potentials in single precision may be off
WIDENED, AT_ONCE = 32, 1 << 25  # labels, and numbers, in double precision at once


@dataclass(frozen=True, eq=False)
class TensorKernel:
    """One normalised kernel, for gradients."""

    source: Lattice  # before normalisation
    g: Tensor  # (n,), the factors that normalise it
    attached: Lattice | None  # `source` as a function of the features, if these need gradients
    normalized: bool

    @cached_property
    def _attached_g(self) -> Tensor:
        """The factors m^-1/2 as a function of the features."""
        ones = torch.ones_like(self.g).unsqueeze(0)
        return self._filtered(ones)[0].clamp(min=SMALLEST_MASS).rsqrt()

    def _filtered(self, values: Tensor) -> Tensor:
        weight = None if self.attached is None else self.attached.corner_weight
        return filtered(self.source, values, weight)

    @property
    def _lattice(self) -> Lattice:
        """The lattice with gradients, if they are required."""
        if self.attached is None or not torch.is_grad_enabled():
            return self.source
        return self.attached

    @property
    def _factors(self) -> Tensor:
        learned = self._lattice is not self.source
        return self._attached_g if learned and self.normalized else self.g

    def apply(self, values: Tensor) -> Tensor:
        """Filter (channels, n) values, with gradients to them and to the features."""
        g = self._factors
        return g * self._filtered(g * values)

    @property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        return self.apply(torch.ones_like(self.g).unsqueeze(0))[0]

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        return self._factors**2 * self._lattice.diagonal()

    def ordered(self, t: Tensor, ramps: int) -> Tensor:
        """Filter the order of levels `t` (labels, n) in [0, ramps], held fixed.

        The sums of `Lattice.ordered`, computed by plain filter calls on ramps, so that gradients
        reach the features.
        """
        labels, n = t.shape
        h = torch.arange(ramps, device=t.device, dtype=t.dtype).unsqueeze(1)
        above = self.apply((t.unsqueeze(1) - h).clamp(0, 1).reshape(-1, n)).view(labels, ramps, n)
        k = t.floor()
        f = t - k
        place = h + 1 - k.unsqueeze(1)
        taps = (place == 0) * (1 - f).unsqueeze(1) + (place == 1) + (place == 2) * f.unsqueeze(1)
        share = torch.where(k > 0, torch.ones_like(f), f)
        return self.mass * share - (above * taps).sum(1)


class TensorPairwise:
    """The sum of weighted, normalised kernels over label-major tensors (labels, n).

    Parameters
    ----------
    features : sequence of Tensor or Lattice
        For each kernel, (n, d) or (items, n, d), with gradients; or their lattice, not normalised.
    weights : Tensor or sequence of float
        One weight per kernel, with gradients.
    like : Tensor
        (…, n): n, dtype and device if there is no kernel.
    normalized : bool
        Whether to divide by the square roots of row sums.
    factors : sequence of Tensor, optional
        (n,) of each kernel, in the place of these square roots' inverses.
    order, engine, workspace
        Of `Lattice.build`.
    between : callable, optional
        Called between building the lattices, for which the host waits, and merging them.

    Examples
    --------
    >>> v = torch.rand(2, 5)
    >>> pairwise = TensorPairwise([torch.arange(5.0).reshape(5, 1)], [2.0], v)
    >>> torch.testing.assert_close(pairwise.apply(torch.ones(1, 5))[0], pairwise.mass)
    """

    def __init__(
        self,
        features: Sequence[Tensor | Lattice],
        weights: Tensor | Sequence[float],
        like: Tensor,
        *,
        normalized: bool = True,
        factors: Sequence[Tensor] | None = None,
        order: Order = "symmetric",
        engine: Engine = "auto",
        workspace: int | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:
        self.weights, self._like = weights, like
        self._kept: dict[tuple[str, bool], Tensor] = {}
        self.merged: Lattice | None = None
        self.kernels: list[TensorKernel] = []
        if not features:
            if between is not None:
                between()
            return
        self._factors: list[float] = (
            weights.tolist() if isinstance(weights, torch.Tensor) else [float(w) for w in weights]
        )
        fresh = [each for each in features if isinstance(each, torch.Tensor)]
        options: Any = {"order": order, "engine": engine, "workspace": workspace}
        built = iter(Lattice.build_all(fresh, precision=like.dtype, **options) if fresh else ())
        sources = [each if isinstance(each, Lattice) else next(built) for each in features]
        if between is not None:
            between()
        self.merged, g = merge(sources, self._factors, normalized=normalized, g=factors)
        learning = torch.is_grad_enabled()
        for feature, source, own in zip(features, sources, g, strict=True):
            learned = None
            if learning and isinstance(feature, torch.Tensor) and feature.requires_grad:
                learned = replace(source, corner_weight=barycentric(feature, source))
            self.kernels.append(TensorKernel(source, own, learned, normalized))

    @property
    def n(self) -> int:
        """Number of pixels."""
        return int(self._like.shape[-1])

    def blocks(self, block: Tensor, pixel: Tensor, count: int) -> TensorPairwise:
        """Return the block-diagonal matrix of submatrices; see `block_diagonal`."""
        parts = [block_diagonal(kernel.source, block, pixel, count) for kernel in self.kernels]
        factors = [kernel.g[pixel] for kernel in self.kernels]
        like = self._like.new_empty(1, len(pixel))
        return TensorPairwise(parts, self.weights, like, factors=factors)

    @cached_property
    def learned(self) -> bool:
        """Whether weights or features need gradients."""
        return (isinstance(self.weights, torch.Tensor) and self.weights.requires_grad) or any(
            kernel.attached is not None for kernel in self.kernels
        )

    @cached_property
    def repeated(self) -> RepeatedFilter | None:
        """Triton's filter, if it supports these lattices."""
        if self.merged is None or not self.merged.triton:
            return None
        from densecrf.operators.triton.repeated_filter import RepeatedFilter

        return RepeatedFilter(self.merged)

    def by_kernel(self) -> bool:
        """Whether gradients of weights or features are required."""
        return self.learned and torch.is_grad_enabled()

    def _sum(self, terms: Sequence[Tensor]) -> Tensor:
        total = torch.zeros_like(self._like[0]) if not terms else self.weights[0] * terms[0]
        for weight, term in zip(self.weights[1:], terms[1:], strict=True):
            total = total + weight * term
        return total

    @property
    def mass(self) -> Tensor:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        if self.merged is not None and not self.by_kernel():
            return self.merged.mass
        return self._once("mass")

    @property
    def diagonal(self) -> Tensor:
        """The self terms :math:`K_{aa}`, (n,)."""
        if self.merged is None or not self.merged.triton or self.by_kernel():
            return self._once("diagonal")
        return self._diagonal

    @cached_property
    def _diagonal(self) -> Tensor:
        from densecrf.operators.triton.topology import add_diagonal

        out = torch.empty_like(self.kernels[0].g)
        for place, (weight, kernel) in enumerate(zip(self._factors, self.kernels, strict=True)):
            add_diagonal(kernel.source, kernel.g, weight, out, add=place > 0)
        return out

    def _once(self, name: str) -> Tensor:
        """Sum an attribute of the kernels; cached separately with and without gradients."""
        key = name, self.by_kernel()
        if key not in self._kept:
            self._kept[key] = self._sum([getattr(kernel, name) for kernel in self.kernels])
        return self._kept[key]

    def apply(self, values: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab} v_b` for each channel."""
        check_deadline()
        if self.merged is None:
            return torch.zeros_like(values)
        if self.by_kernel():
            return self._sum([kernel.apply(values) for kernel in self.kernels])
        if torch.is_grad_enabled() and values.requires_grad:
            return filtered(self.merged, values)
        return self.merged.apply(values) if self.repeated is None else self.repeated.apply(values)

    def ordered(
        self,
        scores: Tensor,
        levels: Levels,
        names: Sequence[int] | None = None,
        offsets: Tensor | None = None,
        bands: Bands | None = None,
    ) -> Tensor:
        r"""Return :math:`\tfrac12\sum_b K_{ab}\, s(t_{ai}, t_{bi})` with the order held fixed.

        Balanced: rounding errors are removed, so that each row sums to 0. With `names`, only those
        labels are filtered, and the others are zero. `offsets` are added to the scores. `bands` of
        the levels of the filtered labels save work.
        """
        check_deadline()
        scores = scores.detach()
        if self.merged is None:
            return torch.zeros_like(scores)
        if self.repeated is not None and not self.by_kernel():
            from densecrf.operators.triton.units import Wanted

            names = range(len(scores)) if names is None else names
            wanted = [Wanted(0, names, levels, bands)]
            return self.repeated.ordered(scores, offsets, wanted, 0.5, self.total_mass.view(1))
        scores = scores if offsets is None else scores + offsets
        if self.by_kernel():
            t = levels.of(scores, torch)
            terms = [kernel.ordered(t, levels.ramps) for kernel in self.kernels]
            return self._balanced(0.5 * self._sum(terms))
        if names is None:
            return self._balanced(0.5 * self.merged.ordered_by(scores, levels))
        out = torch.zeros_like(scores)
        out[names] = self._balanced(0.5 * self.merged.ordered_by(scores[names], levels))
        return out

    def _balanced(self, r: Tensor) -> Tensor:
        if not r.requires_grad:
            return balanced(r, self.mass.detach(), self.total_mass)
        excess = r.detach().sum(1, dtype=torch.float64) / self.total_mass
        return torch.addcmul(r, excess.to(r.dtype).unsqueeze(1), self.mass, value=-1)

    # --- double precision: the symmetrised K, whose stored numbers are exact ------------------

    @cached_property
    def double_terms(self) -> list[tuple[float, Tensor, Lattice]]:
        """Weights, normalising factors and symmetrised lattices, as stored."""
        return [
            (float(weight), kernel.g.detach(), replace(kernel.source, order="symmetric"))
            for weight, kernel in zip(self.weights, self.kernels, strict=True)
        ]

    @cached_property
    def _double_kernels(self) -> list[tuple[float, Tensor, Lattice]]:
        """Weights, normalising factors and lattices in double precision, for plain operations."""
        out = []
        for weight, g, stored in self.double_terms:
            corners, entries = stored.corner_weight.double(), stored.entry_weight.double()
            lattice = replace(stored, corner_weight=corners, entry_weight=entries, triton=False)
            out.append((weight, g.double(), lattice))
        return out

    @cached_property
    def double_filter(self) -> DoubleFilter | None:
        """Triton's filter, if it supports these lattices."""
        if self.merged is None or not self.merged.triton:
            return None
        from densecrf.operators.triton.repeated_filter import DoubleFilter

        return DoubleFilter([([weight], g, lattice) for weight, g, lattice in self.double_terms])

    @cached_property
    def mass_double(self) -> Tensor:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""
        ones = torch.ones(1, self._like.shape[-1], dtype=torch.float64, device=self._like.device)
        return self.apply_double(ones)[0]

    @cached_property
    def diagonal_double(self) -> Tensor:
        """The self terms :math:`K_{aa}`, (n,)."""
        total = torch.zeros_like(self._like[0], dtype=torch.float64)
        for weight, g, lattice in self._double_kernels:
            total += weight * (g**2 * lattice.diagonal())
        return total

    def apply_double(self, values: Tensor) -> Tensor:
        r"""Return :math:`\sum_b K_{ab} v_b` for each channel."""
        check_deadline()
        if self.double_filter is not None:
            return self.double_filter.apply(values)
        out = torch.zeros_like(values)
        for weight, g, lattice in self._double_kernels:
            out += weight * (g * lattice.apply(g * values))
        return out

    def ordered_double(
        self,
        u: Tensor,
        levels: Levels,
        mass: Tensor | None = None,
        bands: Bands | None = None,
    ) -> Tensor:
        r"""Return :math:`\sum_b K_{ab}\, s(u_{ai}, u_{bi})` for each row of potentials.

        `mass` is `mass_double`, if known; `bands` are those of the levels that u is in.
        """
        check_deadline()
        mass = self.mass_double if mass is None else mass
        if self.double_filter is not None:
            return self.double_filter.ordered(levels.of(u, torch), levels.ramps, bands, mass)
        out: Tensor = ordered_by_ramps(torch, self.apply_double, mass, u, levels)
        return out

    @cached_property
    def total_mass(self) -> Tensor:
        """Sum of all of K, a float64 scalar on the device."""
        return self.mass.detach().sum(dtype=torch.float64).clamp(min=1e-300)


class TorchOperator:
    """The matrix K as an operator of problems; see `densecrf.backend.Operator`."""

    built, exact_estimates, restricts_pixels = True, False, False

    def __init__(self, pairwise: TensorPairwise) -> None:
        self.pairwise = pairwise
        self.labels_at_once = max(1, min(WIDENED, AT_ONCE // pairwise.n))
        self._indices: dict[tuple[int, ...], Tensor] = {}

    @property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        return self.pairwise.mass

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        return self.pairwise.diagonal

    @property
    def mass_double(self) -> Tensor:
        """Row sums in double precision, (n,)."""
        return self.pairwise.mass_double

    @property
    def diagonal_double(self) -> Tensor:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double

    @property
    def total_double(self) -> float:
        """The sum of all of K, summed in double precision."""
        return float(self.mass_double.sum())

    def apply(self, y: Tensor) -> Tensor:
        """Return K y."""
        return self.pairwise.apply(y)

    def ordered(self, nodes: Tensor, levels: Levels, order: str) -> Tensor:
        """Return the ordered sums of each row of potentials."""
        _check_order(order)
        return 2 * self.pairwise.ordered(nodes, levels)

    def half_ordered(
        self,
        nodes: Tensor,
        offsets: Tensor | None,
        extents: FloatArray,
        levels: Levels,
        order: str,
    ) -> Tensor:
        """Return half the ordered sums, balanced; gradients hold the order fixed."""
        _check_order(order)
        if levels.scale == 0:
            return 0 * nodes
        # After some iterations most labels are zero everywhere: without an order, r is zero.
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        if not varied and not torch.is_grad_enabled():
            return torch.zeros_like(nodes)
        everything = len(varied) == len(nodes) or torch.is_grad_enabled()
        bands = levels.bands(extents if everything else extents[varied])
        return self._half_ordered(nodes, levels, None if everything else varied, offsets, bands)

    def _half_ordered(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
        bands: Bands,
    ) -> Tensor:
        """Return half the ordered sums of the named rows, or of all rows."""
        return self.pairwise.ordered(nodes, levels, names, offsets, bands)

    def apply_double(self, y: Tensor) -> Tensor:
        """Return K y in double precision."""
        return self.pairwise.apply_double(y.double())

    def ordered_double(
        self, nodes: Tensor, offsets: Tensor | None, extents: FloatArray, levels: Levels
    ) -> Tensor:
        """Return the ordered sums in double precision."""
        varied = np.flatnonzero(extents[:, 0] < extents[:, 1]).tolist()
        mass = self.mass_double
        out = torch.zeros(len(nodes), len(mass), dtype=mass.dtype, device=mass.device)
        for first in range(0, len(varied) if levels.scale else 0, self.labels_at_once):
            rows = self._index(varied[first : first + self.labels_at_once])
            u = nodes[rows].double()
            if offsets is not None:
                u += offsets[rows]
            bands = levels.bands(extents[varied[first : first + len(u)]], ROUNDED)
            out[rows] = self._ordered_double(u, levels, bands)
        return out

    def _ordered_double(self, u: Tensor, levels: Levels, bands: Bands) -> Tensor:
        return self.pairwise.ordered_double(u, levels, self.mass_double, bands)

    def pairs_double(self, labels: Tensor, count: int, costs: Doubles | None) -> float:
        """Return the cost of all ordered pairs, self pairs included."""
        present = torch.bincount(labels, minlength=count).nonzero()[:, 0]
        own = (present[:, None] == labels).double()
        if costs is None:
            mixed = 1 - own
        else:
            chosen = present.cpu().numpy()
            among = np.ascontiguousarray(costs[np.ix_(chosen, chosen)])
            mixed = torch.from_numpy(among).to(labels.device) @ own
        return float((own * self.apply_double(mixed)).sum())

    def restricted(self, pixels: IntArray) -> TorchOperator:
        """Return the submatrix of some pixels."""
        return _Submatrix(self, pixels)

    def give_back_free_memory(self) -> None:
        """Do nothing: the allocator keeps released memory for the next tensors."""

    def potts_moves(self, phi: Tensor, labels: Tensor) -> Moves[Tensor]:
        """Return the ICM move of every pixel in the Potts model, from the labels that occur."""
        there = torch.bincount(labels, minlength=len(phi)).tolist()
        names = [label for label, pixels in enumerate(there) if pixels]
        own = (labels == self._index(names).unsqueeze(1)).to(phi.dtype)
        received = torch.empty_like(phi)
        received[names] = self.apply(own)
        row = torch.full((1, len(phi)), -1, dtype=torch.int32)
        row[0, names] = torch.tensor(names, dtype=torch.int32)
        best, gain, sums = icm_moves(phi, received, self.diagonal, row.to(phi.device), labels)
        unary, agreeing, mass, movers, _ = sums[0].tolist()
        return Moves(best, gain, int(movers), unary + 0.5 * (mass - agreeing))

    def potts_energies(
        self, phi: Tensor, labellings: Sequence[Tensor], *, double: bool
    ) -> list[float] | None:
        """Return None: energies are evaluated one by one."""
        del phi, labellings, double
        return None

    def potts_responses(
        self, phi: Tensor, y: Tensor, own: Tensor | None, count: int
    ) -> Iterator[Tensor] | None:
        """Return None: an update is a filter call and a step."""
        del phi, y, own, count
        return None

    def potts_quadratic_step(
        self,
        phi: Tensor,
        y: Tensor,
        strength: Tensor,
        c: Tensor | None,
        before: Tensor | None,
        share: float,
        rest: Tensor | None,
    ) -> QuadraticStep[Tensor] | None:
        """Return None: the step is not fused with its filter call."""
        del phi, y, strength, c, before, share, rest
        return None

    def _index(self, rows: list[int]) -> Tensor:
        """Return a list of rows as a cached tensor: transfers to the device take time."""
        key = tuple(rows)
        if key not in self._indices:
            self._indices[key] = torch.tensor(rows, device=self.mass.device)
        return self._indices[key]


class _Submatrix(TorchOperator):
    """Some rows and columns of K, by filtering zeros at all other pixels."""

    def __init__(self, whole: TorchOperator, pixels: IntArray) -> None:
        super().__init__(whole.pairwise)
        self._pixels = pixels

    def _embedded(self, y: Tensor) -> Tensor:
        out = torch.zeros(len(y), self.pairwise.n, dtype=y.dtype, device=y.device)
        out[:, self._pixels] = y
        return out

    def _ones(self, dtype: torch.dtype) -> Tensor:
        like = self.pairwise.mass
        return torch.ones(1, len(self._pixels), dtype=dtype, device=like.device)

    @cached_property
    def mass(self) -> Tensor:
        """Row sums, (n,)."""
        return self.apply(self._ones(self.pairwise.mass.dtype))[0]

    @property
    def diagonal(self) -> Tensor:
        """Self terms, (n,)."""
        return self.pairwise.diagonal[self._pixels]

    @cached_property
    def mass_double(self) -> Tensor:
        """Row sums in double precision, (n,)."""
        return self.apply_double(self._ones(torch.float64))[0]

    @property
    def diagonal_double(self) -> Tensor:
        """Self terms in double precision, (n,)."""
        return self.pairwise.diagonal_double[self._pixels]

    def apply(self, y: Tensor) -> Tensor:
        """Return K y."""
        return self.pairwise.apply(self._embedded(y))[:, self._pixels]

    def apply_double(self, y: Tensor) -> Tensor:
        """Return K y in double precision."""
        return self.pairwise.apply_double(self._embedded(y.double()))[:, self._pixels]

    def ordered(self, nodes: Tensor, levels: Levels, order: str) -> Tensor:
        """Return the ordered sums of each row of potentials."""
        u = levels.of(nodes, torch)
        whole = Levels(levels.count, 0.0, 1.0, levels.hard)
        out: Tensor = ordered_by_ramps(torch, self.apply, self.mass, u, whole)
        return out

    def _half_ordered(
        self,
        nodes: Tensor,
        levels: Levels,
        names: Sequence[int] | None,
        offsets: Tensor | None,
        bands: Bands,
    ) -> Tensor:
        return 0.5 * self.ordered(nodes if offsets is None else nodes + offsets, levels, "")

    def _ordered_double(self, u: Tensor, levels: Levels, bands: Bands) -> Tensor:
        out: Tensor = ordered_by_ramps(torch, self.apply_double, self.mass_double, u, levels)
        return out


def _check_order(order: str) -> None:
    if order not in ("soft", "hard"):
        raise ArgumentError("order", order, "must be 'soft' or 'hard' on tensors")
