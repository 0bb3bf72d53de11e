"""What must hold of every result, and the optimum of problems that are small enough."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.problem.certificate import Share
from densecrf.problem.problem import problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import densecrf

Array = np.ndarray[Any, Any]

SIMPLEX = 1e-4  # how far from 1 the marginals of a pixel may add up
OTHER_BACK_END = 1e-5  # of the energy's scale: the lattices' weights differ in single precision


class Energies:
    """The energies of a model by the operator of one back end, in double precision.

    Everything is judged by the operator that the result is of, so that bounds need no allowance:
    the core's and torch's lattices differ in the last digits of their stored weights.
    """

    def __init__(self, crf: densecrf.DenseCRF, device: str | None = None) -> None:
        self.crf, self.device = crf, device
        self.problem: Any = problem_of(crf)
        if device is not None:
            from densecrf.torch.problem import checked_device, problem_on

            self.problem = problem_on(crf, checked_device(device))

    def of(self, labels: Array) -> float:
        """Return the energy of a labelling."""
        flat = np.ascontiguousarray(labels.reshape(-1), np.int64)
        return float(self.problem.energy(self.problem.steps.from_numpy(flat)))

    def rounding(self, labels: Array) -> float:
        """Return how far that may be from its exact value: derived in docs/mathematics.md."""
        flat = np.ascontiguousarray(labels.reshape(-1), np.int64)
        sizes = self.problem.energy_sizes(self.problem.steps.from_numpy(flat))
        return Share(0.0, sizes=sizes).energy_rounding

    def scale(self, labels: Array) -> float:
        """Return the sum of the absolute values that the energy is made of."""
        flat = np.ascontiguousarray(labels.reshape(-1), np.int64)
        sizes = self.problem.energy_sizes(self.problem.steps.from_numpy(flat))
        return float(sizes.unary + sizes.pairs)

    def matrix(self) -> Array:
        """Return K, (n, n), without its diagonal."""
        unit = self.problem.steps.double_from_numpy(np.eye(self.crf.n))
        k: Array = np.array(self.problem.steps.to_numpy(self.problem.pairwise.apply_double(unit)))
        np.fill_diagonal(k, 0)
        return k


def findings(
    crf: densecrf.DenseCRF, result: densecrf.Result, energies: Energies | None = None
) -> Iterator[str]:
    """Yield what is wrong with a result."""
    labels, y = result.labels, result.marginals
    if labels.shape != crf.shape or labels.min() < 0 or labels.max() >= crf.n_labels:
        yield f"labels of shape {labels.shape} from {labels.min()} to {labels.max()}"
        return
    off = np.abs(y.sum(0, dtype=np.float64) - 1)
    if not (np.isfinite(y).all() and y.min() >= 0 and off.max() <= SIMPLEX):
        yield f"marginals off the simplex: least {y.min()}, sums off by {off.max()}"
    if not result.message or not str(result):
        yield "no message"
    if np.isfinite(result.energy):
        yield from _energies(result, energies or Energies(crf))
    elif "nothing was scored" not in result.message:
        yield f"energy {result.energy}"
    trace = result.trace
    if {len(column) for column in trace.to_dict().values()} != {len(trace)} or not len(trace):
        yield "trace columns of different lengths"
    if any(later > earlier for earlier, later in zip(trace.energy, trace.energy[1:], strict=False)):
        yield "the best energy in the trace rises"
    constants: list[str] = []
    json.loads(result.to_json(), parse_constant=constants.append)
    if constants:
        yield f"{constants} in JSON"


def _energies(result: densecrf.Result, energies: Energies) -> Iterator[str]:
    again = energies.of(result.labels)
    if again != result.energy:
        yield f"energy {result.energy!r}, asked again {again!r}"
    if energies.device is not None:
        other = energies.crf.energy(result.labels)
        scale = energies.scale(result.labels)
        if not abs(other - result.energy) <= OTHER_BACK_END * scale:
            yield f"energy {result.energy!r}, by the core {other!r} (scale {scale:g})"
    bound = result.lower_bound
    if bound is None:
        return
    if not np.isfinite(bound) or bound > result.energy:
        yield f"bound {bound!r} above the energy {result.energy!r}"
    least = float(energies.problem.constant_energies().min())
    if bound > least:
        yield f"bound {bound!r} above a constant labelling's energy {least!r}"


def same(one: densecrf.Result, other: densecrf.Result) -> str:
    """Say what differs between results that should be equal to the last bit."""
    for name in ("labels", "marginals"):
        if not np.array_equal(getattr(one, name), getattr(other, name)):
            return name
    for name in ("energy", "lower_bound", "iterations", "converged"):
        if getattr(one, name) != getattr(other, name):
            return name
    return "" if one.trace.energy == other.trace.energy else "trace"


def copies(crf: densecrf.DenseCRF, result: densecrf.Result) -> Iterator[str]:
    """Yield what pickling or copying changes."""
    if same(pickle.loads(pickle.dumps(result)), result):
        yield "a pickled result differs"
    if copy.deepcopy(crf).energy(result.labels) != crf.energy(result.labels):
        yield "a copied model differs"


def every_energy(energies: Energies) -> tuple[Array, Array]:
    """Return all labellings (count, n) and their energies from the explicit matrix, in double."""
    crf, k = energies.crf, energies.matrix()
    n, m = crf.n, crf.n_labels
    costs = energies.problem.costs.double
    costs = 1.0 - np.eye(m) if costs is None else costs
    labellings = np.stack(np.unravel_index(np.arange(m**n), (m,) * n), 1)
    sums = crf.unary.astype(np.float64)[labellings, np.arange(n)].sum(1)
    for a in range(n):
        for b in range(a):
            sums += 0.5 * (k[a, b] + k[b, a]) * costs[labellings[:, a], labellings[:, b]]
    return labellings, sums


def against_brute_force(
    energies: Energies, result: densecrf.Result, table: tuple[Array, Array]
) -> Iterator[str]:
    """Yield where a result contradicts the optimum."""
    labellings, sums = table
    best = int(sums.argmin())
    optimum = float(sums[best])
    slack = 2 * energies.rounding(labellings[best])  # the table's sums round, too
    known = np.isfinite(result.energy)
    if known and result.energy < optimum - slack:
        yield f"energy {result.energy!r} below the optimum {optimum!r}"
    bound = result.lower_bound
    if bound is None:
        return
    optima = labellings[sums == optimum]
    used = np.array([len(np.unique(column)) for column in optima.T])
    if result.possible is not None and (used > result.possible.reshape(-1)).any():
        yield "an optimal label is stated as ruled out"
    proven = result.proven.reshape(-1)
    if (optima[:, proven] != result.labels.reshape(-1)[proven]).any():
        yield "a label is stated as proven that an optimum does not have"
    if bound > optimum + slack:
        yield f"bound {bound!r} above the optimum {optimum!r}"
    for x in labellings[np.argsort(sums)[:4]]:
        if bound > energies.of(x):
            yield f"bound {bound!r} above a labelling's energy {energies.of(x)!r}"
