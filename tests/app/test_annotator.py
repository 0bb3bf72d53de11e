"""A scripted annotator labels a folder of facades in a real browser, and COCO's tools read it."""

import json
import shutil

import numpy as np
import pytest
import scipy.ndimage

from densecrf.io import read_labels

PER_CLASS = 2  # strokes at most, in the largest regions of each class
NARROW = 2.5  # pixels from a stroke to the border of its region, at least


def strokes(truth, label):
    """Yield lines, from 0 to 1, along the widest rows of the largest regions of a class."""
    number, count = scipy.ndimage.label(truth == label)
    sizes = np.bincount(number.ravel(), minlength=count + 1)[1:]
    for region in np.argsort(-sizes)[:PER_CLASS] + 1:
        depth = scipy.ndimage.distance_transform_edt(np.pad(number == region, 1))[1:-1, 1:-1]
        y, x = np.unravel_index(np.argmax(depth), depth.shape)
        if depth[y, x] < NARROW:
            continue
        narrow = np.flatnonzero(depth[y] < NARROW)
        left = max(narrow[narrow < x], default=-1) + 1
        right = min(narrow[narrow > x], default=truth.shape[1]) - 1
        height, width = truth.shape
        yield (
            ((left + 0.5) / width, (y + 0.5) / height),
            ((right + 0.5) / width, (y + 0.5) / height),
        )


def annotate(server, page, data, folder, count):
    """Label images with the keyboard and the mouse; return the truth and the export by COCO."""
    about = json.loads((data / "meta.json").read_text())
    classes = folder.parent / "classes.txt"
    classes.write_text("\n".join(about["classes"]))
    folder.mkdir()
    names = about["splits"]["val"][:count]
    for name in names:
        shutil.copy(data / "images" / f"{name}.jpg", folder)
    tab = page().open(server(folder, "--labels", classes).url)
    tab.press("[", "[", "[", "[", "[", "[")
    truths = {}
    for at, name in enumerate(names):
        tab.wait(image=f"{name}.jpg")
        truth = truths[f"{name}.jpg"] = read_labels(data / "labels" / f"{name}.png")
        drawn = 0
        for label in range(len(about["classes"])):
            for stroke in strokes(truth, label):
                tab.press(str(label + 1))
                tab.draw(*stroke)
                drawn += 1
        tab.wait(strokes=drawn, saved="yes", state="current", revision=drawn)
        tab.press("d")
        tab.wait(status="done", saved="yes")
        if at + 1 < count:
            tab.press("n")
    tab.press("n")
    tab.tab.get_by_text("Every image of the folder is doubtful or done.").wait_for()
    tab.tab.click("#export")
    tab.tab.check("#only-done")
    with tab.tab.expect_download(timeout=600_000) as download:
        tab.tab.click("[data-dataset=coco]")
    download.value.save_as(folder.parent / "coco.json")
    assert tab.errors == []
    return about["classes"], truths, folder.parent / "coco.json"


@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_folder_of_facades_becomes_a_data_set(server, page, shared_data, tmp_path, count):
    tools = pytest.importorskip("pycocotools.coco")
    data = shared_data / "facade"
    classes, truths, path = annotate(server, page, data, tmp_path / "facades", count)
    read = tools.COCO(str(path))
    found = {category["id"]: category["name"] for category in read.loadCats(read.getCatIds())}
    assert found == dict(enumerate(classes))
    images = read.loadImgs(read.getImgIds())
    assert {image["file_name"] for image in images} == truths.keys()
    right = total = 0
    for image in images:
        truth = truths[image["file_name"]]
        labels = np.full(truth.shape, 255)
        for each in read.loadAnns(read.getAnnIds(imgIds=[image["id"]])):
            labels[read.annToMask(each) == 1] = each["category_id"]
        assert 255 not in labels
        for label in np.unique(truth[truth != 255]).tolist():
            for (left, y), (right_, _) in strokes(truth, label):
                x = int((left + right_) / 2 * truth.shape[1])
                assert labels[int(y * truth.shape[0]), x] == label
        known = truth != 255
        right, total = right + (labels == truth)[known].sum(), total + known.sum()
    print(f"{count} images: {100 * right / total:.1f} % of the pixels as in the truth")
    assert right / total > 0.5
