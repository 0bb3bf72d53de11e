"""Chunks that a store lacks or that cannot be read: an error that names them, or a fill value."""

import numpy as np
import pytest

from densecrf.large import Kernel, refine, refine_points
from large_scenes import MODEL, crowd

OPTIONS = {"tile": 30, "model": MODEL, "method": "mf5"}  # what is read matters here
CHUNK = (22, 28)


@pytest.fixture(scope="module")
def scene():
    image, p = crowd()
    return image, p, refine(image, p, axis=0, **OPTIONS).labels


def write(path, values, chunks, **options):
    zarr = pytest.importorskip("zarr")
    array = zarr.open_array(
        str(path), mode="w", shape=values.shape, chunks=chunks, dtype=values.dtype, **options
    )
    array[:] = values
    return path


def remove(path, *names):
    """Remove a chunk's file, whatever the format calls it."""
    found = [path / name for name in names if (path / name).exists()]
    assert len(found) == 1
    found[0].unlink()


V2, V3 = "0.1.1", "c/0/1/1"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["path", "zarr", "dask", "xarray", "xarray of dask"])
def test_scores_that_lack_a_chunk(tmp_path, scene, version, kind):
    image, p, expected = scene
    zarr = pytest.importorskip("zarr")
    if int(zarr.__version__.split(".")[0]) < version:
        pytest.skip("this Zarr writes format 2 alone")
    path = tmp_path / "p.zarr"
    given = opened(write(path, p, (3, *CHUNK), zarr_format=version), p, kind, version)
    np.testing.assert_array_equal(refine(image, given, axis=0, **OPTIONS).labels, expected)
    remove(inner(path, kind), V2, V3)
    with pytest.raises(ValueError, match=r"chunk (0\.1\.1|c/0/1/1) is missing.*missing_chunks"):
        refine(image, given, axis=0, kind="logits", **OPTIONS)
    if kind.startswith("xarray"):
        with pytest.raises(ValueError, match="is missing"):
            refine(image, given.variable, axis=0, kind="logits", **OPTIONS)
    else:  # xarray's fill value is NaN
        refine(image, given, axis=0, kind="logits", missing_chunks="fill", **OPTIONS)


def test_scores_that_lack_a_shard(tmp_path, scene):
    image, p, expected = scene
    zarr = pytest.importorskip("zarr", "3")
    path = tmp_path / "p.zarr"
    array = zarr.create_array(
        str(path), shape=p.shape, dtype="f4", chunks=(3, 11, 14), shards=(3, *CHUNK)
    )
    array[:] = p
    np.testing.assert_array_equal(refine(image, path, axis=0, **OPTIONS).labels, expected)
    remove(path, V3)
    with pytest.raises(ValueError, match="chunk c/0/1/1 is missing"):
        refine(image, path, axis=0, **OPTIONS)


def inner(path, kind):
    return path / "p" if kind.startswith("xarray") else path


def opened(path, p, kind, version):
    if kind == "path":
        return path
    if kind == "zarr":
        return pytest.importorskip("zarr").open_array(str(path), mode="r")
    if kind == "dask":
        return pytest.importorskip("dask.array").from_zarr(str(path))
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"p": (("label", "y", "x"), p)})
    data.to_zarr(path, mode="w", encoding={"p": {"chunks": (3, *CHUNK)}}, zarr_format=version)
    return xarray.open_zarr(path, chunks={} if kind.endswith("dask") else None)["p"]


def test_an_image_that_lacks_a_chunk(tmp_path, scene):
    image, p, expected = scene
    image = image.copy()
    image[22:, 28:] = 0
    path = write(tmp_path / "image.zarr", image, (*CHUNK, 3))
    for name in ("1.1.0", "c/1/1/0"):
        (path / name).unlink(missing_ok=True)  # Zarr 3 has left it out
    with pytest.raises(ValueError, match=r"image: chunk .*1.1.0 is missing.*fill value"):
        refine(path, p, axis=0, **OPTIONS)
    found = refine(path, p, axis=0, missing_chunks="fill", **OPTIONS)
    np.testing.assert_array_equal(found.labels, refine(image, p, axis=0, **OPTIONS).labels)
    mask = np.ones(image.shape[:2], bool)
    mask[22:, 28:] = False
    found = refine(path, p, axis=0, mask=mask, **OPTIONS)
    assert (found.labels[~mask] == 255).all()
    assert (found.labels[mask] != 255).all()
    assert expected.shape == found.labels.shape


def test_a_chunk_of_a_mask_that_was_left_out_is_outside(tmp_path, scene):
    image, p, _ = scene
    mask = np.ones(image.shape[:2], np.uint8)
    mask[22:, 28:] = 0
    path = write(tmp_path / "mask.zarr", mask, CHUNK, fill_value=0)
    for name in ("1.1", "c/1/1"):
        (path / name).unlink(missing_ok=True)
    found = refine(image, p, axis=0, mask=path, **OPTIONS)
    np.testing.assert_array_equal(found.labels == 255, mask == 0)


def test_a_chunk_that_disappears_in_the_middle(tmp_path, scene):
    image, p, expected = scene
    path, out = write(tmp_path / "p.zarr", p, (3, *CHUNK)), tmp_path / "labels.npy"
    chunk = next(path / name for name in (V2, V3) if (path / name).exists())

    def vanish(stage, done, count):
        if (stage, done) == ("iterates-0", 2):
            chunk.rename(tmp_path / "away")

    with pytest.raises(ValueError, match="is missing"):
        refine(image, path, axis=0, out=out, progress=vanish, **OPTIONS)
    assert not out.exists()
    (tmp_path / "away").rename(chunk)
    stages = []
    refine(image, path, axis=0, out=out, progress=lambda stage, *_: stages.append(stage), **OPTIONS)
    assert "masses" not in stages
    np.testing.assert_array_equal(np.load(out), expected)


def test_a_store_that_disappears_in_the_middle(tmp_path, scene):
    image, p, _ = scene
    path = write(tmp_path / "p.zarr", p, (3, *CHUNK))

    def vanish(stage, done, count):
        if (stage, done) == ("iterates-0", 2):
            path.rename(tmp_path / "away")

    with pytest.raises(OSError, match=r"probabilities: .*p\.zarr cannot be read at \[0:3, "):
        refine(image, path, axis=0, progress=vanish, **OPTIONS)


def test_a_chunk_that_is_cut_short(tmp_path, scene):
    image, p, _ = scene
    path = write(tmp_path / "p.zarr", p, (3, *CHUNK))
    chunk = next(path / name for name in (V2, V3) if (path / name).exists())
    chunk.write_bytes(chunk.read_bytes()[:-100])
    with pytest.raises(OSError, match=r"probabilities: .*p\.zarr cannot be read at"):
        refine(image, path, axis=0, **OPTIONS)


def test_hdf5_chunks_that_were_never_written(tmp_path, scene):
    image, p, _ = scene
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file.create_dataset("some", p.shape, "f4", chunks=(3, *CHUNK))[:, :22] = p[:, :22]
        file.create_dataset("none", p.shape, "f4")
    for name, chunk in (("some", "0/1/0"), ("none", "all")):
        with pytest.raises(ValueError, match=f"chunk {chunk} is missing"):
            refine(image, f"{tmp_path}/p.h5:{name}", axis=0, kind="logits", **OPTIONS)


@pytest.mark.parametrize("nodata", [None, 0])
def test_blocks_that_a_sparse_raster_lacks(tmp_path, nodata):
    rasterio = pytest.importorskip("rasterio")
    image, p = crowd((44, 56))
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 3, "dtype": "uint8"}
    profile |= {"tiled": True, "blockxsize": 16, "blockysize": 16, "SPARSE_OK": True}
    with rasterio.open(tmp_path / "image.tif", "w", **profile, nodata=nodata) as raster:
        window = ((0, 32), (0, 56))
        raster.write(np.moveaxis(np.maximum(image[:32], 1), -1, 0), window=window)
    if nodata is None:
        with pytest.raises(ValueError, match="chunk 2/0 of band 1 is missing"):
            refine(tmp_path / "image.tif", p, axis=0, **OPTIONS)
        return
    for channel_axis in (None, -1):
        found = refine(tmp_path / "image.tif", p, axis=0, channel_axis=channel_axis, **OPTIONS)
        assert (found.labels[32:] == 255).all()
        assert (found.labels[:32] != 255).all()


def test_a_raster_that_is_cut_short(tmp_path, scene):
    image, p, _ = scene
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "image.tif"
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 3, "dtype": "uint8"}
    with rasterio.open(path, "w", **profile) as raster:
        raster.write(np.moveaxis(image, -1, 0))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(OSError, match=r"image: .*image\.tif cannot be read at"):
        refine(path, p, axis=0, **OPTIONS)


def test_points_that_lack_a_chunk(tmp_path):
    rng = np.random.default_rng(0)
    points, p = rng.random((200, 3)), rng.random(200)
    path = write(tmp_path / "points.zarr", points, (50, 3))
    remove(path, "2.0", "c/2/0")
    with pytest.raises(ValueError, match=r"points: chunk .*2.0 is missing"):
        refine_points(path, p, [Kernel(1.0, 0.1)], tile=80)
