"""Runs on a real Dask cluster of processes: the same files, whatever happens to the workers."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from densecrf import parallel, refine_many
from densecrf.large import refine
from large_scenes import MODEL, crowd

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="1GiB",
            dashboard_address=":0",
            processes=True,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture
def inputs(tmp_path):
    image, p = crowd()
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "p.npy", p)
    return tmp_path / "image.npy", tmp_path / "p.npy"


def kill_one(client, choose):
    """Kill a worker that answers; those killed before may not have started again yet."""
    pids = []
    while not pids:
        pids = list(client.run(os.getpid, on_error="ignore").values())
    pid = choose(pids)
    os.kill(pid, signal.SIGKILL)
    return pid


OPTIONS = {"tile": 30, "model": MODEL, "axis": 0, "gap": 5e-3}


def test_workers_write_the_same_files_as_one_process(tmp_path, inputs, cluster):
    alone = refine(*inputs, **OPTIONS, out=tmp_path / "alone.npy")
    shared = refine(*inputs, **OPTIONS, out=tmp_path / "shared.npy", client=cluster)
    assert (tmp_path / "alone.npy").read_bytes() == (tmp_path / "shared.npy").read_bytes()
    assert (alone.energy, alone.lower_bound) == (shared.energy, shared.lower_bound)
    assert not (tmp_path / "shared.npy.parts").exists()


def test_killed_workers_lose_nothing(tmp_path, inputs, cluster):
    expected = refine(*inputs, **OPTIONS)
    killed = []

    def kill(stage, done, count):
        if done in (1, 4) and len(killed) < 4:
            killed.append(kill_one(cluster, lambda pids: pids[len(killed) % len(pids)]))

    out = tmp_path / "labels.npy"
    result = refine(*inputs, **OPTIONS, out=out, client=cluster, progress=kill)
    assert len(killed) == 4
    np.testing.assert_array_equal(np.load(out), expected.labels)
    assert (result.energy, result.lower_bound) == (expected.energy, expected.lower_bound)


@pytest.mark.slow
def test_twenty_workers_killed_at_random(tmp_path, cluster):
    image, p = crowd((160, 240))
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "p.npy", p)
    inputs = (tmp_path / "image.npy", tmp_path / "p.npy")
    options = {**OPTIONS, "tile": 40, "gap": 3e-3}
    alone = refine(*inputs, **options, out=tmp_path / "alone.npy")
    rng, killed, calls = random.Random(5), [], []

    def kill(stage, done, count):
        calls.append(stage)
        if len(killed) < 20 and len(calls) % 3 == 0:
            killed.append(kill_one(cluster, rng.choice))

    out = tmp_path / "labels.npy"
    result = refine(*inputs, **options, out=out, client=cluster, progress=kill)
    assert len(killed) == 20
    assert out.read_bytes() == (tmp_path / "alone.npy").read_bytes()
    assert (result.energy, result.lower_bound) == (alone.energy, alone.lower_bound)


def test_workers_that_the_cluster_gave_up_are_asked_for_again(tmp_path, inputs, monkeypatch):
    monkeypatch.setattr(parallel, "CHECK", 0.5)
    killed, out = [], tmp_path / "labels.npy"

    def kill(stage, done, count):
        if not killed:
            killed.extend(client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=True
        ) as local,
        distributed.Client(local) as client,
    ):
        refine(*inputs, **OPTIONS, out=out, client=client, progress=kill)
    np.testing.assert_array_equal(np.load(out), refine(*inputs, **OPTIONS).labels)


def test_arrays_in_memory_do_not_travel(cluster):
    image, p = crowd()
    with pytest.raises(ValueError, match=r"image.*workers.*path"):
        refine(image, p, **OPTIONS, client=cluster)


def test_tiles_that_no_worker_can_hold_are_refused(tmp_path, cluster):
    shape = (4000, 4000)
    np.lib.format.open_memmap(tmp_path / "image.npy", "w+", np.uint8, (*shape, 3))
    np.lib.format.open_memmap(tmp_path / "p.npy", "w+", np.uint8, shape)
    inputs = (tmp_path / "image.npy", tmp_path / "p.npy")
    with pytest.raises(ValueError, match=r"tile.*needs 2\..* GiB.*workers have.*1\.0 GiB"):
        refine(*inputs, n_labels=3, tile=4000, client=cluster)


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler and a worker, processes of their own."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_"]
    options = ["--scheduler-file", str(file)]
    started = []

    def start(name, *more):
        started.append(
            subprocess.Popen(
                [*command[:-1], command[-1] + name, *options, *more],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    try:
        start("scheduler", "--port", "0", "--dashboard-address", ":0")
        start("worker", "--nthreads", "1", "--dashboard-address", ":0", "--death-timeout", "60")
        with distributed.Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
            yield client, started[0]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_killed_scheduler_is_named_and_the_run_goes_on(tmp_path, inputs, scheduler):
    client, process = scheduler
    out, made = tmp_path / "labels.npy", []

    def kill(stage, done, count):
        if stage == "iterates-0" and done == 2:
            process.kill()
            process.wait()

    with pytest.raises(ConnectionError, match="finished work is kept"):
        refine(*inputs, **OPTIONS, out=out, client=client, progress=kill)
    assert not out.exists()
    assert len(list((tmp_path / "labels.npy.parts/records/iterates-0").iterdir())) >= 2
    refine(*inputs, **OPTIONS, out=out, progress=lambda stage, done, _: made.append((stage, done)))
    np.testing.assert_array_equal(np.load(out), refine(*inputs, **OPTIONS).labels)
    stage, done = made[0]  # the worker may have ended the round without its scheduler
    assert stage not in ("scan", "masses")
    assert done > 2 or stage != "iterates-0"


def test_many_images_in_batches(tmp_path, cluster):
    image, p = crowd((12, 14), 2)
    images, probs = [image] * 23, [p] * 23
    probs[7] = np.full_like(p, np.nan)
    np.save(tmp_path / "p.npy", p)
    probs[9] = str(tmp_path / "p.npy")
    options = {"axis": 0, "method": "mf5"}
    found = list(refine_many(images, probs, client=cluster, batch=4, **options))
    assert [type(each).__name__ for each in found] == [
        "Failure" if index == 7 else "Result" for index in range(23)
    ]
    assert found[7].index == 7
    expected = next(refine_many([image], [p], **options)).labels
    assert all((each.labels == expected).all() for each in found if each)


def test_a_cluster_without_workers_does_not_wait_for_ever(inputs, monkeypatch):
    monkeypatch.setattr(parallel, "PATIENCE", 1)
    monkeypatch.setattr(parallel, "CHECK", 0.5)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=True) as local,
        distributed.Client(local) as client,
        pytest.raises(ConnectionError, match="no workers for 1 s"),
    ):
        refine(*inputs, **OPTIONS, client=client)
