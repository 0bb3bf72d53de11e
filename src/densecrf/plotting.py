"""Pictures of results: the labels over the image, energy and bound against time.

Needs matplotlib (``pip install densecrf[plot]``). Figures are made without pyplot, so nothing
here opens a window, needs a display or leaves global state behind.
"""

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.colors import label_colors
from densecrf.extras import check_installed
from densecrf.model.kernels import Bilateral
from densecrf.solvers.result import Result, Trace, share_proven
from densecrf.validation import ArgumentError, as_image, check_finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

__all__ = ["label_colors", "plot_labels", "plot_result"]

TINT = 0.55  # weight of the labels' colours over an image
KEY_LENGTH = 12  # labels named in the colour key

#: A title, labels (h, w), the image (h, w, 3) and the undecided pixels (h, w).
Panel = tuple[str, npt.NDArray[Any], npt.NDArray[np.float64] | None, npt.NDArray[np.bool_] | None]


def plot_result(result: Result, image: Any = None, path: Any = None) -> "Figure":
    """Draw the labels over the image, and energy and bound against time.

    Volumes show their three middle slices. Where pixels are proven, the undecided ones are hatched.

    Parameters
    ----------
    result : Result
        What `DenseCRF.solve` returned.
    image : array_like, (*spatial) or (*spatial, channels), optional
        The image; by default that of the model's first `Bilateral` kernel, if it has one.
    path : path-like, optional
        Where to save the figure; the suffix determines the format.

    Returns
    -------
    matplotlib.figure.Figure
    """
    colors = label_colors(result.marginals.shape[0])
    panels = _panels(result, image)
    rows = 1 if len(panels) == 1 else 2
    figure = _figure(figsize=(11.2, 4.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 2).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        _draw_labels(axis, panel, colors)
    _draw_key(axes[0], result, colors)
    _draw_trace(axes[-1], result)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def plot_labels(result: Result, ax: "Axes", image: Any = None) -> "Axes":
    """Draw the labels over the image into axes, with a key; of volumes the first axis' slice."""
    colors = label_colors(result.marginals.shape[0])
    _draw_labels(ax, _panels(result, image)[0], colors)
    _draw_key(ax, result, colors)
    return ax


def _figure(**options: Any) -> "Figure":
    """Return a figure that notebooks show once, without a choice of back end."""
    check_installed("plotting", "matplotlib")
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            packed = io.BytesIO()
            self.savefig(packed, format="png", dpi=150)
            return packed.getvalue()

    return ShownFigure(**options)


def _picture(result: Result, image: Any) -> npt.NDArray[np.float64] | None:
    """Return the image as (*spatial, 3) in [0, 1]."""
    if image is None and result.crf is not None:
        kernels = (k for k in result.crf.kernels if isinstance(k, Bilateral))
        image = next((kernel.image for kernel in kernels), None)
    if image is None:
        return None
    array = as_image("image", image)
    check_finite("image", array)
    grid = result.labels.shape
    if array.shape == grid:
        array = array[..., None]
    if array.shape[:-1] != grid or array.shape[-1] == 0:
        raise ArgumentError(
            "image", ..., f"shape {array.shape} for labels of {grid}; give {grid} or {(*grid, 3)}"
        )
    channels = array.shape[-1]
    array = array[..., :3] if channels >= 3 else np.repeat(array[..., :1], 3, -1)
    values = array.astype(np.float64)
    if array.dtype == np.uint8:
        return values / 255
    low, high = values.min(), values.max()
    return np.asarray((values - low) / (high - low if high > low else 1))


def _panels(result: Result, image: Any) -> list[Panel]:
    """Return what to show: the labelling, or slices of it."""
    arrays = (result.labels, _picture(result, image), result.undecided)

    def taken(at: int, axis: int) -> tuple[Any, Any, Any]:
        labels, *others = (None if array is None else array.take(at, axis) for array in arrays)
        return labels, *others  # type: ignore[return-value]

    if result.labels.ndim == 1:
        labels, *others = (None if array is None else array[None] for array in arrays)
        return [("labels", labels, *others)]  # type: ignore[list-item]
    while arrays[0].ndim > 3:
        arrays = taken(len(arrays[0]) // 2, 0)
    if arrays[0].ndim == 2:
        return [("labels", *arrays)]
    middles = [(size // 2, axis) for axis, size in enumerate(arrays[0].shape)]
    return [(f"slice {at} of axis {axis}", *taken(at, axis)) for at, axis in middles]


def _draw_labels(axes: "Axes", panel: Panel, colors: npt.NDArray[np.float64]) -> None:
    title, labels, picture, undecided = panel
    shown = colors[labels]
    if picture is not None:
        shown = TINT * shown + (1 - TINT) * picture
    if undecided is not None:
        stripes = np.indices(labels.shape).sum(0) // 2 % 2
        shown[undecided] = stripes[undecided][:, None]
    axes.imshow(shown, interpolation="nearest", aspect="auto" if len(labels) == 1 else "equal")
    axes.add_collection(_borders(labels))
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])


def _borders(labels: npt.NDArray[Any]) -> "LineCollection":
    """Return the lines between pixels of different labels."""
    from matplotlib.collections import LineCollection

    half_x, half_y = np.array([0.5, 0.0]), np.array([0.0, 0.5])
    beside = np.argwhere(labels[:, 1:] != labels[:, :-1])[:, ::-1] + half_x
    below = np.argwhere(labels[1:] != labels[:-1])[:, ::-1] + half_y
    upright = np.stack([beside - half_y, beside + half_y], 1)
    level = np.stack([below - half_x, below + half_x], 1)
    return LineCollection([*upright, *level], colors="white", linewidths=0.6)


def _draw_key(axes: "Axes", result: Result, colors: npt.NDArray[np.float64]) -> None:
    """Name the labels in use, the largest ones if there are many."""
    from matplotlib.patches import Patch

    labels = result.labels
    counts = np.bincount(labels.ravel(), minlength=len(colors))
    used = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i]]
    named = sorted(used[:KEY_LENGTH])
    handles = [
        Patch(color=colors[i], label=f"{i}: {100 * counts[i] / labels.size:.1f} %") for i in named
    ]
    if len(used) > KEY_LENGTH:
        handles.append(Patch(color="none", label=f"and {len(used) - KEY_LENGTH} more"))
    if result.undecided is not None and result.undecided.any():
        share = f"undecided; {share_proven(result.proven)} are proven"
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="/////", label=share))
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        ncols=min(4, len(handles)),
        fontsize="small",
        frameon=False,
    )


def _draw_trace(axes: "Axes", result: Result) -> None:
    trace = result.trace
    seconds = np.array(trace.seconds)
    energy = np.array(trace.energy)
    bound = np.array([np.nan if b is None else b for b in trace.lower_bound], np.float64)
    axes.plot(seconds, energy, color="C0", drawstyle="steps-post", label="energy, best so far")
    axes.plot(seconds, trace.current_energy, ".", color="C0", alpha=0.4, label="energy, each step")
    if np.isfinite(bound).any():
        axes.plot(seconds, bound, color="C1", drawstyle="steps-post", label="lower bound")
        known = np.isfinite(bound)
        axes.fill_between(
            seconds, bound, energy, where=known, step="post", color="C1", alpha=0.15, lw=0,
            label="gap",
        )  # fmt: skip
    low, high = _limits(trace, bound)
    label, constant = result.best_constant
    if low <= constant <= high:
        axes.axhline(constant, color="0.5", ls=":", lw=1, label=f"all pixels labelled {label}")
    if low > 0 and high > 10 * low:
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_ylim(low, high)
    axes.set_xlabel("seconds")
    axes.set_ylabel("energy")
    proven = "" if result.gap is None else f", within {100 * result.gap:.3g} % of the optimum"
    axes.set_title(f"{result.method}: {result.energy:,.1f}{proven}")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)


def _limits(trace: Trace, bound: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return limits from the final bound to the first energy; early bounds may fall below."""
    high = max(trace.energy)
    low = min(trace.energy)
    final = bound[np.isfinite(bound)]
    if final.size:
        low = min(low, float(final[-1]))
    margin = 0.06 * (high - low) or 0.01 * abs(high) or 1.0
    return (low / 1.1 if 0 < 10 * low < high else low - margin), high + margin
