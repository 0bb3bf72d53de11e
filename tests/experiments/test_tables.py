from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from densecrf.records import RecordStore
from experiments.outcome import Outcome
from experiments.tables import FORMATS, Comparison, compare

RIGHT, WRONG = np.array([[8, 0], [0, 2]]), np.array([[6, 2], [1, 1]])


@pytest.fixture
def table() -> Comparison:
    outcomes = [
        Outcome("mf", "a", 10.0, 0.1, confusion=WRONG),
        Outcome("mf", "b", 20.0, 0.3, confusion=RIGHT),
        Outcome("mf", "c", 5.0, 0.1),
        Outcome("prox-lp_l", "b", 18.0, 2.0, gap=0.01, confusion=RIGHT),
        Outcome("prox-lp_l", "a", 10.0, 1.0, gap=0.03, confusion=RIGHT),
        Outcome("other", "a", 0.0, 0.0),
    ]
    return compare(outcomes, ["mf", "prox-lp_l"])


def test_rows_hold_shares_and_means(table: Comparison) -> None:
    mean_field, linear = table.rows
    assert mean_field.lower_than == {"mf": 0, "prox-lp_l": 0}
    assert linear.lower_than == {"mf": 0.5, "prox-lp_l": 0}  # equal energies are not lower
    assert (mean_field.energy, linear.energy) == (15, 14)
    assert linear.seconds == 1.5
    assert mean_field.accuracy == pytest.approx(17 / 20)
    assert linear.accuracy == linear.iou == 1
    assert (mean_field.gap, linear.gap, linear.median_gap) == (None, 0.02, 0.02)
    assert table.images == ("a", "b")
    assert table.left_out == {"c": ("prox-lp_l",)}


def test_text_is_aligned_and_tells_what_was_left_out(table: Comparison) -> None:
    lines = table.render("text").splitlines()
    assert len({len(line) for line in lines[:4]}) == 1
    assert lines[3].split()[:3] == ["prox-lp_l", "50", "0"]
    assert "2 images" in lines[-1]
    assert "c (prox-lp_l)" in lines[-1]


def test_markdown_marks_the_best(table: Comparison) -> None:
    lines = table.render("markdown").splitlines()
    assert lines[1].replace("-", "").startswith("|:|:|:|")
    lines = [" ".join(line.split()) for line in lines]
    assert "| **15.0** |" not in lines[2]
    assert "| **0.20** |" in lines[2]
    assert "| **14.0** |" in lines[3]
    assert "| - |" in lines[2]


def test_csv_and_json_keep_every_digit(table: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(table.render("csv"))))
    assert rows[1]["method"] == "prox-lp_l"
    assert float(rows[1]["lower than mf"]) == 0.5
    assert float(rows[0]["accuracy"]) == table.rows[0].accuracy
    assert rows[0]["gap"] == ""
    value = json.loads(table.render("json"))
    assert value["rows"][1]["lower_than"] == {"mf": 0.5, "prox-lp_l": 0}
    assert value["rows"][0]["gap"] is None
    assert value["left_out"] == {"c": ["prox-lp_l"]}


def test_latex_is_escaped_and_regular(table: Comparison) -> None:
    text = table.render("latex")
    assert r"prox-lp\_l" in text
    assert r"accuracy (\%)" in text
    assert r"\textbf{14.0}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {9}
    assert "{lrrrrrrrrr}" in text


def test_every_format_renders_and_others_are_refused(table: Comparison) -> None:
    for style in FORMATS:
        assert table.render(style).endswith("\n")
    with pytest.raises(ValueError, match="style='word': must be one of 'text'"):
        table.render("word")


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no image was done by all of the methods \(mf, lp\)"):
        compare([Outcome("mf", "a", 1, 1), Outcome("lp", "b", 1, 1)])
    with pytest.raises(ValueError, match="none"):
        compare([])


def test_outcomes_survive_the_store(tmp_path):
    outcome = Outcome("lp", "2_14_s", 12.5, 0.25, 12.4, 0.008, np.eye(3, dtype=int), {"calls": 7})
    store = RecordStore(tmp_path)
    store.save(("lp", "a"), {}, outcome.to_json())
    values = store.load(("lp", "a"), {})
    assert values is not None
    back = Outcome.from_json(values)
    np.testing.assert_array_equal(back.confusion, outcome.confusion)
    assert back.to_json() == outcome.to_json()
    assert Outcome.from_json(Outcome("mf", "a", 1, 1).to_json()).gap is None
