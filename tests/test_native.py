"""The native core as a guest in a Python process: threads, forks, Ctrl-C, instruction sets."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Spatial
from densecrf.native import core
from densecrf.operators import GridFilter, LatticeFilter
from densecrf.operators.levels import Levels
from densecrf.problem.projections import simplex
from engines import random_features

pytestmark = pytest.mark.usefixtures("many_threads")

ORDERS = ("soft", "hard", "literal", "adaptive", "divide-and-conquer")
THREADS = (1, 2, 3, 5)


def image_features(height: int = 60, width: int = 80) -> np.ndarray:
    rng = np.random.default_rng(0)
    image = np.kron(rng.integers(0, 256, (6, 8, 3)), np.ones((10, 10, 1)))
    image = image[:height, :width] + rng.normal(0, 8, (height, width, 3))
    return Bilateral(image, 15, 20).features((height, width))


def small_crf() -> DenseCRF:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    return DenseCRF(9 * rng.random((4, 40, 50)), [Spatial(3), Bilateral(image, 20, 30)])


# --- the same bits for any number of threads ---------------------------------------------------


def same_bits(compute) -> None:
    first = compute(THREADS[0])
    for threads in THREADS[1:]:
        np.testing.assert_array_equal(first, compute(threads))


@pytest.mark.parametrize("channels", [1, 7, 21])
@pytest.mark.parametrize("blur", ["symmetric", "forward"])
def test_lattice_is_bitwise_equal_for_any_thread_count(channels, blur):
    points = image_features()
    y = np.random.default_rng(0).random((len(points), channels), dtype=np.float32)
    same_bits(lambda threads: LatticeFilter(points, blur, threads).apply(y, threads=threads))
    operator = LatticeFilter(points, blur)
    same_bits(lambda threads: operator.apply(y, threads=threads))


@pytest.mark.parametrize("order", ORDERS)
def test_ordered_is_bitwise_equal_for_any_thread_count(order):
    points = image_features()[:1200]
    operator = LatticeFilter(points)
    y = np.random.default_rng(0).random((len(points), 6), dtype=np.float32)
    same_bits(lambda threads: operator.ordered(y, order=order, threads=threads))
    same_bits(lambda threads: operator.ordered(y[:, :1], order=order, threads=threads))


def test_grid_is_bitwise_equal_for_any_thread_count():
    operator = GridFilter((60, 80, 5), 2.0)
    y = np.random.default_rng(0).random((operator.n, 3), dtype=np.float32)
    same_bits(lambda threads: operator.apply(y, threads=threads))
    same_bits(lambda threads: operator.ordered(y, threads=threads))


def test_pixelwise_steps_are_bitwise_equal_for_any_thread_count():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((21, 50_000), dtype=np.float32)
    same_bits(lambda threads: simplex(z, threads=threads))
    same_bits(lambda threads: core().lower_bound(z, z[::-1].copy(), 0.5, None, threads))


def test_diagonal_and_weights_are_bitwise_equal_for_any_thread_count():
    lattice = LatticeFilter(image_features())._lattice
    scale = np.random.default_rng(0).random(lattice.pixels, dtype=np.float32)

    def diagonal(threads):
        out = np.empty(lattice.pixels)
        lattice.scaled(scale, scale, threads).diagonal(out, threads)
        return out

    same_bits(diagonal)


def test_solutions_are_equal_for_any_thread_count():
    crf = small_crf()
    same_bits(lambda threads: crf.solve("mf5", threads=threads).marginals)


def test_no_channels_are_harmless():
    operator = LatticeFilter(random_features(3, 2))
    nothing = np.empty((0, 3), np.float32)
    assert operator.apply_planes(nothing).size == 0
    assert operator.ordered_planes(nothing, Levels(10, 0.0, 9.0, hard=False)).size == 0
    assert operator.ordered_workspace(0) == 0


def test_threads_are_as_many_as_the_work_pays_for():
    most = core().available_threads()
    assert most == 8
    core().set_work_per_thread(1000)  # the fixture brings back what it was
    numbers = [core().threads_for(work, 0) for work in range(0, 20_000, 500)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 1
    assert numbers[-1] == most == core().threads_for(10**15, 10**6)
    assert core().threads_for(10**15, 3) == 3
    assert core().threads_for(2000, 0) == 2


def test_threads_are_no_more_than_the_processors_of_the_caller():
    core().set_default_threads(0)  # the fixture brings back what it was
    assert 1 <= core().available_threads() <= (os.cpu_count() or 1)
    if not hasattr(os, "sched_setaffinity"):
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert core().available_threads() == core().threads_for(10**15, 7) == 1
    finally:
        os.sched_setaffinity(0, before)
    assert core().available_threads() <= len(before)


def test_more_threads_than_work_are_harmless():
    operator = LatticeFilter(random_features(3, 2))
    np.testing.assert_array_equal(
        operator.apply([1, 2, 3], threads=1024), operator.apply([1, 2, 3], threads=1)
    )


# --- instruction sets ------------------------------------------------------------------------


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("levels", [2, 5, 10, 30])
def test_every_instruction_set_gives_the_same_result(levels):
    """AVX2 and AVX-512 give the same bits; the others have no fused multiply-adds."""
    operator = LatticeFilter(image_features())
    y = np.random.default_rng(0).random((operator.n, 21), dtype=np.float32)
    results = {}
    for isa in ("base", "sse2", "avx2", "avx512"):
        if core().select_isa(isa):
            assert core().isa() == isa
            results[isa] = (
                *(operator.apply(y[:, :c]) for c in (1, 5, 21)),
                operator.ordered(y[:, :3], levels=levels),
                operator.ordered(y[:, :3], levels=levels, order="hard"),
            )
    assert results
    first = next(iter(results.values()))
    for isa, other in results.items():
        for a, b in zip(first, other, strict=True):
            scale = np.abs(a).max()
            np.testing.assert_allclose(b / scale, a / scale, rtol=0, atol=1e-6, err_msg=isa)
    if "avx2" in results and "avx512" in results:
        for a, b in zip(results["avx2"], results["avx512"], strict=True):
            np.testing.assert_array_equal(a, b)


def test_unknown_instruction_sets_are_refused():
    before = core().isa()
    assert not core().select_isa("mmx")
    assert core().isa() == before


# --- several Python threads, forks ------------------------------------------------------------


def test_two_python_threads_share_a_model():
    crf = small_crf()
    expected = small_crf().solve("mf5").energy
    energies: list[float] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        energies.extend(crf.solve("mf5", threads=2).energy for _ in range(5))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert energies == [expected] * 20


def solve_in_child(queue, crf) -> None:
    queue.put((crf.solve("mf5", threads=2).energy, small_crf().solve("mf5", threads=2).energy))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_core_works_in_a_forked_child_after_the_parent_used_threads():
    crf = small_crf()
    expected = crf.solve("mf5", threads=2).energy
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=solve_in_child, args=(queue, crf)) for _ in range(2)]
    for child in children:
        child.start()
    answers = [queue.get(timeout=600) for _ in children]
    for child in children:
        child.join(timeout=600)
    assert answers == [(expected, expected)] * 2
    assert crf.solve("mf5", threads=2).energy == expected


# --- the GIL and Ctrl-C ----------------------------------------------------------------------


def test_other_python_threads_run_during_a_native_call():
    """With no switches but by threads that wait, one that ran meanwhile ran during the call."""
    operator = LatticeFilter(random_features(30_000, 5))
    y = np.random.default_rng(0).random((8, operator.n), dtype=np.float32)
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0)

    ticker, interval = threading.Thread(target=tick), sys.getswitchinterval()
    ticker.start()
    sys.setswitchinterval(1e6)
    try:
        for _ in range(1000):
            before = ticks[0]
            operator.apply_planes(y, None, 1)
            if ticks[0] > before:
                break
        else:
            pytest.fail("no other thread ran during 1000 calls")
    finally:
        sys.setswitchinterval(interval)
        done.set()
        ticker.join()


INTERRUPTED = """
    import _thread, threading
    import numpy as np
    from densecrf.operators import GridFilter, LatticeFilter
    rng = np.random.default_rng(0)
    n, d, channels = {n}, {d}, {channels}
    points = (rng.random((n, d)) * {spread}).astype(np.float32)
    y = rng.random((channels, n), dtype=np.float32).T  # no copy before the native call
    {setup}
    timer = threading.Timer(0.4, _thread.interrupt_main)
    timer.start()
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted")
    else:
        print("not interrupted")
"""
LATTICE = "operator = LatticeFilter(points)"
GRID = "operator = GridFilter((1000, 1000), 50); y = rng.random((30, 10**6), dtype=np.float32).T"
LONG_CALLS = {  # pixels, dimension, channels, extent of the features, set-up, the call
    "build": (4_000_000, 5, 1, 9, "", LATTICE),
    "apply": (300_000, 5, 300, 9, LATTICE, "operator.apply(y)"),
    "ordered": (100_000, 5, 400, 9, LATTICE, "operator.ordered(y)"),
    "many levels": (20_000, 2, 400, 90, LATTICE, "operator.ordered(y, levels=1000)"),
    "literal": (200_000, 5, 20, 9, LATTICE, "operator.ordered(y, order='literal')"),
    "adaptive": (200_000, 2, 100, 90, LATTICE, "operator.ordered(y, order='adaptive')"),
    "halves": (300_000, 5, 4, 9, LATTICE, "operator.ordered(y, order='divide-and-conquer')"),
    "grid": (10, 1, 1, 1, GRID, "operator.ordered(y)"),
}


def interrupt(name: str, threads: int, then: str = "") -> list[str]:
    """Press Ctrl-C during a long call in a process of its own; return what it prints."""
    fields = ("n", "d", "channels", "spread", "setup", "call")
    values = dict(zip(fields, LONG_CALLS[name], strict=True))
    values["call"] = values["call"].removesuffix(")") + f", threads={threads})"
    code = textwrap.dedent(INTERRUPTED).format(**values) + then
    completed = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return completed.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LONG_CALLS)
def test_ctrl_c_is_answered_during_a_call(name, threads):
    assert interrupt(name, threads) == ["interrupted"]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_during_an_ordered_filter_leaves_the_core_usable():
    """The quick representative of the slow tests above."""
    again = "print(float(operator.ordered(y[:, :2]).max()) > 0)"
    assert interrupt("many levels", 2, then=again) == ["interrupted", "True"]


ENDING = """
    import sys, threading, time
    import numpy as np
    from densecrf import DenseCRF, Spatial
    crf = DenseCRF(np.random.default_rng(0).normal(size=(5, 120, 120)), [Spatial(1.0, 3.0)])
    begun = threading.Event()
    def solve():
        while True:
            crf.solve("lp", gap=0, threads=2, callback=lambda _: begun.set())
    threading.Thread(target=solve, daemon=True).start()
    begun.wait()
    time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1, 0.15])
def test_python_ends_quietly_while_a_daemon_thread_solves(seconds):
    code = textwrap.dedent(ENDING)
    command = [sys.executable, "-c", code, str(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_sweeping_and_blurring_along_lines_give_the_same_bits(labels):
    """One thread sweeps this lattice in windows; threads that share few labels go along lines."""
    rows, columns = np.mgrid[:60, :70].astype(np.float32) / 1.5
    operator = LatticeFilter(np.stack([columns.ravel(), rows.ravel()], 1))
    y = np.random.default_rng(0).random((operator.n, labels), dtype=np.float32)
    for threads in (2, 5):
        np.testing.assert_array_equal(
            operator.apply(y, threads=threads), operator.apply(y, threads=1)
        )
        np.testing.assert_array_equal(
            operator.ordered(y, threads=threads), operator.ordered(y, threads=1)
        )


def test_the_core_uses_no_streams():
    """They crash where the core and another module of the process bring a libstdc++ each."""
    native = Path(__file__).parent.parent / "native"
    streams = re.compile(r"#include <(?:[io]*stream|fstream|sstream|iomanip|locale|regex|format)>")
    sources = [*native.glob("src/**/*.?pp"), *native.glob("bindings/*.?pp")]
    assert sources
    assert [path.name for path in sources if streams.search(path.read_text("utf-8"))] == []
