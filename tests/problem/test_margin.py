"""How much worse other labels are, against all labellings of small problems."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import densecrf
from densecrf.problem.certificate import Costs, Potentials, Share, rounded_down
from densecrf.problem.problem import problem_of
from densecrf.solvers.branch_and_bound import branch_and_bound
from oracles import energies

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CERTIFIED = ("lp", "prox-lp", "sg-lp", "cg-lp", "qp")


def true_differences(crf, labels):
    """Return the least energy of labellings with another label at each pixel, less this one's."""
    table = energies(crf)
    own = table[tuple(labels.ravel())]
    others = [
        min(table.take(label, pixel).min() for label in range(crf.n_labels) if label != own_label)
        for pixel, own_label in enumerate(labels.ravel())
    ]
    return np.array(others).reshape(labels.shape) - own


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_labels, n = draw(st.sampled_from([(2, 8), (3, 6), (4, 5)]))
    unary = rng.normal(size=(n_labels, n)) * draw(st.sampled_from([1e-3, 0.3, 1.0, 3.0, 1e3]))
    if draw(st.booleans()):
        unary = np.rint(unary)  # labellings of the same energy
    tree = densecrf.LabelTree(4, [([0, 1], 0.5)]) if n_labels == 4 and draw(st.booleans()) else None
    return densecrf.DenseCRF(
        unary,
        [densecrf.Features(rng.normal(size=(n, 2)), draw(st.sampled_from([0.2, 1.0, 4.0])))],
        normalization=draw(st.sampled_from(["symmetric", "none"])),
        filter=draw(st.sampled_from(["exact", "lattice"])),
        compatibility=tree,
    )


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(CERTIFIED), st.sampled_from([1, 5, 60]))
def test_no_labelling_is_closer_than_the_margin(crf, method, iterations):
    result = crf.solve(method, gap=0.0, max_iterations=iterations)
    assert (result.margin is None) == (result.lower_bound is None)
    if result.margin is None:
        return
    assert (result.margin <= true_differences(crf, result.labels)).all()
    assert (result.proven == (result.margin > 0)).all()
    assert (result.proven == (result.possible == 1)).all()


@settings(max_examples=50, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_labelling_is_closer_than_the_margin_of_any_potentials_and_labels(crf, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(crf.n_labels, size=crf.n)
    problem = problem_of(crf)
    scores = rng.normal(size=problem.unary.shape).astype(np.float32)
    known = Share(problem.energy(labels), sizes=problem.energy_sizes(labels))
    found = Costs(problem, Potentials(scores, None, 4.0)).margin(problem, known, labels)
    assert (found <= true_differences(crf, labels)).all()


def test_the_margin_of_a_solved_problem_is_the_difference_itself():
    """Without pairs, and up to what is left of the gap with them."""
    unary = np.array([[0.0, 0.0, 4.0, 5.0], [3.0, 5.0, 0.0, 0.0]])
    alone = densecrf.DenseCRF(unary).solve("lp")
    np.testing.assert_allclose(alone.margin, [3, 5, 4, 5], rtol=1e-6)
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(sigma=1.0, weight=0.5)])
    result = crf.solve("lp", gap=0.0)
    assert result.proven.all()
    assert result.margin.min() > 2


def test_branch_and_bound_has_margins():
    unary = np.random.default_rng(3).normal(size=(3, 2, 3))
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(1.0, 1.0)], filter="exact")
    result = branch_and_bound(crf)
    assert result.margin.shape == (2, 3)
    assert (result.margin <= true_differences(crf, result.labels)).all()


def test_without_time_the_margin_is_minus_the_gap():
    rng = np.random.default_rng(0)
    crf = densecrf.DenseCRF(rng.normal(size=(3, 9, 9)), [densecrf.Spatial(2.0, 2.0)])
    stopped = crf.solve("lp", max_iterations=1)
    assert stopped.margin.min() >= stopped.lower_bound - stopped.energy - 1e-3
    assert not stopped.proven.all()


def test_methods_without_a_certificate_have_no_margin():
    assert densecrf.DenseCRF(np.eye(3)).solve("mf5").margin is None


def test_torch_has_the_same_margins():
    unary = np.random.default_rng(1).normal(size=(3, 12, 11))
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(2.0, 1.0)], filter="lattice")
    here = crf.solve("lp", gap=0.0, max_iterations=100)
    there = crf.solve("lp", gap=0.0, max_iterations=100, device="cpu")
    assert there.margin.dtype == np.float32
    np.testing.assert_allclose(there.margin, here.margin, atol=0.05)
    assert there.proven.any()


def test_margins_survive_a_file_and_false_ones_are_found(tmp_path):
    unary = np.random.default_rng(2).normal(size=(3, 6, 5))
    crf = densecrf.DenseCRF(unary, [densecrf.Spatial(1.5, 0.5)])
    result = crf.solve("lp", gap=0.0, keep_dual=True)
    result.save(tmp_path / "result.npz")
    back = densecrf.Result.load(tmp_path / "result.npz")
    np.testing.assert_array_equal(back.margin, result.margin)
    stated = (result.energy, result.lower_bound, result.possible)
    assert back.verify(crf).disagreements(*stated, back.margin) == []
    forged = np.where(np.arange(30).reshape(6, 5) == 7, result.margin + 0.01, result.margin)
    (said,) = back.verify(crf).disagreements(*stated, forged)
    assert said == "at 1 pixels a larger margin is stated than is proven"
    np.testing.assert_array_less(result.margin, back.verify(crf).margin)


@pytest.mark.parametrize("margin", [np.zeros((5, 6), np.float32), np.full((6, 5), np.inf)])
def test_damaged_margins_are_refused(tmp_path, margin):
    result = densecrf.DenseCRF(np.zeros((2, 6, 5))).solve("lp")
    replace(result, margin=margin).save(tmp_path / "result.npz")
    with pytest.raises(ValueError, match="damaged: ValueError: margin of shape"):
        densecrf.Result.load(tmp_path / "result.npz")


def test_rounded_down_is_never_above():
    values = np.random.default_rng(0).normal(size=850) * 10.0 ** np.arange(-50, 35).repeat(10)
    assert (rounded_down(values) <= values).all()
    assert np.isfinite(rounded_down(values)).all()
