"""The labels of least unary energy."""

from collections.abc import Iterator
from typing import Any

from densecrf.problem_base import ProblemBase
from densecrf.solvers.loop import Step

__all__ = ["unary"]


def unary(problem: ProblemBase, y: Any) -> Iterator[Step]:
    r"""Return :math:`\arg\min_i \phi_a(i)` for every pixel."""
    yield Step(y, labels=problem.argmax(-problem.unary))
