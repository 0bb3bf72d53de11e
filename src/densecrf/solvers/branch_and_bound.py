r"""Branch and bound: the optimum itself, where the linear program leaves a gap.

A node allows some labels at each pixel. Its problem is that of the model with a penalty on all
others, so that the bound of its linear program holds for every labelling of the node. The best
labelling of any node is the incumbent. Labels whose reduced cost lifts a node's bound above the
incumbent's energy are excluded from the node; a node whose bound reaches that energy is closed. The
open node with the least bound is split at the pixel whose marginals are furthest from a vertex: its
likeliest label, or any other. What is proven of the whole is the least bound of all nodes.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.deadline import Limits
from densecrf.problem.certificate import Costs, Share
from densecrf.problem.problem import problem_of
from densecrf.solvers.loop import ROUNDING
from densecrf.solvers.minimisation import minimise, solve
from densecrf.solvers.result import Result, relative_gap
from densecrf.validation import FloatArray, IntArray, check_integer, check_threads

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["branch_and_bound"]

Allowed = npt.NDArray[np.bool_]


def branch_and_bound(
    crf: "DenseCRF",
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
    max_nodes: int = 1000,
    node_iterations: int = 100,
    threads: int | None = None,
) -> Result:
    """Minimise a model's energy to its optimum, or to the smallest gap reached within the limits.

    Parameters
    ----------
    crf : DenseCRF
        The model, Potts or with a `LabelTree`.
    gap : float
        Stop when the answer is proven to be within this fraction of the optimum.
    time_limit : float, optional
        Seconds after which to return the best so far.
    max_nodes : int
        Maximum number of nodes, each of which is solved by ``"lp"``.
    node_iterations : int
        Maximum number of iterations per node.
    threads : int, optional
        Maximum number of threads; by default chosen by the size of the image, up to
        ``DENSECRF_NUM_THREADS`` or all processors. The result does not depend on their number.

    Returns
    -------
    Result
        As of `DenseCRF.solve`; `Result.info` has the number of ``nodes``, and of those that stay
        ``open``. `Result.converged` says whether the requested gap is proven. Images whose linear
        program is far from tight at many pixels do not get there.

    Examples
    --------
    >>> import densecrf
    >>> unary = np.random.default_rng(2).normal(size=(3, 2, 3))
    >>> crf = densecrf.DenseCRF(unary, [densecrf.Spatial(1.0, 2.0)], filter="exact")
    >>> densecrf.branch_and_bound(crf).optimal
    True
    """
    check_integer("max_nodes", max_nodes, at_least=1)
    check_integer("node_iterations", node_iterations, at_least=1)
    limits = Limits.checked(gap, time_limit, None)
    threads = check_threads(threads)
    root = solve(crf, "lp", gap=gap, time_limit=time_limit, threads=threads or None, keep_dual=True)
    if root.converged or root.dual is None or limits.late:
        return root
    search = _Search(crf, root, max(gap, ROUNDING), node_iterations, threads, limits)
    while search.open and search.nodes + 2 <= max_nodes and not search.stopped:
        search.split()
    return search.result()


@dataclass(order=True)
class _Node:
    """Labels that are allowed, by the least energy that a labelling of them can have."""

    bound: float
    number: int
    allowed: Allowed = field(compare=False)
    y: FloatArray = field(compare=False)


class _Search:
    """The open nodes, the least bound of the closed ones, and the incumbent."""

    def __init__(
        self,
        crf: "DenseCRF",
        root: Result,
        gap: float,
        iterations: int,
        threads: int,
        limits: Limits,
    ) -> None:
        self.crf, self.root, self.gap, self.iterations = crf, root, gap, iterations
        self.threads, self.limits = threads, limits
        self.problem = problem_of(crf, threads)
        assert root.lower_bound is not None
        assert root.dual is not None
        self.labels: IntArray = root.labels.reshape(-1)
        self.energy, self.closed = root.energy, float("inf")
        # A labelling with a penalty costs more than the incumbent: it is optimal in no node.
        self.penalty = np.float32(
            2 * (root.energy - root.lower_bound) + abs(root.energy) * 1e-3 + 1
        )
        self.open: list[_Node] = []
        self.nodes, self.stopped = 0, False
        self.costs = Costs(self.problem, root.dual)
        everything = np.ones((crf.n_labels, crf.n), bool)
        self._add(
            root.lower_bound, everything, root.marginals.reshape(crf.n_labels, -1), self.costs
        )

    def split(self) -> None:
        """Split the open node with the least bound at one pixel."""
        node = heapq.heappop(self.open)
        if self._reached(node.bound):
            self.closed = min(self.closed, node.bound)
            return
        for allowed in _children(node):
            if self.stopped:
                self._add(node.bound, allowed, node.y, None)
            else:
                self._solve(node, allowed)

    def _solve(self, parent: _Node, allowed: Allowed) -> None:
        """Bound a node by its linear program, and keep the labelling that it finds."""
        unary = np.where(allowed, self.crf.unary, self.crf.unary + self.penalty)
        crf = self.crf.with_unary(unary.reshape(-1, *self.crf.shape))
        problem = problem_of(crf, self.threads)
        left = self.limits.time_limit
        if left is not None:
            left -= self.limits.seconds()
        limits = Limits(self.gap, left, self.iterations)
        found = minimise(problem, "lp", limits, parent.y)
        self.stopped = found.interrupted or self.limits.late
        bound = parent.bound if found.lower_bound is None else found.lower_bound
        self._keep(found.labels, found.energy, allowed)
        costs = None
        if found.dual is not None and not self.stopped:
            costs = Costs(problem, found.dual)
        self._add(max(parent.bound, bound), allowed, found.y, costs)

    def _keep(self, labels: IntArray, energy: float, allowed: Allowed) -> None:
        """Let a node's labelling be the incumbent, if it is better."""
        if not allowed[labels, np.arange(len(labels))].all():
            energy = self.problem.energy(labels)  # without the penalty
        if energy < self.energy:
            self.energy, self.labels = energy, labels

    def _add(
        self, bound: float, allowed: Allowed, y: FloatArray, costs: Costs[npt.NDArray[Any]] | None
    ) -> None:
        """Open a node, less the labels that no optimal labelling has; close it where it is done."""
        self.nodes += 1
        if self._reached(bound):
            self.closed = min(self.closed, bound)
            return
        if costs is not None:
            rows = costs.possible(self.problem, self._incumbent)
            allowed = allowed & np.stack(list(rows))
        if not allowed.any(0).all():
            return  # every labelling of the node has more than the incumbent's energy
        heapq.heappush(self.open, _Node(bound, self.nodes, allowed, np.asarray(y)))

    @property
    def _incumbent(self) -> Share:
        """The incumbent's energy, the share of all pixels."""
        return Share(self.energy, sizes=self.problem.energy_sizes(self.labels))

    def _reached(self, bound: float) -> bool:
        reached = relative_gap(self.energy, bound)
        return reached is not None and reached <= self.gap

    def result(self) -> Result:
        """Return the incumbent and the least bound of all nodes."""
        bound = min([self.closed, self.energy, *(node.bound for node in self.open)])
        bound = self._incumbent.certified(bound)
        reached, open_nodes = relative_gap(self.energy, bound), len(self.open)
        converged = reached is not None and reached <= self.gap
        message = f"{self.nodes} nodes"
        if not converged:
            message += f", {open_nodes} of them open: the smallest gap reached within the limits"
        possible = self.costs.possible_labels(self.problem, self._incumbent)
        margin = self.costs.margin(self.problem, self._incumbent, self.labels)
        return replace(
            self.root,
            labels=self.labels.reshape(self.crf.shape),
            energy=self.energy,
            lower_bound=bound,
            converged=converged,
            message=message,
            seconds=self.limits.seconds(),
            possible=possible.reshape(self.crf.shape),
            margin=margin.reshape(self.crf.shape),
            info={**self.root.info, "nodes": self.nodes, "open": open_nodes},
            dual=None,
        )


def _children(node: _Node) -> Iterator[Allowed]:
    """Yield the node with the likeliest label of its most uncertain pixel, and without it."""
    y = np.where(node.allowed, node.y, -1.0)
    likeliest = y.argmax(0)
    certainty = np.where(node.allowed.sum(0) > 1, y.max(0), np.inf)
    pixel = int(certainty.argmin())
    with_it, without_it = node.allowed.copy(), node.allowed.copy()
    with_it[:, pixel] = False
    with_it[likeliest[pixel], pixel] = True
    without_it[likeliest[pixel], pixel] = False
    yield with_it
    yield without_it
