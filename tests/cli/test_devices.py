"""``segment`` with several devices: one process for each, the results of one."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from command_line import densecrf, said
from densecrf.cli.batch import run_batch
from densecrf.deadline import Interrupted

SOURCE = ["segment", "images", "--probs", "probs", "--json", "--method", "mf5"]


def test_two_processes_have_the_results_of_one(folder):
    pytest.importorskip("torch")
    both = json.loads(densecrf(*SOURCE, "--device", "cpu, cpu:0", "--out", "both").stdout)
    one = json.loads(densecrf(*SOURCE, "--device", "cpu", "--out", "one").stdout)
    assert not both["failures"]
    assert [each["name"] for each in both["results"]] == ["a", "b", "c"]
    for ours, expected in zip(both["results"], one["results"], strict=True):
        assert ours["energy"] == expected["energy"]
        assert ours["warnings"] == expected["warnings"]
        labels = [Path(each["files"]["labels"]).read_bytes() for each in (ours, expected)]
        assert labels[0] == labels[1]
    used = {json.loads(path.read_text())["info"]["device"] for path in Path("both").glob("*.json")}
    assert used == {"cpu", "cpu:0"}
    again = json.loads(densecrf(*SOURCE, "--device", "cpu, cpu:0", "--out", "both").stdout)
    assert all(each["skipped"] for each in again["results"])


def test_a_cluster_has_one_device_for_all(folder):
    run = densecrf(*SOURCE, "--device", "cpu,cpu", "--scheduler", "tcp://127.0.0.1:1")
    assert run.exit_code == 2
    assert "give one device for all workers" in said(run)


def note(item, watch):
    """Return who did the work; the item "end" ends its process, "wait" waits to be stopped."""
    if item == "end":
        os._exit(3)
    if item == "wait":
        Path("waiting").touch()
        watch.stop.wait()
        raise Interrupted
    return {"process": os.getpid(), "interrupts": signal.getsignal(signal.SIGINT)}


def test_each_device_has_a_process_and_one_that_ends_fails_for_its_item_alone():
    items = ["a", "end", "b", "c", "d"]
    batch = run_batch(items, str, [note, note], progress=False)
    assert set(batch.results) == {"a", "b", "c", "d"}
    assert "its process ended" in batch.failures["end"]
    processes = {each["process"] for each in batch.results.values()}
    assert os.getpid() not in processes
    assert {each["interrupts"] for each in batch.results.values()} == {signal.SIG_IGN}


def test_all_processes_stop_where_the_user_asks_for_it(tmp_path, monkeypatch, interruptible):
    monkeypatch.chdir(tmp_path)

    def press():
        while not Path("waiting").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    batch = run_batch(["a", "wait", "wait", "wait"], str, [note], progress=False)
    thread.join()
    assert batch.interrupted
    assert set(batch.results) == {"a"}
    assert not batch.failures


def test_images_of_one_device_are_solved_together(folder, monkeypatch):
    """Threads read and write; one queue has all their problems."""
    torch = pytest.importorskip("torch")
    from densecrf.torch import queue

    one = json.loads(densecrf(*SOURCE, "--device", "cpu", "--out", "one").stdout)
    monkeypatch.setattr(queue, "use_triton", lambda _: True)
    calls, call = [], queue.DeviceQueue.call
    monkeypatch.setattr(
        queue.DeviceQueue, "call", lambda self, *given: calls.append(self) or call(self, *given)
    )
    together = json.loads(densecrf(*SOURCE, "--device", "cpu", "--out", "together").stdout)
    assert len(calls) == 3
    assert len(set(calls)) == 1
    assert torch.is_grad_enabled()
    assert [each["energy"] for each in together["results"]] == [
        each["energy"] for each in one["results"]
    ]
