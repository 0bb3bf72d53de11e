"""A napari plugin: scribbles in a labels layer in, a certified labelling out.

``pip install "densecrf[napari]"``, then *Plugins > Scribbles to labels (densecrf)*: draw with two
or more labels in a labels layer over an image, and run. The labelling is a new labels layer, and
napari's status bar shows its certificate. The viewer stays usable meanwhile.
"""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from densecrf.model.kernels import without_alpha
from densecrf.model.presets import PRESETS
from densecrf.model.scribbles import scribble_crf
from densecrf.model.specification import Specification
from densecrf.validation import ArgumentError, as_image

if TYPE_CHECKING:
    import napari

    from densecrf.solvers.result import Result

__all__ = ["scribbles_to_labels", "solve"]

PLACE = ("scale", "translate", "rotate", "shear", "affine")  # of a layer in the viewer's world


def scribbles_to_labels(
    image: "napari.layers.Image",
    scribbles: "napari.layers.Labels",
    preset: Annotated[str, {"choices": list(PRESETS)}] = "default",
    strength: float = 1.0,
    time_limit: float = 30.0,
) -> "napari.qt.threading.FunctionWorker[napari.types.LayerDataTuple]":
    """Start a thread that returns the certified labelling as the data of a labels layer.

    Parameters
    ----------
    image : napari.layers.Image
        The image, or a grey volume; the contrast limits of grey images are black and white.
    scribbles : napari.layers.Labels
        Strokes; 0 means none, as usual in napari.
    preset : str
        One of `densecrf.model.presets.PRESETS`.
    strength : float
        Factor of the pairwise weights.
    time_limit : float
        Maximum number of seconds.
    """
    from napari.qt.threading import thread_worker

    pixels = image.data[0] if image.multiscale else image.data
    image_range = None if image.rgb else tuple(image.contrast_limits)
    strokes = np.array(scribbles.data)  # a copy: one may draw on while the thread runs
    place = {key: getattr(scribbles, key) for key in PLACE}
    name = f"{scribbles.name} (densecrf)"

    def run() -> tuple[npt.NDArray[np.int64], dict[str, Any], str]:
        result, labels = solve(pixels, strokes, preset, strength, time_limit, image_range)
        certificate = _summary(result)
        about = {"name": name, "metadata": {"certificate": certificate}, **place}
        # Features of the label under the cursor are what the status bar shows from then on.
        index = np.unique(labels)
        about["features"] = {"index": index, "densecrf": [certificate] * len(index)}
        return labels, about, "labels"

    return thread_worker(run, connect={"returned": _tell})()


def solve(
    image: Any,
    scribbles: Any,
    preset: str,
    strength: float,
    time_limit: float,
    image_range: tuple[float, float] | None = None,
) -> tuple["Result", npt.NDArray[np.int64]]:
    """Return the result, and its labels in the numbers of the scribbles.

    Labels without strokes are left out of the problem: napari's numbers may be large.
    """
    strokes = np.asarray(scribbles)
    present = np.unique(strokes[strokes != 0])
    if len(present) < 2:
        drawn = f"only label {present[0]} has strokes" if len(present) else "there are no strokes"
        raise ArgumentError("scribbles", ..., f"{drawn}; draw with at least two labels")
    compact = np.where(strokes == 0, -1, np.searchsorted(present, strokes))
    picture = without_alpha(as_image("image", image), strokes.shape)
    asked = Specification(
        model=preset, strength=strength, n_labels=len(present), image_range=image_range
    )
    result = scribble_crf(asked, picture, compact, void=-1).solve("lp", time_limit=time_limit)
    return result, present.astype(np.int64)[result.labels]


def _summary(result: "Result") -> str:
    if result.optimal:
        return "proven optimal"
    if result.gap is None:
        return "no certificate in this time"
    return f"at most {100 * result.gap:.2g} % above the best labelling, proven"


def _tell(layer: tuple[Any, dict[str, Any], str]) -> None:
    """Show a layer's certificate in the status bar of the viewer that is open."""
    import napari

    viewer = napari.current_viewer()
    if viewer is not None:
        viewer.status = f"densecrf: {layer[1]['metadata']['certificate']}"
