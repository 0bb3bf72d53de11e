"""Labels inside an OME-Zarr image."""

import numpy as np
import pytest

from densecrf.large import refine
from large_scenes import MODEL, crowd

zarr = pytest.importorskip("zarr")
OPTIONS = {"tile": 30, "model": MODEL, "axis": 0, "gap": 5e-3, "channel_axis": 0}
AXES = [{"name": "c", "type": "channel"}] + [
    {"name": name, "type": "space", "unit": "micrometer"} for name in "yx"
]


@pytest.fixture(params=["0.4", "0.5"])
def slide(request, tmp_path):
    image, p = crowd()
    path = tmp_path / "slide.zarr"
    newer = request.param == "0.5"
    group = zarr.open_group(str(path), mode="w", zarr_format=3 if newer else 2)
    scale = [{"type": "scale", "scale": [1.0, 0.5, 0.25]}]
    datasets = [{"path": "full", "coordinateTransformations": scale}]
    known = {"axes": AXES, "datasets": datasets, "version": request.param}
    if newer:
        group.attrs["ome"] = {"version": "0.5", "multiscales": [known]}
    else:
        group.attrs["multiscales"] = [known]
    array = group.create_array("full", shape=(3, *image.shape[:2]), dtype=np.uint8)
    array[:] = np.moveaxis(image, -1, 0)
    np.save(tmp_path / "p.npy", p)
    return path


def metadata(group, newer):
    return group.attrs["ome"] if newer else group.attrs


def test_labels_have_the_image_s_axes_and_scale(slide):
    p = slide.with_name("p.npy")
    expected = refine(slide, p, **OPTIONS).labels
    result = refine(slide, p, out=slide / "labels" / "cells", **OPTIONS)
    np.testing.assert_array_equal(result.labels[:], expected)
    group = zarr.open_group(str(slide), mode="r")
    newer = "ome" in group.attrs
    assert metadata(group["labels"], newer)["labels"] == ["cells"]
    own = metadata(group["labels/cells"], newer)
    assert own["image-label"]["source"] == {"image": "../../"}
    (scales,) = own["multiscales"]
    assert scales["axes"] == AXES[1:]
    assert scales["datasets"][0]["coordinateTransformations"] == [
        {"type": "scale", "scale": [0.5, 0.25]}
    ]
    assert sorted(path.name for path in slide.parent.iterdir()) == ["p.npy", "slide.zarr"]
    again = refine(slide, p, out=slide / "labels" / "cells", **OPTIONS)  # replaces its own
    assert again.energy == result.energy
    refine(slide, p, out=slide / "labels" / "others", **OPTIONS)
    listed = metadata(zarr.open_group(str(slide), mode="r")["labels"], newer)["labels"]
    assert listed == ["cells", "others"]


def test_labels_of_others_are_kept(slide):
    group = zarr.open_group(str(slide), mode="r+").require_group("labels").require_group("theirs")
    group.attrs["note"] = "by hand"
    with pytest.raises(ValueError, match="did not write"):
        refine(slide, slide.with_name("p.npy"), out=slide / "labels" / "theirs", **OPTIONS)


def test_a_folder_that_is_no_image_is_named(slide, tmp_path):
    (tmp_path / "other" / "labels").mkdir(parents=True)
    with pytest.raises(ValueError, match="not in an OME-Zarr image"):
        refine(slide, slide.with_name("p.npy"), out=tmp_path / "other" / "labels" / "x", **OPTIONS)
