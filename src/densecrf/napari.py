"""A napari plugin: scribbles in a labels layer in, a certified labelling out.

``pip install "densecrf[napari]"``, then *Plugins > Scribbles to labels (densecrf)*: draw with two
or more labels in a labels layer over an image, and run. The labelling comes as a new labels layer,
and napari's status bar says how far from optimal it is.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.presets import get_model
from densecrf.scribbles import scribble_unary

if TYPE_CHECKING:
    import napari

    from densecrf.result import Result

__all__ = ["scribbles_to_labels", "solve"]


def scribbles_to_labels(
    image: "napari.layers.Image",
    scribbles: "napari.layers.Labels",
    preset: str = "default",
    strength: float = 1.0,
    time_limit: float = 30.0,
) -> "napari.types.LayerDataTuple":
    """Return the certified labelling as the data of a labels layer.

    Parameters
    ----------
    image : napari.layers.Image
        The image, or a grey volume.
    scribbles : napari.layers.Labels
        Strokes; 0 means none, as everywhere in napari.
    preset : str
        One of `densecrf.presets.PRESETS`.
    strength : float
        What the pairwise weights are multiplied by.
    time_limit : float
        Most seconds.
    """
    result, labels = solve(image.data, scribbles.data, preset, strength, time_limit)
    _tell(certificate := _summary(result))
    name = f"{scribbles.name} (densecrf)"
    return labels, {"name": name, "metadata": {"certificate": certificate}}, "labels"


def solve(
    image: Any, scribbles: Any, preset: str, strength: float, time_limit: float
) -> tuple["Result", npt.NDArray[np.int64]]:
    """Return the result, and its labels in the numbers of the scribbles.

    Labels without strokes are left out of the problem: napari's numbers may be large.
    """
    strokes = np.asarray(scribbles)
    present = np.unique(strokes[strokes != 0])
    index = np.searchsorted(present, strokes)
    compact = np.where(strokes == 0, -1, index)
    unary = scribble_unary(image, compact, max(2, len(present)), void=-1)
    crf = get_model(preset).scaled(strength).crf(unary, np.asarray(image))
    result = crf.solve("lp", time_limit=time_limit)
    return result, present.astype(np.int64)[result.labels]


def _summary(result: "Result") -> str:
    if result.optimal:
        return "densecrf: proven optimal"
    if result.gap is None:
        return "densecrf: no certificate in this time"
    return f"densecrf: at most {100 * result.gap:.2g} % above the best labelling, proven"


def _tell(text: str) -> None:
    """Show a text in the status bar of the viewer that is open."""
    import napari

    viewer = napari.current_viewer()
    if viewer is not None:
        viewer.status = text
