r"""A linear program on the labels that matter (the paper's Section 5.1, the subscript ℓ).

A label whose score is insignificant at every pixel is removed; where all scores of a label are 0,
so is its part of the ordered filter's output, and certificates hold for all labels nevertheless.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from densecrf.problem import Problem

__all__ = ["KeptLabels"]


@dataclass(frozen=True)
class KeptLabels:
    """The problem on some of the labels; its arrays are (kept, n).

    Attributes
    ----------
    problem : Problem
        The problem on all labels.
    kept : list of int
        The labels that stay, in order.
    """

    problem: Problem
    kept: list[int]

    @classmethod
    def above(cls, problem: Problem, y: Any, threshold: float) -> "KeptLabels":
        """Keep the labels that reach `threshold`, or are the best label, at some pixel."""
        reached = problem.to_numpy((y >= threshold).any(1))
        best = np.unique(problem.to_numpy(problem.argmax(y)))
        return cls(problem, sorted({*np.flatnonzero(reached).tolist(), *best.tolist()}))

    def restrict(self, values: Any) -> Any:
        """Return the kept labels' rows."""
        return values[self.kept]

    def extend(self, rows: Any) -> Any:
        """Return the kept labels' rows among zeros for the others."""
        values = 0 * self.problem.unary
        values[self.kept] = rows
        return values

    def vertex(self, best: Any) -> Any:
        """Return 1 for each pixel's label, where `best` counts among the kept labels."""
        return self.problem.indicator(best)[: len(self.kept)]

    def dual_point(self, y: Any, levels: int, order: str) -> tuple[Any, float]:
        """Return the kept rows of the dual point at `y`, and its bound for all labels."""
        if self.problem.potts:
            r = self.problem.dual_point(y, levels, order)
            return r, self.problem.lower_bound(self.extend(r))
        r = self.problem.dual_point(self.extend(y), levels, order)
        return self.restrict(r), self.problem.lower_bound(r)

    def round(self, y: Any) -> tuple[Any, float]:
        """Return the labelling by argmax and its energy."""
        labels = np.asarray(self.kept)[self.problem.to_numpy(self.problem.argmax(y))]
        return labels, self.problem.energy(labels)

    def line_search(self, trials: Iterable[Any]) -> tuple[Any, Any, float]:
        """Return the trial of the lowest energy after rounding, its labelling and that energy.

        Among equals the first wins.
        """
        scored = ((y, *self.round(y)) for y in trials)
        return min(scored, key=lambda trial: trial[2])
