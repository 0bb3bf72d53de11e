from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from densecrf.io import Dataset, FileFormatError
from densecrf.model.parameters import Parameters, read_parameters, write_parameters
from experiments.runner import make_plan
from experiments.tune import Target, draw_history, ranges_around, tune

optuna = pytest.importorskip("optuna")


def target_of(folder, method="mf5", images=None, **fields):
    dataset = Dataset.open(folder)
    plan = make_plan(dataset, methods=(method,), images=images or dataset.names(), threads=1)
    return Target(plan, **fields)


def test_tuning_starts_from_the_presets_and_resumes(tiny, tmp_path):
    storage = tmp_path / "study" / "trials.sqlite"
    target = target_of(tiny, first_batch=2)
    first = tune(target, storage, trials=3)
    assert len(first.trials) == 3
    assert first.score >= first.start_score
    longer = tune(target, storage, trials=6)
    assert [t[0] for t in longer.trials] == list(range(6))
    assert longer.trials[:3] == first.trials
    assert longer.score >= first.score
    again = tune(target, storage, trials=6)
    assert again.trials == longer.trials
    longer.write(tmp_path / "best.json", target)
    assert read_parameters(tmp_path / "best.json") == longer.parameters
    assert longer.parameters.pixels == 16 * 20
    draw_history(longer, "accuracy")
    with pytest.raises(ValueError, match=r"other settings \(method\)"):
        tune(target_of(tiny, method="unary"), storage, trials=1)


def test_given_parameters_are_tried_once_and_ranges_stay_near_them(tiny, tmp_path):
    near = ranges_around(Parameters(2, 2, 40, 10, 5), 2)
    target = target_of(tiny, start=(Parameters(2, 2, 40, 10, 5),) * 2, ranges=near)
    tuned = tune(target, tmp_path / "t.sqlite", trials=3)
    assert tuned.start == Parameters(2, 2, 40, 10, 5)
    assert 1 <= tuned.parameters.sigma <= 4
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 't.sqlite'}")
    assert [trial.user_attrs.get("given", False) for trial in study.trials] == [True, False, False]
    with pytest.raises(ValueError, match=r"within=1"):
        ranges_around(Parameters(), 1)


def test_workers_share_one_study(tiny, tmp_path):
    tuned = tune(target_of(tiny, metric="iou"), tmp_path / "t.sqlite", trials=6, workers=2)
    finished = [t for t in tuned.trials if t[2] in ("complete", "pruned")]
    assert len(finished) >= 6


def test_images_that_cannot_be_scored_are_left_out_and_named(tiny, tmp_path):
    (tiny / "images" / "b.png").write_bytes(b"not an image")
    tuned = tune(target_of(tiny), tmp_path / "t.sqlite", trials=1)
    assert set(tuned.failures) == {"b"}
    assert "b.png" in tuned.failures["b"]
    with pytest.raises(ValueError, match="no image can be scored"):
        tune(target_of(tiny, images=("b",)), tmp_path / "u.sqlite", trials=1)


def test_wrong_targets_are_refused(tiny, tmp_path):
    for fields, text in (
        ({"method": "best"}, "methods='best'"),
        ({"metric": "f1"}, "metric='f1'"),
        ({"first_batch": 0}, "first_batch"),
        ({"ranges": {"sigma": (0, 1)}}, "sigma"),
    ):
        with pytest.raises(ValueError, match=text):
            target_of(tiny, **fields)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is not a data base" * 100)
    with pytest.raises(ValueError, match=r"broken\.sqlite"):
        tune(target_of(tiny), broken, trials=1)


SCRIPT = """
import sys
from densecrf.io import Dataset
from experiments.runner import make_plan
from experiments.tune import Target, tune
if __name__ == "__main__":
    plan = make_plan(Dataset.open(sys.argv[1]), methods=("mf5",), threads=1)
    tune(Target(plan), sys.argv[2], trials=500)
"""


def _complete(storage):
    """Return how many trials a search has completed."""
    if not storage.exists():
        return 0
    with contextlib.closing(sqlite3.connect(storage)) as base:
        try:
            rows = base.execute("select count(*) from trials where state = 'COMPLETE'")
            return rows.fetchone()[0]
        except sqlite3.OperationalError:  # not yet made, or being written
            return 0


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_killed_search_goes_on(tiny, tmp_path):
    script, storage = tmp_path / "run.py", tmp_path / "t.sqlite"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tiny), str(storage)]
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None and not _complete(storage):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)  # its workers, too
    process.wait()
    tuned = tune(target_of(tiny), storage, trials=1)
    before = len([t for t in tuned.trials if t[2] in ("complete", "pruned")])
    assert before >= 1
    more = tune(target_of(tiny), storage, trials=before + 2)
    assert len([t for t in more.trials if t[2] in ("complete", "pruned")]) == before + 2


def test_parameter_files_are_checked(tmp_path):
    path = tmp_path / "p.json"
    write_parameters(path, Parameters(sigma=2.5), note="why")
    assert read_parameters(path).sigma == 2.5
    path.write_text(json.dumps({"sigma": 1, "weight": 0, "sigma_xy": 3, "sigma_color": 4,
                                "bilateral_weight": 5}))  # fmt: skip
    assert read_parameters(path).bilateral_weight == 5
    for text, message in (
        ("{", "not JSON"),
        ("[1]", "one JSON object"),
        ('{"sigma": 1}', "lacks"),
        (path.read_text()[:-1] + ', "extra": 1}', "unknown"),
        (path.read_text().replace('"sigma": 1', '"sigma": 0'), "sigma is 0"),
        (path.read_text().replace('"weight": 0', '"weight": "x"'), "weight is 'x'"),
    ):
        path2 = tmp_path / "bad.json"
        path2.write_text(text)
        with pytest.raises(FileFormatError, match=message):
            read_parameters(path2)
