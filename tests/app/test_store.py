"""The folder: what is listed, read, kept and refused; no path leads out of it."""

import os
import sys

import numpy as np
import pytest
from PIL import Image

from densecrf.app import pictures as module
from densecrf.app.document import Document
from densecrf.app.store import STATE, ChangedElsewhere, ImageFolder
from densecrf.io import Palette, write_image
from scribbling import scene


def test_listing_sorts_by_numbers_and_leaves_its_own_files_out(tmp_path):
    for name in ("image10.png", "image2.png", "deep/image1.png", f"{STATE}/uploads/mine.png"):
        write_image(tmp_path / name, scene())
    (tmp_path / "notes.txt").write_text("no image")
    write_image(tmp_path / STATE / "image2.png.labels.png", scene())
    assert list(ImageFolder(tmp_path).listing()) == [
        "deep/image1.png",
        "image2.png",
        "image10.png",
        "mine.png",
    ]
    assert list(ImageFolder(tmp_path / "image2.png").listing()) == ["image2.png", "mine.png"]


def test_without_a_folder_there_are_uploads_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "other.png", scene())
    store = ImageFolder(None)
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
    store = ImageFolder(folder)
    with pytest.raises(ValueError, match="no image"):
        store.read(name)


def test_uploads_get_plain_new_names(folder):
    store = ImageFolder(folder)
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
    store = ImageFolder(folder)
    with pytest.raises(ValueError, match=name):
        store.upload(name, data)
    assert list(store.listing()) == ["first.png", "second.png"]


def test_a_truncated_image_is_refused(folder):
    data = (folder / "first.png").read_bytes()
    with pytest.raises(ValueError, match=r"cut\.png"):
        ImageFolder(folder).upload("cut.png", data[: len(data) // 2])


def test_an_enormous_image_is_refused_by_its_header(folder):
    # 30,000 × 30,000 pixels of one bit: 110 KB.
    Image.new("1", (30_000, 30_000)).save(folder / "huge.png")
    with pytest.raises(ValueError, match=r"huge\.png"):
        ImageFolder(folder).read("huge.png")
    Image.new("1", (9_000, 9_000)).save(folder / "large.png")
    with pytest.raises(ValueError, match="9000 × 9000 pixels are more than"):
        ImageFolder(folder).read("large.png")


def test_large_images_are_reduced_and_their_labels_enlarged(folder, monkeypatch):
    monkeypatch.setattr(module, "WORK_PIXELS", 2000)
    picture = ImageFolder(folder).read("first.png")
    assert (picture.factor, picture.shape, picture.full) == (3, (32, 43), (96, 128))
    labels = np.arange(32 * 43).reshape(32, 43)
    large = picture.enlarged(labels)
    assert large.shape == (96, 128)
    np.testing.assert_array_equal(large[::3, ::3], labels)


def test_strokes_are_kept_and_unreadable_files_put_aside(folder):
    store = ImageFolder(folder)
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
    one, two = ImageFolder(folder), ImageFolder(folder)
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
        ImageFolder(folder).save("first.png", Document("first.png", (96, 128)).to_json(), None)


def test_nothing_is_written_behind_a_planted_link(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    store = ImageFolder(folder)
    data = (folder / "first.png").read_bytes()
    state = Document("first.png", (96, 128)).to_json()
    store.uploads.mkdir(parents=True)
    (store.uploads / "photo.png").symlink_to(outside / "photo.png")
    assert store.upload("photo.png", data) == "photo-2.png"
    precious = outside / "precious"
    precious.write_text("precious")
    for planted in (".lock", "first.png.json"):
        link = store.state / planted
        link.unlink(missing_ok=True)
        link.symlink_to(precious)
        with pytest.raises(OSError, match="remove the link"):
            store.save("first.png", state, store.stamp("first.png"))
        link.unlink()
    (store.state / "first.png.labels.png").symlink_to(outside / "labels.png")
    with pytest.raises(OSError, match="remove the link"):
        store.save_labels("first.png", np.zeros((2, 2), np.uint8), Palette.generic(2))
    assert (precious.read_text(), list(outside.iterdir())) == ("precious", [precious])


@pytest.mark.parametrize("planted", [STATE, f"{STATE}/uploads", f"{STATE}/deep"])
def test_a_planted_link_to_a_folder_is_not_followed(folder, tmp_path, planted):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "image.png.json").write_text("not strokes")
    write_image(folder / "deep" / "image.png", scene())
    (folder / planted).parent.mkdir(exist_ok=True)
    (folder / planted).symlink_to(outside, target_is_directory=True)
    store = ImageFolder(folder)
    name = "deep/image.png" if planted.endswith("deep") else "image.png"
    if planted.endswith("uploads"):
        with pytest.raises(OSError, match="remove the link"):
            store.upload("x.png", (folder / "first.png").read_bytes())
    else:
        document, notice = store.load(name, (96, 128))
        assert "remove the link" in notice
        with pytest.raises(OSError, match="remove the link"):
            store.save(name, document.to_json(), store.stamp(name))
    assert [path.name for path in outside.iterdir()] == ["image.png.json"]


def test_a_loop_of_links_is_no_image(folder):
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    assert list(ImageFolder(folder).listing()) == ["first.png", "second.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in Unicode alone")
def test_a_name_that_is_not_utf_8_is_listed_and_kept(folder):
    (folder / "first.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    store = ImageFolder(folder)
    assert list(store.listing()) == ["caf\\xe9.png", "second.png"]
    assert store.read("caf\\xe9.png").shape == (96, 128)
    store.save("caf\\xe9.png", Document("x", (96, 128)).to_json(), None)
    assert store.stamp("caf\\xe9.png") is not None
