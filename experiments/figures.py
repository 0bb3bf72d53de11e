"""Shared by all figures of the experiments: matplotlib without a display, atomic files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from densecrf.io.atomic import atomic_writer

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

__all__ = ["COLORS", "new_figure", "save_figure"]

#: One colour per method, the same in every figure (Okabe and Ito's, safe for colour-blind readers).
COLORS: dict[str, str] = {
    "unary": "#999999",
    "mf5": "#56b4e9",
    "mf": "#0072b2",
    "efw": "#5d4fb3",
    "qp": "#f0e442",
    "qp-cccp": "#b8a800",
    "dc-neg": "#e69f00",
    "sg-lp": "#cc79a7",
    "cg-lp": "#8e4b75",
    "prox-lp": "#7fd1ae",
    "prox-lp-l": "#35b58a",
    "prox-lp-acc": "#009e73",
    "lp": "#d55e00",
}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'densecrf[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(path: str | os.PathLike[str], figure: Any, dpi: int = 110) -> None:
    """Write a figure as PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    with atomic_writer(path) as file:
        file.write(buffer.getvalue())
