"""What must hold of every result, and the optimum of problems that are small enough."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import densecrf

Array = np.ndarray[Any, Any]

SIMPLEX = 1e-4  # how far from 1 the marginals of a pixel may add up
REPEATED = 1e-9  # of the energy's scale: the same labelling's energy, asked again
SINGLE = 1e-6  # of the energy's scale: what single precision filters may lose
OTHER_BACK_END = 1e-5


def scale_of(crf: densecrf.DenseCRF, labels: Array) -> float:
    """Return the size of the numbers that an energy is the sum of."""
    own = np.take_along_axis(crf.unary, labels.reshape(1, -1), 0).astype(np.float64)
    costs = 1.0 if crf.compatibility is None else float(np.abs(crf.compatibility).max())
    return 1e-30 + float(np.abs(own).sum()) + costs * float(crf.pairwise.mass.sum(dtype=np.float64))


def findings(
    crf: densecrf.DenseCRF, result: densecrf.Result, *, other_back_end: bool = False
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
        yield from _energies(crf, result, other_back_end)
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


def _energies(crf: densecrf.DenseCRF, result: densecrf.Result, other: bool) -> Iterator[str]:
    scale = scale_of(crf, result.labels)
    again = crf.energy(result.labels)
    if not abs(again - result.energy) <= (OTHER_BACK_END if other else REPEATED) * scale:
        yield f"energy {result.energy!r}, asked again {again!r} (scale {scale:g})"
    bound = result.lower_bound
    if bound is None:
        return
    slack = OTHER_BACK_END * scale if other else 0.0
    if not np.isfinite(bound) or bound > result.energy + slack:
        yield f"bound {bound!r} above the energy {result.energy!r}"
    least = float(crf.constant_energies().min())
    if bound > least + slack:
        yield f"bound {bound!r} above a constant labelling's energy {least!r}"
    if bound > again + slack:
        yield f"bound {bound!r} above the energy asked again {again!r}"


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


def every_energy(crf: densecrf.DenseCRF) -> tuple[Array, Array]:
    """Return all labellings (count, n) and their energies from the explicit matrix, in double."""
    n, m = crf.n, crf.n_labels
    k = crf.pairwise.apply(np.eye(n, dtype=np.float32)).astype(np.float64)
    k = (k + k.T) / 2
    np.fill_diagonal(k, 0)
    costs = 1.0 - np.eye(m) if crf.compatibility is None else crf.compatibility.astype(np.float64)
    labellings = np.stack(np.unravel_index(np.arange(m**n), (m,) * n), 1)
    energies = crf.unary.astype(np.float64)[labellings, np.arange(n)].sum(1)
    for a in range(n):
        for b in range(a):
            energies += k[a, b] * costs[labellings[:, a], labellings[:, b]]
    return labellings, energies


def against_brute_force(
    crf: densecrf.DenseCRF, result: densecrf.Result, table: tuple[Array, Array]
) -> Iterator[str]:
    """Yield where a result contradicts the optimum."""
    labellings, energies = table
    best = int(energies.argmin())
    optimum = float(energies[best])
    slack = SINGLE * scale_of(crf, labellings[best])
    known = np.isfinite(result.energy)
    if known and result.energy < optimum - slack:
        yield f"energy {result.energy!r} below the optimum {optimum!r}"
    bound = result.lower_bound
    if bound is None:
        return
    if bound > optimum + slack:
        yield f"bound {bound!r} above the optimum {optimum!r}"
    asked = crf.energy(labellings[best])
    if bound > asked:
        yield f"bound {bound!r} above the optimal labelling's energy {asked!r}"
    for x in labellings[np.argsort(energies)[1:4]]:
        if bound > crf.energy(x):
            yield f"bound {bound!r} above a labelling's energy {crf.energy(x)!r}"
