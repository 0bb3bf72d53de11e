"""``densecrf masks``: COCO files of one image and of a folder, in and out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import densecrf, said
from densecrf.io import write_image
from densecrf.io.coco import decode, encode_runs, run_lengths
from densecrf.masks import refine_masks

H, W = 40, 60


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Two images of a bright square, and a displaced mask of it; the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "images").mkdir()
    image = np.full((H, W, 3), 60, np.uint8)
    image[10:30, 20:40] = 180
    for name in "ab":
        write_image(f"images/{name}.png", image)
    mask = np.zeros((H, W), bool)
    mask[13:33, 17:37] = True
    return image, mask


def annotation(mask, number=1, image=1, **more):
    counts = encode_runs(run_lengths(mask))
    return {
        "id": number,
        "image_id": image,
        "category_id": 3,
        "segmentation": {"size": [H, W], "counts": counts},
        **more,
    }


def test_results_of_one_image_are_refined(scene, tmp_path):
    image, mask = scene
    given = [annotation(mask, score=0.9), annotation(np.roll(mask, 1, 0), 2, score=0.5)]
    (tmp_path / "m.json").write_text(json.dumps(given))
    result = densecrf("masks", "images/a.png", "m.json")
    assert result.exit_code == 0, said(result)
    assert "largest gap" in result.stdout
    out = json.loads((tmp_path / "m.refined.json").read_text())
    assert [each["id"] for each in out] == [1, 2]
    assert out[0]["category_id"] == 3
    assert out[0]["densecrf"]["gap"] < 1e-3
    expected = refine_masks(image, given)
    for each, found in zip(out, expected, strict=True):
        assert (decode(each["segmentation"], (H, W)) == found.mask).all()
    assert json.loads((tmp_path / "m.json").read_text()) == given


def test_a_data_set_of_a_folder_is_refined(scene, tmp_path):
    mask = scene[1]
    content = {
        "images": [{"id": i, "file_name": f"{name}.png"} for i, name in enumerate("ab")],
        "categories": [{"id": 3, "name": "square"}],
        "annotations": [
            annotation(mask, 1, 0, area=400, bbox=[0, 0, 1, 1]),
            {"id": 2, "image_id": 1, "segmentation": [[17, 13, 37, 13, 37, 33, 17, 33]]},
        ],
    }
    (tmp_path / "set.json").write_text(json.dumps(content))
    result = densecrf("masks", "images", "set.json", "--out", "out.json", "--json")
    assert result.exit_code == 0, said(result)
    assert len(json.loads(result.stdout)["images"]) == 2
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["categories"] == content["categories"]
    first, second = out["annotations"]
    assert first["area"] == decode(first["segmentation"], (H, W)).sum()
    assert first["bbox"] == [20, 10, 20, 20]
    assert isinstance(second["segmentation"][0], list)
    alone = densecrf("masks", "images/b.png", "set.json", "--out", "one.json")
    assert alone.exit_code == 0, said(alone)
    kept = json.loads((tmp_path / "one.json").read_text())["annotations"][0]
    assert "densecrf" not in kept


def test_options_are_those_of_the_library(scene, tmp_path):
    image, mask = scene
    given = [annotation(mask), annotation(np.roll(mask, 6, 1), 2)]
    (tmp_path / "m.json").write_text(json.dumps(given))
    options = ["--exclusive", "--border", 4, "--strength", 0.5, "--gap", 1e-4]
    result = densecrf("masks", "images/a.png", "m.json", *options)
    assert result.exit_code == 0, said(result)
    expected = refine_masks(image, given, exclusive=True, border=4, strength=0.5, gap=1e-4)
    out = json.loads((tmp_path / "m.refined.json").read_text())
    for each, found in zip(out, expected, strict=True):
        assert (decode(each["segmentation"], (H, W)) == found.mask).all()


@pytest.mark.parametrize(
    ("content", "image", "message"),
    [
        ("no json", "images/a.png", "is not JSON"),
        ("{}", "images/a.png", "must hold a list of annotations"),
        ("[1]", "images/a.png", "must hold a list of annotations"),
        ("[]", "images", "names no images"),
        ('[{"image_id": 1}, {"image_id": 2}]', "images/a.png", "masks of several images"),
        ('[{"image_id": 1}]', "images/a.png", "masks[0]"),
        ('{"annotations": [{"image_id": [1]}], "images": [{"id": 1, "file_name": "a.png"}]}',
         "images", "not in images"),
        ('{"annotations": [], "images": [{"id": 1}]}', "images", "file_name"),
        ("[]", "images/none.png", "no such file"),
    ],
)  # fmt: skip
def test_bad_files_are_named(scene, tmp_path, content, image, message):
    (tmp_path / "m.json").write_text(content)
    result = densecrf("masks", image, "m.json")
    assert result.exit_code in (1, 2)
    assert message in said(result)
    assert not (tmp_path / "m.refined.json").exists()


def test_inputs_are_not_replaced(scene, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps([annotation(scene[1])]))
    result = densecrf("masks", "images/a.png", "m.json", "--out", "m.json")
    assert result.exit_code == 2
    assert "would replace the input" in said(result)


def test_an_image_that_fails_leaves_the_others(scene, tmp_path):
    mask = scene[1]
    content = {
        "images": [{"id": 0, "file_name": "a.png"}, {"id": 1, "file_name": "gone.png"}],
        "annotations": [annotation(mask, 1, 0), annotation(mask, 2, 1)],
    }
    (tmp_path / "set.json").write_text(json.dumps(content))
    result = densecrf("masks", "images", "set.json")
    assert result.exit_code == 1
    assert "gone.png" in said(result)
    first, second = json.loads((tmp_path / "set.refined.json").read_text())["annotations"]
    assert "densecrf" in first
    assert second == content["annotations"][1]
