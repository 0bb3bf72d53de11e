"""Benchmarks: one a file, each a function ``run(scale)`` that returns a `Section`."""
