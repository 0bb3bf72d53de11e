"""The problem that solvers minimise; see `densecrf.problem.problem`."""

from densecrf.problem.problem import Calls, Problem, problem_of

__all__ = ["Calls", "Problem", "problem_of"]
