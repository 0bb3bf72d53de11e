"""Images, volumes and data sets larger than memory, on one machine or a Dask cluster."""

from densecrf.large.refinement import refine
from densecrf.large.result import LargeResult
from densecrf.large.store import IncompatibleRunError

__all__ = ["IncompatibleRunError", "LargeResult", "refine"]
