"""Remove islands and holes below a size, and report the energy that this costs."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from densecrf.model.unaries import FORBIDDEN
from densecrf.problem.problem import problem_of
from densecrf.solvers.result import Result
from densecrf.validation import ArgumentError, IntArray, check_integer, mention

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["regions", "relabelled", "remove_islands", "without_islands"]


def remove_islands(crf: "DenseCRF", labels: IntArray, min_area: int) -> tuple[IntArray, float]:
    r"""Return the labels without regions of fewer than `min_area` pixels, and the energy's change.

    A region is a set of pixels of one label that are connected by sides. A small one gets the label
    of a larger region that it touches: the one whose label costs the region's pixels least,
    :math:`\sum_{a \in S} (\phi_{ai} + \sum_b K_{ab}\, \mu(i, x_b))`. Regions with a pixel to which
    every such label is forbidden, as strokes forbid it, stay.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    labels : ndarray of int, (*spatial)
        A labelling.
    min_area : int
        Pixels of the smallest region that stays; 0 and 1 change nothing.

    Returns
    -------
    labels : ndarray of int, (*spatial)
        The labelling without islands.
    change : float
        Its energy less that of `labels`: negative where the labelling was not optimal.

    Examples
    --------
    >>> import densecrf
    >>> unary = np.array([[0.0, 0.0, 0.3, 0.0], [1.0, 1.0, 0.0, 1.0]])
    >>> labels, change = remove_islands(densecrf.DenseCRF(unary), np.array([0, 0, 1, 0]), 2)
    >>> labels.tolist(), round(change, 6)
    ([0, 0, 0, 0], 0.3)
    """
    least = check_integer("min_area", min_area, at_least=0)
    flat = crf.check_labels(labels)
    given, grid = flat.reshape(crf.shape), crf.shape
    out = given.copy()
    if least <= 1:
        return out, 0.0
    stay: npt.NDArray[np.bool_] = np.zeros(flat.size, bool)
    while True:
        region, sizes = regions(out)
        index = region.reshape(-1)
        large = sizes >= min(least, sizes.max())  # where all are small, the largest stay
        large |= np.bincount(index, stay, len(sizes)) > 0
        pairs = _neighbours(region)
        pairs = pairs[~large[pairs[:, 0]] & large[pairs[:, 1]]]
        if not len(pairs):
            break
        problem = problem_of(crf)
        label_of = np.zeros(len(sizes), np.int64)
        label_of[index] = out.reshape(-1)
        some = np.flatnonzero(~large[index])
        messages = problem.messages(problem.indicator(out.reshape(-1)))[:, some]
        unary = crf.unary.reshape(crf.n_labels, -1)[:, some]
        costs = np.stack(
            [np.bincount(index[some], each, len(sizes)) for each in unary + messages], 1
        )
        own = unary[out.reshape(-1)[some], np.arange(some.size)]
        ruled_out = unary - own >= FORBIDDEN / 2
        for label in range(crf.n_labels):
            costs[np.bincount(index[some], ruled_out[label], len(sizes)) > 0, label] = np.inf
        price = costs[pairs[:, 0], label_of[pairs[:, 1]]]
        order = np.lexsort((label_of[pairs[:, 1]], price, pairs[:, 0]))
        island, first = np.unique(pairs[order, 0], return_index=True)
        taker, price = label_of[pairs[order[first], 1]], price[order[first]]
        new = label_of.copy()
        new[island[np.isfinite(price)]] = taker[np.isfinite(price)]
        stuck = np.zeros(len(sizes), bool)
        stuck[island[~np.isfinite(price)]] = True
        stay |= stuck[index]
        out = new[region].reshape(grid)
    changed = not np.array_equal(out, given)
    return out, crf.energy(out) - crf.energy(given) if changed else 0.0


def without_islands(result: Result, min_area: int) -> Result:
    """Return a result without small islands, and with the certificate of the labels it then has.

    The bound stays as it is, the energy grows by what the islands cost; ``info["islands"]`` has
    that number. No pixel that changes is proven.

    Examples
    --------
    >>> import densecrf
    >>> crf = densecrf.DenseCRF(np.array([[0.0, 0.0, 0.3, 0.0], [1.0, 1.0, 0.0, 1.0]]))
    >>> result = without_islands(crf.solve("lp"), 2)
    >>> result.labels.tolist(), round(result.energy, 6), result.proven.tolist()
    ([0, 0, 0, 0], 0.3, [True, True, False, True])
    """
    if result.crf is None:
        remedy = f"has no model (loaded, or from a cluster); {mention('min_area')} needs it"
        raise ArgumentError("result", ..., remedy)
    labels, change = remove_islands(result.crf, result.labels, min_area)
    if np.array_equal(labels, result.labels):
        return result
    other = relabelled(result, labels, result.energy + change)
    return replace(other, info={**result.info, "islands": change})


def relabelled(result: Result, labels: IntArray, energy: float) -> Result:
    """Return a result with other labels, of a known energy, under the bound that was proven.

    Margins fall by what the energy grows. Where a label is another than the one that they were
    proven for, nothing is proven.
    """
    changed, margin, possible = labels != result.labels, result.margin, result.possible
    if margin is not None and result.lower_bound is not None:
        unproven = np.float32(min(0.0, result.lower_bound - energy))
        more = np.float32(max(0.0, energy - result.energy))
        margin = np.where(changed, unproven, margin - more)
    if possible is not None:
        possible = np.where(changed, np.maximum(possible, 2), possible)
    return replace(result, labels=labels, energy=energy, margin=margin, possible=possible)


def regions(labels: IntArray) -> tuple[IntArray, IntArray]:
    """Return the number of each pixel's region, connected by sides, and the regions' sizes.

    Examples
    --------
    >>> regions(np.array([[0, 0, 1], [1, 0, 0]]))
    (array([[0, 0, 1],
           [2, 0, 0]]), array([4, 1, 1]))
    """
    width = labels.shape[-1]
    lines = labels.reshape(-1, width)
    begins = np.ones(lines.shape, bool)
    begins[:, 1:] = lines[:, 1:] != lines[:, :-1]
    run = (np.cumsum(begins.ravel()) - 1).reshape(labels.shape)  # runs of a row are one node each
    parent = np.arange(int(run.flat[-1]) + 1)
    edges = [
        np.stack([run[here][same], run[there][same]])
        for here, there in _sides(labels.ndim, labels.ndim - 1)
        for same in [labels[here] == labels[there]]
    ]
    first, second = np.unique(np.concatenate(edges, 1), axis=1) if edges else np.zeros((2, 0), int)
    while True:  # the least number among those that touch spreads, along shortened paths
        low = np.minimum(parent[first], parent[second])
        before = parent.copy()
        np.minimum.at(parent, before[first], low)
        np.minimum.at(parent, before[second], low)
        parent = parent[parent]
        if np.array_equal(parent, before):
            break
    roots, number = np.unique(parent, return_inverse=True)
    region = number[run]
    return region, np.bincount(region.ravel(), minlength=len(roots))


def _sides(axes: int, count: int) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Return where pixels and their next neighbours are, along the first axes of an array."""
    every = [slice(None)] * axes
    out = []
    for axis in range(count):
        here, there = every.copy(), every.copy()
        here[axis], there[axis] = slice(None, -1), slice(1, None)
        out.append((tuple(here), tuple(there)))
    return out


def _neighbours(region: IntArray) -> IntArray:
    """Return the pairs of regions that touch, (pairs, 2), in both orders."""
    found = [np.zeros((0, 2), np.int64)]
    for here, there in _sides(region.ndim, region.ndim):
        both = np.stack([region[here].ravel(), region[there].ravel()], 1)
        both = np.unique(both[both[:, 0] != both[:, 1]], axis=0)
        found += [both, both[:, ::-1]]
    return np.unique(np.concatenate(found), axis=0)
