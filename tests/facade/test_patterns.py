"""Call patterns of public projects give pydensecrf's labels and marginals."""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from patterns import PATTERNS, WARNED, confident_labels

import densecrf.pydensecrf.densecrf as ours
from densecrf.pydensecrf import utils as our_utils

#: Strong weights amplify a difference in the last bit fivefold per iteration at a few pixels: after
#: one iteration marginals agree to 5e-7, after five to this.
UNSTABLE = {"10/0.3": 2e-4}


def assert_same(mine, theirs, tolerance=1e-4):
    mine, theirs = np.array(mine), np.array(theirs)
    difference = np.abs(mine - theirs)
    assert difference.max() <= tolerance
    assert np.median(difference) <= 1e-5
    np.testing.assert_array_equal(mine.argmax(0), theirs.argmax(0))


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


@pytest.mark.parametrize("name", WARNED)
def test_warned_pattern_matches_pydensecrf(name, pydensecrf):
    pattern, word = WARNED[name]
    with pytest.warns(UserWarning, match=word) as caught:
        mine = pattern(ours, our_utils)
    assert len(caught) == 1
    assert caught[0].filename.endswith("patterns.py")  # the user's line
    assert_same(mine, pattern(pydensecrf.densecrf, pydensecrf.utils))
