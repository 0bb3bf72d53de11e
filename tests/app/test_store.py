"""The folder: what is listed, read, kept and refused; no path leads out of it."""

import os

import numpy as np
import pytest
from PIL import Image

from densecrf.app import pictures as module
from densecrf.app.document import Document
from densecrf.app.store import STATE, ChangedElsewhere, Store
from densecrf.io import write_image
from scribbling import scene


def test_listing_sorts_by_numbers_and_leaves_its_own_files_out(tmp_path):
    for name in ("image10.png", "image2.png", "deep/image1.png", f"{STATE}/uploads/mine.png"):
        write_image(tmp_path / name, scene())
    (tmp_path / "notes.txt").write_text("no image")
    write_image(tmp_path / STATE / "image2.png.labels.png", scene())
    assert list(Store(tmp_path).listing()) == [
        "deep/image1.png",
        "image2.png",
        "image10.png",
        "mine.png",
    ]
    assert list(Store(tmp_path / "image2.png").listing()) == ["image2.png", "mine.png"]


def test_without_a_folder_there_are_uploads_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "other.png", scene())
    store = Store(None)
    assert store.listing() == {}
    Image.fromarray(scene()).save(tmp_path / "x.jpg")
    assert store.upload("x.jpg", (tmp_path / "x.jpg").read_bytes()) == "x.jpg"
    assert list(store.listing()) == ["x.jpg"]


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "..\\secret.png", "link.png", "", ".", "a\0b", STATE]
)
def test_no_name_leads_out_of_the_folder(tmp_path, folder, name):
    write_image(tmp_path / "secret.png", scene())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    store = Store(folder)
    with pytest.raises(ValueError, match="no image"):
        store.read(name)


def test_uploads_get_plain_new_names(folder):
    store = Store(folder)
    data = (folder / "first.png").read_bytes()
    assert store.upload("../../first.png", data) == "first-2.png"
    assert store.upload("..\\a b<c>.PNG", data) == "a b_c_.png"
    assert store.upload("first.png", data) == "first-3.png"
    assert all(path.is_relative_to(folder) for path in store.listing().values())


@pytest.mark.parametrize(
    ("name", "data"),
    [("text.png", b"just text"), ("empty.png", b""), ("x.svg", b"<svg/>"), ("x", b"")],
)
def test_what_is_no_image_is_refused_and_not_kept(folder, name, data):
    store = Store(folder)
    with pytest.raises(ValueError, match=name):
        store.upload(name, data)
    assert list(store.listing()) == ["first.png", "second.png"]


def test_a_truncated_image_is_refused(folder):
    data = (folder / "first.png").read_bytes()
    with pytest.raises(ValueError, match=r"cut\.png"):
        Store(folder).upload("cut.png", data[: len(data) // 2])


def test_an_enormous_image_is_refused_by_its_header(folder):
    # 30,000 × 30,000 pixels of one bit: 110 KB.
    Image.new("1", (30_000, 30_000)).save(folder / "huge.png")
    with pytest.raises(ValueError, match=r"huge\.png"):
        Store(folder).read("huge.png")
    Image.new("1", (9_000, 9_000)).save(folder / "large.png")
    with pytest.raises(ValueError, match="9000 × 9000 pixels are more than"):
        Store(folder).read("large.png")


def test_large_images_are_reduced_and_their_labels_enlarged(folder, monkeypatch):
    monkeypatch.setattr(module, "WORK_PIXELS", 2000)
    picture = Store(folder).read("first.png")
    assert (picture.factor, picture.shape, picture.full) == (3, (32, 43), (96, 128))
    labels = np.arange(32 * 43).reshape(32, 43)
    large = picture.enlarged(labels)
    assert large.shape == (96, 128)
    np.testing.assert_array_equal(large[::3, ::3], labels)


def test_strokes_are_kept_and_unreadable_files_put_aside(folder):
    store = Store(folder)
    document, notice = store.load("first.png", (96, 128))
    assert (document.strokes, notice) == ([], None)
    stroke = {"tool": "brush", "label": 1, "size": 3, "points": [[4, 5]]}
    document.apply({"id": "a", "kind": "stroke", "stroke": stroke})
    stamp = store.save("first.png", document.to_json(), None)
    assert stamp == store.stamp("first.png")
    again, notice = store.load("first.png", (96, 128))
    assert again.to_json() == document.to_json()
    assert notice is None
    path = store.state_path("first.png")
    path.write_text(path.read_text()[:-10])
    empty, notice = store.load("first.png", (96, 128))
    assert empty.strokes == []
    assert "kept as first.png.json.unreadable" in notice
    assert path.with_name("first.png.json.unreadable").exists()


def test_what_another_server_wrote_is_not_overwritten(folder):
    one, two = Store(folder), Store(folder)
    state = Document("first.png", (96, 128)).to_json()
    first = one.save("first.png", state, None)
    with pytest.raises(ChangedElsewhere):
        two.save("first.png", state, None)
    second = two.save("first.png", state, first)
    with pytest.raises(ChangedElsewhere):
        one.save("first.png", state, first)
    one.state_path("first.png").unlink()
    assert one.save("first.png", state, second) is not None  # what is gone cannot be overwritten


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_cannot_be_written_says_so(folder):
    (folder / STATE).write_text("a file where the folder should be")
    with pytest.raises(OSError, match=STATE):
        Store(folder).save("first.png", Document("first.png", (96, 128)).to_json(), None)
