from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from densecrf.io import (
    MSRC,
    Dataset,
    FileFormatError,
    ItemError,
    read_unary,
    write_image,
    write_labels,
)

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "b", "c")


def make(folder: Path, scores: str = "logits", key: str = "logits") -> Path:
    rng = np.random.default_rng(0)
    for name in NAMES:
        image = rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)
        write_image(folder / "images" / f"{name}.png", image)
        labels = rng.integers(0, 3, (8, 12))
        labels[0] = 255
        write_labels(folder / "labels" / f"{name}.png", labels)
        (folder / scores).mkdir(exist_ok=True)
        np.savez(folder / scores / f"{name}.npz", **{key: rng.normal(size=(2, 3, 3))})
    meta = {"name": "toy", "classes": ["x", "y", "z"], "void": 255, "splits": {"val": ["c", "a"]}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def edit_meta(folder: Path, **changes: object) -> Path:
    path = folder / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_opens_the_documented_layout(tmp_path: Path) -> None:
    data = Dataset.open(make(tmp_path))
    assert data.name == "toy"
    assert data.palette.classes == ("x", "y", "z")
    assert data.names() == NAMES
    assert data.names("val") == ("c", "a")
    first = data.items["a"].load()
    assert first.name == "a"
    assert first.image.shape == (8, 12, 3)
    assert first.labels is not None
    assert (first.labels[0] == 255).all()
    assert first.scores.kind == "logits"
    assert first.scores.values.shape == (3, 8, 12)


def test_scores_are_resized_with_half_pixel_centres(tmp_path: Path) -> None:
    item = Dataset.open(make(tmp_path)).items["a"]
    low, high = item.scores(), item.scores((8, 12))
    np.testing.assert_array_equal(high.values[:, :2, :2], np.tile(low.values[:, :1, :1], (2, 2)))


@pytest.mark.parametrize(
    ("scores", "key", "kind"), [("unaries", "unary", "energies"), ("logits", "logits", "logits")]
)
def test_the_folder_says_the_kind(tmp_path: Path, scores: str, key: str, kind: str) -> None:
    assert Dataset.open(make(tmp_path, scores, key)).items["a"].load().scores.kind == kind


def test_broken_and_missing_items_are_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "images" / "b.png").write_bytes(b"broken")
    edit_meta(tmp_path, splits={"val": ["a", "b", "missing", "c"]})
    data = Dataset.open(tmp_path)
    assert data.names("val") == ("a", "b", "missing", "c")
    assert data.items["c"].load().name == "c"
    with pytest.raises(ItemError, match=r"^b: .*images.b\.png: is not an image") as broken:
        data.items["b"].load()
    assert str(pickle.loads(pickle.dumps(broken.value))) == str(broken.value)
    with pytest.raises(ItemError, match=r"^missing: .*missing\.png: No such file"):
        data.items["missing"].load()


def test_items_whose_files_do_not_fit_are_named(tmp_path: Path) -> None:
    make(tmp_path)
    write_labels(tmp_path / "labels" / "a.png", np.zeros((8, 11), int))
    with pytest.raises(ItemError, match=r"labels.a\.png: has shape \(8, 11\), the image has"):
        Dataset.open(tmp_path).items["a"].load()
    write_labels(tmp_path / "labels" / "a.png", np.full((8, 12), 7))
    with pytest.raises(ItemError, match=r"a\.png: label 7 at \(0, 0\) is outside the 3 classes"):
        Dataset.open(tmp_path).items["a"].load()
    np.savez(tmp_path / "logits" / "b.npz", logits=np.zeros((2, 3, 4)))
    with pytest.raises(ItemError, match=r"b\.npz: has 4 labels, 3 were expected"):
        Dataset.open(tmp_path).items["b"].load()
    (tmp_path / "logits" / "c.npz").unlink()
    with pytest.raises(ItemError, match=r"c\.npz: No such file"):
        Dataset.open(tmp_path).items["c"].load()


def test_labels_and_scores_may_be_absent_altogether(tmp_path: Path) -> None:
    make(tmp_path)
    for folder in ("labels", "logits"):
        for path in (tmp_path / folder).iterdir():
            path.unlink()
        (tmp_path / folder).rmdir()
    item = Dataset.open(tmp_path).items["a"]
    assert item.labels() is None
    with pytest.raises(ItemError, match="has no logits/, probs/ or unaries/"):
        item.load()


def test_several_kinds_of_scores_need_a_choice(tmp_path: Path) -> None:
    make(make(tmp_path), "unaries", "unary")
    with pytest.raises(FileFormatError, match="choose kind='logits' or kind='energies'"):
        Dataset.open(tmp_path)
    assert Dataset.open(tmp_path, kind="energies").items["a"].load().scores.kind == "energies"
    with pytest.raises(FileFormatError, match="has no folder of probabilities"):
        Dataset.open(tmp_path, kind="probabilities")


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "images" / "a.bmp").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"a\.png: has the same name as a\.bmp"):
        Dataset.open(tmp_path)


def test_label_first_scores_are_declared(tmp_path: Path) -> None:
    make(tmp_path)
    np.savez(tmp_path / "logits" / "a.npz", logits=np.zeros((3, 8, 12)))
    edit_meta(tmp_path, axis="first")
    assert Dataset.open(tmp_path).items["a"].load().scores.values.shape == (3, 8, 12)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"classes": ["x"]}, "at least two different names"),
        ({"classes": ["x", "x"]}, "at least two different names"),
        ({"classes": 3}, "at least two different names"),
        ({"void": "none"}, "void is 'none'"),
        ({"axis": "middle"}, "axis is 'middle'"),
        ({"splits": ["a"]}, "splits must map"),
        ({"splits": {"val": "a"}}, "must be a list"),
        ({"splits": {"val": ["../a"]}}, "not a plain file name"),
    ],
)
def test_a_wrong_meta_file_is_named(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    with pytest.raises(FileFormatError, match=rf"meta\.json: .*{reason}"):
        Dataset.open(edit_meta(make(tmp_path), **change))


def test_unusable_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Dataset.open(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match=r"meta\.json: is missing; write"):
        Dataset.open(tmp_path)
    with pytest.raises(FileFormatError, match="holds no images"):
        Dataset.open(tmp_path, classes="voc")
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(FileFormatError, match="is not JSON"):
        Dataset.open(tmp_path)
    (tmp_path / "meta.json").write_text("[]")
    with pytest.raises(FileFormatError, match="one JSON object"):
        Dataset.open(tmp_path)
    with pytest.raises(ValueError, match=r"split 'test' is not in .*; choose one of val"):
        Dataset.open(make(tmp_path)).names("test")


def test_known_classes_bring_their_colours(tmp_path: Path) -> None:
    make(tmp_path)
    edit_meta(tmp_path, classes=list(MSRC.classes))
    assert Dataset.open(tmp_path).palette == MSRC
    edit_meta(tmp_path, classes="voc", void=-1)
    assert Dataset.open(tmp_path).palette.void == -1


def test_reads_the_reference_data(shared_data: Path) -> None:
    data = Dataset.open(shared_data / "msrc")
    assert data.palette == MSRC
    assert len(data.names("val")) == 59
    assert len(data.names("test")) == 128
    sample = data.items[data.names("val")[0]].load()
    assert sample.labels is not None
    known = sample.labels != 255
    agreement = (sample.scores.energies().argmin(0) == sample.labels)[known].mean()
    assert agreement > 0.9


def test_reads_the_published_images_with_their_scores(shared_data: Path) -> None:
    folder = shared_data / "msrc_paper"
    with pytest.raises(ItemError, match="holds probs and unary"):
        Dataset.open(folder, classes="msrc").items["2_14_s"].load()
    for kind in ("probabilities", "energies"):
        data = Dataset.open(folder, classes="msrc", kind=kind)
        assert data.names() == ("2_14_s", "4_11_s")
        samples = [item.load() for item in data.items.values()]
        assert all(sample.scores.kind == kind for sample in samples)
        assert all(sample.image.shape[:2] == sample.scores.values.shape[1:] for sample in samples)


def test_unary_files_serve_as_scores(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "logits" / "a.npz").unlink()
    values = np.arange(3 * 8 * 12, dtype=">f4")
    header = np.array([12, 8, 3], ">u4").tobytes()
    (tmp_path / "logits" / "a.unary").write_bytes(header + values.tobytes())
    scores = Dataset.open(tmp_path).items["a"].load().scores
    np.testing.assert_array_equal(scores.values, read_unary(tmp_path / "logits" / "a.unary").values)
