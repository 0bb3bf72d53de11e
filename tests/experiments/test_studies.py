from __future__ import annotations

import numpy as np
import pytest

from densecrf.io import Dataset
from densecrf.records import RecordStore
from experiments.curves import STUDIES, draw_curves, measure_curves, methods_study
from experiments.figures import save_figure
from experiments.panel import draw_panel
from experiments.runner import make_plan, run
from experiments.speedup import ORDERS, draw_speedup, measure_speedup


def plan_of(folder, protocol="shared", **fields):
    fields.setdefault("images", ("a",))
    return make_plan(Dataset.open(folder), protocol, threads=1, **fields)


@pytest.mark.parametrize("protocol", ["shared", "paper"])
def test_curves_of_methods_end_where_the_table_does(tiny, tmp_path, protocol):
    plan = plan_of(tiny, protocol, methods=("mf5", "dc-neg", "prox-lp", "lp"))
    store = RecordStore(tmp_path)
    told = []
    curves = measure_curves(
        plan, "methods", methods_study(plan.methods), store, lambda *event: told.append(event)
    )
    assert [event[0] for event in told] == [0, 1, 2, 3]
    outcomes = {outcome.method: outcome for outcome in run(plan, store).outcomes}
    for curve in curves:
        assert len(curve.seconds) == len(curve.energy) == len(curve.lower_bound)
        assert curve.seconds == sorted(curve.seconds)
        if plan.protocol.certified(curve.method):
            assert curve.energy[-1] == pytest.approx(outcomes[curve.method].energy, rel=1e-4)
    again = measure_curves(plan, "methods", methods_study(plan.methods), store)
    assert again == curves
    save_figure(tmp_path / "c.png", draw_curves(curves))
    assert (tmp_path / "c.png").stat().st_size > 10_000


def test_studies_vary_the_papers_method(tiny, tmp_path):
    plan = plan_of(tiny, methods=("lp",))
    assert set(STUDIES) == {"lambda", "levels", "order"}
    curves = measure_curves(plan, "order", STUDIES["order"], RecordStore(tmp_path))
    assert [curve.variant for curve in curves] == ["hard", "soft", "adaptive"]
    draw_curves(curves)


def test_speedup_measures_each_order_once(tmp_path):
    image = np.random.default_rng(0).integers(0, 255, (12, 14, 3), np.uint8)
    sweeps = {"pixels": (0.5, 1.0), "labels": (2,), "std": (2,)}
    store = RecordStore(tmp_path)
    points = measure_speedup(image, store, sweeps=sweeps, repeats=1)
    assert len(points) == 8
    assert points[0].pixels < points[1].pixels == 168
    assert all(set(point.seconds) == set(ORDERS) for point in points)
    assert points[0].value == points[0].pixels
    assert measure_speedup(image, store, sweeps=sweeps) == points
    draw_speedup(points, "tiny")


def test_panels_show_every_method_uncertainty_and_truth(tiny, tmp_path):
    plan = plan_of(tiny, images=("a", "b"), methods=("unary", "dc-neg", "lp"))
    told = []
    figure = draw_panel(plan, progress=lambda *event: told.append(event[0]))
    assert told == [0, 1]
    titles = [title for axis in figure.axes if (title := axis.get_title())]
    assert len(titles) == 2 * (1 + 3 + 2 + 1)
    assert titles[4].startswith("uncertain, dc-neg")
    assert titles[6] == "ground truth"
    save_figure(tmp_path / "p.png", figure)
