"""Nothing of the user's is replaced or removed: outputs and working folders."""

import os

import numpy as np
import pytest

from densecrf import ArgumentError
from densecrf.large import refine

zarr = pytest.importorskip("zarr")

IMAGE = np.repeat(np.arange(12, dtype=np.uint8)[None, :, None] * 20, 8, 0).repeat(3, 2)
PROBS = np.stack([np.linspace(0.9, 0.1, 12), np.linspace(0.1, 0.9, 12)], -1)[None].repeat(8, 0)
SMALL = {"tile": 8, "sigma_xy": 2, "bilateral_weight": 2}


def run(image=IMAGE, probs=PROBS, **options):
    return refine(image, probs, **SMALL, **options)


@pytest.fixture
def stored(tmp_path):
    """An image on disk, by several names, and scores inside a Zarr group."""
    np.save(tmp_path / "image.npy", IMAGE)
    os.link(tmp_path / "image.npy", tmp_path / "hard.npy")
    (tmp_path / "soft.npy").symlink_to(tmp_path / "image.npy")
    group = zarr.open_group(str(tmp_path / "data.zarr"), mode="w")
    group.create_array("probs", data=PROBS)
    return tmp_path


@pytest.mark.parametrize("name", ["image.npy", "hard.npy", "soft.npy", "IMAGE.npy"])
@pytest.mark.parametrize("as_array", [False, True])
def test_an_input_by_any_name_is_kept(stored, name, as_array):
    path = stored / "image.npy"
    image = np.load(path, mmap_mode="r") if as_array else path
    with pytest.raises(ArgumentError, match="out"):
        run(image, out=stored / name)
    np.testing.assert_array_equal(np.load(path), IMAGE)


@pytest.mark.parametrize("name", ["data.zarr", "data.zarr/probs/labels.zarr"])
@pytest.mark.parametrize("as_array", [False, True])
def test_a_store_that_holds_an_input_is_kept(stored, name, as_array):
    probs = stored / "data.zarr" / "probs"
    given = zarr.open_array(str(probs), mode="r") if as_array else str(probs)
    with pytest.raises(ArgumentError, match="out"):
        run(probs=given, out=stored / name)
    np.testing.assert_array_equal(zarr.open_array(str(probs), mode="r")[:], PROBS)


def test_only_folders_of_labels_are_replaced(stored):
    with pytest.raises(ArgumentError, match="did not write"):
        run(out=stored / "data.zarr")
    for _ in range(2):  # its own may be
        run(out=stored / "labels.zarr")
    assert zarr.open_array(str(stored / "labels.zarr"), mode="r").shape == (8, 12)


def test_a_working_folder_with_other_files_is_kept(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="scratch"):
        run(scratch=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    run(scratch=tmp_path / "new")
    assert not (tmp_path / "new").exists()
