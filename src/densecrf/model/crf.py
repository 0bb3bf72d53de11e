r"""The model: one declared energy.

.. math:: E(x) = \sum_a \phi_a(x_a) + \sum_{a<b} K_{ab}\, \mu(x_a, x_b), \qquad
          K_{ab} = \sum_c w_c \tilde k_c(a, b)

over *unordered* pairs of pixels: a weight here is twice that of the paper's Eq. 1, which sums
over ordered pairs, and means what ``compat`` means in pydensecrf.
"""

import copy
import math
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.model import unaries
from densecrf.model.compatibility import LabelTree, compatibility_matrix
from densecrf.model.kernels import Bilateral, Kernel
from densecrf.model.unaries import check_shape, looks_like_probabilities
from densecrf.operators.pairwise import Pairwise, build_filter
from densecrf.solvers.minimisation import solve as minimise_energy
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    as_float32,
    as_real_array,
    check_choice,
    check_finite,
    warn,
)

if TYPE_CHECKING:
    from densecrf.model.resolution import Measured
    from densecrf.problem.problem import Problem

__all__ = ["DenseCRF"]

FILTERS = ("auto", "lattice", "exact", "grid")
NORMALIZATIONS = ("symmetric", "none")


class DenseCRF:
    r"""A fully connected CRF with Gaussian pairwise potentials.

    Parameters
    ----------
    unary : array_like, (labels, *spatial)
        Energies :math:`\phi_a(i)`: lower is more probable. See `from_probabilities`,
        `from_logits` and `from_labels` for other input. Copied, unless it is a read-only float32
        array (``unary.setflags(write=False)``), which saves its memory.
    kernels : iterable of Spatial, Bilateral or Features
        The pairwise kernels; may be empty.
    normalization : {"symmetric", "none"}
        Whether a kernel is divided by :math:`\sqrt{m_a m_b}`, :math:`m_a = \sum_b k_{ab}`.
    filter : {"auto", "lattice", "exact", "grid"}
        The sum of Gaussians: ``lattice`` (``auto``) in linear time, for any features; ``exact``
        over all pairs, for small problems; ``grid`` exact and separable, for models with only
        `Spatial` kernels.
    compatibility : array_like or LabelTree, optional
        Costs of pairs of labels; Potts by default. A vector holds rewards of equal labels.
    ignore : array_like of bool, (*spatial), optional
        Pixels without a unary (void); the pairwise term labels them.
    blur : {"symmetric", "forward"}
        The blur of the lattice; see `densecrf.operators.LatticeFilter`.

    Examples
    --------
    >>> import numpy as np
    >>> from densecrf import Spatial
    >>> unary = np.array([[[0.0, 1.0]], [[1.0, 0.4]]])  # two labels, one row of two pixels
    >>> crf = DenseCRF(unary, [Spatial(sigma=1.0, weight=2.0)], "none", "exact")
    >>> float(round(crf.energy([[0, 1]]), 4)), crf.energy([[0, 0]])
    (1.6131, 1.0)
    """

    #: Numbers that `densecrf.model.label_prior` has added to the unaries.
    label_offsets: FloatArray | None = None
    #: The resolution of the scores, where `densecrf.refine` measured it.
    measured: "Measured | None" = None
    #: A warning for methods that find the optimum: `Parameters.caution`.
    caution: str = ""

    def __init__(
        self,
        unary: Any,
        kernels: Iterable[Kernel] = (),
        normalization: str = "symmetric",
        filter: str = "auto",  # noqa: A002 - the word that users look for
        *,
        compatibility: Any = None,
        ignore: Any = None,
        blur: str = "symmetric",
    ) -> None:
        array = as_real_array("unary", unary)
        check_shape(array.shape)
        energies = as_float32("unary", array)
        if looks_like_probabilities(energies):
            warn(
                "unary",
                "values from 0 to 1 that add up to 1 over the labels look like probabilities, but "
                "are taken as energies: use densecrf.DenseCRF.from_probabilities",
            )
        if array.flags.writeable and np.may_share_memory(energies, array):
            energies = energies.copy()
        rest = {"compatibility": compatibility, "ignore": ignore, "blur": blur}
        self._declare(energies, kernels, normalization, filter, **rest)

    @classmethod
    def from_checked(cls, unary: FloatArray, *args: Any, **options: Any) -> "DenseCRF":
        """Make a model of energies that are known to be finite float32; it keeps them uncopied.

        The option `pairwise` is the matrix K, where there is one already.
        """
        check_shape(unary.shape)
        crf = cls.__new__(cls)
        crf._declare(unary, *args, **options)
        return crf

    def _declare(
        self,
        unary: FloatArray,
        kernels: Any = (),
        normalization: str = "symmetric",
        filter: str = "auto",  # noqa: A002
        *,
        compatibility: Any = None,
        ignore: Any = None,
        blur: str = "symmetric",
        pairwise: Pairwise | None = None,
    ) -> None:
        self._pairwise = pairwise
        self.n_labels, self.shape = int(unary.shape[0]), tuple(int(s) for s in unary.shape[1:])
        self.n = math.prod(self.shape)
        self.unary: FloatArray = np.ascontiguousarray(unary).reshape(self.n_labels, -1)
        if ignore is not None:
            hidden = unaries.checked_mask(ignore, self.shape).reshape(-1)
            self.unary = np.where(hidden, np.float32(0), self.unary)
        self.kernels = self._checked_kernels(kernels)
        self.normalization = check_choice("normalization", normalization, NORMALIZATIONS)
        self.filter = check_choice("filter", filter, FILTERS)
        self.blur = check_choice("blur", blur, ("symmetric", "forward"))
        self.tree = compatibility if isinstance(compatibility, LabelTree) else None
        self.compatibility = compatibility_matrix(compatibility, self.n_labels)
        if self.filter == "grid":
            self.pairwise  # noqa: B018 - a wrong choice is refused here, not at the first use

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the filters, which are built again where they are needed."""
        return {**vars(self), "_pairwise": None}

    def _checked_kernels(self, kernels: Any) -> tuple[Kernel, ...]:
        given = _as_tuple(kernels)
        needed = "weight", "features", "check"
        for kernel in given:
            if isinstance(kernel, type) or not all(hasattr(kernel, name) for name in needed):
                remedy = (
                    f"{reprlib.repr(kernel)} is not a kernel; give Spatial, Bilateral or Features"
                )
                raise ArgumentError("kernels", ..., remedy)
            kernel.check(self.shape)
        return given

    @classmethod
    def from_probabilities(
        cls,
        probabilities: Any,
        kernels: Iterable[Kernel] = (),
        *,
        axis: int = 0,
        clip: float = 1e-5,
        **options: Any,
    ) -> "DenseCRF":
        """Make a model from class probabilities: unary = -log max(p, clip).

        Parameters
        ----------
        probabilities : array_like
            Probabilities; they must add up to 1 over the label axis.
        kernels : iterable
            As for the constructor.
        axis : int
            The label axis.
        clip : float
            Smallest probability; zeros would forbid labels.
        **options
            Passed to the constructor.
        """
        unary = unaries.from_probabilities(probabilities, axis=axis, clip=clip)
        return cls.from_checked(unary, kernels, **options)

    @classmethod
    def from_logits(
        cls,
        logits: Any,
        kernels: Iterable[Kernel] = (),
        *,
        axis: int = 0,
        shape: tuple[int, ...] | None = None,
        **options: Any,
    ) -> "DenseCRF":
        """Make a model from a network's logits: unary = -log softmax.

        Parameters
        ----------
        logits : array_like
            Logits, at the resolution of the image or lower: then they are upsampled bilinearly
            (half-pixel centres) before the softmax.
        kernels : iterable
            As for the constructor.
        axis : int
            The label axis.
        shape : tuple of int, optional
            The grid of pixels; by default that of the first `Bilateral` kernel's image.
        **options
            Passed to the constructor.
        """
        kernels = _as_tuple(kernels)
        grid = _image_shape(kernels, logits) if shape is None else shape
        unary = unaries.from_logits(logits, axis=axis, shape=grid)
        return cls.from_checked(unary, kernels, **options)

    @classmethod
    def from_labels(
        cls,
        labels: Any,
        n_labels: int,
        kernels: Iterable[Kernel] = (),
        *,
        confidence: float = 0.7,
        void: Any = "auto",
        **options: Any,
    ) -> "DenseCRF":
        """Make a model from hard labels (annotations, scribbles, another program's result).

        Parameters
        ----------
        labels : array_like of int, (*spatial)
            One label per pixel.
        n_labels : int
            Number of labels.
        kernels : iterable
            As for the constructor.
        confidence : float
            Probability that a given label is right.
        void : int, sequence of int, None or "auto"
            Values of pixels without a label: they get no unary. By default 255, unless 0 and 255
            are the only values of two labels: a binary mask.
        **options
            Passed to the constructor.
        """
        unary = unaries.from_labels(labels, n_labels, confidence=confidence, void=void)
        return cls.from_checked(unary, kernels, **options)

    def with_unary(self, unary: Any) -> "DenseCRF":
        """Return the model of other unary energies on the same pixels; the filters are shared."""
        options: Any = {"compatibility": self.tree or self.compatibility, "blur": self.blur}
        other = DenseCRF(unary, self.kernels, self.normalization, self.filter, **options)
        if other.shape != self.shape:
            remedy = f"a grid of {other.shape} for a model of {self.shape} pixels"
            raise ArgumentError("unary", ..., remedy)
        return other.with_pairwise(self.pairwise)

    def with_pairwise(self, pairwise: Pairwise | None) -> "DenseCRF":
        """Return the model with a matrix K that exists already, or with none yet."""
        other = copy.copy(self)
        other._pairwise = pairwise
        return other

    @property
    def filters_built(self) -> bool:
        """Whether the filters are there already, so that the next call costs no construction."""
        return self._pairwise is not None

    @property
    def weighty_kernels(self) -> list[Kernel]:
        """The kernels whose weight is not 0, which K is the sum of."""
        return [kernel for kernel in self.kernels if kernel.weight]

    @property
    def pairwise(self) -> Pairwise:
        """The matrix K; its filters are built on first use and kept."""
        if self._pairwise is None:
            engine = "lattice" if self.filter == "auto" else self.filter
            filters = [
                (kernel.weight, build_filter(kernel, self.shape, engine, self.blur, 0))
                for kernel in self.weighty_kernels
            ]
            self._pairwise = Pairwise(filters, self.n, self.normalization)
        return self._pairwise

    def energy(self, labels: Any) -> float:
        r"""Return the energy :math:`E(x)` of a labelling.

        Parameters
        ----------
        labels : array_like of int, (*spatial) or (n,)
            A label for each pixel.
        """
        return self._problem.energy(self.check_labels(labels))

    @property
    def _problem(self) -> "Problem[npt.NDArray[Any]]":
        """The problem of the solvers, on the compiled core."""
        from densecrf.problem.problem import problem_of

        return problem_of(self)

    def relaxed_energy(self, y: Any) -> float:
        r"""Return the objective of the linear program (Eq. 4 of the paper) at `y`.

        .. math:: \tilde E(y) = \langle\phi, y\rangle
                  + \sum_{a<b} K_{ab} \tfrac12 \sum_i |y_{ai} - y_{bi}|

        The order of the scores is exact for every filter.

        Parameters
        ----------
        y : array_like, (labels, *spatial)
            A point of the product of simplices.
        """
        return self._problem.relaxed_energy(self.check_marginals("y", y))

    def constant_energies(self) -> npt.NDArray[np.float64]:
        """Return the energy of each constant labelling, (labels,)."""
        return np.asarray(self._problem.constant_energies())

    solve = minimise_energy

    def check_labels(self, labels: Any) -> IntArray:
        """Return a user's labelling as an int64 array (n,), or refuse it."""
        array = as_real_array("labels", labels)
        if array.shape not in (self.shape, (self.n,)):
            remedy = f"shape {array.shape} for a grid of {self.shape} pixels"
            raise ArgumentError("labels", ..., remedy)
        check_finite("labels", array)
        flat = unaries.whole_numbers("labels", array).reshape(-1)
        if flat.min() < 0 or flat.max() >= self.n_labels:
            bad = int(flat[(flat < 0) | (flat >= self.n_labels)][0])
            remedy = f"value {bad} is outside 0 … {self.n_labels - 1}; if it marks void pixels, "
            raise ArgumentError("labels", ..., remedy + "give them some label first")
        return flat

    def check_marginals(self, name: str, y: Any) -> FloatArray:
        """Return a user's marginals as a float32 array (labels, n), or refuse them."""
        array = as_real_array(name, y)
        if array.shape not in ((self.n_labels, *self.shape), (self.n_labels, self.n)):
            remedy = f"shape {array.shape}; give {(self.n_labels, *self.shape)}"
            raise ArgumentError(name, ..., remedy)
        return np.ascontiguousarray(as_float32(name, array)).reshape(self.n_labels, self.n)

    def _repr_html_(self) -> str:
        from densecrf.display import model_html

        return model_html(self)

    def __repr__(self) -> str:
        """Describe the model."""
        grid = " × ".join(map(str, self.shape))
        names = ", ".join(type(kernel).__name__ for kernel in self.kernels) or "no kernels"
        return f"DenseCRF({self.n_labels} labels, {grid} pixels, {names}, {self.normalization})"


def _as_tuple(kernels: Any) -> tuple[Kernel, ...]:
    if isinstance(kernels, Iterable) and not isinstance(kernels, np.ndarray):
        return tuple(kernels)
    raise ArgumentError("kernels", kernels, "give a list of kernels")


def _image_shape(kernels: tuple[Kernel, ...], logits: Any) -> tuple[int, ...] | None:
    """Return the grid of the first image among the kernels."""
    spatial_axes = as_real_array("logits", logits).ndim - 1
    for kernel in kernels:
        if isinstance(kernel, Bilateral):
            return tuple(int(s) for s in np.shape(kernel.image)[:spatial_axes])
    return None
