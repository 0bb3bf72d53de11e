r"""Projection onto the probability simplex, the feasible set of one pixel (the paper's set M)."""

from typing import Any

import numpy as np

from densecrf.native import core
from densecrf.validation import FloatArray

__all__ = ["compressed", "simplex"]


def simplex(z: FloatArray, *, threads: int = 0) -> FloatArray:
    r"""Return :math:`\arg\min_{y_a \in \Delta} \lVert y_a - z_a \rVert` for every column of `z`.

    The projection is :math:`\max(z_a - \tau_a, 0)`, with :math:`\tau_a` such that it adds up to 1;
    Michelot's active sets find it exactly.

    Parameters
    ----------
    z : ndarray, (labels, n), float32
        One column per pixel.
    threads : int
        0 for all.

    Examples
    --------
    >>> simplex(np.array([[0.9, 0.2], [0.5, 0.2]], np.float32)).round(2)
    array([[0.7, 0.5],
           [0.3, 0.5]], dtype=float32)
    """
    z = np.ascontiguousarray(z, np.float32)
    out = np.empty_like(z)
    core().project_simplex(z, out, threads)
    return out


def compressed(xp: Any, u: Any, top: Any, span: float, edge: float) -> Any:
    """Return potentials from 0 to `top` (rows, 1) compressed into `span`.

    Monotone; two ends of width `edge` are kept. `xp` is numpy or torch.
    """
    if bool((top <= span).all()):  # as in most iterations: nothing to compress
        return u
    slope = (span - 2 * edge) / xp.clip(top - 2 * edge, 1e-6, None)
    middle = edge + (u - edge) * slope
    folded = xp.where(u >= top - edge, u - (top - span), middle)
    return xp.where((top <= span) | (u <= edge), u, folded)
