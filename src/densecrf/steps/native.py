"""The steps of the solvers on NumPy arrays, by the compiled core."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.backend import Gradient, Moves
from densecrf.native import core
from densecrf.operators.levels import Doubles
from densecrf.problem import projections
from densecrf.validation import FloatArray, IntArray

__all__ = ["NativeSteps"]

Plain = npt.NDArray[Any]


@dataclass
class NativeSteps:
    """Passes over pixels; see `densecrf.backend.Steps`.

    Attributes
    ----------
    threads : int
        0 for all.
    """

    restricts_labels = True

    threads: int = 0

    @property
    def xp(self) -> ModuleType:
        return np

    def of_pixels(self, n: int) -> "NativeSteps":
        return self

    # --- linear programs ----------------------------------------------------------------------

    def extents(self, nodes: Plain, offsets: Plain | None) -> FloatArray:
        out = np.empty((len(nodes), 2), np.float32)
        core().extents(single(nodes), offsets, out, self.threads)
        return out

    def descend(self, at: Gradient[Plain], *, in_place: bool) -> tuple[Plain, float, float, float]:
        r = single(at.r)
        y = r if in_place else np.empty_like(at.phi)
        given = map(single, (at.v, at.step, at.lipschitz, at.previous))
        bound, value, uphill = core().descend(at.phi, r, *given, y, self.threads)
        return y, bound, value, uphill

    def compress(
        self, nodes: Plain, offsets: Plain | None, span: float, edge: float, *, in_place: bool
    ) -> Plain:
        nodes = single(nodes)
        out = nodes if in_place else np.empty_like(nodes)
        extents = self.extents(nodes, offsets)
        core().compress_potentials(
            offsets, nodes, extents, span=span, edge=edge, out=out, threads=self.threads
        )
        return out

    def add_extrapolated(self, u: Plain, y: Plain, previous: Plain) -> None:
        core().add_extrapolated(single(y), single(previous), 1.0, u, self.threads)

    def extrapolate(self, y: Plain, previous: Plain, share: float) -> Plain:
        out = np.empty(y.shape, np.float32)
        core().extrapolate(single(y), single(previous), share, out, self.threads)
        return out

    def project(self, z: Plain) -> Plain:
        return projections.simplex(z, threads=self.threads)

    def projected_step(self, phi: Plain, centre: Plain, r: Plain, step: float) -> Plain:
        out, steps = np.empty_like(phi), np.full(phi.shape[1], step, np.float32)
        given = (single(r), single(centre), steps, steps, single(centre))
        core().descend(phi, *given, out, self.threads)
        return out

    def lower_bound(self, phi: Plain, r: Plain) -> float:
        return float(core().lower_bound(phi, single(r), 1.0, None, self.threads))

    def least_costs(self, phi: Plain, r: Plain) -> tuple[Plain, float]:
        least = np.empty(phi.shape[1], np.float32)
        return least, float(core().lower_bound(phi, single(r), 1.0, least, self.threads))

    def shortfalls(self, rows: Plain, least: Plain) -> Doubles:
        out = np.empty(len(rows))
        core().shortfalls(single(rows), least, out, self.threads)
        return out

    def price_step(
        self, costs: Plain, least: Plain, step: Plain, twice: float, y: Plain, z: Plain
    ) -> None:
        core().price_step(costs[None], least, single(step), twice, y, z, self.threads)

    def least_others(self, rows: Plain, labels: IntArray) -> Plain:
        index = np.clip(labels, 0, len(rows) - 1)[None]
        own = np.take_along_axis(rows, index, 0)
        np.put_along_axis(rows, index, np.where(index == labels, np.inf, own), 0)
        least: Plain = rows.min(0)
        np.put_along_axis(rows, index, own, 0)
        return least

    # --- quadratic relaxations and mean field -------------------------------------------------

    def messages(self, filtered: Plain, y: Plain, own: Plain, costs: Plain | None) -> Plain:
        if costs is not None:
            return np.asarray(costs @ (filtered - own * y))
        core().potts_messages(filtered, single(y), own, filtered, self.threads)
        return filtered

    def softmax(self, energies: Plain) -> Plain:
        energies = single(energies)
        out = np.empty_like(energies)
        core().mean_field_update(energies, None, None, None, out, self.threads)
        return out

    def response_logits(
        self, phi: Plain, filtered: Plain, y: Plain, own: Plain, costs: Plain | None
    ) -> Plain:
        return np.asarray(-phi - self.messages(filtered, y, own, costs))

    def mean_field_update(self, phi: Plain, filtered: Plain, y: Plain, own: Plain | None) -> Plain:
        out = np.empty_like(phi)
        kept = None if own is None else single(y)
        core().mean_field_update(phi, filtered, kept, own, out, self.threads)
        return out

    def lmo(
        self, linear: Plain, received: Plain, diagonal: Plain, y: Plain
    ) -> tuple[Plain, float, float]:
        labels = np.empty(y.shape[1], np.int64)
        given = (single(array) for array in (linear, received, diagonal, y))
        gap, objective = core().lmo(*given, labels, self.threads)
        return labels, gap, objective

    def step_to_vertex(self, labels: Plain, y: Plain, step: float) -> Plain:
        out = np.empty(y.shape, np.float32)
        core().step_to_vertex(labels, single(y), step, out, self.threads)
        return out

    # --- labellings -----------------------------------------------------------------------------

    def argmax(self, y: Plain) -> Plain:
        out = np.empty(y.shape[1], np.int64)
        core().argmax(single(y), out, self.threads)
        return out

    def raised_argmax(self, y: Plain, label: int, bias: float) -> Plain:
        row = y[label].copy()
        y[label] += bias
        labels = self.argmax(y)
        y[label] = row
        return labels

    def indicator(self, labels: Plain, count: int) -> Plain:
        return np.asarray(np.arange(count)[:, None] == labels, np.float32)

    def constant(self, label: int, n: int) -> Plain:
        return np.full(n, label, np.int64)

    def moves(self, phi: Plain, received: Plain, labels: Plain) -> Moves[Plain]:
        return moves(phi, single(received), np.arange(len(phi)), None, labels, self.threads)

    def apply_moves(self, labels: Plain, moves: Moves[Plain], most: int) -> Plain:
        movers = np.argsort(-moves.gain, kind="stable")[:most]
        out: Plain = labels.copy()
        out[movers] = moves.labels[movers]
        return out

    def same(self, labels: Plain, others: Plain) -> bool:
        return bool((labels == others).all())

    def compare(self, y: Plain, labels: Plain, others: Plain | None) -> tuple[Doubles, bool]:
        undecided = np.empty(len(y))
        core().undecided(single(y), undecided, self.threads)
        return undecided, others is not None and self.same(labels, others)

    # --- sums -----------------------------------------------------------------------------------

    def inner(self, u: Plain, v: Plain) -> float:
        return float(core().inner(single(u), single(v), self.threads))

    def difference(self, u: Plain, v: Plain) -> tuple[float, float]:
        total, largest = core().difference(single(u), single(v), self.threads)
        return float(total), float(largest)

    def sum_at(self, u: Plain, labels: Plain, weights: Plain | None = None) -> float:
        return float(core().sum_at(single(u), labels, weights, self.threads))

    def at(self, u: Plain, labels: Plain) -> Plain:
        return np.asarray(u[labels, np.arange(len(labels))], np.float64)

    def accumulate(self, total: Plain, y: Plain) -> None:
        core().accumulate(single(y), total, self.threads)

    # --- arrays ---------------------------------------------------------------------------------

    def floats(self, array: Plain) -> Plain:
        return np.asarray(array, np.float32)

    def double(self, array: Plain) -> Plain:
        return np.asarray(array, np.float64)

    def contiguous(self, array: Plain) -> Plain:
        return np.ascontiguousarray(array)

    def copy(self, array: Plain) -> Plain:
        return np.array(array)

    def zeros_like(self, array: Plain, rows: int, n: int) -> Plain:
        return np.zeros((rows, n), array.dtype)

    def to_numpy(self, array: Plain) -> Plain:
        return np.asarray(array)

    def from_numpy(self, array: Plain) -> Plain:
        return array

    def double_from_numpy(self, array: Plain) -> Plain:
        return array


def single(array: Plain) -> FloatArray:
    """Return the array as the core takes it: contiguous, float32."""
    return np.ascontiguousarray(array, np.float32)


def moves(
    phi: Plain,
    received: FloatArray,
    present: Plain,
    others: Plain | None,
    labels: Plain,
    threads: int,
) -> Moves[Plain]:
    """Return the ICM moves where some labels receive messages, (present, n), all others `others`.

    `others` may be None where all labels are present.
    """
    n = len(labels)
    best, gain = np.empty(n, np.int64), np.empty(n, np.float32)
    if others is None:
        others = np.zeros(n, np.float32)
    unary, pairs, movers = core().icm_moves(
        phi, received, present, others, labels, best, gain, threads
    )
    return Moves(best, gain, int(movers), unary + 0.5 * pairs)
