"""One pairwise term: constants, normalisation, label compatibility, message."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from densecrf.cached import cached_property
from densecrf.model.compatibility import LabelTree
from densecrf.model.kernels import Kernel
from densecrf.operators import Filter, LatticeFilter
from densecrf.validation import ArgumentError, FloatArray, as_real_array, check_finite

__all__ = [
    "CONST_KERNEL",
    "DIAG_KERNEL",
    "FULL_KERNEL",
    "NORMALIZE_AFTER",
    "NORMALIZE_BEFORE",
    "NORMALIZE_SYMMETRIC",
    "NO_NORMALIZATION",
    "KernelType",
    "NormalizationType",
    "Term",
    "compatibility",
    "member",
    "one_compatibility",
]

SMALLEST_MASS = 1e-20


class KernelType(IntEnum):
    """Parameters of a kernel that the original can learn; they do not change the inference."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    r"""Sides on which a kernel is divided by its row sums :math:`m`: none, one or both."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL = KernelType.CONST_KERNEL
DIAG_KERNEL = KernelType.DIAG_KERNEL
FULL_KERNEL = KernelType.FULL_KERNEL
NO_NORMALIZATION = NormalizationType.NO_NORMALIZATION
NORMALIZE_BEFORE = NormalizationType.NORMALIZE_BEFORE
NORMALIZE_AFTER = NormalizationType.NORMALIZE_AFTER
NORMALIZE_SYMMETRIC = NormalizationType.NORMALIZE_SYMMETRIC


@dataclass(frozen=True, eq=False)
class Term:
    """One pairwise term: its features, its normalisation, and what pairs of labels cost.

    `costs` is a matrix, or None where `weight` rewards equal labels (the original's scalar).
    """

    kernel: Kernel
    features: npt.NDArray[np.floating[Any]]
    weight: float
    costs: FloatArray | None
    normalization: NormalizationType

    @cached_property
    def filter(self) -> Filter:
        """The normalised filter; one direction and single precision, as the original has it."""
        lattice = original_lattice(self.features)
        if self.normalization is NO_NORMALIZATION:
            return lattice
        mass = lattice.row_sums().astype(np.float32) + np.float32(SMALLEST_MASS)
        if self.normalization is NORMALIZE_SYMMETRIC:
            root = 1 / np.sqrt(mass)
            return lattice.rescaled(root)
        if self.normalization is NORMALIZE_BEFORE:
            return lattice.weighted(1 / mass, None)
        return lattice.weighted(None, 1 / mass)

    def send(self, q: FloatArray, scores: FloatArray) -> None:
        """Add this term's message to the scores (log-probabilities up to a constant)."""
        filtered = self.filter.apply_planes(q)
        scores += self.weight * filtered if self.costs is None else -self.costs @ filtered


def original_lattice(features: npt.NDArray[np.floating[Any]]) -> LatticeFilter:
    """Return the lattice that the original builds for features (n, d).

    The original locates points four at a time, and fills up the last four with points at the
    origin. These send and receive nothing, but the vertices around the origin join the lattice and
    take part in the blurs.
    """
    n, dimension = features.shape
    if n % 4 == 0 or not features.any(axis=1).all():  # a point of its own lies at the origin
        return LatticeFilter(features, "forward", precision="single")
    padded = np.concatenate([features, np.zeros((1, dimension), features.dtype)])
    lattice = LatticeFilter(padded, "forward", precision="single")
    return lattice.restricted(np.arange(n, dtype=np.int32))  # with the vertices between its points


def one_compatibility(
    terms: Sequence[Term], labels: int
) -> tuple[list[Kernel], LabelTree | FloatArray | None]:
    """Return weighted kernels and the one compatibility that the terms share, or refuse them.

    Costs that are multiples of one matrix share it, with the factors as weights. A cost of all
    pairs alike, equal labels included, adds a constant to the energy and is left out where a tree
    metric is left: a reward of equal labels is the Potts model.
    """
    potts = 1 - np.eye(labels, dtype=np.float32)
    costs = [term.weight * potts if term.costs is None else term.costs for term in terms]
    shifted = [each - each[0, 0] if np.ptp(each.diagonal()) == 0 else each for each in costs]
    if (kernels := _weighted(terms, shifted, potts)) is not None:
        return kernels, None
    largest = max(shifted, key=_size)
    if (kernels := _weighted(terms, shifted, largest)) and (tree := LabelTree.of_metric(largest)):
        return kernels, tree
    largest = max(costs, key=_size)
    if (kernels := _weighted(terms, costs, largest)) is not None:
        return kernels, largest
    raise ArgumentError(
        "compat",
        ...,
        "solve() needs one label compatibility for all kernels: give each a number, or each a "
        "multiple of the same matrix",
    )


def _size(costs: FloatArray) -> float:
    return float(np.abs(costs).max())


def _weighted(
    terms: Sequence[Term], matrices: list[FloatArray], common: FloatArray
) -> list[Kernel] | None:
    """Return the kernels with the factors of non-negative multiples as weights, or None."""
    unit = common.astype(np.float64) / (float(np.square(common, dtype=np.float64).sum()) or 1.0)
    factors = [float(np.vdot(unit, each)) for each in matrices]
    for factor, each in zip(factors, matrices, strict=True):
        if factor < 0 or not np.allclose(each, factor * common, 1e-5, 1e-6 * _size(each)):
            return None
    weighed = zip(terms, factors, strict=True)
    return [replace(cast("Any", term.kernel), weight=factor) for term, factor in weighed]


Member = TypeVar("Member", bound=IntEnum)


def member(kind: type[Member], name: str, value: Any) -> Member:
    """Return the constant that a user named, or refuse it."""
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(member.name for member in kind)
        raise ArgumentError(name, value, f"must be one of {choices}") from error


def compatibility(compat: Any, labels: int) -> tuple[float, FloatArray | None]:
    """Return the weight of equal labels, or weight 1 and a matrix of costs."""
    array = as_real_array("compat", compat)
    if array.ndim and getattr(compat, "dtype", None) == np.float64:
        raise ArgumentError(
            "compat",
            ...,
            f"a float64 array of shape {array.shape}, which pydensecrf refuses too; use "
            "compat.astype(numpy.float32)",
        )
    check_finite("compat", array)
    if array.ndim == 0:
        return float(array), None
    if array.shape == (labels,):
        return 1.0, np.diag(array.astype(np.float32))
    if array.shape == (labels, labels):
        half = np.asarray(array, np.float32) / 2
        return 1.0, half + half.T
    raise ArgumentError(
        "compat", ..., f"shape {array.shape}; give a number, ({labels},) or ({labels}, {labels})"
    )
