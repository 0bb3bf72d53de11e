"""Labels inside an OME-Zarr image: ``image.zarr/labels/NAME``, with metadata of NGFF 0.4 and 0.5.

The name appears, and is listed by the image, when the labels are whole.
"""

from pathlib import Path
from typing import Any

import numpy as np

from densecrf.large.sources import needs
from densecrf.large.tiles import Tiling
from densecrf.validation import ArgumentError

__all__ = ["ARRAY", "check_image", "image_of", "list_label", "write_labels"]

ARRAY = "0"  # the full resolution, the only one


def image_of(path: Path) -> Path | None:
    """Return the image that a name of labels belongs to, where it has such a name."""
    found = path.suffix == "" and path.parent.name == "labels" and path.parent.parent.is_dir()
    return path.parent.parent if found else None


def check_image(image: Path) -> None:
    """Refuse a folder that is no OME-Zarr image."""
    try:
        group = needs("zarr", str(image)).open_group(str(image), mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError("out", str(image / "labels"), "lies in no OME-Zarr image") from error
    _multiscales(image, group)


def write_labels(
    folder: Path, image: Path, name: str, tiling: Tiling, dtype: Any, ours: str
) -> Any:
    """Make the group of a labelling in a folder; return its array, to be filled.

    Parameters
    ----------
    folder : Path
        Where, for now.
    image : Path
        The image, whose axes and scale the labels have.
    name : str
        Of the labels.
    tiling : Tiling
        Its blocks are the chunks.
    dtype : dtype
        Of the labels.
    ours : str
        An attribute that tells that this was written here.
    """
    zarr = needs("zarr", str(image))
    of_image = zarr.open_group(str(image), mode="r")
    version, multiscales = _multiscales(image, of_image)
    axes, scale = _space(multiscales, len(tiling.shape))
    transformations = [{"type": "scale", "scale": scale}]
    own = {
        "name": name,
        "axes": axes,
        "datasets": [{"path": ARRAY, "coordinateTransformations": transformations}],
    }
    label = {"source": {"image": "../../"}}
    group = zarr.open_group(str(folder), mode="w", zarr_format=of_image.metadata.zarr_format)
    if version == "0.4":
        own["version"] = label["version"] = version  # type: ignore[assignment]
        group.attrs.update({"multiscales": [own], "image-label": label, ours: True})
    else:
        known = {"version": version, "multiscales": [own], "image-label": label}
        group.attrs.update({"ome": known, ours: True})
    return group.create_array(
        ARRAY,
        shape=tiling.shape,
        dtype=dtype,
        chunks=tiling.block,
        fill_value=np.iinfo(dtype).max,
    )


def list_label(image: Path, name: str) -> None:
    """Add a name to the image's list of labels."""
    zarr = needs("zarr", str(image))
    of_image = zarr.open_group(str(image), mode="r+")
    version, _ = _multiscales(image, of_image)
    labels = of_image.require_group("labels")
    ome = dict(labels.attrs.get("ome", {}))
    known = labels.attrs.get("labels", []) if version == "0.4" else ome.get("labels", [])
    listed = sorted({*known, name})
    if version == "0.4":
        labels.attrs["labels"] = listed
    else:
        labels.attrs["ome"] = {**ome, "version": version, "labels": listed}


def _multiscales(image: Path, group: Any) -> tuple[str, dict[str, Any]]:
    """Return the version of the metadata, and those of the first image."""
    newer = group.attrs.get("ome")
    found = newer.get("multiscales") if newer else group.attrs.get("multiscales")
    if not found:
        raise ArgumentError("out", str(image / "labels"), "lies in no OME-Zarr image")
    return (newer["version"] if newer else "0.4"), found[0]


def _space(multiscales: dict[str, Any], count: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the axes of space and their scale, of the full resolution."""
    axes = multiscales.get("axes", [])
    space = [i for i, axis in enumerate(axes) if axis.get("type") == "space"]
    if len(space) != count:
        return [{"name": name, "type": "space"} for name in "zyx"[-count:]], [1.0] * count
    scale = [1.0] * len(axes)
    for each in multiscales["datasets"][0].get("coordinateTransformations", []):
        scale = each.get("scale", scale)
    return [axes[i] for i in space], [float(scale[i]) for i in space]
