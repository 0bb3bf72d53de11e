"""The problem that solvers minimise, its bounds and its roundings: see `problem.problem`."""
