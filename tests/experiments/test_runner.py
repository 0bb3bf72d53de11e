from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from densecrf.io import Dataset, write_labels
from densecrf.records import RecordStore
from experiments.protocols import PARAMETERS, get_parameters, get_protocol
from experiments.runner import make_plan, run, solve_sample
from experiments.tables import compare, outcomes_csv, write_comparison
from tiny_dataset import H, L, W

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("unary", "mf5", "lp")


SCRIPT = """
import os, signal, sys
from densecrf.io import Dataset
from densecrf.records import RecordStore
from experiments.runner import make_plan, run

def kill(done, total, image):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    plan = make_plan(Dataset.open(sys.argv[1]), methods=("unary", "mf5", "lp"), threads=1)
    progress = kill if sys.argv[3:] else None  # after the first image
    print(dict(run(plan, RecordStore(sys.argv[2]), progress=progress).failures))
"""


def plan_of(folder: Path, protocol: str = "shared", **fields):
    fields.setdefault("methods", METHODS)
    return make_plan(Dataset.open(folder), protocol, threads=1, **fields)


def test_a_run_is_complete_and_done_once(tiny, tmp_path):
    plan, store = plan_of(tiny), RecordStore(tmp_path / "records")
    told = []
    first = run(plan, store, jobs=2, progress=lambda *event: told.append(event))
    assert not first.failures
    assert len(first.outcomes) == 12
    assert [event[:2] for event in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    told.clear()
    again = run(plan, store, progress=lambda *event: told.append(event))
    assert told == []
    assert compare(again.outcomes) == compare(first.outcomes)


def test_changed_input_or_settings_are_run_again(tiny, tmp_path):
    store = RecordStore(tmp_path / "records")
    plan = plan_of(tiny, methods=("mf5",), images=("a",))
    run(plan, store)
    key = plan.key("mf5", "a")
    assert store.load(key, plan.settings("mf5", "a")) is not None
    looser = replace(plan, limits={"max_iterations": 1})
    assert store.load(key, looser.settings("mf5", "a")) is None
    (tiny / "labels" / "a.png").write_bytes((tiny / "labels" / "b.png").read_bytes())
    assert store.load(key, plan_of(tiny).settings("mf5", "a")) is None


def write_unary(folder, name, order, shape=(H, W, L)):
    """Replace an image's scores by a file of the other program's format."""
    (folder / "logits" / f"{name}.npz").unlink()
    header = np.array([shape[1], shape[0], shape[2]], f"{order}u4").tobytes()
    values = np.random.default_rng(0).normal(size=shape).astype(f"{order}f4")
    (folder / "logits" / f"{name}.unary").write_bytes(header + values.tobytes())


def cut_short(path):
    path.write_bytes(path.read_bytes()[:40])


def set_a_label(path, value):
    labels = np.zeros((H, W), np.int32)
    labels[3, 4] = value
    write_labels(path, labels)


#: What to do to a data set, the file that is then to be named, and a word of the reason.
FAULTS = {
    "rubbish scores": (lambda f: (f / "logits/a.npz").write_bytes(b"PK rubbish"), "a.npz", ""),
    "truncated scores": (lambda f: cut_short(f / "logits/a.npz"), "a.npz", ""),
    "no scores": (lambda f: (f / "logits/a.npz").unlink(), "a.npz", "No such file"),
    "no image": (lambda f: (f / "images/a.png").unlink(), "a.png", "No such file"),
    "truncated image": (lambda f: cut_short(f / "images/a.png"), "a.png", ""),
    "no labels": (lambda f: (f / "labels/a.png").unlink(), "a.png", "No such file"),
    "truncated labels": (lambda f: cut_short(f / "labels/a.png"), "a.png", ""),
    "labels of another size": (
        lambda f: write_labels(f / "labels/a.png", np.zeros((H + 1, W), np.int32)),
        "a.png",
        f"({H + 1}, {W})",
    ),
    "a label outside the classes": (lambda f: set_a_label(f / "labels/a.png", 7), "a.png", "7"),
    "scores of other classes": (
        lambda f: write_unary(f, "a", ">", (H, W, L + 1)), "a.unary", f"{L + 1} labels",
    ),
    "the other byte order": (lambda f: write_unary(f, "a", "<"), "a.unary", "little-endian"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_named_and_the_others_go_on(tiny, tmp_path, fault):
    spoil, file, reason = FAULTS[fault]
    spoil(tiny)
    plan = plan_of(tiny, methods=("unary",), images=("a", "b"))
    done = run(plan, RecordStore(tmp_path / "records"))
    assert set(done.failures) == {"a"}
    assert file in done.failures["a"]
    assert reason in done.failures["a"]
    assert {outcome.image for outcome in done.outcomes} == {"b"}


def test_scores_in_the_other_format_are_used(tiny, tmp_path):
    write_unary(tiny, "a", ">")
    done = run(plan_of(tiny, methods=("unary",), images=("a",)), RecordStore(tmp_path))
    assert not done.failures
    assert len(done.outcomes) == 1


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_an_image_whose_process_is_killed_is_named_and_the_others_go_on(tiny, tmp_path):
    def kill_the_first():
        while not (children := multiprocessing.active_children()):
            time.sleep(0.001)
        os.kill(children[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    plan = plan_of(tiny, methods=("unary",), images=("a", "b"))
    done = run(plan, RecordStore(tmp_path / "records"))
    killer.join()
    assert set(done.failures) == {"a"}
    assert "SIGKILL" in done.failures["a"]
    assert {outcome.image for outcome in done.outcomes} == {"b"}


@pytest.mark.skipif(os.name != "posix", reason="limits on file sizes")
def test_a_full_disk_is_named_with_the_file(tiny, tmp_path):
    import resource

    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tiny), str(tmp_path / "records")],
        # No file may hold a byte: writing fails as on a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "unary/a.json: cannot write" in done.stdout.replace(os.sep, "/")
    assert not list((tmp_path / "records").rglob("*.json"))
    assert not list((tmp_path / "records").rglob("*.tmp"))


def test_a_file_in_the_place_of_the_records_is_named(tiny, tmp_path):
    blocked = tmp_path / "records"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="records"):
        run(plan_of(tiny, images=("a",)), RecordStore(blocked))


def test_the_shared_protocol_gives_each_method_the_reported_energy(tiny):
    plan = plan_of(tiny, methods=("mf", "dc-neg", "prox-lp", "lp"))
    sample = plan.dataset.items["a"].load()
    model = plan.protocol.reported.model(sample.scores.energies(), sample.image, plan.parameters)
    starts = {}
    for method in plan.methods:
        result, outcome = solve_sample(plan, method, sample, starts)
        assert outcome.energy == pytest.approx(model.energy(result.labels), rel=1e-5)
        assert outcome.confusion.sum() == sample.labels.size
        assert outcome.details["best_constant"] == pytest.approx(model.constant_energies().min())
    _, prox = solve_sample(plan, "prox-lp", sample, starts)
    assert prox.energy <= starts["dc-neg"].result.energy
    assert prox.seconds >= starts["dc-neg"].seconds


def test_the_paper_protocol_minimises_one_energy_and_reports_another(tiny):
    plan = plan_of(tiny, "paper", methods=("mf5", "dc-neg", "prox-lp-acc"))
    sample = plan.dataset.items["a"].load()
    unary = sample.scores.energies()
    reported = plan.protocol.reported.model(unary, sample.image, plan.parameters)
    assert reported.normalization == "none"
    for method, weight in (("mf5", 0.5), ("dc-neg", 1.0)):
        own = plan.protocol.minimised(method).model(unary, sample.image, plan.parameters)
        assert own.normalization == "symmetric"
        assert own.kernels[0].weight == pytest.approx(weight * plan.parameters.weight)
        result, outcome = solve_sample(plan, method, sample, {})
        assert outcome.energy == pytest.approx(reported.energy(result.labels))
        assert outcome.gap is None
    assert solve_sample(plan, "prox-lp-acc", sample, {})[1].gap is not None


def test_paper_weights_are_doubled():
    assert get_parameters("msrc-mf").weight == pytest.approx(2 * 7.467846)
    assert PARAMETERS["pascal-dc"].bilateral_weight == pytest.approx(2 * 0.960811)
    with pytest.raises(ValueError, match="msrc-dc"):
        get_parameters("msrc")
    with pytest.raises(ValueError, match="paper"):
        get_protocol("papers")


@pytest.mark.slow
def test_the_paper_protocol_returns_the_authors_mean_field(shared_data):
    dataset = Dataset.open(shared_data / "msrc_paper", kind="energies", classes="msrc")
    sample = dataset.items["2_14_s"].load()
    theirs = np.load(shared_data / "reference" / "2_14_s_dc.npz")["mf5"]
    own = get_protocol("paper").minimised("mf5")
    model = own.model(sample.scores.energies(), sample.image, get_parameters("msrc-dc"))
    labels = model.solve("mf5", **own.options).labels
    assert (labels.ravel() == theirs.ravel()).mean() > 0.9999


def test_plans_refuse_what_is_not_there(tiny):
    with pytest.raises(ValueError, match="no image named 'z'"):
        plan_of(tiny, images=("z",))
    with pytest.raises(ValueError, match="methods='map': must be one of"):
        plan_of(tiny, methods=("map",))
    with pytest.raises(ValueError, match="no images"):
        plan_of(tiny, images=())
    with pytest.raises(ValueError, match="at least one"):
        plan_of(tiny, methods=())


def test_tables_are_written_in_every_format(tiny, tmp_path):
    done = run(plan_of(tiny, methods=("unary", "mf5")), RecordStore(tmp_path / "records"))
    written = write_comparison(
        tmp_path / "out", "table-x", compare(done.outcomes), done.outcomes, {"title": "x"}
    )
    assert sorted(path.suffix for path in written) == [
        ".csv", ".csv", ".json", ".md", ".tex", ".txt",
    ]  # fmt: skip
    lines = outcomes_csv(done.outcomes).splitlines()
    assert lines[0].startswith("image,method,energy")
    assert len(lines) == 9


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_run_killed_in_the_middle_goes_on_to_the_same_table(tiny, tmp_path):
    script, folder = tmp_path / "run.py", tmp_path / "records"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tiny), str(folder), "killed"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    kept = len(list(folder.rglob("[!.]*.json")))
    assert 1 <= kept < 12
    plan = plan_of(tiny)
    resumed = run(plan, RecordStore(folder))
    fresh = run(plan, RecordStore(tmp_path / "fresh"))
    same = [(o.method, o.image, o.energy, o.gap, o.confusion.tolist()) for o in fresh.outcomes]
    assert same == [
        (o.method, o.image, o.energy, o.gap, o.confusion.tolist()) for o in resumed.outcomes
    ]


def test_wrong_options_of_a_method_are_reported(tiny, tmp_path):
    plan = plan_of(tiny, images=("a", "b"), methods=("lp",), options={"lp": {"cells": "wrong"}})
    done = run(plan, RecordStore(tmp_path / "records"))
    assert set(done.failures) == {"a", "b"}
    assert "cells" in done.failures["a"]


def test_a_cluster_makes_the_same_records(tiny, tmp_path):
    distributed = pytest.importorskip("distributed")
    plan = plan_of(tiny, methods=("mf5", "unary"))
    alone = run(plan, RecordStore(tmp_path / "alone"))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=True
        ) as local,
        distributed.Client(local) as client,
    ):
        shared = run(plan, RecordStore(tmp_path / "shared"), client=client)
    assert not shared.failures
    assert [each.energy for each in shared.outcomes] == [each.energy for each in alone.outcomes]
