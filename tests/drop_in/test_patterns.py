"""Call patterns of public projects give pydensecrf's labels and marginals."""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import patterns
import pytest
from patterns import PATTERNS, WARNED, confident_labels
from scripts import photograph

import densecrf.drop_in.pydensecrf.densecrf as ours
from densecrf.drop_in.pydensecrf import utils as our_utils

#: Strong weights amplify a difference in the last bit fivefold per iteration at a few pixels: after
#: one iteration marginals agree to 5e-7, after five to this.
UNSTABLE = {"10/0.3": 2e-4, "20/0.03": 2e-4}


def assert_same(mine, theirs, tolerance=1e-4):
    mine, theirs = np.array(mine), np.array(theirs)
    difference = np.abs(mine - theirs)
    assert difference.max() <= tolerance
    assert np.median(difference) <= 1e-5
    np.testing.assert_array_equal(mine.argmax(0), theirs.argmax(0))


#: The original fills up the last four of the pixels: the remainder matters.
SIZES = {(24, 32): 0, (23, 31): 1, (22, 31): 2, (21, 31): 3}


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def _size(request, monkeypatch):
    height, width = request.param
    assert height * width % 4 == SIZES[request.param]
    part = photograph()[30 : 30 + height, 40 : 40 + width]
    dark = (part - part.min((0, 1))) // 4 + np.uint8(
        8
    )  # near the origin, so that its vertices matter
    monkeypatch.setattr(patterns, "photograph", dark.copy)


@pytest.mark.parametrize("n", [400, 401, 402, 403])
def test_points_around_the_origin_match_pydensecrf(n, pydensecrf):
    t = np.linspace(0, 6.28, n)
    marginals = []
    for module in (ours, pydensecrf.densecrf):
        d = module.DenseCRF(n, 2)
        d.setUnaryEnergy(np.stack([np.sin(9 * t), 0 * t]).astype(np.float32))
        circle = 2 * np.stack([np.cos(t), np.sin(t)]).astype(np.float32)
        d.addPairwiseEnergy(circle, compat=3)
        marginals.append(np.array(d.inference(5)))
    assert_same(*marginals, 1e-6)


@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_matches_pydensecrf(name, pydensecrf):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mine = PATTERNS[name](ours, our_utils)
    theirs = PATTERNS[name](pydensecrf.densecrf, pydensecrf.utils)
    assert_same(mine, theirs, UNSTABLE.get(name, 1e-4))


def _confident(_):
    return confident_labels(ours, our_utils)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_pools_of_threads_and_processes(pool, pydensecrf):
    with pool(2) as workers:
        found = list(workers.map(_confident, range(3)))
    theirs = confident_labels(pydensecrf.densecrf, pydensecrf.utils)
    for labels in found:
        assert (labels != theirs).sum() <= 1  # at most a marginal at the threshold itself


@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize("name", WARNED)
def test_warned_pattern_matches_pydensecrf(name, pydensecrf):
    pattern, word = WARNED[name]
    with pytest.warns(UserWarning, match=word) as caught:
        mine = pattern(ours, our_utils)
    assert len(caught) == 1
    assert caught[0].filename.endswith("patterns.py")  # the user's line
    assert_same(mine, pattern(pydensecrf.densecrf, pydensecrf.utils))
