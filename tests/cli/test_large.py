"""``densecrf segment`` on images that are cut into tiles."""

import json
import os

import dask
import distributed
import numpy as np
import pytest
from PIL import Image

from command_line import densecrf, said, write_examples
from densecrf.cli import large
from densecrf.large import planning
from large_scenes import crowd

MODEL = ("--weight", "3", "--sigma", "2", "--sigma-xy", "5", "--sigma-color", "20")


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Cut small images, too."""
    monkeypatch.setattr(planning, "worthwhile_sides", lambda asked, *_: asked)


@pytest.fixture
def inputs(tmp_path):
    image, p = crowd((70, 90), 2)
    Image.fromarray(image).save(tmp_path / "scene.tif")
    np.save(tmp_path / "p.npy", p)
    return str(tmp_path / "scene.tif"), "--probs", str(tmp_path / "p.npy"), *MODEL


def test_tiles_to_a_raster_and_a_record(tmp_path, inputs):
    out = tmp_path / "labels.tif"
    options = ("--out", str(out), "--tile", "64", "--gap", "0.01")
    assert densecrf("segment", *inputs, *options).exit_code == 0
    assert np.asarray(Image.open(out)).shape == (70, 90)
    record = json.loads((tmp_path / "labels.tif.json").read_text())
    assert record["gap"] <= 0.01
    assert len(record["tiles"]) >= 4
    assert not (tmp_path / "labels.tif.parts").exists()
    again = densecrf("segment", *inputs, *options, "--json")
    assert json.loads(again.stdout)["results"][0]["skipped"]


def test_the_way_is_chosen_by_size(tmp_path, inputs, monkeypatch):
    monkeypatch.setattr(large, "LARGE", 70 * 90 - 1)
    out = tmp_path / "results"
    assert densecrf("segment", *inputs, "--out", str(out), "--gap", "0.01").exit_code == 0
    assert [path.name for path in sorted(out.iterdir())] == ["scene.tif", "scene.tif.json"]


def test_more_pixels_than_pillow_opens_are_welcome(tmp_path, inputs, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    out = tmp_path / "labels.npy"
    assert densecrf("segment", *inputs, "--out", str(out), "--gap", "0.01").exit_code == 0
    assert np.load(out).shape == (70, 90)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "qp"), "lp or mf5"),
        (("--device", "cpu"), "--device"),
        (("--scheduler", "tcp://127.0.0.1:1"), "no scheduler"),
        (("--scribbles", "strokes.png"), "segment a reduced copy"),
    ],
)
def test_what_tiles_cannot_do_is_said(tmp_path, inputs, options, message):
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        result = densecrf("segment", *inputs, "--out", str(tmp_path / "labels.tif"), *options)
    assert result.exit_code == 2
    assert message in said(result)
    assert not (tmp_path / "labels.tif").exists()


def test_missing_chunks(tmp_path, inputs):
    zarr = pytest.importorskip("zarr")
    foreground = np.load(inputs[2])[1]
    path = str(tmp_path / "p.zarr")
    array = zarr.open_array(path, mode="w", shape=(70, 90), chunks=(70, 45), dtype="f4")
    array[:, :45] = foreground[:, :45]
    options = ("--out", str(tmp_path / "labels.npy"), "--tile", "64", "--gap", "0.05")
    given = ("segment", inputs[0], "--probs", path, *options, *MODEL)
    result = densecrf(*given)
    assert result.exit_code
    assert "is missing" in said(result)
    assert "--fill-missing" in said(result)
    assert densecrf(*given, "--fill-missing").exit_code == 0


def test_inputs_are_never_written(tmp_path, inputs):
    result = densecrf("segment", *inputs, "--out", inputs[0], "--tile", "64")
    assert result.exit_code == 2
    assert np.asarray(Image.open(inputs[0])).shape == (70, 90, 3)


def test_a_folder_on_a_cluster(tmp_path):
    write_examples(tmp_path)
    (tmp_path / "probs" / "b.npy").unlink()
    arguments = ("segment", tmp_path / "images", "--probs", tmp_path / "probs", "--no-adapt")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=True
    ) as cluster:
        address = cluster.scheduler_address
        result = densecrf(*arguments, "--out", tmp_path / "out", "--scheduler", address, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [each["name"] for each in found["results"]] == ["a", "c"]
    assert list(found["failures"]) == ["b"]
    densecrf(*arguments, "--out", tmp_path / "here")
    for name in ("a.png", "c.png"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@pytest.mark.parametrize("tile", [64, 500])
def test_the_energy_is_that_of_segment(tmp_path, inputs, tile):
    assert densecrf("segment", *inputs, "--out", str(tmp_path / "memory.png")).exit_code == 0
    out = tmp_path / "tiles.npy"
    assert densecrf("segment", *inputs, "--out", str(out), "--tile", str(tile)).exit_code == 0
    memory, tiles = (
        json.loads((tmp_path / name).read_text()) for name in ("memory.json", "tiles.npy.json")
    )
    assert tiles["energy"] == pytest.approx(memory["energy"], rel=1e-3)
    assert tiles["best_constant"]["energy"] == pytest.approx(memory["best_constant"]["energy"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("words.npy", "not a NumPy array file"),
        ("words.npz", "broken or truncated archive"),
        ("nan.npy", "not finite"),
        ("sigmoids.npy", "--kind"),
        ("other.npy", "does not fit"),
        ("missing.npy", "No such file"),
        ("pipe.npy", "a named pipe"),
    ],
)
def test_bad_input_is_named_without_a_traceback(tmp_path, inputs, name, message):
    p = np.load(inputs[2])
    (tmp_path / "words.npy").write_text("words")
    (tmp_path / "words.npz").write_text("words")
    np.save(tmp_path / "nan.npy", np.where(p > 0.99, np.nan, p))
    np.save(tmp_path / "sigmoids.npy", 0.7 * p)
    np.save(tmp_path / "other.npy", p.swapaxes(1, 2))
    os.mkfifo(tmp_path / "pipe.npy")
    options = ("--out", str(tmp_path / "labels.npy"), "--tile", "64", *MODEL)
    result = densecrf("segment", inputs[0], "--probs", str(tmp_path / name), *options)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert message in said(result)
