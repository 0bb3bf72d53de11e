"""Images and volumes as they come: bands, stretch, window, planes, spacing, and what is refused."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from browser_tab import ORIGIN, PORT, TOKEN, Tab, brush, connected, own
from densecrf.app import pictures
from densecrf.app.document import Document
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.pictures import Reading, read_picture
from densecrf.app.server import make_app
from densecrf.app.store import ImageFolder
from densecrf.app.strokes import Stroke, draw
from densecrf.io import read_labels
from scans import block, write_series

starlette = pytest.importorskip("starlette.testclient")
nibabel = pytest.importorskip("nibabel")
tifffile = pytest.importorskip("tifffile")


def bands(height=40, width=50):
    """Return five bands of 16 bits with values of a satellite, which differ in their scale."""
    rng = np.random.default_rng(0)
    scene = rng.normal(0, 20, (height, width, 5)) + 300
    scene[:, width // 2 :] += np.array([300, 500, 700, 900, 2000])
    return scene.astype(np.uint16)


def test_bands_of_16_bits_are_stretched_one_by_one_and_can_be_chosen(tmp_path):
    tifffile.imwrite(
        tmp_path / "scene.tif", bands(), photometric="minisblack", planarconfig="contig"
    )
    first = read_picture(tmp_path / "scene.tif", "scene.tif")
    assert first.pixels.shape == (40, 50, 3)
    assert first.pixels.dtype == np.uint8
    assert first.values.bands == 5
    for channel in range(3):  # each from black to white
        assert first.pixels[..., channel].min() == 0
        assert first.pixels[..., channel].max() == 255
    infrared = read_picture(tmp_path / "scene.tif", "scene.tif", Reading((5,), (300.0, 2300.0)))
    exact = np.clip((bands()[..., 4].astype(float) - 300) * 255 / 2000, 0, 255)
    assert np.abs(infrared.pixels - exact).max() <= 0.51
    with pytest.raises(ValueError, match=r"scene.tif: band 6 of 5: choose one from 1 to 5"):
        read_picture(tmp_path / "scene.tif", "scene.tif", Reading((6,)))


def test_pixels_without_data_are_black_and_do_not_count(tmp_path):
    values = bands()[..., 0].astype(np.float32)
    values[:10] = -9999
    values[10] = np.nan
    nodata = [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite(tmp_path / "height.tif", values, extratags=nodata)
    picture = read_picture(tmp_path / "height.tif", "height.tif")
    assert (picture.pixels[:11] == 0).all()
    assert picture.values.low > 0
    assert picture.pixels[11:].std() > 50
    tifffile.imwrite(tmp_path / "empty.tif", np.full((9, 9), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"empty.tif: holds no data"):
        read_picture(tmp_path / "empty.tif", "empty.tif")


def test_eight_bits_stay_as_they_are(tmp_path):
    image = np.random.default_rng(0).integers(0, 200, (20, 30, 4), dtype=np.uint8)
    for name, pixels in (
        ("rgb.png", image[..., :3]),
        ("rgba.png", image),
        ("grey.png", image[..., 0]),
    ):
        Image.fromarray(pixels).save(tmp_path / name)
        picture = read_picture(tmp_path / name, name)
        np.testing.assert_array_equal(
            picture.pixels, pixels[..., :3] if pixels.ndim == 3 else pixels
        )
        assert picture.values is None


def test_a_scan_has_its_window_spacing_planes_and_one_listed_file(tmp_path):
    pytest.importorskip("pydicom")
    values = block((6, 8, 10)).astype(np.int16) * 10 + 864  # from -160 HU
    write_series(tmp_path, values, spacing=(4.0, 1.0, 1.0))
    folder = ImageFolder(tmp_path)
    assert list(folder.listing()) == ["slice1.dcm"]
    picture = folder.read("slice1.dcm")
    assert picture.shape == (6, 8, 10)
    assert picture.planes == ["axial", "coronal", "sagittal"]
    assert picture.distances == (4.0, 1.0, 1.0)
    assert picture.about()["values"]["unit"] == "HU"
    exact = np.clip((values.astype(float) - 864) * 255 / 400, 0, 255)
    assert np.abs(picture.pixels - exact).max() <= 0.51
    np.testing.assert_array_equal(picture.shown(3, 2)[..., 0], picture.pixels[:, :, 3])
    folder.choose("slice1.dcm", {"window": [-1000, 1000]})
    assert folder.read("slice1.dcm").values.window == (-1000, 1000)
    for wrong in ({"window": [1, 1]}, {"bands": [0]}, {"bands": [2]}, {"clip": 50}, {"x": 1}, []):
        with pytest.raises(ValueError, match=r"window|bands|volume 2 of 1|clip|reading"):
            folder.choose("slice1.dcm", wrong)
    assert folder.read("slice1.dcm").values.window == (-1000, 1000)


def test_distances_between_voxels_enter_the_kernels(tmp_path):
    """A volume with each slice twice and half the distance has the same kernels in millimetres."""
    nibabel.save(nibabel.Nifti1Image(block(), np.diag([1, 1, 4, 1])), tmp_path / "thick.nii")
    picture = read_picture(tmp_path / "thick.nii", "thick.nii")
    document = Document("thick.nii", picture.shape)
    model = Energies(picture).model(Snapshot.of(document))
    plain = Energies(replace(picture, spacing=(1.0, 1.0, 1.0))).model(Snapshot.of(document))
    np.testing.assert_allclose(model.sigma, np.divide(plain.sigma, (4, 1, 1)))
    np.testing.assert_allclose(model.sigma_xy, np.divide(plain.sigma_xy, (4, 1, 1)))


def test_large_volumes_are_reduced_along_their_finest_axes(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "WORK_VOXELS", 1000)
    volume = np.random.default_rng(0).integers(0, 255, (9, 24, 20), dtype=np.uint8)
    image = nibabel.Nifti1Image(np.swapaxes(volume, 0, 2), np.diag([-1.0, -1.0, -1.5, 1]))
    nibabel.save(image, tmp_path / "scan.nii.gz")
    picture = read_picture(tmp_path / "scan.nii.gz", "scan.nii.gz")
    assert (picture.factor, picture.between, picture.shape) == (2, 2, (5, 12, 10))
    assert picture.distances == (1.5, 1.0, 1.0)
    assert picture.enlarged(np.zeros(picture.shape, np.uint8)).shape == (9, 24, 20)
    np.testing.assert_allclose(picture.pixels[0, 0, 0], volume[:2, :2, :2].mean(), atol=0.51)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_stroke_lies_on_any_plane(axis):
    raster = np.full((6, 8, 10), 255, np.uint8)
    stroke = {
        "tool": "box",
        "label": 1,
        "size": 1,
        "points": [[1, 2], [4, 5]],
        "slice": 3,
        "axis": axis,
    }
    draw(raster, Stroke.parse(stroke))
    inside = np.moveaxis(raster, axis, 0)
    assert (inside[3, 2:5, 1:4] == 1).all()
    assert (raster != 255).sum() == 9


def test_a_brush_is_round_in_millimetres():
    """On voxels five times as high as they are wide a dot covers fewer rows than columns."""
    raster = np.full((21, 41), 255, np.uint8)
    points = [[20.5, 10.5]]
    draw(
        raster,
        Stroke.parse({"tool": "brush", "label": 0, "size": 20, "points": points, "aspect": 5}),
    )
    rows, columns = np.nonzero(raster == 0)
    y, x = np.mgrid[:21, :41]
    expected = (x - 20) ** 2 + (5 * (y - 10)) ** 2 <= 100
    np.testing.assert_array_equal(raster == 0, expected)
    assert np.ptp(columns) == 20
    assert np.ptp(rows) == 4
    for wrong in ({"aspect": 0}, {"aspect": "1"}, {"axis": 3}, {"axis": True}, {"axis": 1.0}):
        with pytest.raises(ValueError, match=r"axis|aspect"):
            Stroke.parse({"tool": "brush", "label": 0, "size": 2, "points": points, **wrong})


def test_a_scan_is_labelled_and_exported_in_its_own_place(tmp_path):
    z, y, x = np.mgrid[:8, :30, :36]
    ball = ((z - 4) / 3) ** 2 + ((y - 15) / 9) ** 2 + ((x - 18) / 11) ** 2 < 1
    noise = np.random.default_rng(0).normal(0, 8, ball.shape)
    stored = np.swapaxes(np.where(ball, 60, -100) + noise, 0, 2).astype(np.int16)
    nibabel.save(
        nibabel.Nifti1Image(stored, np.diag([-1.0, -1.0, -3.0, 1])), tmp_path / "scan.nii.gz"
    )
    app = make_app(ImageFolder(tmp_path), TOKEN, PORT)
    with starlette.TestClient(app, base_url=ORIGIN) as client:
        with connected(client) as socket:
            tab = Tab(socket, "scan.nii.gz")
            assert tab.opened["picture"]["planes"] == ["axial", "coronal", "sagittal"]
            inside, around = brush(1, (12, 4), (24, 4), size=1), brush(0, (2, 2), (30, 2))
            inside["edit"]["stroke"] |= {"axis": 1, "slice": 15, "aspect": 3}
            tab.draw(inside, around)
            tab.until("saved")
            socket.send_json({"type": "reading", "reading": {"window": [-150, 110]}})
            tab.until("reopen")
            again = Tab(socket, "scan.nii.gz")
            assert again.opened["picture"]["values"]["window"] == [-150, 110]
            assert len(again.document["strokes"]) == 2
            socket.send_json({"type": "reading", "reading": {"window": "x"}})
            assert "window" in again.until("message")["text"]
        for query, status in (("slice=29&axis=1", 200), ("slice=30&axis=1", 422), ("axis=3", 422)):
            assert client.get(own(f"image?name=scan.nii.gz&{query}")).status_code == status
        answer = client.get(own("export/all?name=scan.nii.gz"))
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "out")
    labels = nibabel.load(tmp_path / "out" / "scan.labels.nii.gz")
    np.testing.assert_allclose(labels.affine, np.diag([-1.0, -1.0, -3.0, 1]))
    assert (np.asarray(labels.dataobj) == (stored > -20)).mean() > 0.97
    (tmp_path / "out" / "scan.nii.gz").write_bytes((tmp_path / "scan.nii.gz").read_bytes())
    program = [sys.executable, "scan.reproduce.py"]
    subprocess.run(program, cwd=tmp_path / "out", check=True, capture_output=True)
    repeated = np.load(tmp_path / "out" / "scan.repeated.npy")
    np.testing.assert_array_equal(np.swapaxes(repeated, 0, 2), np.asarray(labels.dataobj))


def test_a_stretched_image_is_exported_with_what_was_seen(tmp_path):
    tifffile.imwrite(
        tmp_path / "scene.tif", bands(), photometric="minisblack", planarconfig="contig"
    )
    app = make_app(ImageFolder(tmp_path), TOKEN, PORT)
    with starlette.TestClient(app, base_url=ORIGIN) as client:
        with connected(client) as socket:
            tab = Tab(socket, "scene.tif")
            tab.draw(brush(0, (5, 5), (6, 30)), brush(1, (40, 5), (41, 30)))
            tab.until("saved")
        answer = client.get(own("export/all?name=scene.tif"))
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "scene.strokes.json").read_text())["width"] == 50
    command = (tmp_path / "out" / "scene.reproduce.sh").read_text().splitlines()[1]
    program = [sys.executable, "-m", *command.replace("'", "").split()]
    subprocess.run(program, cwd=tmp_path / "out", check=True, capture_output=True)
    np.testing.assert_array_equal(
        read_labels(tmp_path / "out" / "scene.repeated.png"),
        read_labels(tmp_path / "out" / "scene.labels.png"),
    )


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz", "x.dcm", "x.tif", "x.npy", "x.png"])
def test_broken_uploads_are_refused_by_name(tmp_path, name):
    pytest.importorskip("pydicom")
    folder = ImageFolder(tmp_path)
    with pytest.raises(ValueError, match=rf"^{name}: .{{10}}"):
        folder.upload(name, b"broken")
    assert folder.listing() == {}


def test_an_upload_without_a_suffix_is_known_as_dicom_and_nifti_keeps_both(tmp_path):
    pytest.importorskip("pydicom")
    (path,) = write_series(tmp_path, block()[:1])
    folder = ImageFolder(tmp_path / "uploads-only")
    folder.root.mkdir()
    assert folder.upload("IM0001", path.read_bytes()) == "IM0001.dcm"
    nibabel.save(nibabel.Nifti1Image(block(), np.eye(4)), tmp_path / "scan.nii.gz")
    data = (tmp_path / "scan.nii.gz").read_bytes()
    assert folder.upload("scan.nii.gz", data) == "scan.nii.gz"
    assert folder.upload("scan.nii.gz", data) == "scan-2.nii.gz"
    assert folder.read("IM0001.dcm").shape == (8, 10)
