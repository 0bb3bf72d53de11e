"""How rounds over tiles go: when labels are tried, when to certify, when methods change."""

import pytest

from densecrf.large.pace import FALLS, Pace


def record(bounds, energy=0.0):
    return {"bounds": bounds, "energy": energy, "undecided": [3.0, 1.0, 2.0]}


def test_labels_are_tried_where_the_bound_hardly_rises():
    pace = Pace(inner=3, gap=1e-2, limit=100)
    assert pace.plan().roundings == ()
    pace.take(pace.plan(), [record([50.0, 80.0, 90.0]), record([50.0, 80.0, 90.0])])
    assert pace.plan().roundings == ()
    pace.take(pace.plan(), [record([90.0, 90.2, 90.4]), record([90.0, 90.2, 90.4])])
    assert pace.plan().roundings == ((0, 0.0), (0, 0.2), (2, 0.2))


def test_the_last_round_has_labels():
    assert Pace(inner=3, gap=1e-2, limit=3).plan().roundings == ((0, 0.0),)


def test_a_promise_counts_the_neighbours_changes():
    pace = Pace(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([90.0, 95.0, 100.0])])
    pace.take(pace.plan(), [record([96.0, 98.0, 99.9])])  # 4 less than the tiles had thought
    plan = pace.plan()._replace(roundings=((0, 0.0),))
    assert pace.take(plan, [record([99.8, 99.9, 100.0], 100.5)])
    assert pace.promises(1e-2)
    assert pace.trace[1]["bound"] == 99.8
    assert not pace.promises(4e-3)


def test_what_a_certificate_finds_is_taken_in():
    pace = Pace(inner=3, gap=1e-2, limit=100)
    plan = pace.plan()._replace(roundings=((0, 0.0),))
    pace.take(plan, [record([98.0, 99.0, 100.0], 100.5)])
    pace.correct(102.0, 99.0)
    assert not pace.promises(1e-2)
    assert not pace.take(plan, [record([99.0, 99.5, 100.0], 101.0)])  # 102.5, with what it lacks
    assert pace.take(plan, [record([100.0, 100.1, 100.2], 101.0)])
    assert pace.trace[-1]["energy"] == pytest.approx(101.0 + FALLS * 1.5)


def test_methods_change_where_the_gap_has_stalled():
    pace = Pace(inner=8, gap=1e-6, limit=1000)
    plan = pace.plan()._replace(roundings=((0, 0.0),))
    methods = []
    for _ in range(12):
        pace.take(plan, [record([99.0] * 8, 100.0)])
        plan = pace.plan()
        methods.append(plan.smooth)
    assert methods == [False] * 3 + [True] * 4 + [False] * 4 + [True]
