r"""An independent check of a result: energy and bound once more, in plain NumPy and float64.

Nothing here is shared with what made the result: filters are their explicit definitions (a matrix
over all pairs, or the permutohedral lattice of Adams, Baek and Davis 2010 as arrays), built again
from the features in double precision. Stored single-precision weights are not used, so numbers
agree to about 1e-7, not to the last bit.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from densecrf.certificates import CertificateError, Mixture, Potentials, gamma
from densecrf.filters.base import Levels

if TYPE_CHECKING:
    from densecrf.model import DenseCRF

__all__ = ["Verification", "declared", "verify"]

Doubles = npt.NDArray[np.float64]

SINGLE, GRID = 1e-5, 2e-3  # of an energy's size: weights in single precision; cut-off Gaussians


class Verification(NamedTuple):
    """Energy and lower bound, recomputed.

    Attributes
    ----------
    energy : float
        Energy of the labels.
    lower_bound : float
        What the dual potentials prove.
    tolerance : float
        How far these numbers may be from those of a result: 1e-5 of the numbers that they are sums
        of, for weights stored in single precision (2e-3 for ``filter="grid"``, whose Gaussians are
        cut off).
    """

    energy: float
    lower_bound: float
    tolerance: float

    @property
    def gap(self) -> float:
        """(energy - lower_bound) / max(1, abs(energy))."""
        return (self.energy - self.lower_bound) / max(1.0, abs(self.energy))

    def disagreements(self, energy: float, lower_bound: float | None) -> list[str]:
        """Return which of the numbers that a result states are not these, in words."""
        stated = {"energy": energy, "lower bound": lower_bound}
        return [
            f"the {name} is stated as {value!r}, recomputed it is {own!r}"
            for (name, value), own in zip(stated.items(), self, strict=False)
            if value is None or not abs(value - own) <= self.tolerance
        ]


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


def verify(crf: "DenseCRF", labels: Any, dual: Any) -> Verification:
    """Recompute the energy of a labelling and the bound of dual potentials.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    labels : array_like of int, (*spatial)
        The labelling.
    dual : Potentials or Mixture
        The dual point, of a result with ``keep_dual=True``.
    """
    x = crf.check_labels(labels)
    kernel = _Reference(crf)
    phi = crf.unary.astype(np.float64)
    members, lengths = _nodes(crf)
    unary = float(phi[x, np.arange(crf.n)].sum())
    pairs = 0.0
    for member, length in zip(members, lengths, strict=True):
        inside = member[x]
        pairs += 0.5 * length * float(((1 - inside) * kernel.apply(inside[None])[0]).sum())
    r = np.zeros_like(phi)
    parts = dual.parts if isinstance(dual, Mixture) else ((1.0, dual),)
    for share, part in parts:
        r += share * _dual_point(kernel, part, members, lengths, crf.n_labels)
    least = (phi + r).min(0)
    reach = float((members.T @ lengths).max())
    mass = reach * float(kernel.mass.sum())
    given = 2 * gamma(crf.n) * (mass + float(np.abs(least).sum()))
    bound = float(least.sum()) - given
    energy = unary + pairs
    size = mass + float(np.abs(phi[x, np.arange(crf.n)]).sum())
    tolerance = (GRID if crf.filter == "grid" else SINGLE) * size
    if bound > energy + tolerance:
        raise CertificateError(
            f"the check found a bound of {bound!r} above an energy of {energy!r}"
        )
    return Verification(energy, bound, tolerance)


def _nodes(crf: "DenseCRF") -> tuple[Doubles, Doubles]:
    """Return the tree's members and lengths; leaves of length 1 for Potts."""
    if crf.tree is not None:
        return crf.tree.members.astype(np.float64), crf.tree.lengths.astype(np.float64)
    if crf.compatibility is not None:
        raise ValueError("verify: bounds are for the Potts model and tree metrics (LabelTree)")
    return np.eye(crf.n_labels), np.ones(crf.n_labels)


def _dual_point(
    kernel: "_Reference", part: Potentials, members: Doubles, lengths: Doubles, labels: int
) -> Doubles:
    """Return r, (labels, n), of potentials, from the definition of the levels' order."""
    scores = np.zeros((labels, kernel.n))
    scores[slice(None) if part.labels is None else part.labels] = part.scores
    used = lengths > 0
    nodes = members[used] @ scores
    u = nodes if part.offsets is None else nodes + part.offsets
    low, high = float(u.min()), float(u.max())
    if part.cells is not None:
        levels = Levels(max(2, int(np.ceil((high - low) * part.cells)) + 1), low, part.cells, False)
    else:
        levels = Levels.spanning(u, part.levels, hard=part.hard)
    out = np.zeros_like(u)
    for row, scores_of in zip(out, u, strict=True):
        t = levels.of(scores_of)
        near = [np.maximum(0, 1 - np.abs(t - h)) for h in range(levels.count)]
        filtered = kernel.apply(np.stack(near))
        for h, own in enumerate(near):
            row += own * (filtered[:h].sum(0) - filtered[h + 1 :].sum(0))
    return np.asarray(members[used].T @ (0.5 * lengths[used][:, None] * out))


class _Reference:
    """The matrix K of a model, symmetrised, from its kernels' features."""

    def __init__(self, crf: "DenseCRF") -> None:
        self.n = crf.n
        exact = crf.filter in ("exact", "grid")
        self._parts: list[tuple[float, Any, Doubles]] = []
        for kernel in crf.kernels:
            features = kernel.features(crf.shape).astype(np.float64)
            part = _Pairs(features) if exact else _Lattice(features)
            scale = np.ones(crf.n)
            if crf.normalization == "symmetric":
                mass = part.apply(np.ones((1, crf.n)), crf.blur == "forward")[0]
                scale = 1 / np.sqrt(np.maximum(mass, 1e-20))
            self._parts.append((kernel.weight, part, scale))
        self.mass = self.apply(np.ones((1, crf.n)))[0]

    def apply(self, values: Doubles) -> Doubles:
        """Return values (channels, n) times K."""
        out = np.zeros_like(values)
        for weight, part, scale in self._parts:
            out += weight * scale * part.apply(scale * values)
        return out


class _Pairs:
    """All pairs of pixels."""

    def __init__(self, features: Doubles) -> None:
        self._features = features

    def apply(self, values: Doubles, _forward: bool = False) -> Doubles:
        out = np.empty_like(values)
        for a, row in enumerate(self._features):
            k = np.exp(-0.5 * np.square(self._features - row).sum(1))
            out[:, a] = values @ k
        return out


class _Lattice:
    """The permutohedral lattice: splat, blur (½, 1, ½) along each axis in both orders, slice."""

    def __init__(self, features: Doubles) -> None:
        n, d = features.shape
        keys, self._weight = _corners(features)  # (n, d+1, d), (n, d+1)
        low = keys.min((0, 1)) - d - 2
        sizes = keys.max((0, 1)) + d + 3 - low
        if float(np.prod(sizes.astype(np.float64))) > 2.0**62:
            raise ValueError("verify: the features span too many lattice points")
        stride = np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]])
        codes = ((keys - low) * stride).sum(2)
        vertices, corner = np.unique(codes, return_inverse=True)
        self._corner = corner.reshape(n, d + 1)
        self._count, self._scale = len(vertices), 1 / (1 + 2.0**-d)
        steps = [-int(stride.sum()) + (d + 1) * int(stride[j]) for j in range(d)]
        steps.append(-int(stride.sum()))
        self._neighbours = [
            (self._found(vertices, vertices + step), self._found(vertices, vertices - step))
            for step in steps
        ]

    @staticmethod
    def _found(vertices: Any, wanted: Any) -> Any:
        """Return the places of some vertices; one more than there are for none."""
        place = np.minimum(np.searchsorted(vertices, wanted), len(vertices) - 1)
        return np.where(vertices[place] == wanted, place, len(vertices))

    def apply(self, values: Doubles, forward: bool = False) -> Doubles:
        return np.stack([self._filtered(row, forward) for row in values])

    def _filtered(self, values: Doubles, forward: bool) -> Doubles:
        entries = (self._weight * values[:, None]).ravel()
        splat: Any = np.bincount(self._corner.ravel(), entries, minlength=self._count)
        orders = (self._neighbours,) if forward else (self._neighbours, self._neighbours[::-1])
        blurred: Any = sum(self._blurred(splat, order) for order in orders) / len(orders)
        return np.asarray(self._scale * (self._weight * blurred[self._corner]).sum(1))

    @staticmethod
    def _blurred(values: Doubles, axes: Any) -> Any:
        for plus, minus in axes:
            padded = np.append(values, 0.0)
            values = values + 0.5 * (padded[plus] + padded[minus])
        return values


def _corners(features: Doubles) -> tuple[Any, Doubles]:
    """Return the keys and barycentric weights of each point's enclosing simplex."""
    n, d = features.shape
    scaled = features * (np.sqrt(2 / 3) * (d + 1) / np.sqrt(_products(d)))
    x = np.zeros((n, d + 1))
    for i in range(d):
        x[:, : i + 1] += scaled[:, i, None]
        x[:, i + 1] -= (i + 1) * scaled[:, i]
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


def _products(d: int) -> Any:
    return (np.arange(d) + 1.0) * (np.arange(d) + 2.0)
