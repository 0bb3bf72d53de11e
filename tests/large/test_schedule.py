"""How rounds over tiles go: how many iterations, when to certify, when methods change."""

import pytest

from densecrf.large.rounds import FIRST, LEAST, LEAST_SMOOTH, Schedule


def record(bounds, energy=0.0, labelled=0.0):
    sums = {"energy": energy, "labelled": labelled}
    return {"bounds": bounds, "undecided": [3.0, 1.0, 2.0], **sums}


def test_level_sets_of_the_least_decided_labels_are_tried():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    assert pace.plan().roundings == ((0, 0.0),)
    pace.take(pace.plan(), [record([50.0, 80.0, 90.0], 100.0)])
    assert pace.plan().roundings == ((0, 0.0), (0, 0.8), (2, 0.8), (1, 0.8))


@pytest.mark.parametrize(("gap", "needed"), [(1e-3, 6), (1e-2, LEAST)])
def test_a_round_is_as_long_as_the_bound_needs(gap, needed):
    pace = Schedule(inner=8, gap=gap, limit=100)
    assert pace.plan().inner == FIRST
    pace.take(pace.plan(), [record([10.0, 60.0, 80.0], 100.0)])  # rises by 0.4 of the last
    assert pace.plan().inner == 8
    pace.take(pace.plan(), [record([80.0, 80.1, 80.2], 100.0, 100.0)])
    pace.take(pace.plan(), [record([90.0, 95.0, 97.5], 100.0, 100.0)])  # 98.75, 99.375, ...
    assert pace.plan().inner == needed
    assert Schedule(inner=8, gap=1e-2, limit=5).plan().inner == 5


def test_a_round_near_the_asked_gap_is_short():
    pace = Schedule(inner=8, gap=1e-3, limit=100)
    pace.take(pace.plan(), [record([99.5, 99.9, 99.8], 100.0)])  # twice the gap, and no rise
    assert pace.plan().inner == 5


def test_a_promise_counts_the_neighbours_changes():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([90.0, 95.0, 100.0], 110.0)])
    pace.take(pace.plan(), [record([96.0, 98.0, 99.9], 110.0, 110.0)])  # 4 less than expected
    pace.take(pace.plan(), [record([99.8, 99.9, 100.0], 100.5, 110.0)])
    assert pace.promises(1e-2)
    assert pace.trace[1]["bound"] == 99.8
    assert not pace.promises(4e-3)


def test_the_first_round_with_neighbours_held_fixed_promises_less():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([50.0, 80.0, 90.0], 100.0)])
    pace.take(pace.plan(), [record([90.0, 95.0, 99.5], 100.0, 100.0)])
    assert not pace.promises(1e-2)
    pace.take(pace.plan(), [record([97.0, 98.0, 99.5], 100.0, 100.0)])  # 2.5 less, now 0.5
    assert pace.promises(1e-2)


def test_multipliers_are_not_updated_too_soon():
    pace = Schedule(inner=8, gap=1e-2, limit=100)
    pace.smooth_alone()
    pace.take(pace.plan(), [record([98.0, 98.5, 98.9], 100.0)])  # near the gap
    assert pace.plan().inner == LEAST_SMOOTH


def test_labels_are_evaluated_by_the_next_round():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([98.0, 99.0, 100.0], 100.5)])
    assert (pace.labels, pace.plan().labels) == ("labels-0", "labels-0")
    pace.take(pace.plan(), [record([98.0, 99.0, 100.0], 103.0, 102.0)])
    assert (pace.labels, pace.energy) == ("labels-0", 102.0)
    pace.take(pace.plan(), [record([98.0, 99.0, 100.0], 101.0, 103.0)])  # lacks 1.5, as turn 0 did
    assert (pace.labels, pace.energy) == ("labels-0", 102.0)
    assert pace.stages == {"labels-0", "labels-2"}
    pace.take(pace.plan(), [record([98.0, 99.0, 100.0], 101.0, 101.5)])
    assert (pace.best, pace.labels) == ("labels-2", "labels-3")


def test_a_certificate_evaluates_the_newest_labels():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([98.0, 99.0, 100.0], 100.5)])
    pace.correct(102.0, 99.0)
    assert not pace.promises(1e-2)
    assert (pace.best, pace.energy, pace.plan().labels) == ("labels-0", 102.0, "")


def test_a_round_that_started_within_the_gap_is_the_last():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([80.0, 90.0, 95.0], 100.0)])
    assert not pace.started_within(1e-2)
    pace.take(pace.plan(), [record([99.2, 98.0, 97.0], 100.0, 100.0)])
    assert pace.started_within(1e-2)
    assert not pace.promises(1e-2)


def test_the_best_potentials_of_any_round_end_a_run():
    pace = Schedule(inner=3, gap=1e-2, limit=100)
    pace.take(pace.plan(), [record([80.0, 90.0, 95.0], 105.0)])
    pace.take(pace.plan(), [record([99.2, 98.0, 97.0], 104.0, 103.0)])
    assert pace.started_best()
    assert not pace.started_within(1e-2)
    pace.take(pace.plan(), [record([97.0, 97.5, 98.0], 101.0, 100.0)])
    assert not pace.started_best()
    assert pace.started_within(1e-2)
    pace.start_again()
    assert not pace.started_within(1e-2)


def test_methods_change_where_the_gap_has_stalled():
    pace = Schedule(inner=8, gap=1e-6, limit=1000)
    methods = []
    for _ in range(9):
        pace.take(pace.plan(), [record([99.0] * 8, 100.0, 100.0)])
        methods.append(pace.plan().smooth)
    assert methods == [False] * 2 + [True] * 3 + [False] * 3 + [True]


def test_one_method_is_used_alone_where_pairwise_weights_dominate():
    pace = Schedule(inner=8, gap=1e-6, limit=1000)
    pace.smooth_alone()
    for _ in range(6):
        pace.take(pace.plan(), [record([99.0] * 8, 100.0, 100.0)])
        assert pace.plan().smooth
