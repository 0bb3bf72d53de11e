"""Models and results across processes: pickled, copied, in pools, and in forked children."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import densecrf

STARTS = [s for s in ("spawn", "fork") if s in multiprocessing.get_all_start_methods()]


def model(seed=0, **options):
    rng = np.random.default_rng(seed)
    image = rng.random((9, 11, 3)) * 255
    kernels = [densecrf.Spatial(2.0, 1.0), densecrf.Bilateral(image, 5.0, 40.0, 2.0)]
    return densecrf.DenseCRF(rng.standard_normal((3, 9, 11)), kernels, **options)


def solved(crf):
    return crf.solve("lp", max_iterations=5, threads=1)


def same(one, other):
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.marginals, other.marginals)
    assert (one.energy, one.lower_bound) == (other.energy, other.lower_bound)
    assert one.trace.energy == other.trace.energy


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
@pytest.mark.parametrize("engine", ["lattice", "exact"])
def test_models_once_used_and_results_are_copied(again, engine):
    crf = model(filter=engine)
    result = solved(crf)
    same(solved(again(crf)), result)
    other = again(result)
    same(other, result)
    assert other.crf.energy(other.labels) == crf.energy(result.labels)


def test_a_grid_model_and_a_label_tree_are_copied():
    tree = densecrf.LabelTree(3, [([0, 1], 1.0)], leaf=0.5)
    u = np.random.default_rng(1).standard_normal((3, 6, 5))
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(1.0)], filter="grid", compatibility=tree)
    same(solved(pickle.loads(pickle.dumps(crf))), solved(crf))


@pytest.mark.parametrize("start", STARTS)
def test_results_come_back_from_a_process_pool(start):
    crf = model()
    expected = solved(crf)
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for result in pool.map(solved, [crf, model()], timeout=600):
            same(result, expected)


FORKS = """
import os, threading, time
import numpy as np
import densecrf
from densecrf.native import core

core().set_default_threads(4)  # however few processors there are, and however small the problem
core().set_work_per_thread(1)
rng = np.random.default_rng(0)
image = rng.random((60, 60, 3)) * 255
u = rng.standard_normal((4, 60, 60))

def solve(threads=2):
    kernels = [densecrf.Spatial(2.0), densecrf.Bilateral(image, 30.0, 5.0, 2.0)]
    return densecrf.DenseCRF(u, kernels).solve("lp", max_iterations=2, threads=threads).energy

expected = solve()
going = True

def keep_solving():
    while going:
        solve()

threads = [threading.Thread(target=keep_solving) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for _ in range(40):
    time.sleep(0.005)
    child = os.fork()
    if not child:
        os._exit(0 if solve() == expected else 3)
    children.append(child)
going = False
for thread in threads:
    thread.join()
late = time.monotonic() + 600
wrong = hung = 0
for child in children:
    done, status = 0, 0
    while not done and time.monotonic() < late:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(child, 9)
        os.waitpid(child, 0)
    hung += not done
    wrong += bool(done) and status != 0
print(hung, wrong)
"""


@pytest.mark.skipif("fork" not in STARTS, reason="no fork on this system")
def test_children_forked_while_other_threads_solve_go_on_and_solve():
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0"]
