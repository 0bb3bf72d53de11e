"""What the examples share: pictures side by side, as small PNGs for light and dark pages."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch
from matplotlib.text import Text
from PIL import Image

from densecrf.plotting import label_colors

COLORS = label_colors(8)
DARK, LIGHT = "#1e2129", "#dcdfe6"  # the dark scheme of the documentation


def tint(labels: np.ndarray, image: np.ndarray | None = None) -> np.ndarray:
    """Return labels (H, W) as colours, over a grey image if there is one; 255 stays white."""
    colors = 255 * COLORS[np.where(labels == 255, 0, labels) % len(COLORS)]
    if image is not None:
        grey = image if image.ndim == 2 else image.mean(2)
        colors = 0.65 * colors + 0.35 * (40 + 0.85 * grey[..., None])
    return np.where((labels == 255)[..., None], 255, colors).astype(np.uint8)


def row(panels: dict[str, np.ndarray], width: float = 2.9, names: tuple[str, ...] = ()) -> Figure:
    """Return a figure of titled pictures side by side, with a key to the labels' names."""
    h, w = next(iter(panels.values())).shape[:2]
    figure = Figure(figsize=(width * len(panels), width * h / w + 0.35), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, picture) in zip(axes, panels.items(), strict=True):
        limits = {} if picture.dtype == np.uint8 else {"vmin": picture.min(), "vmax": picture.max()}
        axis.imshow(picture, cmap="gray" if picture.dtype == np.uint8 else "magma", **limits)
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    if names:
        key = [Patch(color=color, label=name) for color, name in zip(COLORS, names, strict=False)]
        figure.legend(handles=key, loc="outside lower center", ncols=len(key), frameon=False)
    return figure


def darken(figure: Figure) -> None:
    """Give a figure the dark background of the documentation, and light text and axes."""
    figure.set_facecolor(DARK)
    for axes in figure.axes:
        axes.set_facecolor(DARK)
        axes.tick_params(colors=LIGHT)
        for spine in axes.spines.values():
            spine.set_edgecolor(LIGHT)
    for legend in figure.findobj(Legend):
        legend.get_frame().set_facecolor(DARK)
    for text in figure.findobj(Text):
        if max(to_rgb(text.get_color())) < 0.5:
            text.set_color(LIGHT)


def save(figure: Figure, name: str) -> None:
    """Write NAME.png and NAME-dark.png into the folder that the command line names, or out/."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the pictures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder / f"{name}.png", folder / f"{name}-dark.png"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=160)
        Image.open(buffer).convert("RGB").quantize(256).save(path, optimize=True)
        print(f"picture: {path}")
        darken(figure)
