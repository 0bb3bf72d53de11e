r"""The module ``pydensecrf.densecrf``: same names, same defaults, same numbers.

Mean field here keeps what the original does: the lattice blurs in one direction only and a pixel's
own term stays in its message. `DenseCRF.solve` leaves that behind: it minimises the declared
energy of `densecrf.DenseCRF` by any method, and ``"lp"`` says how far from optimal the answer is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.filters.lattice_sum import LatticeSum
from densecrf.kernels import Bilateral, Features, Kernel, Spatial
from densecrf.model import DenseCRF as Model
from densecrf.native import core
from densecrf.pydensecrf.terms import (
    CONST_KERNEL,
    DIAG_KERNEL,
    FULL_KERNEL,
    NO_NORMALIZATION,
    NORMALIZE_AFTER,
    NORMALIZE_BEFORE,
    NORMALIZE_SYMMETRIC,
    KernelType,
    NormalizationType,
    Term,
    compatibility,
    member,
)
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_finite,
    check_integer,
    sigmas,
)

if TYPE_CHECKING:
    from densecrf.result import Result

__all__ = [
    "CONST_KERNEL",
    "DIAG_KERNEL",
    "FULL_KERNEL",
    "NORMALIZE_AFTER",
    "NORMALIZE_BEFORE",
    "NORMALIZE_SYMMETRIC",
    "NO_NORMALIZATION",
    "DenseCRF",
    "DenseCRF2D",
    "KernelType",
    "NormalizationType",
]

LARGEST_ENERGY = 1e30


class DenseCRF:
    """A dense CRF over any points; see `DenseCRF2D` for images.

    Parameters
    ----------
    nvar : int
        Number of pixels.
    nlabels : int
        Number of labels.

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

    def __init__(self, nvar: int, nlabels: int) -> None:
        self._n = check_integer("nvar", nvar, at_least=1)
        self._labels = check_integer("nlabels", nlabels, at_least=1)
        self._grid: tuple[int, ...] = (self._n,)
        self._unary: FloatArray = np.zeros((self._labels, self._n), np.float32)
        self._energies = self._unary
        self._terms: list[Term] = []

    def setUnaryEnergy(self, u: Any) -> None:
        """Set the unary energies, for example -log of probabilities.

        Parameters
        ----------
        u : array_like, (nlabels, nvar)
            Energies, any dtype and strides. +inf forbids a label.
        """
        array = as_real_array("u", u)
        if array.shape not in ((self._labels, self._n), (self._labels, *self._grid)):
            raise ArgumentError("u", ..., _wrong_unary_shape(array.shape, self._labels, self._grid))
        with np.errstate(over="ignore"):
            unary = np.array(array, np.float32, order="C").reshape(self._labels, self._n)
        least, largest = float(unary.min()), float(unary.max())  # NaN where there is one
        if np.isnan(least) or least == -np.inf:
            check_finite("u", np.where(np.isposinf(unary), 0, unary))
        if largest == np.inf:
            _check_allowed(unary)
        self._unary = self._energies = unary
        if max(-least, largest) > LARGEST_ENERGY:
            self._energies = np.clip(unary, -LARGEST_ENERGY, LARGEST_ENERGY)

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
            hint = "; transpose it" if array.ndim == 2 and array.shape[0] == self._n else ""
            raise ArgumentError(
                "features",
                ...,
                f"shape {array.shape}; give (dimensions, {self._n}), one column a pixel" + hint,
            )
        values = np.array(array.T, np.float32, order="C")
        self._add(lambda weight: Features(values, weight), compat, kernel, normalization)

    def inference(self, niter: int) -> FloatArray:
        """Return the marginals (nlabels, nvar) after `niter` mean-field iterations."""
        q, first, second = self.startInference()
        for _ in range(niter):
            self.stepInference(q, first, second)
        return q

    def startInference(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the starting marginals, exp(-unary) normalised, and two scratch arrays."""
        scratch = np.zeros((0, 0), np.float32)
        q = np.empty_like(self._energies)
        self._respond(None, q)
        return q, scratch, scratch.copy()

    def stepInference(self, Q: FloatArray, tmp1: Any = None, tmp2: Any = None) -> None:  # noqa: ARG002
        """Make one mean-field iteration, in place.

        Parameters
        ----------
        Q : ndarray, (nlabels, nvar)
            Marginals of `startInference`; they are overwritten.
        tmp1, tmp2
            Scratch arrays of `startInference`, not needed here.
        """
        q = self._marginals(Q)
        filters = self._rewards()
        if filters is None:
            self._respond(self._received(q), q)
        else:
            filters.respond(self._energies, q, None, q)
        if q is not Q:
            Q[...] = q

    def _rewards(self) -> LatticeSum | None:
        """Return the terms as one sum of filters where each rewards equal labels alone."""
        if not self._terms or any(term.costs is not None for term in self._terms):
            return None
        return LatticeSum.of([(term.weight, term.filter) for term in self._terms])

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

        As the original counts it: :math:`\sum Q \log Q + \sum \phi Q + \sum_{ab} Q_a C K_{ab} Q_b`
        over ordered pairs, the pixel's own term included.
        """
        q = self._marginals(Q)
        entropy = np.einsum("ia,ia->", q, np.log(np.maximum(q, 1e-20)), dtype=np.float64)
        unary = np.einsum("ia,ia->", q, np.where(q > 0, self._unary, 0), dtype=np.float64)
        received = self._received(q)
        return float(entropy + unary - np.einsum("ia,ia->", q, received, dtype=np.float64))

    def solve(self, method: str = "lp", **options: Any) -> "Result":
        """Minimise the energy by any of `densecrf.METHODS`; beyond pydensecrf.

        The energy is that of `densecrf.DenseCRF` with the same kernels: the symmetric filter, and
        no pixel paired with itself.

        Parameters
        ----------
        method : str
            The method; ``"lp"`` proves how far from optimal its answer is.
        **options
            Passed to `densecrf.DenseCRF.solve`.

        Returns
        -------
        densecrf.Result
            With ``labels`` of shape (height, width) for `DenseCRF2D`.
        """
        return self.model().solve(method, **options)

    def model(self) -> Model:
        """Return the declared energy as a `densecrf.DenseCRF`."""
        if np.isposinf(self._unary).any():
            raise ArgumentError(
                "u",
                ...,
                "holds +inf (a probability of 0); solve() needs finite energies: use "
                "unary_from_softmax, which clips, or numpy.minimum(u, 20)",
            )
        ways = {term.normalization for term in self._terms} or {NORMALIZE_SYMMETRIC}
        if len(ways) > 1 or not ways <= {NO_NORMALIZATION, NORMALIZE_SYMMETRIC}:
            raise ArgumentError(
                "normalization",
                ...,
                f"{', '.join(sorted(way.name for way in ways))}; solve() needs one "
                "symmetric energy: give NORMALIZE_SYMMETRIC (or NO_NORMALIZATION) to all kernels",
            )
        return Model(
            self._unary.reshape(self._labels, *self._grid),
            [term.kernel for term in self._terms],
            normalization="none" if ways == {NO_NORMALIZATION} else "symmetric",
            compatibility=self._shared_costs(),
        )

    def _shared_costs(self) -> FloatArray | None:
        """Return the costs that all terms share, or refuse: the model has one compatibility."""
        if all(term.costs is None for term in self._terms):
            return None
        first = self._terms[0].costs
        for term in self._terms[1:]:
            if first is None or term.costs is None or not np.array_equal(first, term.costs):
                raise ArgumentError(
                    "compat",
                    ...,
                    "solve() needs one label compatibility for all kernels: give each a "
                    "number, or each the same matrix",
                )
        return first

    def _add(
        self, make: Callable[[float], Kernel], compat: Any, kernel: int, normalization: int
    ) -> None:
        weight, costs = compatibility(compat, self._labels)
        member(KernelType, "kernel", kernel)
        way = member(NormalizationType, "normalization", normalization)
        if costs is None and weight < 0:
            # The model knows costs and rewards by its compatibility, not by negative weights.
            weight, costs = 1.0, np.diag(np.full(self._labels, -weight, np.float32))
        made = make(weight)
        made.check(self._grid)
        self._terms.append(Term(made, made.features(self._grid), weight, costs, way))

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

    def __init__(self, w: int, h: int, nlabels: int) -> None:
        self._width = check_integer("w", w, at_least=1)
        self._height = check_integer("h", h, at_least=1)
        super().__init__(self._width * self._height, nlabels)
        self._grid = (self._height, self._width)

    def addPairwiseGaussian(
        self,
        sxy: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add smoothness: nearby pixels like equal labels.

        Parameters
        ----------
        sxy : float or (float, float)
            Standard deviation in pixels, one or (x, y).
        compat, kernel, normalization
            See `DenseCRF.addPairwiseEnergy`.
        """
        sigma = sigmas("sxy", sxy, 2, "axes (x, y)")[::-1]
        with _named(sigma="sxy"):
            self._add(lambda weight: Spatial(sigma, weight), compat, kernel, normalization)

    def addPairwiseBilateral(
        self,
        sxy: Any,
        srgb: Any,
        rgbim: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add appearance: nearby pixels of similar colour like equal labels.

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
        image = np.array(as_real_array("rgbim", rgbim))
        if image.ndim not in (2, 3) or image.shape[:2] != self._grid:
            raise ArgumentError(
                "rgbim", ..., _wrong_image_shape(image.shape, self._width, self._height)
            )
        image = image.reshape(*self._grid, -1)
        sigma = sigmas("sxy", sxy, 2, "axes (x, y)")[::-1]
        color = sigmas("srgb", srgb, image.shape[2], "channels of rgbim")
        with _named(sigma_xy="sxy", sigma_color="srgb", image="rgbim"):
            self._add(
                lambda weight: Bilateral(image, sigma, color, weight), compat, kernel, normalization
            )


@contextmanager
def _named(**names: str) -> Iterator[None]:
    """Let errors raised inside speak of the original's argument names."""
    try:
        yield
    except ArgumentError as error:
        raise error.renamed(**names) from error


def _check_allowed(unary: FloatArray) -> None:
    forbidden = np.isposinf(unary).all(0)
    if forbidden.any():
        raise ArgumentError(
            "u",
            ...,
            f"every label of pixel {int(forbidden.argmax())} costs infinity; clip the "
            "probabilities before the logarithm (unary_from_softmax does)",
        )


def _wrong_unary_shape(shape: tuple[int, ...], labels: int, grid: tuple[int, ...]) -> str:
    n = int(np.prod(grid))
    message = f"shape {shape}; this model needs {(labels, n)}, labels first"
    if shape == (n, labels):
        return message + ": transpose it (u.T)"
    if shape == (*grid, labels):
        return message + ": bring the labels to the front (u.transpose(2, 0, 1).reshape(L, -1))"
    if len(grid) == 2 and shape == (labels, *grid[::-1]):
        return (
            message
            + f": the model is {grid[1]} wide and {grid[0]} high; DenseCRF2D(width, "
            + ("height, labels) takes the width first")
        )
    if len(shape) == 2 and shape[1] == n:
        return message + f": it has {shape[0]} labels, the model was made for {labels}"
    return message


def _wrong_image_shape(shape: tuple[int, ...], width: int, height: int) -> str:
    message = f"shape {shape}; this model needs ({height}, {width}, channels)"
    if shape[:2] == (width, height):
        return message + ": DenseCRF2D(width, height, labels) takes the width first"
    return message
