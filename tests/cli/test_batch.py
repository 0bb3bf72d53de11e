"""Many images at once: order, failures kept apart, Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from densecrf import DenseCRF, Features
from densecrf.cli.batch import Watch, run_batch
from densecrf.deadline import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from densecrf.cli.batch import BatchOutcome


pytestmark = pytest.mark.usefixtures("interruptible")


def run(
    work: Callable[[int, Watch], dict[str, Any]], items: int = 20, jobs: int = 1
) -> BatchOutcome:
    return run_batch(range(items), str, work, jobs=jobs, progress=False)


def test_results_come_in_the_order_of_the_items_and_failures_apart() -> None:
    def work(item: int, watch: Watch) -> dict[str, Any]:
        time.sleep(0.001 * (item % 3))
        if item == 4:
            raise ValueError("no such scores")
        return {"square": item * item}

    batch = run(work, 9, jobs=3)
    assert list(batch.results) == [str(item) for item in range(9) if item != 4]
    assert batch.results["3"] == {"square": 9}
    assert list(batch.failures) == ["4"]
    assert "no such scores" in batch.failures["4"]
    assert not batch.interrupted


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("jobs", [1, 3])
def test_first_interrupt_is_noted_and_not_raised(jobs: int) -> None:
    """Raised among the locks of futures, it would leave threads waiting for ever."""
    during = []

    def work(item: int, watch: Watch) -> dict[str, Any]:
        if item == 0:
            during.append(signal.getsignal(signal.SIGINT))
        if item == 3:
            os.kill(os.getpid(), signal.SIGINT)
        if item >= 3:
            assert watch.stop.wait(600)
        if item > 3:
            raise Interrupted
        return {"item": item}

    batch = run(work, 2000, jobs)
    assert batch.interrupted
    assert list(batch.results) == ["0", "1", "2", "3"]  # what was under way is kept
    assert not batch.failures
    assert signal.default_int_handler not in during
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("method", ["mf5", "lp"])
def test_an_interrupt_ends_a_solver_that_calls_nobody_back(method: str) -> None:
    def work(item: int, watch: Watch) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        assert watch.stop.wait(60)
        DenseCRF(np.eye(2, 30), [Features(np.arange(30.0)[:, None])]).solve(method)
        return {"item": item}

    batch = run(work, 3)
    assert batch.interrupted
    assert not batch.results
    assert not batch.failures


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_second_interrupt_is_raised() -> None:
    def work(item: int, watch: Watch) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        assert watch.stop.wait(600)
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        run(work, 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runs_outside_the_main_thread() -> None:
    batches = []
    thread = threading.Thread(target=lambda: batches.append(run(lambda item, _: {"item": item})))
    thread.start()
    thread.join()
    assert len(batches[0].results) == 20
