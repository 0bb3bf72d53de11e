r"""The protocols of a back end: the operator K and the steps of the solvers, on its arrays.

`densecrf.problem.Problem` is written once, over label-major arrays (labels, n) of NumPy or torch.
It is composed of an `Operator`, the matrix :math:`K = \sum_c w_c \tilde k_c` that is never formed,
and of `Steps`, the passes over pixels. An operator may offer fused passes of the Potts model, which
filter and step at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy.typing as npt

from densecrf.operators.levels import Doubles, Levels
from densecrf.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Array", "Gradient", "Moves", "Operator", "QuadraticStep", "Steps"]

#: The arrays of a back end, of floats and of labels.
Array = TypeVar("Array", npt.NDArray[Any], "Tensor")


@dataclass(frozen=True)
class Moves(Generic[Array]):
    """The moves of iterated conditional modes (ICM) from a labelling.

    Attributes
    ----------
    labels : array, (n,)
        Each pixel's best label given all others, or its current one if that is no worse.
    gain : array, (n,)
        The decrease of the energy by this single move.
    movers : int
        Number of pixels that gain.
    energy : float
        The labelling's energy.
    """

    labels: Array
    gain: Array
    movers: int
    energy: float


@dataclass(frozen=True)
class Gradient(Generic[Array]):
    r"""Arguments of a projected gradient step :math:`y = P_\Delta(v - \text{step}\,(\phi + r))`.

    Attributes
    ----------
    phi, r : array, (labels, n)
        The summands of the gradient.
    v, previous : array, (labels, n)
        The point of the gradient, and the previous one.
    step, lipschitz : array, (n,)
        The step lengths, and the Lipschitz constants.
    """

    phi: Array
    v: Array
    r: Array
    step: Array
    lipschitz: Array
    previous: Array


@dataclass(frozen=True)
class QuadraticStep(Generic[Array]):
    """A projected gradient step of the quadratic relaxation.

    Attributes
    ----------
    y : array, (labels, n)
        The new point.
    objective : float
        The objective at the point of the gradient.
    uphill : float
        Positive if the move from the last point opposes the step.
    moved : float
        The sum of the absolute differences from the last point.
    gained : bool
        Whether a label that carried nothing, or that is left out, gains mass.
    present : list of int, optional
        The labels that carried anything before the step, where known.
    """

    y: Array
    objective: float
    uphill: float
    moved: float
    gained: bool = False
    present: list[int] | None = None


class Operator(Protocol[Array]):
    r"""The matrix K of pairwise weights over n pixels, symmetric and non-negative.

    In double precision it is the real-arithmetic, symmetrised K over the weights that the filters
    store.
    """

    @property
    def built(self) -> bool:
        """Whether the filters are built, so that the next call need not build them."""

    @property
    def labels_at_once(self) -> int:
        """How many labels are best evaluated together in double precision."""

    @property
    def exact_estimates(self) -> bool:
        """Whether energies in double precision cost no more than estimates of them."""

    @property
    def restricts_pixels(self) -> bool:
        """Whether filtering some of the pixels takes less time than filtering all."""

    @property
    def mass(self) -> Array:
        r"""Row sums :math:`\sum_b K_{ab}`, (n,)."""

    @property
    def diagonal(self) -> Array:
        """Self terms :math:`K_{aa}`, (n,)."""

    @property
    def mass_double(self) -> Array:
        """Row sums in double precision, (n,)."""

    @property
    def diagonal_double(self) -> Array:
        """Self terms in double precision, (n,)."""

    @property
    def total_double(self) -> float:
        """The sum of all of K, summed in double precision."""

    def apply(self, y: Array) -> Array:
        r"""Return :math:`\sum_b K_{ab} y_{bi}`."""

    def ordered(self, nodes: Array, levels: Levels, order: str) -> Array:
        r"""Return :math:`\sum_b K_{ab}\, s(u_a, u_b)` for each row of potentials u."""

    def half_ordered(
        self,
        nodes: Array,
        offsets: Array | None,
        extents: FloatArray,
        levels: Levels,
        order: str,
    ) -> Array:
        r"""Return :math:`\tfrac12 \sum_b K_{ab}\, s(u_a, u_b)` with u = nodes + offsets.

        Balanced: rounding errors are removed, so that each row sums to 0. Rows whose extents,
        (nodes, 2), are equal have no order and are skipped.
        """

    def apply_double(self, y: Array) -> Array:
        r"""Return :math:`\sum_b K_{ab} y_{bi}` in double precision."""

    def ordered_double(
        self, nodes: Array, offsets: Array | None, extents: FloatArray, levels: Levels
    ) -> Array:
        r"""Return :math:`\sum_b K_{ab}\, s(u_a, u_b)` with u = nodes + offsets, in double."""

    def pairs_double(self, labels: Array, count: int, costs: Doubles | None) -> float:
        r"""Return :math:`\sum_{ab} K_{ab}\, \mu(x_a, x_b)`, b = a too; `costs` None for Potts."""

    def restricted(self, pixels: IntArray) -> "Operator[Array]":
        """Return the submatrix of some pixels (ascending, distinct indices)."""

    def give_back_free_memory(self) -> None:
        """Return the memory that filters and the C library cache to the system."""

    # --- fused passes of the Potts model, None where there are none ---------------------------

    def potts_moves(self, phi: Array, labels: Array) -> Moves[Array]:
        """Return the ICM move of every pixel, with one filter call."""

    def potts_energies(
        self, phi: Array, labellings: Sequence[Array], *, double: bool
    ) -> list[float] | None:
        """Return the labellings' energies by one filter call."""

    def potts_responses(
        self, phi: Array, y: Array, own: Array | None, count: int
    ) -> Iterator[Array] | None:
        """Yield `count` mean-field updates of `y`, each of the previous one.

        Each is softmax(K y - own · y - phi); with `own` None, self terms count.
        """

    def potts_quadratic_step(
        self,
        phi: Array,
        y: Array,
        strength: Array,
        c: Array | None,
        before: Array | None,
        share: float,
        rest: Array | None,
    ) -> QuadraticStep[Array] | None:
        """Take the step of `densecrf.problem.Problem.quadratic_step`."""


class Steps(Protocol[Array]):
    """Passes over the pixels of label-major arrays, and conversions of arrays."""

    @property
    def restricts_labels(self) -> bool:
        """Whether problems of some of the labels can be solved by the same steps."""

    @property
    def xp(self) -> ModuleType:
        """The module numpy or torch."""

    def of_pixels(self, n: int) -> "Steps[Array]":
        """Return the steps of a problem of n pixels, by itself."""

    # --- linear programs ----------------------------------------------------------------------

    def extents(self, nodes: Array, offsets: Array | None) -> FloatArray:
        """Return the minimum and maximum of each node's nodes + offsets, (nodes, 2)."""

    def descend(self, at: Gradient[Array], *, in_place: bool) -> tuple[Array, float, float, float]:
        """Take the step of `densecrf.problem.Problem.descend`."""

    def compress(
        self, nodes: Array, offsets: Array | None, span: float, edge: float, *, in_place: bool
    ) -> Array:
        """Return the potentials nodes + offsets within `span`; see `densecrf.problem.projections`.

        With `in_place`, the result may take the memory of `nodes`.
        """

    def add_extrapolated(self, u: Array, y: Array, previous: Array) -> None:
        """Add 2 `y` - `previous` to u, in place."""

    def extrapolate(self, y: Array, previous: Array, share: float) -> Array:
        """Return `y` + `share` · (`y` - `previous`)."""

    def project(self, z: Array) -> Array:
        """Return the nearest point in the product of simplices."""

    def projected_step(self, phi: Array, centre: Array, r: Array, step: float) -> Array:
        r"""Return :math:`P_\Delta(\text{centre} - \text{step}\,(\phi + r))`."""

    def least_costs(self, phi: Array, r: Array) -> tuple[Array, float]:
        r"""Return :math:`\min_i(\phi_{ai} + r_{ai})`, (n,), and an estimate of their sum."""

    def least_others(self, rows: Array, labels: Array) -> Array:
        """Return the least of each column but for its own label's row; `rows` change meanwhile.

        Labels that are no row have none to leave out.
        """

    def shortfalls(self, rows: Array, least: Array) -> Doubles:
        r"""Return for each row :math:`\sum_a \max(0, \text{least}_a - \text{row}_a)`."""

    def price_step(
        self, costs: Array, least: Array, step: Array, twice: float, y: Array, z: Array
    ) -> None:
        r"""Take a step of one label's program in `densecrf.solvers.pricing`, in place.

        y becomes clip(y - step · (costs - least), 0, 1) and z grows by `twice` the new y less the
        old one.
        """

    def lower_bound(self, phi: Array, r: Array) -> float:
        r"""Return an estimate of :math:`\sum_a \min_i(\phi_{ai} + r_{ai})`."""

    # --- quadratic relaxations and mean field -------------------------------------------------

    def messages(self, filtered: Array, y: Array, own: Array, costs: Array | None) -> Array:
        """Return the costs of each label beside filtered - own · y; `costs` None for Potts.

        The result may take the memory of `filtered`.
        """

    def softmax(self, energies: Array) -> Array:
        """Return the softmax over labels of minus the energies."""

    def response_logits(
        self, phi: Array, filtered: Array, y: Array, own: Array, costs: Array | None
    ) -> Array:
        """Return -phi - messages, up to a constant for each pixel."""

    def mean_field_update(self, phi: Array, filtered: Array, y: Array, own: Array | None) -> Array:
        """Return the softmax over labels of filtered - own · y - phi."""

    def lmo(
        self, linear: Array, received: Array, diagonal: Array, y: Array
    ) -> tuple[Array, float, float]:
        """Return the answer of `densecrf.problem.Problem.lmo`."""

    def step_to_vertex(self, labels: Array, y: Array, step: float) -> Array:
        """Return `y` moved by `step` of the way to a vertex."""

    # --- labellings -----------------------------------------------------------------------------

    def argmax(self, y: Array) -> Array:
        """Return the largest label of each pixel, (n,)."""

    def raised_argmax(self, y: Array, label: int, bias: float) -> Array:
        """Return the largest label of each pixel after the values of one label were raised."""

    def indicator(self, labels: Array, count: int) -> Array:
        """Return the labelling as a vertex of the product of simplices, (count, n)."""

    def constant(self, label: int, n: int) -> Array:
        """Return the labelling of n pixels by one label."""

    def moves(self, phi: Array, received: Array, labels: Array) -> Moves[Array]:
        """Return the ICM moves where labels receive these messages, (labels, n)."""

    def apply_moves(self, labels: Array, moves: Moves[Array], most: int) -> Array:
        """Return `labels` after the `most` moves that gain most."""

    def same(self, labels: Array, others: Array) -> bool:
        """Whether two labellings are the same."""

    def compare(self, y: Array, labels: Array, others: Array | None) -> tuple[Doubles, bool]:
        """Return the sum over pixels of y (1 - y) of each label, and whether labellings agree."""

    # --- sums -----------------------------------------------------------------------------------

    def inner(self, u: Array, v: Array) -> float:
        """Return the inner product, summed in double."""

    def difference(self, u: Array, v: Array) -> tuple[float, float]:
        """Return the sum and the largest of the absolute differences."""

    def sum_at(self, u: Array, labels: Array, weights: Array | None = None) -> float:
        """Return the sum over pixels of `u` at their labels, in double, weighted."""

    def at(self, u: Array, labels: Array) -> Array:
        """Return `u` at the pixels' labels, (n,), in double precision."""

    def accumulate(self, total: Array, y: Array) -> None:
        """Add `y` to `total`, in place."""

    # --- arrays ---------------------------------------------------------------------------------

    def floats(self, array: Array) -> Array:
        """Return an array as one of the problem's floating dtype."""

    def double(self, array: Array) -> Array:
        """Return an array in double precision."""

    def contiguous(self, array: Array) -> Array:
        """Return the array, row after row in memory."""

    def copy(self, array: Array) -> Array:
        """Return a copy."""

    def zeros_like(self, array: Array, rows: int, n: int) -> Array:
        """Return zeros of the array's dtype, (rows, n)."""

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """Return the array as NumPy's."""

    def from_numpy(self, array: npt.NDArray[Any]) -> Array:
        """Return NumPy's array as one of the problem's."""

    def double_from_numpy(self, array: npt.NDArray[Any]) -> Array:
        """Return NumPy's array as one of the problem's, in double precision."""
