"""Benchmarks: one per file, each a function ``run(scale)`` that returns a `Section`."""
