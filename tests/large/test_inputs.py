"""Inputs of all kinds, and inputs and stores that fail: a clear error, nothing finished is lost."""

import errno
import os

import numpy as np
import pytest

from densecrf.io import read_image
from densecrf.large import outputs, refine, store
from densecrf.refinement import build
from large_scenes import MODEL, crowd
from scans import write_series

OPTIONS = {"tile": 30, "model": MODEL, "gap": 5e-3}


@pytest.fixture(scope="module")
def scene():
    image, p = crowd()
    return image, p, refine(image, p, axis=0, **OPTIONS).labels


def test_every_source_reads_the_same(tmp_path, scene, monkeypatch):
    image, p, expected = scene
    zarr, rasterio = pytest.importorskip("zarr"), pytest.importorskip("rasterio")
    dask_array = pytest.importorskip("dask.array")
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "p.npy", p)
    zarr.save_array(str(tmp_path / "p.zarr"), p)
    place = rasterio.transform.from_origin(500_000, 5_000_000, 10, 10)
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 3, "dtype": "uint8"}
    with rasterio.open(
        tmp_path / "image.tif", "w", **profile, crs="EPSG:32632", transform=place
    ) as raster:
        raster.write(np.moveaxis(image, -1, 0))
    images = [tmp_path / "image.npy", np.load(tmp_path / "image.npy", mmap_mode="r")]
    images += [tmp_path / "image.tif", dask_array.from_array(image, chunks=16)]
    known = [tmp_path / "p.npy", tmp_path / "p.zarr", dask_array.from_array(p, chunks=16)]
    known += [np.moveaxis(p, 0, -1)]
    for some_image, some_p in zip(images, known, strict=True):
        axis = -1 if some_p is known[-1] else 0
        found = refine(some_image, some_p, axis=axis, **OPTIONS).labels
        np.testing.assert_array_equal(found, expected)
    monkeypatch.setattr(outputs, "OVERVIEWS", 10)
    refine(tmp_path / "image.tif", tmp_path / "p.zarr", out=tmp_path / "labels.tif", **OPTIONS)
    with rasterio.open(tmp_path / "labels.tif") as written:
        assert written.overviews(1) == [2, 4]
        assert (written.crs.to_epsg(), written.transform, written.nodata) == (32632, place, 255)
        np.testing.assert_array_equal(written.read(1), expected)


def test_nodata_pixels_are_not_part_of_the_model(tmp_path, scene):
    image, p, _ = scene
    rasterio = pytest.importorskip("rasterio")
    image = np.maximum(image, 1)
    image[:, :20] = 0
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 3, "dtype": "uint8"}
    with rasterio.open(tmp_path / "image.tif", "w", **profile, nodata=0) as raster:
        raster.write(np.moveaxis(image, -1, 0))
    found = refine(tmp_path / "image.tif", p, axis=0, **OPTIONS)
    held = np.zeros(image.shape[:2], bool)
    held[:, 20:] = True
    expected = refine(image, p, axis=0, mask=held, **OPTIONS)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert (found.labels[:, :20] == 255).all()
    assert found.energy == expected.energy


@pytest.mark.parametrize("nodata", [-9999, np.nan])
def test_nothing_is_known_where_scores_are_nodata(tmp_path, scene, nodata):
    image, p, _ = scene
    rasterio = pytest.importorskip("rasterio")
    gap = (slice(None), slice(0, 12), slice(0, 10))
    given = p.copy()
    given[gap] = nodata
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 3, "dtype": "float32"}
    with rasterio.open(tmp_path / "p.tif", "w", **profile, nodata=nodata) as raster:
        raster.write(given)
    found = refine(image, tmp_path / "p.tif", axis=-1, **OPTIONS)
    energies = -np.log(np.maximum(p, 1e-5))
    energies[gap] = 0
    expected = refine(image, energies, axis=0, kind="energies", **OPTIONS)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.energy == pytest.approx(expected.energy, rel=1e-6)


def test_rasters_of_one_band_and_tiles_without_labels(tmp_path, scene):
    image, p, _ = scene
    rasterio = pytest.importorskip("rasterio")
    labels = p.argmax(0).astype(np.uint8)
    labels[:, 30:] = 255  # nothing is known of whole tiles
    held = np.ones(labels.shape, np.uint8)
    held[:5] = 0
    profile = {"driver": "GTiff", "height": 44, "width": 56, "count": 1, "dtype": "uint8"}
    for name, values in (("labels", labels), ("mask", held)):
        with rasterio.open(tmp_path / f"{name}.tif", "w", **profile) as raster:
            raster.write(values, 1)
    # A loose gap: where nothing is known the bound rises slowly, and what is read matters here.
    given = {"n_labels": len(p), "gap": 0.3, "tile": 20, "model": MODEL}
    files = tmp_path / "labels.tif", tmp_path / "mask.tif"
    found = refine(image, files[0], mask=files[1], kind="labels", **given)
    expected = refine(image, labels, mask=held, **given)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert (found.labels[:5] == 255).all()
    with pytest.raises(ValueError, match="every pixel is void"):
        refine(image, np.full_like(labels, 255), **given)


@pytest.mark.parametrize("factors", [(4, 4), (1, 8)])
def test_a_coarse_mask_is_the_fine_one(scene, factors):
    image, p, _ = scene
    coarse = np.ones([side // by for side, by in zip(image.shape, factors, strict=False)], bool)
    coarse[2:6, 5:] = coarse[0] = False
    fine = coarse.repeat(factors[0], 0).repeat(factors[1], 1)
    found = refine(image, p, axis=0, mask=coarse, **OPTIONS)
    expected = refine(image, p, axis=0, mask=fine, **OPTIONS)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.labels == 255, ~fine)


@pytest.mark.parametrize("shape", [(40, 52), (56, 44), (6, 14), (44,)])
def test_masks_of_other_grids(scene, shape):
    image, p, _ = scene
    with pytest.raises(ValueError, match=r"mask.*the same size, or reduced"):
        refine(image, p, axis=0, mask=np.ones(shape), **OPTIONS)


def test_hdf5_and_nifti(tmp_path):
    h5py, nibabel = pytest.importorskip("h5py"), pytest.importorskip("nibabel")
    image, p = crowd((8, 20, 18), 2)
    grey = image[..., 0]
    expected = refine(grey, p, axis=0, **OPTIONS).labels
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["scores"] = p
    nibabel.save(nibabel.Nifti1Image(grey, np.eye(4)), tmp_path / "volume.nii")
    found = refine(tmp_path / "volume.nii", f"{tmp_path}/p.h5:scores", axis=0, **OPTIONS)
    np.testing.assert_array_equal(found.labels, expected)


def test_a_dicom_file_stands_for_its_series(tmp_path):
    pytest.importorskip("pydicom")
    image, p = crowd((8, 20, 18), 2)
    grey = image[..., 0].astype(np.int16)
    paths = write_series(tmp_path, grey + 1024, shuffled=True)
    found = refine(paths[3], p, axis=0, **OPTIONS)
    expected = refine(grey.astype(np.float32), p, axis=0, **OPTIONS)
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image, p: (image, p.swapaxes(1, 2)), r"probabilities.*does not fit"),
        (lambda image, p: (image.astype(np.uint16) * 40, p), "image_range"),
        (lambda image, p: (image, p * 3), "kind"),
        (lambda image, p: (image, np.where(p > 0.9, np.nan, p)), "probabilities"),
        (lambda _, p: ("missing.npy", p), r"missing\.npy"),
    ],
)
def test_what_does_not_fit_is_said(scene, change, message):
    image, p, _ = scene
    with pytest.raises((ValueError, OSError), match=message):
        refine(*change(image, p), axis=0, **OPTIONS)


def test_options_that_make_no_sense(tmp_path, scene):
    image, p, _ = scene
    np.save(tmp_path / "p.npy", p)
    wrong = [{"tile": 1}, {"inner": 40}, {"gap": 2}, {"method": "qp"}]
    wrong += [{"out": tmp_path / "labels.png"}, {"mask": np.zeros((3, 3))}, {"threads": -1}]
    wrong += [{"mask": np.zeros(image.shape[:2])}, {"n_labels": 7}, {"channel_axis": 9}]
    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options))):
            refine(image, p, axis=0, **{**OPTIONS, **options})
    with pytest.raises(ValueError, match="out"):
        refine(image, tmp_path / "p.npy", axis=0, out=tmp_path / "p.npy", **OPTIONS)


def test_a_store_that_disappears_and_comes_back(tmp_path, scene):
    image, p, expected = scene
    np.save(tmp_path / "p.npy", p)
    out = tmp_path / "labels.npy"

    def vanish(stage, done, count):
        if (stage, done) == ("iterates-0", 2):
            (tmp_path / "p.npy").rename(tmp_path / "away.npy")

    call = {**OPTIONS, "axis": 0, "out": out}
    with pytest.raises(OSError, match=r"p\.npy"):
        refine(image, tmp_path / "p.npy", **call, progress=vanish)
    assert not out.exists()
    (tmp_path / "away.npy").rename(tmp_path / "p.npy")
    made = []
    refine(image, tmp_path / "p.npy", **call, progress=lambda stage, *_: made.append(stage))
    assert "masses" not in made
    np.testing.assert_array_equal(np.load(out), expected)


def test_a_full_disk_leaves_no_half_written_block(tmp_path, scene, monkeypatch):
    image, p, expected = scene
    out = tmp_path / "labels.npy"
    written = []
    original = store.npy.write_array

    def full(file, array, **options):
        written.append(array.shape)
        if len(written) == 20:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(file, array, **options)

    call = {**OPTIONS, "axis": 0, "out": out}
    with monkeypatch.context() as patched:
        patched.setattr(store.npy, "write_array", full)
        with pytest.raises(OSError, match="No space left"):
            refine(image, p, **call)
    for path in (tmp_path / "labels.npy.parts").rglob("*.npy"):
        np.load(path)
    refine(image, p, **call)
    np.testing.assert_array_equal(np.load(out), expected)


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: data[:-100],
        lambda data: bytes(len(data)),
        lambda data: data[:128] + bytes(128) + data[256:],
    ],
    ids=["cut short", "zeros", "some zeros"],
)
@pytest.mark.parametrize("stage", ["masses", "iterates-0", "labels-0"])
def test_a_damaged_block_is_made_again(tmp_path, scene, stage, damaged):
    image, p, expected = scene
    done = []

    def damage(at, count, of):
        if at == ("masses" if stage == "masses" else "iterates-0") and count == of and not done:
            for path in (tmp_path / "labels.npy.parts" / "arrays" / stage).iterdir():
                path.write_bytes(damaged(path.read_bytes()))
                done.append(path)

    with pytest.warns(UserWarning, match=r"labels\.npy\.parts.*has changed since"):
        refine(image, p, axis=0, out=tmp_path / "labels.npy", **OPTIONS, progress=damage)
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), expected)


def test_a_second_run_for_the_same_output_is_refused(tmp_path, scene):
    image, p, expected = scene
    call = {**OPTIONS, "axis": 0, "out": tmp_path / "labels.npy"}
    refused = []

    def again(*_):
        if not refused:
            with pytest.raises(OSError, match=r"another run uses .*labels\.npy\.parts") as error:
                refine(image, p, **call)
            refused.append(error)

    refine(image, p, **call, progress=again)
    assert refused
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]


def test_files_that_are_none(tmp_path, scene):
    image, p, _ = scene
    np.save(tmp_path / "p.npy", p)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "p.npy").read_bytes()[:-8])
    (tmp_path / "words.npy").write_text("words")
    (tmp_path / "words.npz").write_text("words")
    (tmp_path / "group.zarr").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("cut.npy", "words.npy", "words.npz", "group.zarr", "pipe.npy"):
        with pytest.raises(ValueError, match=name):
            refine(image, tmp_path / name, axis=0, **OPTIONS)


@pytest.mark.parametrize("tile", [30, 500])
def test_photographs_are_read_as_in_memory(tmp_path, scene, tile):
    image, p, _ = scene
    pillow = pytest.importorskip("PIL.Image")
    picture = pillow.fromarray(image)
    picture.save(tmp_path / "image.png")
    picture.quantize(16).save(tmp_path / "palette.png")
    pillow.fromarray(image[..., 0].astype(np.uint16) * 16).save(tmp_path / "deep.png")
    pillow.fromarray(image[..., 0].astype(np.uint16) * 16).save(tmp_path / "deep.tif")
    for name in ("image.png", "palette.png", "deep.png", "deep.tif"):
        found = refine(tmp_path / name, p, axis=0, **{**OPTIONS, "tile": tile})
        crf = build(read_image(tmp_path / name), p, axis=0, model=MODEL)
        assert found.energy == pytest.approx(crf.energy(found.labels), rel=1e-7)
    whole = (tmp_path / "image.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.png.*truncated"):
        refine(tmp_path / "cut.png", p, axis=0, **{**OPTIONS, "tile": tile})
