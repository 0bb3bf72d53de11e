"""Motion: the position of each pixel of a clip in the first frame, from the optical flow.

Kernels of such positions follow moving objects. The flow is the displacement (x, y) in pixels of
each pixel to the next frame, as in OpenCV. A pixel q of the next frame comes from p = q - flow(p),
found by fixed-point iteration; its position is that of p.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.large.sources import Source, open_source
from densecrf.validation import ArgumentError

__all__ = ["at_rest", "flow_from", "moved", "open_flow"]

STEPS = 3  # of p = q - flow(p)

Array = npt.NDArray[Any]


def open_flow(flow: Any, grid: Sequence[int]) -> Source:
    """Return the flow of a clip of frames (frames, height, width), or refuse it."""
    source = open_source("flow", flow)
    count, *plane = grid
    wanted = [(each, *plane, 2) for each in (count - 1, count)]
    if source.shape not in wanted:
        raise ArgumentError(
            "flow",
            ...,
            f"shape {source.shape} for {count} frames of {tuple(plane)} pixels; give the "
            f"displacements (x, y) of each frame to the next, {wanted[0]} or {wanted[1]}",
        )
    if source.dtype.kind not in "fiu":
        raise ArgumentError("flow", ..., f"values of type {source.dtype}; numbers are needed")
    return source


def flow_from(source: Source, t: int) -> Array:
    """Read the flow from a frame to the next, (2, height, width), y first."""
    box = (slice(t, t + 1), *(slice(0, side) for side in source.shape[1:]))
    flow = np.moveaxis(source.read("flow", box)[0, ..., ::-1], -1, 0).astype(np.float64)
    longest, largest = max(flow.shape[1:]), float(np.abs(flow).max())
    if not largest <= longest:
        raise ArgumentError(
            "flow",
            ...,
            f"displacements up to {largest:g} from frame {t}, whose longest side is {longest}; "
            "give finite numbers of pixels, 0 where unknown",
        )
    return flow


def at_rest(plane: Sequence[int]) -> Array:
    """Return the positions (2, height, width) of the first frame, y first."""
    return np.array(np.meshgrid(*map(np.arange, plane), indexing="ij"), np.float64)


def moved(places: Array, flow: Array) -> Array:
    """Return the positions of the next frame, for those of a frame and its flow, y first.

    Positions are extrapolated beyond the borders.

    Examples
    --------
    An object that moves to the right by one pixel keeps its positions:

    >>> flow = np.zeros((2, 1, 4))
    >>> flow[1] = 1
    >>> moved(at_rest((1, 4)), flow)[1]
    array([[-1.,  0.,  1.,  2.]])
    """
    rest = at_rest(flow.shape[1:])
    before = rest
    for _ in range(STEPS):
        before = rest - _sampled(flow, before)
    return before + _sampled(places - rest, before)


def _sampled(values: Array, at: Array) -> Array:
    """Return values (2, height, width) at some points, bilinearly; outside, those of the border."""
    limits = np.array(values.shape[1:]).reshape(2, 1, 1) - 1
    point = np.clip(at, 0, limits)
    low = np.floor(point).astype(np.intp)
    (y, x), (down, right) = low, np.minimum(low + 1, limits)
    share_y, share_x = point - low
    above = values[:, y, x] + share_x * (values[:, y, right] - values[:, y, x])
    below = values[:, down, x] + share_x * (values[:, down, right] - values[:, down, x])
    return np.asarray(above + share_y * (below - above))
