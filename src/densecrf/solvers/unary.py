"""The labels of least unary energy."""

from collections.abc import Iterator

from densecrf.backend import Array
from densecrf.problem.problem import Problem
from densecrf.solvers.loop import Step

__all__ = ["unary"]


def unary(problem: Problem[Array], y: Array) -> Iterator[Step]:
    r"""Return :math:`\arg\min_i \phi_a(i)` for every pixel."""
    yield Step(y, labels=problem.steps.argmax(-problem.unary))
