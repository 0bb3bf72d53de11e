r"""The module ``pydensecrf.densecrf``: same names, same defaults, same numbers.

`DenseCRF.inference` repeats the original's mean field: the lattice blurs in one direction, and a
pixel's message includes its own term. `DenseCRF.solve` minimises the energy of `densecrf.DenseCRF`,
with a symmetric filter and without own terms, by any method; ``"lp"`` also bounds its distance from
the optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from densecrf.cached import cached_property
from densecrf.drop_in.pydensecrf.inputs import (
    ConstUnary,
    LogisticUnary,
    Unary,
    as_whole,
    checked_energies,
    checked_image,
    divided,
    single_scales,
    usual,
)
from densecrf.model.compatibility import LabelTree
from densecrf.model.crf import DenseCRF as Model
from densecrf.model.kernels import Bilateral, Features, Kernel, Spatial, largest_value
from densecrf.native import core
from densecrf.operators import Filter, LatticeFilter
from densecrf.operators.pairwise import Pairwise
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_features,
    as_real_array,
    check_finite,
    check_non_negative,
    check_threads,
)

if TYPE_CHECKING:
    from densecrf.solvers.result import Result

__all__ = [
    "CONST_KERNEL",
    "DIAG_KERNEL",
    "FULL_KERNEL",
    "NORMALIZE_AFTER",
    "NORMALIZE_BEFORE",
    "NORMALIZE_SYMMETRIC",
    "NO_NORMALIZATION",
    "ConstUnary",
    "DenseCRF",
    "DenseCRF2D",
    "KernelType",
    "LogisticUnary",
    "NormalizationType",
    "Unary",
    "set_num_threads",
]

LARGEST_ENERGY = 1e30
FORBIDDEN_MARGIN = 20.0  # exp(-20): a marginal of 2e-9
SMALLEST_MASS = 1e-20

Member = TypeVar("Member", bound=IntEnum)


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


CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType


class DenseCRF:
    """A dense CRF over any points; see `DenseCRF2D` for images.

    Parameters
    ----------
    nvar : int
        Number of pixels.
    nlabels : int
        Number of labels.

    Further arguments are ignored, as in the original.

    Examples
    --------
    >>> import numpy as np
    >>> d = DenseCRF(3, 2)
    >>> d.setUnaryEnergy(np.array([[0, 0.4, 1], [1, 0.6, 0]], np.float32))
    >>> d.addPairwiseEnergy(np.array([[0, 0.1, 5]], np.float32), compat=3)
    >>> Q = d.inference(5)
    >>> np.argmax(Q, axis=0)
    array([0, 0, 1])
    """

    def __init__(self, nvar: Any, nlabels: Any, *_: Any, **__: Any) -> None:
        self._n = as_whole("nvar", nvar)
        self._labels = as_whole("nlabels", nlabels)
        self._grid: tuple[int, ...] = (self._n,)
        self._unary: FloatArray = np.zeros((self._labels, self._n), np.float32)
        self._energies = self._unary
        self._has_unary = False
        self._terms: list[Term] = []

    def setUnary(self, unary: Any) -> None:
        """Set the unary term to a `ConstUnary` or `LogisticUnary`."""
        if not isinstance(unary, Unary) or unary.energies is None:
            raise ArgumentError("unary", unary, "give ConstUnary(u) or LogisticUnary(L, f)")
        self.setUnaryEnergy(unary.energies)

    def setUnaryEnergy(self, u: Any, f: Any = None) -> None:
        """Set the unary energies, for example -log of probabilities.

        Parameters
        ----------
        u : array_like, (nlabels, nvar)
            Energies, any dtype and strides. +inf forbids a label.
        f : array_like, (features, nvar), optional
            Features; `u` then holds weights (nlabels, features), and energies are ``u @ f``.
        """
        energies = u if f is None else LogisticUnary(u, f).energies
        self._unary = checked_energies(energies, self._labels, self._grid)
        self._energies = np.clip(self._unary, -LARGEST_ENERGY, LARGEST_ENERGY)
        self._has_unary = True

    def addPairwiseEnergy(
        self,
        features: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a pairwise term between points that are close in feature space.

        Parameters
        ----------
        features : array_like, (d, nvar)
            Features divided by their standard deviations; see `utils.create_pairwise_gaussian`.
        compat : float or array_like
            A number is what two equal labels gain. A vector (nlabels,) or matrix
            (nlabels, nlabels) is what pairs of labels *cost*: the opposite sign, as in the
            original.
        kernel : KernelType
            Accepted for compatibility.
        normalization : NormalizationType
            How the kernel is normalised.
        """
        array = as_real_array("features", features)
        if array.ndim != 2 or array.shape[1] != self._n:
            remedy = f"shape {array.shape}; give (dimensions, {self._n}), one column per pixel"
            if array.ndim == 2 and array.shape[0] == self._n:
                remedy += "; transpose it"
            raise ArgumentError("features", ..., remedy)
        values = np.array(array.T, np.float32, order="C")
        self._add(values, Features(values), compat, kernel, normalization)

    def inference(self, niter: Any) -> FloatArray:
        """Return the marginals (nlabels, nvar) after `niter` mean-field iterations."""
        iterations = as_whole("niter", niter, at_least=-(2**31))
        q, *_ = self.startInference()
        self._iterate(q, iterations)
        return q

    def startInference(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the starting marginals (zeros without a unary) and two scratch arrays."""
        scratch = np.zeros((0, 0), np.float32)
        q = np.zeros_like(self._energies)
        if self._has_unary:
            self._respond(None, q)
        return q, scratch, scratch.copy()

    def stepInference(self, Q: FloatArray, tmp1: Any = None, tmp2: Any = None) -> None:  # noqa: ARG002
        """Do one mean-field iteration, in place.

        Parameters
        ----------
        Q : ndarray, (nlabels, nvar)
            Marginals from `startInference`; overwritten.
        tmp1, tmp2
            Scratch arrays from `startInference`, unused.
        """
        q = self._marginals(Q)
        self._iterate(q, 1)
        if q is not Q:
            Q[...] = q

    def _iterate(self, q: FloatArray, count: int) -> None:
        """Do `count` mean-field iterations, in place."""
        if any(term.costs is not None for term in self._terms):
            for _ in range(count):
                self._respond(self._received(q), q)
            return
        # All terms only reward equal labels: the Potts model.
        pairwise = Pairwise([(term.weight, term.filter) for term in self._terms], self._n, "none")
        for _ in pairwise.responses(self._energies, q, None, count, out=q):
            pass

    def _received(self, q: FloatArray) -> FloatArray:
        received = np.zeros_like(q)
        for term in self._terms:
            term.send(q, received)
        return received

    def _respond(self, received: FloatArray | None, out: FloatArray) -> None:
        """Set `out` to softmax(received - unary)."""
        core().mean_field_update(self._energies, received, None, None, out, 0)

    def klDivergence(self, Q: Any) -> float:
        r"""Return the divergence of Q from the model, up to the model's constant.

        As in the original, :math:`\sum Q \log Q + \sum \phi Q + \sum_{ab} Q_a C K_{ab} Q_b` over
        ordered pairs, including a = b.
        """
        q = self._marginals(Q)
        entropy = np.einsum("ia,ia->", q, np.log(np.maximum(q, 1e-20)), dtype=np.float64)
        unary = np.einsum("ia,ia->", q, np.where(q > 0, self._unary, 0), dtype=np.float64)
        received = self._received(q)
        return float(entropy + unary - np.einsum("ia,ia->", q, received, dtype=np.float64))

    def solve(self, method: str = "lp", **options: Any) -> "Result":
        """Minimise the energy by any of `densecrf.METHODS`; not in pydensecrf.

        The energy is that of `densecrf.DenseCRF` with the same kernels: with a symmetric filter
        and without pairs of a pixel and itself.

        Parameters
        ----------
        method : str
            The method; ``"lp"`` bounds its distance from the optimum.
        **options
            Passed to `densecrf.DenseCRF.solve`.

        Returns
        -------
        densecrf.Result
            With ``labels`` of shape (height, width) for `DenseCRF2D`.
        """
        return self.model().solve(method, **options)

    def model(self) -> Model:
        """Return the declared energy as a `densecrf.DenseCRF`.

        Infinite unaries become finite ones that exceed all pairwise costs of the pixel, so that no
        optimal labelling has these labels.
        """
        ways = {term.normalization for term in self._terms} or {NORMALIZE_SYMMETRIC}
        if len(ways) > 1 or not ways <= {NO_NORMALIZATION, NORMALIZE_SYMMETRIC}:
            remedy = f"{', '.join(sorted(way.name for way in ways))}; solve() needs one symmetric "
            remedy += "energy: give NORMALIZE_SYMMETRIC (or NO_NORMALIZATION) to all kernels"
            raise ArgumentError("normalization", ..., remedy)
        kernels, compatibility = _one_compatibility(self._terms, self._labels)
        grid = (self._labels, *self._grid)
        forbidden = np.isposinf(self._unary)
        model = Model(
            np.where(forbidden, np.float32(0), self._unary).reshape(grid),
            kernels,
            normalization="none" if ways == {NO_NORMALIZATION} else "symmetric",
            compatibility=compatibility,
        )
        if not forbidden.any():
            return model
        spread = 1.0 if model.compatibility is None else float(np.ptp(model.compatibility))
        gain = spread * model.pairwise.mass
        highest = np.where(forbidden, -np.inf, self._unary).max(0)
        return model.with_unary(
            np.where(forbidden, highest + gain + FORBIDDEN_MARGIN, self._unary).reshape(grid)
        )

    def _add(
        self, features: FloatArray, of: Kernel, compat: Any, kernel: int, normalization: int
    ) -> None:
        """Add a term: its features, and the kernel of the declared model."""
        weight, costs = _compatibility(compat, self._labels)
        _member(KernelType, "kernel", kernel)
        way = _member(NormalizationType, "normalization", normalization)
        if costs is None and weight < 0:
            # Rewards go into the model's compatibility; weights are not negative.
            weight, costs = 1.0, np.diag(np.full(self._labels, -weight, np.float32))
        check_non_negative("compat", weight)
        of.check(self._grid)
        self._terms.append(Term(of, as_features(features), weight, costs, way))

    def _marginals(self, q: Any) -> FloatArray:
        array = as_real_array("Q", q)
        if array.shape != (self._labels, self._n):
            raise ArgumentError("Q", ..., f"shape {array.shape}; give {(self._labels, self._n)}")
        return np.ascontiguousarray(array, np.float32)


class DenseCRF2D(DenseCRF):
    """A dense CRF on an image. Width first.

    Parameters
    ----------
    w, h : int
        Width and height of the image.
    nlabels : int
        Number of labels.
    """

    def __init__(self, w: Any, h: Any, nlabels: Any, *_: Any, **__: Any) -> None:
        self._width = as_whole("w", w)
        self._height = as_whole("h", h)
        super().__init__(self._width * self._height, nlabels)
        self._grid = (self._height, self._width)

    def addPairwiseGaussian(
        self,
        sxy: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a Gaussian kernel of positions (smoothness).

        Parameters
        ----------
        sxy : float or (float, float)
            Standard deviation in pixels, one or (x, y).
        compat, kernel, normalization
            See `DenseCRF.addPairwiseEnergy`.
        """
        sigma = single_scales("sxy", sxy, 2, "axes (x, y)")
        features = self._positions(sigma)
        near = Spatial(sigma[::-1]) if usual(sigma) else Features(features)
        self._add(features, near, compat, kernel, normalization)

    def addPairwiseBilateral(
        self,
        sxy: Any,
        srgb: Any,
        rgbim: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a Gaussian kernel of positions and colours (appearance).

        Parameters
        ----------
        sxy : float or (float, float)
            Standard deviation of the position in pixels, one or (x, y).
        srgb : float or sequence of float
            Standard deviation of the colour, one or one for each channel.
        rgbim : array_like, (height, width) or (height, width, channels)
            The image, any dtype and strides.
        compat, kernel, normalization
            See `DenseCRF.addPairwiseEnergy`.
        """
        image = checked_image(rgbim, self._height, self._width)
        sigma = single_scales("sxy", sxy, 2, "axes (x, y)")
        color = single_scales("srgb", srgb, image.shape[2], "channels of rgbim")
        largest = largest_value(image, color, "rgbim", "srgb")
        planes = image.reshape(self._n, -1).T
        colors = [divided("srgb", plane, s) for plane, s in zip(planes, color, strict=True)]
        features = np.concatenate([self._positions(sigma), np.stack(colors, 1)], 1)
        alike: Kernel = Features(features)
        if usual(sigma) and usual(color):
            alike = Bilateral(image, sigma[::-1], color, largest=largest)
        self._add(features, alike, compat, kernel, normalization)

    def _positions(self, sigma: FloatArray) -> FloatArray:
        """Return the scaled positions (n, 2), x first, divided in single precision."""
        x = divided("sxy", np.arange(self._width), sigma[0])
        y = divided("sxy", np.arange(self._height), sigma[1])
        return np.stack([np.tile(x, self._height), np.repeat(y, self._width)], 1)


@dataclass(frozen=True, eq=False)
class Term:
    """One pairwise term: its features, normalisation and label costs.

    `costs` is a matrix, or None if `weight` rewards equal labels (the original's scalar).
    """

    kernel: Kernel
    features: npt.NDArray[np.floating[Any]]
    weight: float
    costs: FloatArray | None
    normalization: NormalizationType

    @cached_property
    def filter(self) -> Filter:
        """The normalised filter; one direction and single precision, as in the original."""
        lattice = _original_lattice(self.features)
        if self.normalization is NO_NORMALIZATION:
            return lattice
        mass = lattice.row_sums().astype(np.float32) + np.float32(SMALLEST_MASS)
        if self.normalization is NORMALIZE_SYMMETRIC:
            return lattice.rescaled(1 / np.sqrt(mass))
        if self.normalization is NORMALIZE_BEFORE:
            return lattice.weighted(1 / mass, None)
        return lattice.weighted(None, 1 / mass)

    def send(self, q: FloatArray, scores: FloatArray) -> None:
        """Add this term's message to the scores (log-probabilities up to a constant)."""
        filtered = self.filter.apply_planes(q)
        scores += self.weight * filtered if self.costs is None else -self.costs @ filtered


def _original_lattice(features: npt.NDArray[np.floating[Any]]) -> LatticeFilter:
    """Return the lattice that the original builds for features (n, d).

    The original locates points four at a time and pads the last four with points at the origin.
    These carry no values, but their vertices belong to the lattice and take part in the blurs.
    """
    n, dimension = features.shape
    if n % 4 == 0 or not features.any(axis=1).all():  # a point of its own lies at the origin
        return LatticeFilter(features, "forward", precision="single")
    padded = np.concatenate([features, np.zeros((1, dimension), features.dtype)])
    lattice = LatticeFilter(padded, "forward", precision="single")
    return lattice.restricted(np.arange(n, dtype=np.int32))  # with the vertices between its points


def _one_compatibility(
    terms: Sequence[Term], labels: int
) -> tuple[list[Kernel], LabelTree | FloatArray | None]:
    """Return weighted kernels and the one compatibility of all terms, or refuse them.

    Costs that are multiples of one matrix share it, with the factors as weights. A cost common to
    all pairs, equal labels included, only adds a constant to the energy; it is removed if the rest
    is a tree metric. A reward for equal labels thus becomes the Potts model.
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
    remedy = "solve() needs one label compatibility for all kernels: give each a number, or each a "
    raise ArgumentError("compat", ..., remedy + "multiple of the same matrix")


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


def _member(kind: type[Member], name: str, value: Any) -> Member:
    """Return the constant that a user named, or refuse it."""
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(member.name for member in kind)
        raise ArgumentError(name, value, f"must be one of {choices}") from error


def _compatibility(compat: Any, labels: int) -> tuple[float, FloatArray | None]:
    """Return the weight of equal labels, or weight 1 and a matrix of costs."""
    array = as_real_array("compat", compat)
    if array.ndim and getattr(compat, "dtype", None) == np.float64:
        remedy = f"a float64 array of shape {array.shape}, which pydensecrf refuses too; use "
        raise ArgumentError("compat", ..., remedy + "compat.astype(numpy.float32)")
    check_finite("compat", array)
    if array.ndim == 0:
        return float(array), None
    if array.shape == (labels,):
        return 1.0, np.diag(array.astype(np.float32))
    if array.shape == (labels, labels):
        half = np.asarray(array, np.float32) / 2
        return 1.0, half + half.T
    remedy = f"shape {array.shape}; give a number, ({labels},) or ({labels}, {labels})"
    raise ArgumentError("compat", ..., remedy)


def set_num_threads(threads: int | None) -> None:
    """Limit the threads of this process, as ``DENSECRF_NUM_THREADS`` does; None for all."""
    core().set_default_threads(check_threads(threads))
