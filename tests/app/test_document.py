"""Documents: edits, their history, JSON, and what is refused without a trace."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from densecrf.app.document import Document, ModelSettings, default_labels
from densecrf.app.strokes import VOID, rasterise

SHAPE = (16, 24)
IDS = itertools.count()


def edit(kind, **values):
    return {"id": f"e{next(IDS)}", "kind": kind, **values}


def brush(label, x, y):
    points = [[x, y], [x + 4, y]]
    stroke = {"tool": "brush", "label": label, "size": 3, "points": points}
    return edit("stroke", stroke=stroke)


@given(st.lists(st.sampled_from(["draw", "undo", "redo"]), max_size=40))
def test_history_is_that_of_a_list(actions):
    document = Document("a.png", SHAPE)
    done, undone = [], []
    for number, action in enumerate(actions):
        if action == "draw":
            document.apply(brush(number % 4, number % 20, number % 13))
            done.append(document.strokes[-1])
            undone.clear()
        elif action == "undo":
            assert document.apply(edit("undo")) == bool(done)
            if done:
                undone.append(done.pop())
        else:
            assert document.apply(edit("redo")) == bool(undone)
            if undone:
                done.append(undone.pop())
        np.testing.assert_array_equal(document.raster(), rasterise(done, SHAPE))
    assert document.strokes == done
    again = Document.from_json(document.to_json(), "a.png", SHAPE)
    assert again.to_json() == document.to_json()


def test_an_edit_that_is_sent_twice_counts_once():
    document = Document("a.png", SHAPE)
    sent = brush(0, 3, 3)
    assert document.apply(sent)
    assert not document.apply(sent)
    again = Document.from_json(document.to_json(), "a.png", SHAPE)
    assert not again.apply(sent)
    assert len(again.strokes) == 1


def test_settings_change():
    document = Document("a.png", SHAPE)
    assert document.apply(edit("settings", settings={"strength": 2.0, "preset": "deeplab"}))
    assert document.settings == ModelSettings("deeplab", 2.0)
    assert not document.apply(edit("settings", settings={"strength": 2.0}))
    assert document.revision == 1


def test_what_is_done_is_not_changed_until_it_is_opened_again():
    document = Document("a.png", SHAPE)
    document.apply(brush(0, 3, 3))
    assert document.apply(edit("status", status="done"))
    for change in (brush(1, 3, 3), edit("undo"), edit("settings", settings={"strength": 2.0})):
        with pytest.raises(ValueError, match="done"):
            document.apply(change)
    again = Document.from_json(document.to_json(), "a.png", SHAPE)
    assert again.status == "done"
    assert again.apply(edit("status", status="doubtful"))
    assert again.apply(brush(1, 3, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {"kind": "undo"},
        edit("explode"),
        edit("stroke", stroke={"tool": "brush", "label": 9, "size": 3, "points": [[1, 1]]}),
        edit("stroke"),
        edit("labels", labels=[]),
        edit("status", status="perhaps"),
        edit("settings", settings={"strength": 100}),
        edit("settings", settings={"color": float("nan")}),
        edit("settings", settings={"preset": "../../etc/passwd"}),
        edit("settings", settings={"other": 1}),
        edit("settings", settings=[]),
    ],
)
def test_what_makes_no_sense_is_refused_without_a_trace(wrong):
    document = Document("a.png", SHAPE)
    document.apply(brush(2, 3, 3))
    before = document.to_json()
    with pytest.raises(ValueError, match=r"\w"):
        document.apply(wrong)
    assert document.to_json() == before


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 99},
        {"width": 3},
        {"labels": [{"name": "a", "color": "#000000"}]},
        {"labels": None},
        {"strokes": [{"tool": "x"}]},
        {"settings": 5},
    ],
)
def test_damaged_files_are_refused(change):
    document = Document("a.png", SHAPE)
    with pytest.raises(ValueError, match=r"\w"):
        Document.from_json({**document.to_json(), **change}, "a.png", SHAPE)
    with pytest.raises(ValueError, match="not a file of strokes"):
        Document.from_json([], "a.png", SHAPE)


def test_default_colours_differ():
    colors = [label.color for label in default_labels(64)]
    assert len(set(colors)) == 64
    assert Document("a.png", SHAPE).raster().max() == VOID
