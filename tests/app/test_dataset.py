"""Data sets of a folder's labels, objects and regions."""

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from densecrf.app.dataset import FORMATS, Labelled, objects, one_outline, write_dataset
from densecrf.app.document import Document, Label
from densecrf.app.project import Project
from densecrf.app.strokes import SLOTS
from densecrf.app.unsure import unsure_regions
from densecrf.io import read_labels
from densecrf.io.coco import inside

masks = arrays.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))


@given(masks.filter(np.any))
def test_one_outline_has_the_pixels_of_a_mask_with_islands_and_holes(mask):
    np.testing.assert_array_equal(inside(np.array(one_outline(mask), float), mask.shape), mask)


def test_unsure_regions_are_wide_ones_the_largest_first():
    confidence = np.ones((120, 160))
    confidence[20:40, 20:60] = 0.3
    confidence[80:96, 100:120] = 0.5
    confidence[60] = 0.4  # a border between labels
    one, two = unsure_regions(confidence)
    for box, (x, y, width, height) in ((one, (20, 20, 40, 20)), (two, (100, 80, 20, 16))):
        assert abs(box["x"] - x) <= 2
        assert abs(box["y"] - y) <= 2
        assert abs(box["width"] - width) <= 4
        assert abs(box["height"] - height) <= 4
    assert unsure_regions(np.stack([np.ones((120, 160)), confidence]))[0]["slice"] == 1
    assert unsure_regions(np.ones((4, 4))) == []


def example(background=False, things=False):
    """Return a project of three classes, and an image with two objects of the last."""
    labels = tuple(Label(n, "#102030", uid=n) for n in ("sky", "road", "car"))
    labels = (*labels[:2], Label("car", "#ff0000", uid="car", things=things))
    document = Document("a/b.png", (6, 8), list(labels), objects=[2])
    slots = np.zeros((6, 8), np.uint8)
    slots[4:] = 1
    slots[1:3, 1:3] = 2
    slots[1:3, 3:5] = SLOTS[0]
    slots[1:3, 6:7] = SLOTS[0]
    return Labelled("a/b.png", slots, document.classes, "done"), Project(labels, background)


def test_objects_are_drawn_ones_or_regions():
    image, project = example()
    assert [label for label, _ in objects(image, project)] == [0, 1, 2, 2]
    image, project = example(background=True)
    assert [label for label, _ in objects(image, project)] == [1, 2, 2]
    image, project = example(things=True)
    found = [(label, int(mask.sum())) for label, mask in objects(image, project)]
    assert found == [(0, 22), (1, 16), (2, 4), (2, 4), (2, 2)]


def written(kind, tmp_path, background=False):
    image, project = example(background)
    write_dataset(tmp_path / kind, kind, [image], project)
    return tmp_path / kind, image


@pytest.mark.parametrize("background", [False, True])
def test_pycocotools_reads_the_categories_and_masks(tmp_path, background):
    tools = pytest.importorskip("pycocotools.coco")
    path, image = written("coco", tmp_path, background)
    read = tools.COCO(str(path))
    names = {c["id"]: c["name"] for c in read.loadCats(read.getCatIds())}
    expected = {0: "sky", 1: "road", 2: "car"}
    assert names == {i: n for i, n in expected.items() if i or not background}
    cars = read.loadAnns(read.getAnnIds(catIds=[2]))
    assert len(cars) == 2
    drawn = sum(read.annToMask(each) for each in cars)
    np.testing.assert_array_equal(drawn, image.labels == 2)


def test_numbers_are_the_same_in_every_format(tmp_path):
    path, image = written("png", tmp_path)
    with zipfile.ZipFile(path) as archive:
        data = io.BytesIO(archive.read("labels/a/b.png"))
        classes = archive.read("classes.csv").decode().splitlines()
        rows = archive.read("images.csv").decode().splitlines()
    (tmp_path / "b.png").write_bytes(data.getvalue())
    np.testing.assert_array_equal(read_labels(tmp_path / "b.png"), image.labels)
    assert classes[1:] == ["0,sky,#102030", "1,road,#102030", "2,car,#ff0000"]
    assert rows[-1] == "a/b.png,done,2,car,10,2"
    path, _ = written("yolo", tmp_path)
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("labels/a/b.txt").decode().splitlines()
        names = archive.read("data.yaml").decode()
    assert '  2: "car"' in names
    for line, (label, mask) in zip(lines, objects(image, example()[1]), strict=True):
        number, *points = line.split()
        outline = np.array(points, float).reshape(-1, 2) * (8, 6)
        assert int(number) == label
        np.testing.assert_array_equal(inside(outline, (6, 8)), mask)
    path, _ = written("voc", tmp_path)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("ImageSets/Segmentation/all.txt") == b"a/b\n"
        (tmp_path / "c.png").write_bytes(archive.read("SegmentationClass/a/b.png"))
        (tmp_path / "o.png").write_bytes(archive.read("SegmentationObject/a/b.png"))
        boxes = archive.read("Annotations/a/b.xml").decode()
    np.testing.assert_array_equal(read_labels(tmp_path / "c.png"), image.labels)
    assert read_labels(tmp_path / "o.png").max() == 4
    assert "<name>car</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax>" in boxes


def test_files_with_one_stem_do_not_overwrite_each_other(tmp_path):
    image, project = example()
    twin = Labelled("a/b.jpg", image.slots, image.classes)
    write_dataset(tmp_path / "x", "png", [image, twin], project)
    with zipfile.ZipFile(tmp_path / "x") as archive:
        assert {"labels/a/b.png", "labels/a/b.jpg.png"} <= set(archive.namelist())


def test_documents_with_objects_are_renumbered_and_compacted():
    labels = [Label(n, "#000000", uid=n) for n in "abc"]
    document = Document("a.png", (6, 8), labels)
    edits = [
        {"kind": "object", "label": 2, "at": 0},
        {"kind": "object", "label": 1, "at": 1},
        *(
            {"kind": "stroke", "stroke": {"tool": "brush", "label": n, "points": [[n % 7, 2]]}}
            for n in (0, SLOTS[0], SLOTS[1])
        ),
    ]
    for number, edit in enumerate(edits):
        document.apply({"id": str(number), **edit})
    for wrong in ({"kind": "object", "label": 1, "at": 5}, {"kind": "object", "label": 9, "at": 2}):
        with pytest.raises(ValueError, match=r"object|label"):
            document.apply({"id": "x", **wrong})
    compact, slots = document.compact()
    assert slots == [0, SLOTS[0], SLOTS[1]]
    assert [stroke.label for stroke in compact.strokes] == [0, 1, 2]
    again = Document.from_json(json.loads(json.dumps(document.to_json())), "a.png", (6, 8))
    assert again.to_json() == document.to_json()
    # Class c is deleted, with its object: the other object moves up.
    document.relabel(labels[:2], [0, 1, None])
    assert document.objects == [1]
    assert [stroke.label for stroke in document.strokes] == [0, SLOTS[0]]
    assert set(FORMATS) == {"png", "coco", "yolo", "voc"}
