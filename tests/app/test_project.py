"""Classes of a folder: their file, and what renaming, reordering, merging and deleting do."""

import json

import pytest
from starlette.testclient import TestClient

from browser_tab import IDS, ORIGIN, PORT, STROKES, TOKEN, Tab, brush, connected
from command_line import densecrf
from densecrf.app.document import Document, Label
from densecrf.app.project import GONE, Project, read_classes
from densecrf.app.server import make_app
from densecrf.app.store import STATE, ImageFolder
from densecrf.app.strokes import Stroke

SHAPE = (96, 128)


def project(*names, **values):
    labels = [Label(name, f"#{i:06x}", uid=name) for i, name in enumerate(names)]
    return Project(tuple(labels), **values)


def changed(before, names, **values):
    labels = [{"name": n, "color": "#000000", "uid": u} for u, n in names.items()]
    return before.changed({"labels": labels, **values})


def document(labels, *numbers):
    strokes = [Stroke("brush", n, 3.0, ((n, n),), protected=(0, n)) for n in numbers]
    return Document("first.png", SHAPE, list(labels), strokes=strokes)


def test_reordering_merging_and_deleting_renumber_strokes():
    before = project("sky", "car", "road", "tree")
    after = changed(before, {"road": "street", "sky": "sky"}, merged={"car": "road", "tree": GONE})
    assert [label.name for label in after.labels] == ["street", "sky"]
    assert after.numbers(before.labels) == [1, 0, 0, None]
    drawn = document(before.labels, 0, 1, 2, 3)
    assert drawn.relabel(after.labels, after.numbers(before.labels))
    assert [stroke.label for stroke in drawn.strokes] == [1, 0, 0]
    assert [stroke.protected for stroke in drawn.strokes] == [(1,), (0, 1), (0, 1)]
    # Once more: what was merged follows what it was merged into.
    last = changed(after, {"sky": "sky", "new": "new"}, merged={"road": "new"})
    assert last.numbers(before.labels) == [0, 1, 1, None]
    assert Project.from_json(json.loads(json.dumps(last.to_json()))) == last


def test_a_label_is_not_lost_without_a_word():
    before = project("sky", "car", "road")
    with pytest.raises(ValueError, match="'road' is missing: merge or delete it"):
        changed(before, {"sky": "sky", "car": "car"})
    with pytest.raises(ValueError, match="is missing"):
        changed(before, {"sky": "sky", "car": "car"}, merged={"road": "nothing"})


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"labels": [{"name": "a", "color": "#000000", "uid": "a"}], "merged": {"b": GONE}},
        {"labels": [{"name": n, "color": "#000000", "uid": "a"} for n in "ab"]},
        {"labels": [{"name": "a", "color": "#000000", "uid": u} for u in "ab"]},
        {"labels": [{"name": n, "color": "red", "uid": n} for n in "ab"]},
        {"labels": [{"name": n, "color": "#000000", "uid": n, "key": "ab"} for n in "ab"]},
        {"labels": [{"name": n, "color": "#000000", "uid": n, "key": "k"} for n in "ab"]},
        {"labels": [{"name": f"{n}", "color": "#000000", "uid": f"{n}"} for n in range(65)]},
        {"labels": [{"name": n, "color": "#000000", "uid": n} for n in "ab"], "merged": 3},
    ],
)
def test_classes_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"\w"):
        project("a", "b").changed(wrong)


def test_files_of_classes(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffbackground\n\nbig car #FF0000\nno. #7\n", "utf-8")
    found = read_classes(tmp_path / "a.txt")
    assert [label.name for label in found.labels] == ["background", "big car", "no. #7"]
    assert found.labels[1].color == "#ff0000"
    assert found.background
    (tmp_path / "b.json").write_text('["sky", {"name": "car", "key": "C", "color": "#00ff00"}]')
    found = read_classes(tmp_path / "b.json")
    assert [(x.name, x.key) for x in found.labels] == [("sky", ""), ("car", "c")]
    assert not found.background
    (tmp_path / "c.json").write_text('{"labels": ["a", "b"], "background": true}')
    assert read_classes(tmp_path / "c.json").background


@pytest.mark.parametrize("text", ["", "one", "a\na\n", '{"labels": 3}', "[1, 2]", "[[[", "\x00"])
def test_files_that_hold_no_classes_are_refused_by_name(tmp_path, text):
    for name in ("classes.txt", "classes.json"):
        if name.endswith("txt") and text.startswith(("{", "[")):
            continue
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=name):
            read_classes(tmp_path / name)


def test_a_folder_takes_the_classes_of_a_file(folder, tmp_path):
    store = ImageFolder(folder)
    store.save("first.png", document(store.project().labels, 0, 3).to_json(), None)
    (tmp_path / "classes.txt").write_text("sky\nroad\ncar\ntree\nsign\n")
    store.use_classes(read_classes(tmp_path / "classes.txt"))
    assert [stroke.label for stroke in store.load("first.png", SHAPE)[0].strokes] == [0, 3]
    assert [label.name for label in store.load("second.png", SHAPE)[0].labels][4] == "sign"
    # Another order, by name; classes that the folder has cannot be left out.
    (tmp_path / "classes.txt").write_text("tree\nsky\nroad\ncar\nsign\n")
    store.use_classes(read_classes(tmp_path / "classes.txt"))
    assert [s.label for s in ImageFolder(folder).load("first.png", SHAPE)[0].strokes] == [1, 0]
    (tmp_path / "classes.txt").write_text("tree\nsky\n")
    with pytest.raises(ValueError, match="car, road, sign; merge or delete"):
        store.use_classes(read_classes(tmp_path / "classes.txt"))
    done = densecrf("app", folder, "--labels", tmp_path / "classes.txt", "--no-browser")
    assert done.exit_code == 1
    assert "merge or delete" in done.output


def test_strokes_of_a_folder_without_classes_bring_theirs(folder):
    store = ImageFolder(folder)
    for name, labels in (("first.png", "ab"), ("second.png", "bc")):
        state = document([Label(x, "#000000") for x in labels], 0, 1).to_json()
        for label in state["labels"]:
            del label["uid"]
        store.save(name, state, None)
    assert [stroke.label for stroke in store.load("first.png", SHAPE)[0].strokes] == [0, 1]
    assert [stroke.label for stroke in store.load("second.png", SHAPE)[0].strokes] == [1, 2]
    assert [label.name for label in store.project().labels] == ["a", "b", "c"]


def test_a_damaged_file_of_classes_is_said_and_not_overwritten(folder):
    (folder / STATE).mkdir()
    (folder / STATE / "project.json").write_text("[]")
    store = ImageFolder(folder)
    with pytest.raises(ValueError, match=r"project.json cannot be read.*Mend"):
        store.project()
    with pytest.raises(ValueError, match="cannot be read"):
        store.change_project(lambda now: now)
    assert (folder / STATE / "project.json").read_text() == "[]"


def relabel(labels, **values):
    edit = {"id": f"l{next(IDS)}", "kind": "labels", "labels": labels, **values}
    return {"type": "edit", "edit": edit}


def test_tabs_of_all_images_see_new_classes_and_late_strokes_are_renumbered(folder):
    app = make_app(ImageFolder(folder), TOKEN, PORT)
    with (
        TestClient(app, base_url=ORIGIN) as client,
        connected(client) as one,
        connected(client) as two,
    ):
        first, second = Tab(one), Tab(two, "second.png")
        first.draw(*STROKES)
        first.until("answer", "certified")
        old = first.document["labels"]
        # Label 0 is deleted, label 3 goes into label 1: 1, 2 are now 0, 1.
        first.draw(relabel(old[1:3], merged={old[0]["uid"]: "", old[3]["uid"]: old[1]["uid"]}))
        document = first.until("document")["document"]
        assert [stroke["label"] for stroke in document["strokes"]] == [0, 1]
        assert [label["name"] for label in document["labels"]] == ["label 2", "label 3"]
        assert second.until("document")["document"]["labels"] == document["labels"]
        # A stroke that was drawn before the tab knew.
        late = brush(3, (5, 5), (50, 50))
        late["edit"]["labels"] = [label["uid"] for label in old]
        second.draw(late)
        second.until("saved")
        gone = brush(0, (5, 5), (50, 50))
        gone["edit"]["labels"] = [label["uid"] for label in old]
        second.draw(gone)
        assert "deleted" in second.until("refused")["text"]
    state = json.loads((folder / STATE / "second.png.json").read_text())
    assert [stroke["label"] for stroke in state["strokes"]] == [0]
    assert [x.name for x in ImageFolder(folder).project().labels] == ["label 2", "label 3"]
