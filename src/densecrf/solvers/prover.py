"""The best dual point of a run, and proofs of optimality from it while the run goes on."""

from typing import Any

from densecrf.optimality import prove
from densecrf.problem import Problem
from densecrf.rounding import Incumbent
from densecrf.solvers.loop import Step

__all__ = ["Prover"]

KEPT = 1e-3  # gap from which on potentials are kept
CLOSE = 1e-5  # gap from which on proofs are tried
EVERY = 10  # iterations between two proofs, which cost as much as several iterations


class Prover:
    """Keeps the potentials of the best dual point; proves labels where the gap is small."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.potentials: Any = None
        self.bound = -float("inf")
        self._tried = 0

    def consider(self, v: Any, z: Any, cells: float, bound: float, incumbent: Incumbent) -> None:
        """Keep the potentials v + z where their bound is the best so far."""
        close = incumbent.energy - bound <= KEPT * max(1.0, abs(incumbent.energy))
        if bound > self.bound and close:
            self.bound = bound
            nodes = self.problem.nodes(v)
            self.potentials = nodes * cells if z is None else (nodes + z) * cells

    def step(self, y: Any, bound: float, incumbent: Incumbent, iteration: int) -> Step:
        """Return the iteration's step, with a proof where it is time for one."""
        step = Step(
            y,
            bound=bound,
            labels=incumbent.labels,
            energy=incumbent.energy,
            potentials=self.potentials,
        )
        close = incumbent.energy - bound <= CLOSE * max(1.0, abs(incumbent.energy))
        if close and self.potentials is not None and iteration - self._tried >= EVERY:
            self._tried = iteration
            proof = prove(self.problem, incumbent.labels, self.potentials)
            # Beside an energy in single precision, no smaller a gap than in double.
            gap = proof.energy - proof.lower_bound
            step.bound = max(bound, min(proof.lower_bound, incumbent.energy - gap))
            step.possible = proof.possible
        return step
