"""The scheduler: order, failures as values, bounded reading ahead, Ctrl-C, lost workers."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from densecrf import parallel
from densecrf.deadline import Interrupted
from densecrf.parallel import PATIENCE, Finished, run, stop_here

WAYS = ({}, {"workers": 3}, {"workers": 2, "processes": True})


pytestmark = pytest.mark.usefixtures("interruptible")


def square(number, error=None):
    time.sleep(0.001 * (number % 3))
    if error is not None:
        raise error
    return number * number


def end_process(code):
    os._exit(code)


class UnreadableError(Exception):
    """Pickles, and cannot be read."""

    def __init__(self, first, second):
        super().__init__(f"{first}{second}")


# --- answers ------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_failures_are_values_and_the_others_go_on(way):
    arguments = [(n, ValueError("four")) if n == 4 else (n,) for n in range(9)]
    found = list(run(square, arguments, ordered=True, **way))
    assert [done.number for done in found] == list(range(9))
    assert [done.answer for done in found] == [None if n == 4 else n * n for n in range(9)]
    with pytest.raises(ValueError, match="four"):
        found[4].result()
    assert found[3].result() == 9


@pytest.mark.parametrize("way", WAYS[1:], ids=str)
def test_each_is_yielded_as_it_ends(way):
    numbers = {done.number for done in run(square, [(n,) for n in range(20)], **way)}
    assert numbers == set(range(20))


@pytest.mark.parametrize("ordered", [False, True])
def test_arguments_are_read_a_bounded_way_ahead(ordered):
    read, release = [], threading.Event()

    def arguments():
        for number in range(50):
            read.append(number)
            yield (number,)

    def task(number):
        assert number or release.wait(60)  # the first is slow

    with closing(run(task, arguments(), workers=2, ordered=ordered)) as found:
        threading.Timer(0.3, release.set).start()
        next(found)
        assert len(read) <= 5
    assert len(read) <= 5


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_nothing_to_do(way):
    assert list(run(square, [], **way)) == []


@pytest.mark.parametrize("way", WAYS[1:], ids=str)
def test_a_task_that_ends_its_worker_is_a_failure(way):
    found = list(run(sys.exit, [(3,), (4,)], ordered=True, **way))
    assert ["SystemExit(3)" in str(done.error) for done in found] == [True, False]


# --- processes ----------------------------------------------------------------


def imported(name):
    return name in sys.modules, os.getppid()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process imports for itself")
def test_processes_are_forks_of_one_that_has_imported_modules(monkeypatch):
    monkeypatch.setattr(parallel, "_context", parallel._context)
    parallel.preload("colorsys")
    found = list(run(imported, [("colorsys",)] * 4, workers=2, processes=True))
    assert all(done.result()[0] for done in found)
    assert os.getpid() not in {done.result()[1] for done in found}


def test_a_process_that_dies_fails_for_its_task_alone():
    tasks = [end_process, end_process]
    found = list(run(tasks, [(3,), (4,), (5,)], processes=True, ordered=True))
    assert [str(done.error) for done in found] == [
        f"its process ended with code {code}" for code in (3, 4, 5)
    ]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_the_signal_that_ended_a_process_is_named():
    (found,) = run(signal.raise_signal, [(signal.SIGKILL,)], workers=1, processes=True)
    assert "SIGKILL" in str(found.error)


def give(what):
    return {
        "a lambda": lambda: None,
        "handler": signal.getsignal(signal.SIGINT),
        "process": os.getpid(),
    }[what]


def test_what_does_not_pickle_is_a_failure():
    arguments = [("a lambda",), ("handler",), (lambda: None,), ("process",)]
    found = list(run(give, arguments, workers=1, processes=True, ordered=True))
    assert found[0].error is not None
    assert found[1].answer is signal.SIG_IGN  # Ctrl-C is left to the process that the user sees
    assert isinstance(found[2].error, (pickle.PicklingError, AttributeError))
    assert found[3].answer != os.getpid()


def test_errors_that_cannot_be_read_elsewhere_are_told_in_words():
    (found,) = run(fail_unreadably, [()], workers=1, processes=True)
    assert "UnreadableError: why" in str(found.error)


def fail_unreadably():
    raise UnreadableError("wh", "y")


# --- Ctrl-C -------------------------------------------------------------------


def collected(found):
    """Return the numbers that are yielded before a run is interrupted, and by what."""
    numbers = []
    try:
        for done in found:
            numbers.append(done.number)  # noqa: PERF401 - an exception follows them
    except (KeyboardInterrupt, Interrupted) as error:
        return sorted(numbers), type(error)
    return sorted(numbers), None


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("ordered", [False, True])
def test_ctrl_c_ends_a_run_between_two_tasks(ordered):
    def task(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5 if number == 3 else 0.01)

    numbers, ended = collected(run(task, tuples(2000), workers=1, ordered=ordered))
    assert ended is KeyboardInterrupt
    assert numbers[:4] == [0, 1, 2, 3]  # the last of them was under way, and is kept
    assert len(numbers) < 1000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("way", [{}, {"workers": 1}, {"workers": 3}], ids=str)
def test_stop_ends_a_run_and_its_unfinished_tasks_are_left_out(way):
    stop = threading.Event()

    def task(number):
        if number == 3:
            stop.set()
        if number > 3:
            assert stop.wait(600)
            raise Interrupted

    numbers, ended = collected(run(task, tuples(2000), stop=stop, **way))
    assert ended is Interrupted
    assert numbers == [0, 1, 2, 3]


def until_stopped(path, code=None):
    """Wait, in a process, until tasks are to end; then end, the process itself with a code."""
    with open(path, "w"):  # noqa: PTH123
        pass
    assert stop_here().wait(600)
    if code is not None:
        os._exit(code)
    raise Interrupted


@pytest.mark.parametrize("code", [None, 3])
def test_processes_see_that_they_are_to_stop(tmp_path, code):
    stop, path = threading.Event(), tmp_path / "waiting"

    def press():
        while not path.exists():
            time.sleep(0.01)
        stop.set()

    thread = threading.Thread(target=press)
    thread.start()
    found = run(until_stopped, [(str(path), code)] * 3, workers=1, processes=True, stop=stop)
    assert collected(found) == ([], Interrupted)
    thread.join()


def tuples(count):
    return [(number,) for number in range(count)]


# --- clusters -----------------------------------------------------------------


@pytest.fixture
def distributed():
    return pytest.importorskip("distributed")


class Scheduler:
    """A client whose scheduler answers in turn; an exception stands for no answer in time."""

    def __init__(self, *answers):
        self.answers = iter(answers)
        self.scheduler = SimpleNamespace(ncores=None)
        self.cluster = None

    def sync(self, *_, callback_timeout, **__):
        assert 0 < callback_timeout < PATIENCE  # without it the call could wait for ever
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def checking(distributed, monkeypatch):
    """Return a cluster that counts its workers at every turn."""
    monkeypatch.setattr(parallel, "CHECK", 1e-9)
    return lambda *answers: parallel._Cluster(print, Scheduler(*answers), "tasks")


def test_without_an_answer_the_last_count_of_workers_holds(checking):
    cluster = checking({"a": 2, "b": 3}, TimeoutError())
    assert [cluster.ahead(), cluster.ahead()] == [10, 10]


@pytest.mark.parametrize("answer", [TimeoutError(), {}])
def test_long_without_workers_ends_the_run(checking, answer):
    cluster = checking(answer, {"a": 1}, answer)
    cluster.ahead()  # for a moment only
    cluster.seen -= 2 * PATIENCE
    cluster.ahead()  # one is back
    cluster.seen -= 2 * PATIENCE
    with pytest.raises(ConnectionError, match="finished work is kept"):
        cluster.ahead()


ATTEMPTS = []


def too_late(number):
    ATTEMPTS.append(number)
    if number == 2:
        raise TimeoutError("the file server does not answer")
    return number


TOGETHER = threading.Barrier(4)


def meet():
    TOGETHER.wait(600)


@pytest.fixture
def threads(distributed):
    """Return a cluster of two threads in this process, and its client."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=None, processes=False
        ) as local,
        distributed.Client(local) as client,
    ):
        yield local, client


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_a_task_that_fails_by_a_timeout_is_tried_again_by_itself(threads, batch):
    ATTEMPTS.clear()
    found = list(run(too_late, tuples(5), client=threads[1], batch=batch, ordered=True))
    assert [done.answer for done in found] == [0, 1, None, 3, 4]
    assert "file server" in str(found[2].error)
    assert sorted(ATTEMPTS) == [0, 1, 2, 2, 2, 2, 3, 4]


def test_all_threads_are_busy_those_that_come_later_too(threads, monkeypatch):
    monkeypatch.setattr(parallel, "CHECK", 0.1)
    local, client = threads
    found = run(meet, [()] * 8, client=client)
    local.scale(2)
    assert sorted(done.number for done in found) == list(range(8))


def test_a_cluster_answers_in_order_and_in_batches(threads):
    arguments = ((n, ValueError("no")) if n == 7 else (n,) for n in range(23))
    found = list(run(square, arguments, client=threads[1], batch=4, ordered=True))
    assert found[:7] == [Finished(n, n * n) for n in range(7)]
    assert isinstance(found[7].error, ValueError)
    assert [done.number for done in found] == list(range(23))


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_leaves_a_cluster(threads):
    def task(number):  # in a thread of this process
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        list(run(task, tuples(100), client=threads[1]))
    assert threads[1].status == "running"
