"""Images, volumes, point clouds and data sets larger than memory, on one machine or a cluster."""

from densecrf.large.energy import Kernel
from densecrf.large.points import refine_points
from densecrf.large.refinement import refine
from densecrf.large.result import LargeResult
from densecrf.large.store import IncompatibleRunError

__all__ = ["IncompatibleRunError", "Kernel", "LargeResult", "refine", "refine_points"]
