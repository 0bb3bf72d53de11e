"""``python -m experiments`` as a user meets it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from densecrf.cli.app import app as densecrf_app
from densecrf.io import write_image
from densecrf.model.parameters import write_parameters
from densecrf.model.presets import PRESETS
from experiments import speedup
from experiments.commands import app
from tiny_dataset import make_dataset


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return make_dataset(tmp_path / "tiny")


def experiment(*arguments, app=app):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(result):
    return " ".join((result.stdout + result.stderr).replace("│", " ").split())


def test_a_table_a_curve_a_panel_and_gaps(tiny, tmp_path):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--quiet")
    first = experiment("table", *common, "--methods", "unary,mf5,lp", "--jobs", 2)
    assert first.exit_code == 0, said(first)
    assert "4 images" in said(first)
    again = experiment("table", *common, "--methods", "unary,mf5,lp", "--format", "json")
    rows = json.loads(again.stdout)["rows"]
    saved = json.loads((tmp_path / "out" / "table-shared-usual.json").read_text())
    assert rows == saved["rows"]
    assert "one energy" in saved["about"]["notes"][0]
    curve = experiment("curves", *common, "--images", "a", "--methods", "mf5,lp")
    assert curve.exit_code == 0, said(curve)
    panel = experiment("panel", *common, "--images", "a,b", "--methods", "mf5,lp")
    assert panel.exit_code == 0, said(panel)
    gaps = experiment("gaps", "out/table-shared-usual-images.csv")
    assert gaps.exit_code == 0, said(gaps)


def test_programs_get_json_and_nothing_else(tiny):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--json")
    table = answer("table", *common, "--methods", "unary,mf5,lp")
    assert [row["method"] for row in table["rows"]] == ["unary", "mf5", "lp"]
    assert "out/table-shared-usual.md" in table["files"]
    assert table["about"]["failures"] == {}
    curve = answer("curves", *common, "--images", "a", "--study", "order")
    assert [end["variant"] for end in curve["curves"]] == ["hard", "soft", "adaptive"]
    assert all(end["lower_bound"] <= end["energy"] for end in curve["curves"])
    panel = answer("panel", *common, "--images", "a,b", "--methods", "mf5")
    assert (panel["images"], panel["methods"]) == (["a", "b"], ["mf5"])
    gaps = answer("gaps", "out/table-shared-usual-images.csv", "--json")
    assert [len(values) for values in gaps["percent_above_the_best_bound"].values()] == [4, 4, 4]
    both = ("--first", "lp", "--second", "unary")
    difference = answer("difference", *common, *both)
    assert difference["images"] == 4
    assert set(difference["metrics"]["iou"]["difference"]) == {"estimate", "low", "high"}
    pictures = {curve["picture"], panel["picture"], gaps["picture"]}
    assert all(Path(name).is_file() for name in pictures)


def answer(*arguments):
    """Run a command that prints JSON, which is all it may print there."""
    result = experiment(*arguments)
    assert result.exit_code == 0, said(result)
    return json.loads(result.stdout)


def test_broken_images_are_listed_and_the_exit_code_says_so(tiny):
    (tiny / "logits" / "b.npz").write_bytes(b"rubbish")
    result = experiment("table", "--data", tiny, "--methods", "unary", "--threads", 1, "--quiet")
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
    result = experiment("table", *arguments)
    assert result.exit_code in (1, 2)
    assert text in said(result)


def test_only_lines_with_bounds_have_gaps(tiny, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    result = experiment("gaps", other)
    assert result.exit_code == 1
    assert "other.csv: is no table of images" in said(result)
    other.write_text("image,method,energy,lower_bound\na,mf,3,\n")
    assert "has no image with a bound" in said(experiment("gaps", other))


def test_an_empty_folder_is_named(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    result = experiment("table", "--data", "empty", "--classes", "msrc")
    assert result.exit_code != 0
    assert "holds no images" in said(result)


def test_a_table_that_cannot_be_written_is_refused_before_any_run(tiny, tmp_path):
    arguments = ("--data", tiny, "--methods", "unary", "--images", "a", "--threads", 1, "--quiet")
    (tmp_path / "out" / "table-shared-usual.txt").mkdir(parents=True)
    result = experiment("table", *arguments, "--out", "out")
    assert result.exit_code == 2
    assert "out/table-shared-usual.txt cannot be written: it is a folder" in said(result)
    assert not (tmp_path / "out" / "records").exists()


def test_speedup_needs_colours(tiny, tmp_path):
    write_image(tmp_path / "grey.png", np.zeros((8, 8), np.uint8))
    result = experiment("speedup", "--image", "grey.png", "--quiet")
    assert result.exit_code == 1
    assert "grey.png" in said(result)


def test_speedup_tells_programs_its_points(tiny, tmp_path, monkeypatch):
    few = partial(speedup.measure_speedup, sweeps={"labels": (2, 3)}, kernels=("spatial",))
    monkeypatch.setattr(speedup, "measure_speedup", few)
    write_image(tmp_path / "small.png", np.zeros((8, 8, 3), np.uint8))
    told = answer("speedup", "--image", "small.png", "--repeats", 1, "--json")
    assert [point["labels"] for point in told["points"]] == [2, 3]
    assert Path(told["picture"]).is_file()


def test_a_difference_has_an_interval(tiny):
    common = ("--data", tiny, "--out", "out", "--threads", 1, "--quiet")
    experiment("table", *common, "--methods", "unary,mf5")
    result = experiment("difference", *common, "--first", "mf5", "--second", "unary")
    assert result.exit_code == 0, said(result)
    assert "4 images" in said(result)
    assert "accuracy, difference: " in said(result)
    same = experiment("difference", *common, "--first", "mf5@usual", "--second", "mf5")
    assert "iou, difference: 0.00 % (0.00 to 0.00" in said(same)
    wrong = experiment("difference", *common, "--first", "mf5@mine", "--second", "mf5")
    assert wrong.exit_code == 2
    assert "mine: must be one of 'msrc-mf'" in said(wrong)


def test_tuned_parameters_serve_the_other_commands(tiny, tmp_path):
    pytest.importorskip("optuna")
    result = experiment(
        "tune", "--data", tiny, "--split", "train", "--validation", "val", "--method", "mf5",
        "--trials", 2, "--threads", 1, "--out", "best.json", "--quiet",
    )  # fmt: skip
    assert result.exit_code == 0, said(result)
    assert "on the 2 images of val" in said(result)
    assert (tmp_path / "tune-best.png").is_file()
    again = experiment(
        "tune", "--data", tiny, "--split", "train", "--validation", "val", "--method", "mf5",
        "--trials", 2, "--threads", 1, "--out", "best.json", "--json",
    )  # fmt: skip
    answer = json.loads(again.stdout)
    assert answer["parameters"] == {
        name: json.loads((tmp_path / "best.json").read_text())["parameters"][name]
        for name in answer["parameters"]
    }
    assert 0 <= answer["score"] <= 1
    table = experiment(
        "table", "--data", tiny, "--params", "best.json", "--methods", "mf5",
        "--threads", 1, "--quiet", "--out", "out",
    )  # fmt: skip
    assert table.exit_code == 0, said(table)
    assert (tmp_path / "out" / "table-shared-best.md").is_file()
    logits = np.load(tiny / "logits" / "a.npz")["logits"]
    np.save(tmp_path / "a.npy", logits)
    image = tiny / "images" / "a.png"
    segmented = experiment(
        "segment", image, "--probs", "a.npy", "--kind", "logits", "--params", "best.json",
        "--out", "seg", "--json", app=densecrf_app,
    )  # fmt: skip
    assert segmented.exit_code == 0, said(segmented)
    settings = json.loads((tmp_path / "seg" / "a.json").read_text())["settings"]
    chosen = json.loads((tmp_path / "best.json").read_text())["parameters"]
    assert settings["model"]["specification"]["model"]["sigma_xy"] == chosen["sigma_xy"]
    wrong = experiment(
        "segment", image, "--probs", "a.npy", "--params", "none.json", app=densecrf_app
    )
    assert wrong.exit_code == 2
    assert "none.json" in said(wrong)


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tune --data tiny --out tiny/meta.json", "the input tiny/meta.json"),
        ("tune --data tiny --start mine.json --out mine.json", "the input mine.json"),
        ("tune --data tiny --out x.sqlite", "would both be written to x.sqlite"),
        ("table --data tiny --out link", "input tiny/meta.json"),
        ("curves --data tiny --images a --out link", "the input tiny/images/a.png"),
        ("panel --data tiny --images a --out link", "the input tiny/images/a.png"),
        ("speedup --image link/speedup-a.png --out link", "speedup-a.png"),
        ("gaps mine.png", "would replace the input mine.png; rename the table"),
    ],
)
def test_evaluation_writes_onto_no_input(tiny, tmp_path, arguments, message):
    """Links in the results' folder lead where users would not look."""
    write_parameters("mine.json", PRESETS["deeplab"])
    Path("mine.png").write_text("image,method,energy,lower_bound\na,mf,3,1\n")
    Path("link").mkdir()
    for name, file in (
        ("table-shared-usual.json", "meta.json"),
        ("curves-methods-shared-usual.png", "images/a.png"),
        ("panel-shared-usual.png", "images/a.png"),
        ("speedup-speedup-a.png", "images/a.png"),
        ("speedup-a.png", "images/a.png"),
    ):
        Path("link", name).symlink_to(tiny / file)
    before = contents(tmp_path)
    result = experiment(*arguments.split())
    assert result.exit_code == 2
    assert message in said(result)
    assert contents(tmp_path) == before
