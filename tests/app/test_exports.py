"""Exports: of images, of reduced images, of volumes, and with a network's output."""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from browser_tab import ORIGIN, PORT, STROKES, TOKEN, Tab, brush, connected, own
from densecrf import Result
from densecrf.app import full_size, pictures, rooms
from densecrf.app.server import make_app
from densecrf.app.store import ImageFolder
from densecrf.app.strokes import VOID
from densecrf.io import read_image, read_labels, write_image, write_labels
from densecrf.io.coco import run_lengths
from densecrf.model.presets import PRESETS
from densecrf.model.scribbles import scribble_unary
from scribbling import scene


@pytest.fixture
def drawn(client):
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES)
        tab.until("saved")
    return client


def test_exports_before_two_labels_say_what_is_missing(client):
    answer = client.get(own("export/labels?name=first.png"))
    assert answer.status_code == 422
    assert "strokes" in answer.json()["error"]
    assert client.get(own("export/nonsense?name=first.png")).status_code == 422


def test_all_exports_agree_and_the_result_can_be_repeated(drawn, folder, tmp_path):
    answer = drawn.get(own("export/all?name=first.png"))
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    labels = read_labels(tmp_path / "first.labels.png")
    assert sorted(np.unique(labels)) == [0, 1, 2]
    result = Result.load(tmp_path / "first.npz")
    np.testing.assert_array_equal(result.labels, labels)
    assert result.gap <= 1e-3
    raster = read_labels(tmp_path / "first.strokes.png")
    drawn_pixels = raster != VOID
    np.testing.assert_array_equal(labels[drawn_pixels], raster[drawn_pixels])
    annotations = json.loads((tmp_path / "first.coco.json").read_text())["annotations"]
    assert sum(a["area"] for a in annotations) == labels.size
    assert json.loads((tmp_path / "first.strokes.json").read_text())["strokes"]
    repeat(tmp_path, labels)


def test_an_export_without_islands_is_repeated_without_them(client, folder, tmp_path):
    image = read_image(folder / "first.png")
    image[20:32, 90:102] = image[80:92, 90:102]  # ground in the sky
    write_image(folder / "first.png", image)
    edit = {"id": "a", "kind": "settings", "settings": {"min_area": 400}}
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES, {"type": "edit", "edit": edit})
        tab.until("saved")
    answer = client.get(own("export/all?name=first.png"))
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    labels = read_labels(tmp_path / "first.labels.png")
    assert labels[26, 96] == 0
    assert "--min-area 400" in (tmp_path / "first.reproduce.sh").read_text()
    repeat(tmp_path, labels)


def repeat(tmp_path, labels):
    """Run the command and the program in the folder of the exports; they give these labels."""
    command = (tmp_path / "first.reproduce.sh").read_text().splitlines()[-1]
    program = [sys.executable, "-m", "densecrf", *shlex.split(command)[1:]]
    for run in (program, [sys.executable, "first.reproduce.py"]):
        subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
        repeated = read_labels(tmp_path / "first.repeated.png")
        np.testing.assert_array_equal(repeated, labels)
        (tmp_path / "first.repeated.png").unlink()


@pytest.mark.parametrize(
    "name",
    [
        '"""+str(open("RAN", "w"))+""".png',
        "'; touch RAN; '.png",
        "$(touch RAN)`touch RAN`.png",
        "two\nopen('RAN', 'w')\n.png",
        "two\r\u2028open('RAN', 'w').png",
        "--out=RAN.png",
        "{0} {image} %s.png",
        os.fsdecode(b"caf\xe9.png"),
    ],
)
def test_no_name_of_an_image_is_code_in_an_export(folder, tmp_path, name):
    (folder / "first.png").rename(folder / name)
    app = make_app(ImageFolder(folder), TOKEN, PORT)
    with TestClient(app, base_url=ORIGIN) as client:
        (listed,) = {each["name"] for each in client.get(own("images")).json()} - {"second.png"}
        with connected(client) as socket:
            tab = Tab(socket, listed)
            tab.draw(*STROKES)
            tab.until("saved")
        answer = client.get(own("export/all"), params={"name": listed})
        assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    if not (tmp_path / name).exists():  # a name that is no UTF-8 cannot be in a ZIP
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    stem = Path(listed).stem
    (tmp_path / "densecrf").write_text(f'#!/bin/sh\nexec {sys.executable} -m densecrf "$@"\n')
    (tmp_path / "densecrf").chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for run in ([sys.executable, f"./{stem}.reproduce.py"], ["sh", f"./{stem}.reproduce.sh"]):
        subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, env=path)
        assert (tmp_path / f"{stem}.repeated.png").exists()
        (tmp_path / f"{stem}.repeated.png").unlink()
    assert not list(tmp_path.rglob("RAN*"))


def repeated(folder, image):
    """Run the exported command in a folder of exports; return the labels that it wrote."""
    command = (folder / f"{image}.reproduce.sh").read_text().splitlines()[-1]
    program = [sys.executable, "-m", "densecrf", *shlex.split(command)[1:]]
    subprocess.run(program, cwd=folder, check=True, capture_output=True)
    return read_labels(folder / f"{image}.repeated.png")


def exported(client, folder):
    answer = client.get(own("export/all?name=first.png"))
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(folder)
    return read_labels(folder / "first.labels.png"), Result.load(folder / "first.npz").labels


def repeated_by_program(folder):
    """Run the exported program in a folder of exports; return the labels that it wrote."""
    program = [sys.executable, "first.reproduce.py"]
    subprocess.run(program, cwd=folder, check=True, capture_output=True)
    return read_labels(folder / "first.repeated.png")


@pytest.mark.parametrize("memory", [2**40, 2**10])
def test_a_reduced_image_is_exported_at_full_size_and_repeated(
    client, folder, monkeypatch, tmp_path, memory
):
    """Solved with all pixels, from blocks of them; its files say what is proven of all pixels."""
    monkeypatch.setattr(pictures, "WORK_PIXELS", 4000)
    monkeypatch.setattr(rooms, "physical_memory", lambda: memory)
    with connected(client) as socket:
        tab = Tab(socket)
        assert (tab.document["height"], tab.document["width"]) == (48, 64)
        tab.draw(brush(0, (5, 5), (55, 6)), brush(1, (5, 43), (55, 42)))
        tab.until("saved")
    labels, solved = exported(client, tmp_path)
    assert labels.shape == (96, 128)
    np.testing.assert_array_equal(repeated_by_program(tmp_path), solved)
    result, claim = Result.load(tmp_path / "first.npz"), said(tmp_path / "first.labels.png")
    assert f"{100 * result.gap:.2g} %" in claim
    if memory == 2**40:  # solved once more, at full size
        kept = read_labels(folder / "densecrf-app" / "first.png.labels.png")
        about = json.loads((folder / "densecrf-app" / "first.png.labels.json").read_text())
        np.testing.assert_array_equal(labels, solved)
        assert not (tmp_path / "first.reduced.png").exists()
        assert claim.endswith("128 × 96 pixels")
        assert "by the program" in client.get(own("export/command?name=first.png")).json()["error"]
        assert about["finer"]
        quick = client.get(own("export/labels?name=first.png&size=reduced")).content
        (tmp_path / "quick.png").write_bytes(quick)
        assert said(tmp_path / "quick.png").endswith("64 × 48 pixels, enlarged 2 times")
        np.testing.assert_array_equal(kept, labels)  # also for exports of the folder
    else:
        np.testing.assert_array_equal(labels[::2, ::2], solved)
        assert claim.endswith("64 × 48 pixels, enlarged 2 times")
    state = json.loads((tmp_path / "first.strokes.json").read_text())
    assert (state["height"], state["width"]) == (48, 64)  # as it was drawn, to go on with


def test_a_large_image_is_exported_from_more_pixels_than_it_is_worked_on_with(
    client, folder, monkeypatch, tmp_path
):
    """Worked on at a third, solved at half the size, written at the size of the file."""
    monkeypatch.setattr(pictures, "WORK_PIXELS", 1500)
    monkeypatch.setattr(pictures, "EXPORT_PIXELS", 4000)
    with connected(client) as socket:
        tab = Tab(socket)
        assert (tab.document["height"], tab.document["width"]) == (32, 43)
        tab.draw(brush(0, (3, 3), (36, 4), size=2), brush(1, (3, 28), (36, 28), size=2))
        tab.until("saved")
    labels, solved = exported(client, tmp_path)
    assert solved.shape == (48, 64)
    np.testing.assert_array_equal(labels, solved.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(repeated_by_program(tmp_path), solved)


def said(path):
    """Return what a PNG says of its labels."""
    with Image.open(path) as picture:
        return picture.text["Comment"]


def test_a_large_image_is_proven_with_all_pixels_though_solved_on_blocks_first():
    rng = np.random.default_rng(0)
    image = np.clip(scene(150, 203) + rng.normal(0, 10, (150, 203, 3)), 0, 255).astype(np.uint8)
    strokes = np.full((150, 203), VOID)
    strokes[5:9], strokes[140:145], strokes[70:80, 95:105] = 0, 1, 2
    unary = scribble_unary(image, strokes, void=VOID)
    crf = PRESETS["scribbles"].crf(unary, image)
    found, whole = full_size.solve(crf, blocks=4), crf.solve("lp", gap=1e-3)
    assert found.labels.shape == (150, 203)
    assert found.energy == crf.energy(found.labels)
    assert found.lower_bound <= whole.energy
    assert whole.lower_bound <= found.energy
    assert found.iterations <= full_size.ITERATIONS
    assert found.gap <= full_size.LARGE_GAP


def volume():
    """Return eight slices with a ball in the middle ones, and noise."""
    z, y, x = np.mgrid[:8, :40, :48]
    inside = ((z - 4) / 3) ** 2 + ((y - 20) / 12) ** 2 + ((x - 24) / 14) ** 2 < 1
    noise = np.random.default_rng(0).normal(0, 60, inside.shape)
    return np.where(inside, 900.0, 100.0) + noise


@pytest.mark.parametrize("name", ["ball.npy", "ball.tif"])
def test_a_volume_is_drawn_on_by_slices_and_solved_as_a_whole(tmp_path, name):
    array = volume()
    if name.endswith("npy"):
        np.save(tmp_path / name, array.astype(np.int16))
    else:
        pages = [Image.fromarray(np.clip(page / 5, 0, 255).astype(np.uint8)) for page in array]
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
    app = make_app(ImageFolder(tmp_path), TOKEN, PORT)
    with TestClient(app, base_url=ORIGIN) as client:
        with connected(client) as socket:
            socket.send_json({"type": "open", "image": name})
            tab = Tab(socket, name)
            assert [tab.document[k] for k in ("depth", "height", "width")] == [8, 40, 48]
            ball, around = brush(1, (20, 20), (28, 20)), brush(0, (3, 3), (44, 4))
            ball["edit"]["stroke"]["slice"] = 4
            around["edit"]["stroke"]["slice"] = 1
            tab.draw(ball, around)
            tab.until("saved")
        for at, status in (("0", 200), ("7", 200), ("8", 422), ("-1", 422), ("x", 422)):
            assert client.get(own(f"image?name={name}&slice={at}")).status_code == status
        assert "volumes" in client.get(own(f"export/overlay?name={name}")).json()["error"]
        answer = client.get(own(f"export/all?name={name}"))
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "out")
    labels = np.load(tmp_path / "out" / "ball.labels.npy")
    assert (labels == (array > 500)).mean() > 0.97
    assert labels[4, 20, 24] == 1
    assert labels[1, 3, 20] == 0
    program = [sys.executable, "ball.reproduce.py"]
    subprocess.run(program, cwd=tmp_path / "out", check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "ball.repeated.npy"), labels)


def test_strokes_correct_the_output_of_a_network(folder, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 0.3, (3, 96, 128)).astype(np.float32)
    logits[0, :48] += 2
    logits[1, 48:] += 2
    scores = np.exp(logits) / np.exp(logits).sum(0)
    np.save(tmp_path / "probs.npy", scores)
    app = make_app(ImageFolder(folder / "first.png", tmp_path / "probs.npy"), TOKEN, PORT)
    with TestClient(app, base_url=ORIGIN) as client:
        with connected(client) as socket:
            tab = Tab(socket)
            assert len(tab.document["labels"]) == 3
            _, planes = tab.until("answer", "certified")  # no stroke is needed
            assert set(np.unique(planes[0])) == {0, 1}
            tab.draw(brush(2, (60, 48), (70, 50)))
            tab.until("saved")
        labels, solved = exported(client, tmp_path)
    np.testing.assert_array_equal(labels, solved)
    assert labels[48, 64] == 2
    np.testing.assert_array_equal(repeated(tmp_path, "first"), solved)


def test_a_network_has_labels_in_a_folder_that_cannot_be_written(folder, tmp_path):
    np.save(tmp_path / "probs.npy", np.full((6, 96, 128), 1 / 6, np.float32))
    (folder / "densecrf-app").write_text("in the way")  # as root, permissions would not do
    app = make_app(ImageFolder(folder / "first.png", tmp_path / "probs.npy"), TOKEN, PORT)
    with TestClient(app, base_url=ORIGIN) as client, connected(client) as socket:
        tab = Tab(socket)
        assert len(tab.document["labels"]) == 6
        tab.draw(brush(5, (60, 48), (70, 50)))
        assert "cannot be saved" in tab.until("unsaved")["text"]


def test_strokes_correct_a_mask_and_the_result_is_repeated(client, folder, tmp_path):
    mask = np.zeros((96, 128), np.uint8)
    mask[30:70, 40:90] = 1
    write_labels(tmp_path / "mask.png", mask)
    data, send = (tmp_path / "mask.png").read_bytes(), {"headers": {"origin": ORIGIN}}
    assert client.post(own("mask?name=first.png"), content=data, **send).status_code == 200
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(brush(2, (5, 85), (120, 85)))
        tab.until("saved")
    labels, solved = exported(client, tmp_path)
    np.testing.assert_array_equal(labels, solved)
    assert sorted(np.unique(labels)) == [0, 1, 2]
    assert "by the program" in client.get(own("export/command?name=first.png")).json()["error"]
    program = [sys.executable, "first.reproduce.py"]
    subprocess.run(program, cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(read_labels(tmp_path / "first.repeated.png"), solved)


def test_run_lengths_are_those_of_coco():
    rng = np.random.default_rng(0)
    mask = rng.random((7, 5)) < 0.5
    flat = np.repeat(np.arange(len(run_lengths(mask))) % 2, run_lengths(mask)).astype(bool)
    np.testing.assert_array_equal(flat.reshape(5, 7).T, mask)
