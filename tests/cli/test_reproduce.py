"""``densecrf reproduce`` and ``densecrf tune`` as a user meets them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from densecrf.cli.app import app
from densecrf.experiments import speedup
from densecrf.io import write_image
from tiny_dataset import make_dataset


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return make_dataset(tmp_path / "tiny")


def densecrf(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(result):
    return " ".join((result.stdout + result.stderr).replace("│", " ").split())


def test_a_table_a_curve_a_panel_and_a_report(tiny, tmp_path):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--quiet")
    first = densecrf("reproduce", "table", *common, "--methods", "unary,mf5,lp", "--jobs", 2)
    assert first.exit_code == 0, said(first)
    assert "4 images" in said(first)
    again = densecrf("reproduce", "table", *common, "--methods", "unary,mf5,lp", "--format", "json")
    rows = json.loads(again.stdout)["rows"]
    saved = json.loads((tmp_path / "out" / "table-shared-usual.json").read_text())
    assert rows == saved["rows"]
    assert "one energy" in saved["about"]["notes"][0]
    curve = densecrf("reproduce", "curves", *common, "--images", "a", "--methods", "mf5,lp")
    assert curve.exit_code == 0, said(curve)
    panel = densecrf("reproduce", "panel", *common, "--images", "a,b", "--methods", "mf5,lp")
    assert panel.exit_code == 0, said(panel)
    gaps = densecrf("reproduce", "gaps", "out/table-shared-usual-images.csv")
    assert gaps.exit_code == 0, said(gaps)
    report = densecrf("reproduce", "report", "--out", "out")
    assert report.exit_code == 0, said(report)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png") == 3


def test_programs_get_json_and_nothing_else(tiny):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--json")
    table = answer("reproduce", "table", *common, "--methods", "unary,mf5,lp")
    assert [row["method"] for row in table["rows"]] == ["unary", "mf5", "lp"]
    assert "out/table-shared-usual.md" in table["files"]
    assert table["about"]["failures"] == {}
    curve = answer("reproduce", "curves", *common, "--images", "a", "--study", "order")
    assert [end["variant"] for end in curve["curves"]] == ["hard", "soft", "adaptive"]
    assert all(end["lower_bound"] <= end["energy"] for end in curve["curves"])
    panel = answer("reproduce", "panel", *common, "--images", "a,b", "--methods", "mf5")
    assert (panel["images"], panel["methods"]) == (["a", "b"], ["mf5"])
    gaps = answer("reproduce", "gaps", "out/table-shared-usual-images.csv", "--json")
    assert [len(values) for values in gaps["percent_above_the_best_bound"].values()] == [4, 4, 4]
    both = ("--first", "lp", "--second", "unary")
    difference = answer("reproduce", "difference", *common, *both)
    assert difference["images"] == 4
    assert set(difference["metrics"]["iou"]["difference"]) == {"estimate", "low", "high"}
    page = answer("reproduce", "report", "--out", "out", "--json")["page"]
    pictures = {curve["picture"], panel["picture"], gaps["picture"], page}
    assert all(Path(name).is_file() for name in pictures)


def answer(*arguments):
    """Run a command that prints JSON, which is all it may print there."""
    result = densecrf(*arguments)
    assert result.exit_code == 0, said(result)
    return json.loads(result.stdout)


def test_broken_images_are_listed_and_the_exit_code_says_so(tiny):
    (tiny / "logits" / "b.npz").write_bytes(b"rubbish")
    result = densecrf(
        "reproduce", "table", "--data", tiny, "--methods", "unary", "--threads", 1, "--quiet"
    )
    assert result.exit_code == 1
    assert "1 of 4 could not be used" in said(result)
    assert "b.npz" in said(result)
    assert "3 images" in said(result)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--data", "nowhere"), "nowhere"),
        (("--data", "tiny", "--protocol", "papers"), "shared"),
        (("--data", "tiny", "--params", "msrc"), "msrc-dc"),
        (("--data", "tiny", "--methods", "map"), "--methods map: must be one of"),
        (("--data", "tiny", "--images", "z"), "'z'"),
        (("--data", "tiny", "--split", "test"), "train, val"),
        (("--data", "tiny", "--format", "word"), "latex"),
    ],
)
def test_wrong_options_say_what_is_possible(tiny, arguments, text):
    result = densecrf("reproduce", "table", *arguments)
    assert result.exit_code in (1, 2)
    assert text in said(result)


def test_only_lines_with_bounds_have_gaps(tiny, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    result = densecrf("reproduce", "gaps", other)
    assert result.exit_code == 1
    assert "other.csv: is no table of images" in said(result)
    other.write_text("image,method,energy,lower_bound\na,mf,3,\n")
    assert "has no image with a bound" in said(densecrf("reproduce", "gaps", other))


def test_an_empty_folder_is_named(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    result = densecrf("reproduce", "table", "--data", "empty", "--classes", "msrc")
    assert result.exit_code != 0
    assert "holds no images" in said(result)


def test_a_table_that_cannot_be_written_is_refused_before_any_run(tiny, tmp_path):
    arguments = ("--data", tiny, "--methods", "unary", "--images", "a", "--threads", 1, "--quiet")
    (tmp_path / "out" / "table-shared-usual.txt").mkdir(parents=True)
    result = densecrf("reproduce", "table", *arguments, "--out", "out")
    assert result.exit_code == 2
    assert "out/table-shared-usual.txt cannot be written: it is a folder" in said(result)
    assert not (tmp_path / "out" / "records").exists()


def test_speedup_needs_colours(tiny, tmp_path):
    write_image(tmp_path / "grey.png", np.zeros((8, 8), np.uint8))
    result = densecrf("reproduce", "speedup", "--image", "grey.png", "--quiet")
    assert result.exit_code == 1
    assert "grey.png" in said(result)


def test_speedup_tells_programs_its_points(tiny, tmp_path, monkeypatch):
    few = partial(speedup.measure_speedup, sweeps={"labels": (2, 3)}, kernels=("spatial",))
    monkeypatch.setattr(speedup, "measure_speedup", few)
    write_image(tmp_path / "small.png", np.zeros((8, 8, 3), np.uint8))
    told = answer("reproduce", "speedup", "--image", "small.png", "--repeats", 1, "--json")
    assert [point["labels"] for point in told["points"]] == [2, 3]
    assert Path(told["picture"]).is_file()


def test_a_difference_has_an_interval(tiny):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--quiet")
    densecrf("reproduce", "table", *common, "--methods", "unary,mf5")
    result = densecrf("reproduce", "difference", *common, "--first", "mf5", "--second", "unary")
    assert result.exit_code == 0, said(result)
    assert "4 images" in said(result)
    assert "accuracy, difference: " in said(result)
    same = densecrf("reproduce", "difference", *common, "--first", "mf5@usual", "--second", "mf5")
    assert "iou, difference: 0.00 % (0.00 to 0.00" in said(same)
    wrong = densecrf("reproduce", "difference", *common, "--first", "mf5@mine", "--second", "mf5")
    assert wrong.exit_code == 2
    assert "mine: must be one of 'msrc-mf'" in said(wrong)


def test_tuned_parameters_serve_the_other_commands(tiny, tmp_path):
    pytest.importorskip("optuna")
    result = densecrf(
        "tune", "--data", tiny, "--split", "train", "--validation", "val", "--method", "mf5",
        "--trials", 2, "--threads", 1, "--out", "best.json", "--quiet",
    )  # fmt: skip
    assert result.exit_code == 0, said(result)
    assert "on the 2 images of val" in said(result)
    assert (tmp_path / "tune-best.png").is_file()
    again = densecrf(
        "tune", "--data", tiny, "--split", "train", "--validation", "val", "--method", "mf5",
        "--trials", 2, "--threads", 1, "--out", "best.json", "--json",
    )  # fmt: skip
    answer = json.loads(again.stdout)
    assert answer["parameters"] == {
        name: json.loads((tmp_path / "best.json").read_text())["parameters"][name]
        for name in answer["parameters"]
    }
    assert 0 <= answer["score"] <= 1
    table = densecrf(
        "reproduce", "table", "--data", tiny, "--params", "best.json", "--methods", "mf5",
        "--threads", 1, "--quiet", "--out", "out",
    )  # fmt: skip
    assert table.exit_code == 0, said(table)
    assert (tmp_path / "out" / "table-shared-best.md").is_file()
    logits = np.load(tiny / "logits" / "a.npz")["logits"]
    np.save(tmp_path / "a.npy", logits)
    image = tiny / "images" / "a.png"
    segmented = densecrf(
        "segment", image, "--probs", "a.npy", "--kind", "logits", "--params", "best.json",
        "--out", "seg", "--json",
    )  # fmt: skip
    assert segmented.exit_code == 0, said(segmented)
    settings = json.loads((tmp_path / "seg" / "a.json").read_text())["settings"]
    chosen = json.loads((tmp_path / "best.json").read_text())["parameters"]
    assert settings["model"]["chosen"]["sigma_xy"] == chosen["sigma_xy"]
    wrong = densecrf("segment", image, "--probs", "a.npy", "--params", "none.json")
    assert wrong.exit_code == 2
    assert "none.json" in said(wrong)
