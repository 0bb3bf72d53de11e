"""Branch and bound against brute force, where the linear program is loose."""

import numpy as np
import pytest

import densecrf
from densecrf import branch_and_bound
from densecrf.solvers import branch_and_bound as module
from densecrf.solvers.minimisation import minimise
from oracles import brute_force

# Three pixels with a label each, and one between any two of them that is as near to either: the LP
# gives it half of both (the integrality gap of multiway cuts).
CORNERS = 1.8 * np.eye(3)
BETWEEN = 1.5 * (1 - np.eye(3))


def problem(seed, **options):
    rng = np.random.default_rng(seed)
    unary = np.concatenate([5.0 * (1 - np.eye(3)), np.zeros((3, 3))], 1)
    unary += rng.normal(size=unary.shape) * 0.02
    features = np.concatenate([CORNERS, BETWEEN]) + rng.normal(size=(6, 3)) * 0.02
    kernels = [densecrf.Features(features, weight=2.0)]
    return densecrf.DenseCRF(unary.reshape(3, 2, 3), kernels, "none", "exact", **options)


@pytest.fixture(scope="module")
def loose():
    """Seeds whose LP leaves a gap."""
    seeds = [s for s in range(5) if not problem(s).solve("lp", gap=0.0).optimal]
    assert len(seeds) >= 3
    return seeds


@pytest.fixture(scope="module")
def solved(loose):
    """Return loose problems with their best labelling, its energy, and what is found."""
    crfs = [problem(seed) for seed in loose]
    return [(crf, *brute_force(crf), branch_and_bound(crf)) for crf in crfs]


def test_the_optimum_where_the_lp_has_a_gap(solved):
    for crf, _, least, result in solved:
        assert result.converged, result.message
        assert result.optimal
        assert result.energy == pytest.approx(least, abs=1e-6)
        assert result.lower_bound <= result.energy + 1e-9
        assert result.info["nodes"] > 1
        assert crf.energy(result.labels) == result.energy


def test_no_pixel_is_proven_wrongly(solved):
    for _, best, _, result in solved:
        proven = result.proven.reshape(-1)
        np.testing.assert_array_equal(
            result.labels.reshape(-1)[proven], np.asarray(best).reshape(-1)[proven]
        )


def test_a_tight_problem_needs_no_nodes():
    crf = densecrf.DenseCRF(np.eye(2).reshape(2, 1, 2) * 3, [densecrf.Spatial(1.0)])
    result = branch_and_bound(crf)
    assert result.optimal
    assert "nodes" not in result.info


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_limits_leave_a_gap_that_is_proven(loose, nodes):
    crf = problem(loose[0])
    _, least = brute_force(crf)
    result = branch_and_bound(crf, max_nodes=nodes)
    assert result.info["nodes"] <= nodes
    assert result.lower_bound <= least + 1e-9
    assert result.energy >= least - 1e-9
    assert branch_and_bound(crf, time_limit=0.0).energy >= least - 1e-9


@pytest.mark.usefixtures("many_threads")
def test_same_result_twice_and_for_any_number_of_threads(loose):
    first = branch_and_bound(problem(loose[1]), threads=1)
    again = branch_and_bound(problem(loose[1]), threads=3)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.energy, first.lower_bound) == (again.energy, again.lower_bound)


@pytest.mark.parametrize("option", ["max_nodes", "node_iterations"])
def test_options_are_checked(option):
    with pytest.raises(densecrf.ArgumentError, match=option):
        branch_and_bound(problem(0), **{option: 0})


def test_ctrl_c_keeps_the_incumbent_and_a_proof(loose, monkeypatch):
    crf = problem(loose[0])
    _, least = brute_force(crf)
    solved = []

    def interrupted(*given):
        solved.append(1)
        found = minimise(*given)
        found.interrupted = True
        return found

    monkeypatch.setattr(module, "minimise", interrupted)
    result = branch_and_bound(crf)
    assert len(solved) == 1  # the other child is not begun
    assert not result.converged
    assert result.info["open"] >= 1
    assert result.lower_bound <= least + 1e-9
    assert result.energy >= least - 1e-9
