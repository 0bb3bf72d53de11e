"""The folder at a glance: status, thumbnails, all labels as one file, and labels to begin with."""

import io
import zipfile

import numpy as np
from PIL import Image

from browser_tab import IDS, ORIGIN, STROKES, Tab, brush, connected, own
from densecrf.app import rooms
from densecrf.app.store import STATE
from densecrf.io import read_labels, write_labels


def edit(kind, **values):
    return {"type": "edit", "edit": {"id": f"g{next(IDS)}", "kind": kind, **values}}


def labelled(socket, image="first.png"):
    """Draw on an image and mark it as done, as soon as its labels are kept."""
    tab = Tab(socket, image)
    tab.draw(*({**each, "edit": {**each["edit"], "id": f"g{next(IDS)}"}} for each in STROKES))
    tab.until("labelled")
    tab.draw(edit("status", status="done"))
    tab.until("saved")
    return tab


def test_status_thumbnails_and_data_set(client, folder, monkeypatch):
    before = client.get(own("thumbnail?name=first.png")).content
    with connected(client) as socket:
        labelled(socket)
        tab = Tab(socket, "second.png")
        tab.draw(STROKES[0], last := edit("status", status="doubtful"))
        while last["edit"]["id"] not in tab.until("saved")["ids"]:
            pass
    listing = {each["name"]: each for each in client.get(own("images")).json()}
    assert (listing["first.png"]["status"], listing["first.png"]["strokes"]) == ("done", 3)
    assert listing["second.png"]["status"] == "doubtful"
    after = client.get(own("thumbnail?name=first.png"))
    assert Image.open(io.BytesIO(after.content)).size == (128, 96)
    assert after.content != before
    assert client.get(own("thumbnail?name=none.png")).status_code == 422
    # What is on disk is not solved again; one stroke alone is no labelling.
    monkeypatch.setattr(rooms.Live, "settled", None)
    answer = client.get(own("dataset/png?only=done"))
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        data = archive.read("labels/first.png")
    assert data == (folder / STATE / "first.png.labels.png").read_bytes()
    assert answer.headers["content-disposition"].endswith("images.labels.zip")
    assert "none of png" in client.get(own("dataset/exe")).json()["error"]


def test_a_data_set_of_a_folder_without_labels_says_so(client):
    assert "no image is labelled" in client.get(own("dataset/coco")).json()["error"]


def test_labels_that_are_not_on_disk_are_solved_for_the_data_set(client, folder):
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES)
        tab.until("saved")
        tab = Tab(socket, "second.png")
        tab.draw(brush(1, (10, 10), (50, 10)))  # no labelling yet
        tab.until("saved")
    answer = client.get(own("dataset/coco")).json()
    assert list(answer["info"]["skipped"]) == ["second.png"]
    assert [image["file_name"] for image in answer["images"]] == ["first.png"]
    assert {each["category_id"] for each in answer["annotations"]} == {0, 1, 2}


def test_a_volume_keeps_its_strokes_and_is_left_out_of_the_data_set(client, folder):
    np.save(folder / "ball.npy", np.arange(6 * 40 * 48, dtype=np.uint8).reshape(6, 40, 48))
    with connected(client) as socket:
        tab = Tab(socket, "ball.npy")
        tab.draw(brush(0, (3, 3), (9, 3)), last := brush(1, (3, 30), (9, 30)))
        while last["edit"]["id"] not in tab.until("saved")["ids"]:
            pass
    state = folder / STATE / "ball.npy.json"
    before = state.read_bytes()
    assert "a volume is exported by itself" in client.get(own("dataset/png")).json()["error"]
    assert state.read_bytes() == before


def test_objects_of_a_class_are_told_apart_to_the_end(client, folder):
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(STROKES[0], brush(1, (5, 80), (50, 80)), edit("object", label=1, at=0))
        tab.draw(brush(64, (80, 80), (120, 80)), STROKES[2])
        head = {}
        while head.get("revision") != 5:
            head, planes = tab.until("answer", "certified")
        assert set(np.unique(planes[0])) == {0, 1, 2, 64}
        tab.until("labelled")
    assert set(np.unique(read_labels(folder / STATE / "first.png.labels.png"))) == {0, 1, 2}
    for path in ("dataset/coco", "export/coco?name=first.png"):
        found = client.get(own(path)).json()["annotations"]
        assert [each["category_id"] for each in found] == [0, 1, 2, 1]
        assert sum(each["area"] for each in found) == 96 * 128


def mask(size=(128, 96), value=1):
    labels = np.zeros(size[::-1], np.uint8)
    labels[30:70, 40:90] = value
    return labels


def png(tmp_path, labels):
    write_labels(tmp_path / "mask.png", labels)
    return (tmp_path / "mask.png").read_bytes()


def test_masks_are_imported_corrected_and_renumbered(client, folder, tmp_path):
    send = {"headers": {"origin": ORIGIN}}
    data = png(tmp_path, mask())
    with connected(client) as socket:
        tab = Tab(socket)
        assert client.post(own("mask?name=first_mask.png"), content=data, **send).json() == {
            "name": "first.png"
        }
        _, planes = tab.until("answer", "certified")  # without a stroke
        assert planes[0][50, 60] == 1
        assert planes[0][5, 5] == 0
        tab.draw(brush(2, (5, 85), (120, 85)))
        head = {}
        while head.get("revision") != 2:
            head, planes = tab.until("answer", "certified")
        assert planes[0][85, 60] == 2
        # Label 0 goes to the end: the mask follows.
        labels = tab.document["labels"]
        tab.draw(edit("labels", labels=[*labels[1:], labels[0]]))
        head = {}
        while head.get("revision") != 4:
            head, planes = tab.until("answer", "certified")
        assert (planes[0][50, 60], planes[0][85, 60], planes[0][5, 5]) == (0, 1, 3)
    for name, content, reason in (
        ("other.png", data, "no image here called 'other'"),
        ("first.png", b"text", "first.png: is not an image"),
        ("first.png", png(tmp_path, mask((20, 20))), "20 × 20 pixels, the image has 128 × 96"),
        ("first.png", png(tmp_path, mask(value=9)), "has label 9; the folder's are 0 to 3"),
    ):
        answer = client.post(own(f"mask?name={name}"), content=content, **send)
        assert (answer.status_code, reason in answer.json()["error"]) == (422, True), answer.text


def test_labels_are_copied_to_the_next_image_unless_it_is_done(client, folder):
    send = {"headers": {"origin": ORIGIN}}
    with connected(client) as socket:
        labelled(socket)
        first = read_labels(folder / STATE / "first.png.labels.png")
        assert client.post(own("copy?from=first.png&name=second.png"), **send).status_code == 200
        tab = Tab(socket, "second.png")
        _, planes = tab.until("answer", "certified")
        assert (planes[0] == first).mean() > 0.98
        answer = client.post(own("copy?from=second.png&name=first.png"), **send)
        assert "first.png is done" in answer.json()["error"]
