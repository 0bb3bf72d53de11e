"""The problem on tensors and on NumPy arrays: the same operations, the same answers."""

import numpy as np
import pytest
import torch

import densecrf
from densecrf.problem.certificate import Potentials, lower_bound
from densecrf.problem.problem import problem_of
from densecrf.torch.problem import problem_on

pytest.importorskip("densecrf._native")

LABELS, SHAPE = 4, (9, 11)
TREE = densecrf.LabelTree(LABELS, [([0, 1], 1.0)], leaf=0.5)
COSTS = np.array([[0, 1, 2, 1], [1, 0, 1, 1], [2, 1, 0, 3], [1, 1, 3, 0.5]])


def model(compatibility=None, labels=LABELS, normalization="symmetric", shape=SHAPE):
    rng = np.random.default_rng(labels)
    colours = 255 * rng.random((*shape, 3)).reshape(-1, 3)
    # Off the faces of the lattice's simplices, on one side or other of which rounding puts a pixel.
    places = np.indices(shape).reshape(len(shape), -1).T + np.array([0.137, 0.291])
    kernels = [
        densecrf.Features(places / 2, weight=1.5),
        densecrf.Features(np.hstack([places / 5, colours / 60]), weight=2),
    ]
    unary = 2 * rng.random((labels, *shape))
    return densecrf.DenseCRF(unary, kernels, normalization, compatibility=compatibility)


@pytest.fixture(params=["potts", "tree", "matrix", "potts by triton"])
def both(request, device):
    costs = {"tree": TREE, "matrix": COSTS}.get(request.param)
    shape = SHAPE
    if request.param == "potts by triton":
        request.getfixturevalue("by_triton")
        shape = (1, 5)  # interpreted
    crf = model(costs, shape=shape)
    return problem_of(crf), problem_on(crf, device)


def agree(ours, theirs, rtol=2e-5, atol=2e-5):
    ours = ours.cpu().numpy() if isinstance(ours, torch.Tensor) else ours
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def test_operations(both):
    plain, ours = both
    rng = np.random.default_rng(0)
    z = rng.normal(size=plain.unary.shape).astype(np.float32)
    y = plain.steps.project(z)
    labels = plain.steps.argmax(z)
    tz, ty, tl = (ours.steps.from_numpy(x) for x in (z, y, labels))
    agree(ours.pairwise.mass, plain.pairwise.mass)
    agree(ours.pairwise.diagonal, plain.pairwise.diagonal)
    agree(ours.lipschitz, plain.lipschitz)
    agree(ours.pairwise.mass_double, plain.pairwise.mass_double)
    agree(ours.pairwise.apply_double(ty), plain.pairwise.apply_double(y))
    for name in ("apply", "messages"):
        agree(getattr(ours, name)(tz), getattr(plain, name)(z))
    for name in ("project", "argmax"):
        agree(getattr(ours.steps, name)(tz), getattr(plain.steps, name)(z))
    agree(ours.costs.nodes(tz), plain.costs.nodes(z))
    for name in ("indicator", "energy"):
        agree(getattr(ours, name)(tl), getattr(plain, name)(labels))
    agree(ours.steps.inner(tz, ty), plain.steps.inner(z, y))
    agree(ours.unary_marginals(), plain.unary_marginals())
    for before in (None, 2 * plain.costs.nodes(y)):
        given = None if before is None else ours.steps.from_numpy(before)
        got = ours.update_multipliers(given, 4 * ty, 5.0, 2.0)
        agree(got, plain.update_multipliers(before, 4 * y, 5.0, 2.0))
    agree(ours.lower_bound(tz), plain.lower_bound(z))
    assert ours.best_constant == pytest.approx(plain.best_constant)
    agree(ours.constant(2), plain.constant(2))
    assert (ours.potts, ours.costs.tree) == (plain.potts, plain.costs.tree)


def test_ordered_operations(both):
    plain, ours = both
    if not plain.costs.tree:
        return
    y = plain.steps.project(
        np.random.default_rng(1).normal(size=plain.unary.shape).astype(np.float32)
    )
    ty = ours.steps.from_numpy(y)
    agree(ours.dual_point(ty, 7), plain.dual_point(y, 7))
    agree(ours.dual_point(ty, 7, rescale=False), plain.dual_point(y, 7, rescale=False))
    z = np.random.default_rng(2).random(plain.costs.nodes(y).shape, dtype=np.float32)
    agree(ours.flow(ty, None, 4.0), plain.flow(y, None, 4.0))
    agree(ours.flow(ty, ours.steps.from_numpy(z), 4.0), plain.flow(y, z, 4.0))
    assert not ours.dual_point(0 * ty).any()
    potentials = Potentials(y, z, 4.0)
    theirs = Potentials(ty, ours.steps.from_numpy(z), 4.0)
    agree(ours.dual_point_double(theirs), plain.dual_point_double(potentials))
    assert lower_bound(ours, theirs) == pytest.approx(lower_bound(plain, potentials), rel=1e-5)


def test_icm_moves(both):
    plain, ours = both
    rng = np.random.default_rng(2)
    for kept in (LABELS, 2, LABELS):  # labels that did not occur before may occur now
        labels = rng.integers(0, kept, plain.n)
        theirs, mine = plain.icm_moves(labels), ours.icm_moves(ours.steps.from_numpy(labels))
        agree(mine.labels, theirs.labels)
        agree(mine.gain, theirs.gain)
        assert mine.movers == theirs.movers
        assert mine.energy == pytest.approx(theirs.energy, rel=1e-6)
        moved = ours.steps.apply_moves(ours.steps.from_numpy(labels), mine, theirs.movers // 2)
        agree(moved, plain.steps.apply_moves(labels, theirs, theirs.movers // 2))


def test_labellings_are_estimated_at_once(both):
    plain, ours = both
    rng = np.random.default_rng(4)
    labellings = [rng.integers(0, kept, plain.n) for kept in (2, LABELS, 2)]
    given = [ours.steps.from_numpy(labels) for labels in labellings]
    ours.icm_moves(given[0])  # only its labels are known to occur
    estimates = ours.estimates(given)
    assert estimates == pytest.approx([plain.energy(x) for x in labellings], rel=1e-5)
    assert [ours.energy(x) for x in given] == pytest.approx(estimates, rel=1e-5)
    best = int(np.argmin(estimates))
    theirs, mine = plain.icm_moves(labellings[best]), ours.icm_moves(given[best])
    agree(mine.labels, theirs.labels)
    agree(mine.gain, theirs.gain)
    y = plain.unary_marginals()
    for others in (None, labellings[0], labellings[1]):
        then = None if others is None else ours.steps.from_numpy(others)
        undecided, same = ours.steps.compare(ours.steps.from_numpy(y), given[0], then)
        agree(undecided, plain.steps.compare(y, y, None)[0], rtol=1e-4)
        assert same == (others is not None and np.array_equal(others, labellings[0]))


def test_descend(both):
    plain, ours = both
    rng = np.random.default_rng(3)
    v, r, previous = rng.normal(size=(3, *plain.unary.shape)).astype(np.float32)
    theirs = plain.descend(v, r, 1 / plain.lipschitz, previous)
    arguments = (ours.steps.from_numpy(x) for x in (v, r, 1 / plain.lipschitz, previous))
    for mine, want in zip(ours.descend(*arguments), theirs, strict=True):
        agree(mine, want, rtol=1e-4, atol=1e-4)


def test_two_labels_mirror_each_other(device):
    crf = model(labels=2)
    plain, ours = problem_of(crf), problem_on(crf, device)
    y = plain.unary_marginals()
    agree(ours.dual_point(ours.steps.from_numpy(y)), plain.dual_point(y))


def test_no_kernels(device):
    crf = densecrf.DenseCRF(np.array([[[0.0, 1.0]], [[1.0, 0.4]]]), [])
    result = crf.solve("lp", device=device)
    assert result.labels.tolist() == [[0, 1]]
    assert result.energy == pytest.approx(0.4)


@pytest.mark.parametrize("method", densecrf.METHODS)
@pytest.mark.parametrize("normalization", ["symmetric", "none"])
@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_every_method_agrees_with_numpy(method, normalization, device):
    crf = model(normalization=normalization)
    plain, ours = crf.solve(method), crf.solve(method, device=device)
    assert ours.energy == pytest.approx(plain.energy, rel=1e-5)
    assert (ours.labels == plain.labels).mean() > 0.98
    assert ours.iterations == pytest.approx(plain.iterations, abs=1)
    if plain.lower_bound is not None:
        # Hard levels put a score at the edge of a level to either side.
        close = 1e-2 if method.startswith("prox-lp") else 1e-4
        assert ours.lower_bound == pytest.approx(plain.lower_bound, rel=close)
    assert ours.energy == pytest.approx(crf.energy(ours.labels), rel=1e-6)


@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_starting_points(device):
    crf = model()
    first = crf.solve("mf", device=device)
    for init in (first, first.labels, "qp"):
        result = crf.solve("lp", init=init, device=device)
        assert result.gap < 0.05


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", ["2_14_s", "4_11_s"])
@pytest.mark.parametrize("labels", [2, 21])
@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_parity_on_photographs(name, labels, shared_data, device):
    data = np.load(shared_data / "msrc_paper" / f"{name}.npz")
    crop = np.s_[60:108, 60:124]
    kept = np.argsort(-data["probs"][crop].sum((0, 1)))[:labels]
    unary = -np.log(np.moveaxis(data["probs"][crop][..., kept], 2, 0) + 1e-5)
    kernels = [
        densecrf.Spatial(3, weight=3),
        densecrf.Bilateral(data["image"][crop], 60, 13, weight=10),
    ]
    crf = densecrf.DenseCRF(unary, kernels)
    for method in ("mf5", "dc-neg", "lp"):
        # The core prices labels, Triton's steps do not: other iterates, and one optimum.
        own = {"gap": 1e-5} if method == "lp" else {}
        plain, ours = crf.solve(method, **own), crf.solve(method, device=device, **own)
        assert ours.energy == pytest.approx(plain.energy, rel=1e-5)
        assert (ours.labels == plain.labels).mean() >= 0.999
        if plain.lower_bound is not None:
            assert ours.lower_bound == pytest.approx(plain.lower_bound, rel=1e-4)


def test_the_exact_order_is_refused_on_tensors(device):
    crf = model()
    ours, y = problem_on(crf, device), crf.solve("mf5").marginals.reshape(LABELS, -1)
    assert problem_of(crf).relaxed_energy(y) == crf.relaxed_energy(y)
    with pytest.raises(ValueError, match="order='adaptive': must be 'soft' or 'hard' on tensors"):
        ours.relaxed_energy(ours.steps.from_numpy(y))


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5, 9e5])
def test_features_far_from_zero_have_the_same_energy(offset):
    rng = np.random.default_rng(7)
    features = rng.normal(size=(60, 3))
    features[:20] += offset
    features[20:40] -= offset / 2
    kernels = [densecrf.Features(features, 2.0), densecrf.Spatial(2.0, 1.0)]
    crf = densecrf.DenseCRF(rng.normal(size=(3, 60)), kernels)
    result = crf.solve("lp", device="cpu")
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)


def test_the_problem_of_some_pixels_has_the_submatrix(both):
    pixels = np.array([0, 2, 3])
    for whole in both:
        part, unit = whole.on_pixels(pixels), whole.steps.double_from_numpy(np.eye(whole.n))
        k = whole.steps.to_numpy(whole.pairwise.apply_double(unit))[np.ix_(pixels, pixels)]
        some = part.steps.from_numpy(np.eye(3, dtype=np.float32))
        agree(part.pairwise.apply(some), k)
        agree(part.pairwise.apply_double(some), k)
        agree(part.pairwise.mass, k.sum(1))
        agree(part.pairwise.mass_double, k.sum(1))
        agree(part.pairwise.diagonal, np.diag(k))
        agree(part.pairwise.pairs_double(part.steps.constant(1, 3), 2, None), 0)
        if part.potts:
            y = part.steps.project(part.steps.from_numpy(np.eye(4, 3, dtype=np.float32)))
            agree(part.dual_point(y), both[0].on_pixels(pixels).dual_point(np.eye(4, 3)))


def test_problems_of_other_labels_on_the_same_steps(both):
    rng = np.random.default_rng(5)
    v, r = rng.normal(size=(2, 2, both[0].n)).astype(np.float32)
    for keep in ([0, 1], [2, 3], [0, 1], [2, 3]):  # prepared launches have the first one's unary
        plain, ours = (whole.on_labels(np.array(keep)) for whole in both)
        step = 1 / plain.lipschitz
        theirs = plain.descend(v, r, step, v)
        mine = ours.descend(*(ours.steps.from_numpy(x) for x in (v, r, step, v)))
        for found, expected in zip(mine, theirs, strict=True):
            agree(found, expected, rtol=1e-4, atol=1e-4)


def test_the_former_name_of_torch_problem():
    with pytest.deprecated_call(match="torch_problem"):
        assert densecrf.torch.TorchProblem is densecrf.torch.torch_problem
