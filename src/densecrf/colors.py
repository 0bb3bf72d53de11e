"""Colours of labels, for every picture."""

import colorsys

import numpy as np
import numpy.typing as npt

__all__ = ["label_colors"]

GOLDEN = 0.618033988749895
SAFE_COLORS = ("0072b2", "e69f00", "009e73", "cc79a7", "56b4e9", "d55e00", "f0e442")


def label_colors(count: int) -> npt.NDArray[np.float64]:
    """Return `count` distinct colours, (count, 3) in [0, 1].

    The first seven are those of Okabe and Ito, which colour-blind people can distinguish; the hues
    of the others differ by a golden section of the circle, so that neighbours differ.

    Examples
    --------
    >>> label_colors(2).round(1)
    array([[0. , 0.4, 0.7],
           [0.9, 0.6, 0. ]])
    """
    tones = ((0.75, 0.91), (0.75, 0.70), (0.45, 0.95), (0.90, 0.55))  # saturation and value
    colors = [tuple(byte / 255 for byte in bytes.fromhex(color)) for color in SAFE_COLORS[:count]]
    others = [colorsys.hsv_to_rgb(i * GOLDEN % 1, *tones[i % 4]) for i in range(count)]
    return np.array([*colors, *others[len(colors) :]])
