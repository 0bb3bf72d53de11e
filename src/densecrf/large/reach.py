r"""How far a pixel's sums reach: the margin of source pixels that a tile needs.

The lattice filter takes a pixel's value to the corners of its simplex, moves it by at most one step
along each of the d + 1 axes, and reads it at the corners of other simplices. Feature i is, up to
the orthogonal map into the lattice's hyperplane, a linear function :math:`c_i` of lattice
coordinates with :math:`\lVert c_i \rVert_1 = 2 \sqrt{i / (i + 1)} / (\sqrt{2/3}\,(d + 1))`, i
counted from 1. One step along axis j changes it by :math:`(d + 1) c_{ij}`, so all blurs together
by at most :math:`(d + 1) \lVert c_i \rVert_1`; a corner of a simplex is no farther from a point in
it than half of that, and there are two simplices. The whole is

.. math:: R_i = 2 (d + 1) \lVert c_i \rVert_1 = 4 \sqrt{3/2} \sqrt{i / (i + 1)}

standard deviations, whatever the dimension: 3.5 along the first feature (x), 4 along the second
(y), 4.3 along the third. Which vertices exist between two pixels matters as well, and is decided by
pixels that touch these vertices, which lie within the same distance.
"""

import math
from collections.abc import Sequence

__all__ = ["lattice_reach"]

SLACK = 1e-6  # standard deviations, against rounding


def lattice_reach(sigmas: Sequence[float]) -> tuple[int, ...]:
    """Return the margin in pixels along each axis, for standard deviations of positions.

    Positions are the first features, the last axis (x) first, as in `densecrf.model.kernels`.

    Examples
    --------
    >>> lattice_reach((10.0, 10.0))
    (41, 35)
    """
    axes = len(sigmas)
    return tuple(
        math.ceil((4 * math.sqrt(1.5 * i / (i + 1)) + SLACK) * sigmas[axis])
        for axis, i in enumerate(range(axes, 0, -1))
    )
