r"""An independent check of a result: energy and bound once more, in plain NumPy and float64.

It shares no code with the solvers. Filters are their explicit definitions (a matrix over all pairs,
Gaussians along axes, or the permutohedral lattice of Adams, Baek and Davis 2010 as arrays), built
again from the features. Weights and normalising factors are rounded to float32 as in the
definitions, so that both are sums over the same numbers; docs/mathematics.md bounds the difference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum, inf
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from densecrf.model.kernels import Spatial
from densecrf.operators.levels import MOST_LEVELS, Levels
from densecrf.problem.certificate import (
    CertificateError,
    HostDual,
    Mixture,
    Potentials,
    Tangent,
    gamma,
)
from densecrf.validation import ArgumentError

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["Verification", "declared", "verify"]

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]  # of a file

UNIT = 2.0**-53  # of rounding, in double precision
SINGLE = 2.0**-24  # in single precision
DEVICE = 1e-5  # of an energy's size: torch locates pixels by other roundings
SMALLEST_MASS = 1e-20
CUT = 1e-4  # where the Gaussians of the grid end
AT_ONCE = 2**20  # numbers of the levels that are filtered together
MOST_PIXELS = 4096  # of a matrix with a diagonal, whose self terms are found one by one


@dataclass(frozen=True, eq=False)
class Verification:
    """Energy, lower bound and what they prove of single pixels, recomputed.

    Attributes
    ----------
    energy : float
        Energy of the labels.
    lower_bound : float
        What the dual potentials prove.
    tolerance : float
        The largest difference from a correct result: rounding errors in double precision and of
        normalising factors (for results of ``device=``, 1e-5 of the numbers summed, since the
        operator differs in its last digits).
    possible : ndarray of int, (*spatial)
        The number of labels at each pixel that this check does not exclude.
    undeniable : ndarray of int, (*spatial)
        The same with the tolerance in the result's favour: a result that states fewer labels claims
        more than its potentials prove.
    margin : ndarray, (*spatial)
        `Result.margin` with the tolerance added: a result that states more claims more than its
        potentials prove.
    """

    energy: float
    lower_bound: float
    tolerance: float
    possible: npt.NDArray[np.int32]
    undeniable: npt.NDArray[np.int32]
    margin: Doubles

    @property
    def gap(self) -> float:
        """(energy - lower_bound) / max(1, abs(energy))."""
        return (self.energy - self.lower_bound) / max(1.0, abs(self.energy))

    @property
    def proven(self) -> npt.NDArray[np.bool_]:
        """The pixels, (*spatial), whose label is the same in every optimal labelling, proven."""
        return np.asarray(self.possible == 1)

    def disagreements(
        self,
        energy: float,
        lower_bound: float | None,
        possible: npt.NDArray[np.int32] | None = None,
        margin: npt.NDArray[np.float32] | None = None,
    ) -> list[str]:
        """Return which of the numbers that a result states are not these, in words."""
        stated = (("energy", energy, self.energy), ("lower bound", lower_bound, self.lower_bound))
        found = [
            f"the {name} is stated as {value!r}, recomputed it is {own!r}"
            for name, value, own in stated
            if value is None or not abs(value - own) <= self.tolerance
        ]
        if possible is not None and (fewer := int((possible < self.undeniable).sum())):
            found.append(
                f"at {fewer} pixels more labels are stated as ruled out than the check proves"
            )
        if margin is not None and (larger := int((margin > self.margin).sum())):
            found.append(f"at {larger} pixels a larger margin is stated than is proven")
        return found


def declared(crf: "DenseCRF") -> dict[str, Any]:
    """Return what declares a model's operator, beside its arrays: plain numbers and texts."""
    names = ("weight", "sigma", "sigma_xy", "sigma_color")
    return {
        "labels": crf.n_labels,
        "shape": list(crf.shape),
        "normalization": crf.normalization,
        "filter": "lattice" if crf.filter == "auto" else crf.filter,
        "blur": crf.blur,
        "kernels": [
            {"kind": type(kernel).__name__}
            | {
                name: np.asarray(getattr(kernel, name), np.float64).tolist()
                for name in names
                if hasattr(kernel, name)
            }
            for kernel in crf.kernels
        ],
        "compatibility": None if crf.compatibility is None else crf.compatibility.tolist(),
    }


def verify(
    crf: "DenseCRF", labels: npt.ArrayLike, dual: HostDual, *, device: bool = False
) -> Verification:
    """Recompute the energy of a labelling, the bound of a dual point and what they prove.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    labels : array_like of int, (*spatial)
        The labelling.
    dual : Potentials, Mixture or Tangent
        The dual point, of a result with ``keep_dual=True``; of a file, it may be any numbers.
    device : bool
        Whether the result was computed on tensors.

    Raises
    ------
    ValueError
        If `dual` is no dual point of the model.
    """
    x = crf.check_labels(labels)
    kernel = _Reference(crf)
    phi = crf.unary.astype(np.float64)
    costs, own = _costs(crf), phi[x, np.arange(crf.n)]
    diagonal = kernel.diagonal() if np.diag(costs).any() else np.zeros(crf.n)
    indicator = (np.arange(crf.n_labels)[:, None] == x).astype(np.float64)
    pairs = float((indicator * kernel.apply(costs @ indicator)).sum())
    energy = float(own.sum()) + 0.5 * (pairs - float((costs[x, x] * diagonal).sum()))
    roundings = gamma(crf.n)
    excess = 0.0
    if isinstance(dual, Tangent):
        r, constant, size = _tangent(crf, kernel, _tangent_point(crf, dual), costs, diagonal)
    else:
        members, lengths = _nodes(crf)
        r, constant, size = np.zeros_like(phi), 0.0, float((members.T @ lengths).max())
        parts = dual.parts if isinstance(dual, Mixture) else ((1.0, dual),)
        excess, roundings = _excess(crf, parts), gamma(crf.n + len(parts))
        for share, part in parts:
            r += share * _dual_point(crf, kernel, part, members, lengths)
    reduced = phi + r
    least = reduced.min(0)
    reduced -= least
    mass, sums = size * float(kernel.mass.sum()), float(np.abs(least).sum()) + abs(constant)
    rounding = 2 * roundings * (mass + sums) + excess * mass
    bound = float(least.sum()) + constant - rounding
    total = mass + float(np.abs(own).sum()) + sums
    off = DEVICE * total if device else size * float((kernel.doubt * kernel.mass).sum())
    tolerance = 4 * roundings * total + 2 * excess * mass + off
    if not (np.isfinite(bound) and bound <= energy + tolerance):
        raise CertificateError(
            f"the check found a bound of {bound!r} above an energy of {energy!r}"
        )
    # A labelling with label i at pixel a has at least the energy `bound` + reduced[i, a].
    above = energy - bound
    possible, undeniable = (
        (~(reduced * (1 - 8 * UNIT) > slack)).sum(0, dtype=np.int32).reshape(crf.shape)
        for slack in (above + 2 * tolerance, above - 4 * tolerance)
    )
    reduced[x, np.arange(crf.n)] = np.inf
    margin = (reduced.min(0) - (above - 4 * tolerance)).reshape(crf.shape)
    return Verification(energy, bound, tolerance, possible, undeniable, margin)


def _refusal(reason: str) -> ArgumentError:
    return ArgumentError("dual", ..., f"{reason}: no dual point of this model")


def _tangent_point(crf: "DenseCRF", dual: Tangent[Numbers]) -> Doubles:
    """Return the point of a tangent, or refuse it."""
    y = _numbers("y", dual.y, (crf.n_labels, crf.n))
    if crf.compatibility is not None and not (y.sum(0) > 0.5).all():
        raise _refusal("y does not add up to 1 over the labels")
    return y


def _numbers(name: str, array: npt.ArrayLike, shape: tuple[int, int]) -> Doubles:
    """Return an array of finite numbers of single precision, or refuse it."""
    values = np.asarray(array)
    if values.dtype.kind != "f" or values.shape != shape:
        raise _refusal(f"{name} of shape {values.shape} and type {values.dtype}, not {shape}")
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise _refusal(f"{name} has numbers that are not finite")
    return values.astype(np.float64)


def _excess(crf: "DenseCRF", parts: tuple[tuple[float, Potentials[Numbers]], ...]) -> float:
    """Return by how much the shares of any label exceed 1: by no more than rounding errors.

    In the Potts model labels are bounded independently of each other, and parts may be of some of
    them; in a tree metric they share nodes.
    """
    shares: list[list[float]] = [[] for _ in range(crf.n_labels)]
    for share, part in parts:
        if not 0 <= share <= 1:
            raise _refusal(f"a part with a share of {share!r}")
        for label in _part_labels(crf, part):
            shares[label].append(share)
    excess = max(0.0, *(fsum(each) - 1 for each in shares))
    if excess > gamma(4 * len(parts)):
        raise _refusal(f"shares that add up to {1 + excess!r}")
    return excess


def _part_labels(crf: "DenseCRF", part: Potentials[Numbers]) -> Indices:
    """Return the labels of a part of a mixture, or refuse them."""
    if part.labels is None:
        return np.arange(crf.n_labels)
    labels = np.asarray(part.labels)
    if crf.compatibility is not None:
        raise _refusal("a part of some labels of a tree")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise _refusal(f"labels of shape {labels.shape} and type {labels.dtype}")
    if labels.min() < 0 or labels.max() >= crf.n_labels or len(np.unique(labels)) < len(labels):
        raise _refusal("labels that the model does not have, or twice")
    return labels.astype(np.int64)


def _costs(crf: "DenseCRF") -> Doubles:
    """Return what two labels cost."""
    if crf.tree is None and crf.compatibility is not None:
        return np.asarray(crf.compatibility, np.float64)
    members, lengths = _nodes(crf)
    apart = np.abs(members[:, :, None] - members[:, None, :])
    return np.asarray(0.5 * np.einsum("t,tij->ij", lengths, apart))


def _tangent(
    crf: "DenseCRF", kernel: "_Reference", y: Doubles, costs: Doubles, diagonal: Doubles
) -> tuple[Doubles, float, float]:
    """Return r, the constant and the size of the costs of the convex program's tangent at `y`."""
    mass = kernel.mass
    if crf.compatibility is None:
        r = mass * y - kernel.apply(y)
        return r, -0.5 * float((y * r).sum()), 4 * max(1.0, float(np.abs(y).max())) ** 2
    y = y / y.sum(0)
    largest = max(1.0, float(np.abs(y).max()))
    size = float(np.abs(costs).sum(1).max())
    centre = np.eye(crf.n_labels) - 1 / crf.n_labels  # onto vectors that add up to 0
    spectrum = float(np.abs(np.linalg.eigvalsh(centre @ costs @ centre)).max())
    c = (spectrum + 1e-9 * size) * (1 + 2 * gamma(crf.n)) * mass
    product = costs @ kernel.apply(y) + c * y
    r = product - 0.5 * c - 0.5 * np.diag(costs)[:, None] * diagonal
    return r, -0.5 * float((y * product).sum()), 16 * size * largest**2


def _nodes(crf: "DenseCRF") -> tuple[Doubles, Doubles]:
    """Return the tree's members and lengths; leaves of length 1 for Potts."""
    if crf.tree is not None:
        return crf.tree.members.astype(np.float64), crf.tree.lengths.astype(np.float64)
    if crf.compatibility is not None:
        raise ValueError("verify: bounds are for the Potts model and tree metrics (LabelTree)")
    return np.eye(crf.n_labels), np.ones(crf.n_labels)


def _dual_point(
    crf: "DenseCRF",
    kernel: "_Reference",
    part: Potentials[Numbers],
    members: Doubles,
    lengths: Doubles,
) -> Doubles:
    """Return r, (labels, n), of potentials, from the definition of the levels' order."""
    used = lengths > 0
    labels = _part_labels(crf, part)
    of_nodes = part.labels is None and part.of_nodes
    nodes = _numbers("scores", part.scores, (int(used.sum()) if of_nodes else len(labels), crf.n))
    if part.labels is None and not of_nodes:
        nodes = members[used] @ nodes
    nodes = nodes.astype(np.float32)
    u, rough = nodes.astype(np.float64), nodes
    if part.offsets is not None:
        offsets = _numbers("offsets", part.offsets, (len(nodes), crf.n)).astype(np.float32)
        with np.errstate(over="ignore"):
            u, rough = u + offsets, nodes + offsets
    extents = np.stack([rough.min(1), rough.max(1)], 1)  # in single precision
    levels, extents = _levels(part, extents)
    u = np.clip(u, extents[:, :1], extents[:, 1:])
    potts = crf.compatibility is None
    mirrored = potts and crf.n_labels == 2 and part.labels is None and not levels.hard
    out = np.zeros_like(u)
    for row, potentials in zip(out, u[: 1 if mirrored else None], strict=False):
        below = np.zeros(crf.n)
        for own, filtered in _filtered_levels(kernel, levels.of(potentials)):
            row += own * (below - (kernel.mass - below - filtered))
            below += filtered
    if mirrored:  # of two labels the first one's potentials count
        out[1] = -out[0]
    if part.labels is not None:
        r = np.zeros((crf.n_labels, crf.n))
        r[labels] = 0.5 * out
        return r
    return np.asarray(members[used].T @ (0.5 * lengths[used][:, None] * out))


def _levels(part: Potentials[Numbers], extents: Floats) -> tuple[Levels, Floats]:
    """Return the levels of a part and the range of each node's potentials, or refuse them."""
    if not np.isfinite(extents).all():
        raise _refusal("potentials beyond the range of float32")
    if part.cells is None:
        if not 2 <= part.levels <= MOST_LEVELS:
            raise _refusal(f"{part.levels} levels")
        return Levels.spanning(extents, part.levels, hard=part.hard), extents
    if not 0 < part.cells < inf:
        raise _refusal(f"{part.cells} levels per unit")
    extents = Levels.merged(extents, part.cells)
    if not (float(extents.max()) - float(extents.min())) * part.cells <= MOST_LEVELS:
        raise _refusal(f"potentials over more than {MOST_LEVELS} levels")
    return Levels.by_cells(extents, part.cells), extents


def _filtered_levels(kernel: "_Reference", t: Doubles) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield the pixels' shares in a level, and these filtered, for ascending levels in use."""
    used = np.union1d(np.floor(t), np.ceil(t))
    size = max(1, AT_ONCE // kernel.n)
    for first in range(0, len(used), size):
        near = np.stack([np.maximum(0, 1 - np.abs(t - h)) for h in used[first : first + size]])
        yield from zip(near, kernel.apply(near), strict=True)


class _Part(Protocol):
    """A symmetric matrix, by its definition."""

    def weigh(self, scale: Floats) -> None:
        """Multiply rows and columns by a scale."""

    def apply(self, values: Doubles, forward: bool = False, /) -> Doubles:
        """Return values (channels, n) times the matrix; of a lattice, before it is symmetrised."""


class _Reference:
    """The matrix K of a model, symmetrised, from its kernels' features.

    Attributes
    ----------
    mass : ndarray, (n,)
        Its row sums.
    doubt : ndarray, (n,)
        By what share entries of a row and its column may be off, for normalising factors in single
        precision that round either way.
    """

    def __init__(self, crf: "DenseCRF") -> None:
        self.n, self._shape = crf.n, crf.shape
        self.doubt = np.zeros(crf.n)
        self._parts: list[tuple[float, _Part]] = []
        for kernel in crf.kernels:
            features = kernel.features(crf.shape).astype(np.float64)
            if crf.filter == "grid":
                assert isinstance(kernel, Spatial)
                part: _Part = _Grid(crf.shape, kernel.axis_sigmas(crf.shape))
            else:
                part = _Pairs(features) if crf.filter == "exact" else _Lattice(features)
            if crf.normalization == "symmetric":
                self._normalize(part, crf.blur == "forward")
            self._parts.append((kernel.weight, part))
        self.mass = self.apply(np.ones((1, crf.n)))[0]

    def _normalize(self, part: _Part, forward: bool) -> None:
        """Weigh a part by its masses' inverse square roots, as they are stored: in float32."""
        mass = part.apply(np.ones((1, self.n)), forward)[0]
        off = 2 * gamma(self.n)
        ambiguous = (mass * (1 - off)).astype(np.float32) != (mass * (1 + off)).astype(np.float32)
        doubt = np.where(ambiguous, 14 * SINGLE, 0.0)
        if forward and isinstance(part, _Lattice):  # whose mass is summed in single precision
            doubt = np.full(self.n, (part.longest_sum + 14) * SINGLE)
        self.doubt = np.maximum(self.doubt, doubt)
        stored = np.maximum(mass.astype(np.float32), np.float32(SMALLEST_MASS))
        part.weigh(np.float32(1) / np.sqrt(stored))

    def apply(self, values: Doubles) -> Doubles:
        """Return values (channels, n) times K."""
        out = np.zeros_like(values)
        for weight, part in self._parts:
            out += weight * part.apply(values)
        return out

    def diagonal(self) -> Doubles:
        """Return the self terms, found one by one."""
        if self.n > MOST_PIXELS:
            raise ValueError(
                f"verify: {self.n} pixels with a compatibility that has a diagonal; at most "
                f"{MOST_PIXELS} can be checked"
            )
        unit = np.eye(self.n)
        return np.array([self.apply(unit[a : a + 1])[0, a] for a in range(self.n)])


class _Pairs:
    """All pairs of pixels."""

    def __init__(self, features: Doubles) -> None:
        self._features, self._scale = features, np.ones(len(features))

    def weigh(self, scale: Floats) -> None:
        self._scale = scale.astype(np.float64)

    def apply(self, values: Doubles, _forward: bool = False) -> Doubles:
        out = np.empty_like(values)
        values = values * self._scale
        for a, row in enumerate(self._features):
            k = np.exp(-0.5 * np.square(self._features - row).sum(1))
            out[:, a] = self._scale[a] * (values @ k)
        return out


class _Grid:
    """Gaussians along the axes of a grid, cut off."""

    def __init__(self, shape: tuple[int, ...], sigmas: Doubles) -> None:
        self._shape, self._scale = shape, np.ones(int(np.prod(shape)))
        self._axes = []
        for length, sigma in zip(shape, sigmas, strict=True):
            apart = np.abs(np.arange(length)[:, None] - np.arange(length))
            gaussian = np.exp(-0.5 * (apart / sigma) ** 2)
            self._axes.append(gaussian * (apart <= np.ceil(sigma * np.sqrt(-2 * np.log(CUT)))))

    weigh = _Pairs.weigh

    def apply(self, values: Doubles, _forward: bool = False) -> Doubles:
        out = (values * self._scale).reshape(len(values), *self._shape)
        for axis, matrix in enumerate(self._axes, 1):
            out = np.moveaxis(np.tensordot(matrix, out, (1, axis)), 0, axis)
        return np.asarray(out.reshape(values.shape) * self._scale)


class _Lattice:
    """The permutohedral lattice: splat, blur (½, 1, ½) along each axis in both orders, slice."""

    def __init__(self, features: Doubles) -> None:
        n, d = features.shape
        keys, weight = _corners(features)  # (n, d+1, d), (n, d+1)
        self._weight = weight.astype(np.float32)  # as they are stored
        low = keys.min((0, 1)) - d - 2
        sizes = keys.max((0, 1)) + d + 3 - low
        if float(np.prod(sizes.astype(np.float64))) > 2.0**62:
            raise ValueError("verify: the features span too many lattice points")
        stride = np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]])
        codes = ((keys - low) * stride).sum(2)
        vertices, corner = np.unique(codes, return_inverse=True)
        self._corner = corner.reshape(n, d + 1)
        self._count, self._scale = len(vertices), 1 / (1 + 2.0**-d)
        #: Roundings on the way of a number through the filter.
        self.longest_sum = int(np.bincount(self._corner.ravel()).max()) + 3 * d + 8
        steps = [-int(stride.sum()) + (d + 1) * int(stride[j]) for j in range(d)]
        steps.append(-int(stride.sum()))
        self._neighbours = [
            (self._found(vertices, vertices + step), self._found(vertices, vertices - step))
            for step in steps
        ]

    @staticmethod
    def _found(vertices: Indices, wanted: Indices) -> Indices:
        """Return the places of some vertices; one more than there are for none."""
        place = np.minimum(np.searchsorted(vertices, wanted), len(vertices) - 1)
        return np.where(vertices[place] == wanted, place, len(vertices))

    def weigh(self, scale: Floats) -> None:
        self._weight = self._weight * scale[:, None]

    def apply(self, values: Doubles, forward: bool = False) -> Doubles:
        return np.stack([self._filtered(row, forward) for row in values])

    def _filtered(self, values: Doubles, forward: bool) -> Doubles:
        weight = self._weight.astype(np.float64)
        carried = (weight * values[:, None]).ravel()
        splat = np.asarray(np.bincount(self._corner.ravel(), carried, self._count), np.float64)
        orders = (self._neighbours,) if forward else (self._neighbours, self._neighbours[::-1])
        blurred = np.mean([self._blurred(splat, order) for order in orders], 0)
        return np.asarray(self._scale * (weight * blurred[self._corner]).sum(1))

    @staticmethod
    def _blurred(values: Doubles, axes: list[tuple[Indices, Indices]]) -> Doubles:
        for plus, minus in axes:
            padded = np.append(values, 0.0)
            values = values + 0.5 * (padded[plus] + padded[minus])
        return values


def _corners(features: Doubles) -> tuple[Indices, Doubles]:
    """Return the keys and barycentric weights of each point's enclosing simplex.

    The order of the operations is part of the definition: it decides between simplices that touch.
    """
    n, d = features.shape
    scaled = features * (np.sqrt(2 / 3) * (d + 1) / np.sqrt(_products(d)))
    x = np.zeros((n, d + 1))
    for i in range(d, 0, -1):
        x[:, i] = x[:, 0] - i * scaled[:, i - 1]
        x[:, 0] += scaled[:, i - 1]
    zero = np.floor(x / (d + 1) + 0.5) * (d + 1)
    rank = np.argsort(np.argsort(zero - x, 1, kind="stable"), 1, kind="stable")
    rank += np.rint(zero.sum(1) / (d + 1)).astype(np.int64)[:, None]
    for outside, shift in ((rank < 0, d + 1), (rank > d, -(d + 1))):
        rank[outside] += shift
        zero[outside] += shift
    delta = np.sort((x - zero) / (d + 1), 1)[:, ::-1]
    weight = np.empty((n, d + 1))
    weight[:, 0] = 1 - delta[:, 0] + delta[:, d]
    weight[:, 1:] = delta[:, d - 1 :: -1][:, :d] - delta[:, d:0:-1]
    whole = zero.astype(np.int64)[:, None, :] + np.arange(d + 1)[None, :, None]
    whole -= (d + 1) * (rank[:, None, :] > d - np.arange(d + 1)[None, :, None])
    return whole[:, :, :d], np.maximum(weight, 0)


def _products(d: int) -> Doubles:
    return (np.arange(d) + 1.0) * (np.arange(d) + 2.0)
