"""The fused per-pixel operations of the native core against plain NumPy, in double."""

import numpy as np
import pytest

from densecrf.native import core
from densecrf.operators.levels import Levels

SHAPES = [(1, 1), (2, 5), (3, 127), (21, 128), (7, 129), (4, 20_011)]
CLOSE = {"rtol": 2e-6, "atol": 2e-6}  # float32 against double, sums of up to 21 terms


@pytest.fixture(params=SHAPES, ids=str)
def planes(request):
    rng = np.random.default_rng(0)
    return [rng.normal(size=request.param).astype(np.float32) for _ in range(5)]


@pytest.fixture
def column(planes):
    return np.random.default_rng(1).random(planes[0].shape[1], dtype=np.float32) + np.float32(0.1)


@pytest.fixture
def labels(planes):
    return np.random.default_rng(2).integers(0, len(planes[0]), planes[0].shape[1])


def simplex(z):
    """Return the projection of each column, by sorting."""
    descending = -np.sort(-z.astype(np.float64), 0)
    thresholds = (np.cumsum(descending, 0) - 1) / np.arange(1, len(z) + 1)[:, None]
    count = (descending > thresholds).sum(0)
    return np.maximum(z - np.take_along_axis(thresholds, count[None] - 1, 0), 0)


def softmax(z):
    e = np.exp(z.astype(np.float64) - z.max(0))
    return e / e.sum(0)


def test_descend(planes, column):
    phi, r, v, previous, out = planes
    g = phi.astype(np.float64) + r
    bound, value, uphill = core().descend(phi, r, v, column, column, previous, out, 0)
    np.testing.assert_allclose(out, simplex(v - column * g), rtol=0, atol=1e-5)
    assert bound == pytest.approx(g.min(0).sum(), rel=1e-5, abs=1e-4)
    assert value == pytest.approx((g * v).sum(), rel=1e-5, abs=1e-3)
    slope = (column * (v - out.astype(np.float64)) * (out - previous)).sum()
    assert uphill == pytest.approx(slope, rel=1e-5, abs=1e-3)


def test_mean_field_update(planes, column):
    phi, filtered, y, _, out = planes
    for given, z in (
        ((None, None, None), -phi),
        ((filtered, None, None), filtered - phi),
        ((filtered, y, column), filtered - column * y - phi),
    ):
        core().mean_field_update(phi, *given, out, 0)
        np.testing.assert_allclose(out, softmax(z), rtol=1e-5, atol=1e-7)


def test_response_to_extreme_energies():
    """Differences beyond what float32 can tell from zero give probabilities of 0 and 1."""
    phi = np.array([[0.0, -1e30, 50.0], [100.0, 1e30, 0.0], [1e4, 0.0, 86.0]], np.float32)
    out = np.empty_like(phi)
    core().mean_field_update(phi, None, None, None, out, 1)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, softmax(-phi), rtol=1e-6, atol=1e-38)


def test_balance(planes, column):
    r = planes[0].copy()
    r[-1] = 0
    core().balance(r, column, float(column.sum(dtype=np.float64)), 0.5, 0)
    share = 0.5 * planes[0].sum(1, dtype=np.float64)[:, None] / column.sum(dtype=np.float64)
    np.testing.assert_allclose(r[:-1], (0.5 * planes[0] - share * column)[:-1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(r.sum(1, dtype=np.float64), 0, atol=1e-5 * len(column))
    assert not r[-1].any()


def test_potts_messages_also_in_place(planes, column):
    filtered, y, out = planes[:3]
    m = filtered.astype(np.float64) - column * y
    core().potts_messages(filtered, y, column, out, 0)
    np.testing.assert_allclose(out, m.sum(0) - m, rtol=1e-5, atol=1e-5)
    core().potts_messages(filtered, y, column, filtered, 0)
    np.testing.assert_array_equal(filtered, out)


def test_argmax_takes_the_first(planes):
    z = np.round(planes[0])  # many ties
    best = np.empty(z.shape[1], np.int64)
    core().argmax(z, best, 0)
    np.testing.assert_array_equal(best, z.argmax(0))


def test_icm_moves(planes, labels):
    phi, rows = planes[:2]
    present = np.flatnonzero(np.arange(len(phi)) % 3 != 1)
    others = np.random.default_rng(3).normal(size=phi.shape[1]).astype(np.float32)
    received = np.broadcast_to(others, phi.shape).copy()
    received[present] = rows[: len(present)]
    costs = phi + received
    chosen = costs[labels, np.arange(len(labels))]
    best, gain = np.empty(len(labels), np.int64), np.empty(len(labels), np.float32)
    unary, pairs, movers = core().icm_moves(
        phi, received[present], present, others, labels, best, gain, 0
    )
    np.testing.assert_allclose(gain, chosen - costs.min(0), **CLOSE)
    np.testing.assert_array_equal(best, np.where(gain > 0, costs.argmin(0), labels))
    assert movers == (gain > 0).sum()
    pick = np.arange(len(labels))
    assert unary == pytest.approx(phi[labels, pick].sum(dtype=np.float64), rel=1e-6, abs=1e-6)
    assert pairs == pytest.approx(received[labels, pick].sum(dtype=np.float64), rel=1e-6, abs=1e-6)


def test_frank_wolfe_steps(planes, column, labels):
    linear, h, y, _, out = planes
    product = h + column.astype(np.float64) * y
    gradient = linear + product
    best = np.empty(len(labels), np.int64)
    gap, objective = core().lmo(linear, h, column, y, best, 0)
    assert gap == pytest.approx((gradient * y).sum() - gradient.min(0).sum(), rel=1e-5, abs=1e-3)
    assert objective == pytest.approx(((linear + 0.5 * product) * y).sum(), rel=1e-5, abs=1e-3)
    chosen = gradient[best, np.arange(len(best))]
    np.testing.assert_allclose(chosen, gradient.min(0), **CLOSE)
    direction = (np.arange(len(y))[:, None] == labels) - y.astype(np.float64)
    core().step_to_vertex(labels, y, 0.3, out, 0)
    np.testing.assert_allclose(out, y + 0.3 * direction, **CLOSE)


def test_sums_and_moves(planes):
    u, v, out = planes[:3]
    extents = np.empty((len(u), 2), np.float32)
    core().extents(u, None, extents, 0)
    np.testing.assert_array_equal(extents, np.stack([u.min(1), u.max(1)], 1))
    assert core().inner(u, v, 0) == pytest.approx((u.astype(np.float64) * v).sum(), abs=1e-6)
    total, largest = core().difference(u, v, 0)
    assert total == pytest.approx(np.abs(u - v).sum(dtype=np.float64), rel=1e-6)
    assert largest == pytest.approx(np.abs(u - v).max(), rel=1e-6)
    core().extrapolate(u, v, 0.7, out, 0)
    np.testing.assert_allclose(out, u + 0.7 * (u - v), **CLOSE)


@pytest.mark.usefixtures("restore_isa")
def test_every_thread_count_and_instruction_set(planes, column):
    phi, r, v, previous, _ = planes
    results = {}
    for isa in ("base", "sse2", "avx2", "avx512"):
        if not core().select_isa(isa):
            continue
        for threads in (1, 2, 5):
            step, response = np.empty_like(phi), np.empty_like(phi)
            sums = core().descend(phi, r, v, column, column, previous, step, threads)
            core().mean_field_update(phi, r, v, column, response, threads)
            results.setdefault(isa, []).append((np.array(sums), step, response))
    for runs in results.values():
        for run in runs[1:]:
            for a, b in zip(runs[0], run, strict=True):
                np.testing.assert_array_equal(a, b)
    first = next(iter(results.values()))[0]
    for runs in results.values():
        for a, b in zip(first, runs[0], strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-5)


def test_wrong_shapes_are_refused():
    a, b = np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="shapes"):
        core().inner(a, b, 1)
    with pytest.raises(ValueError, match="as long as"):
        core().argmax(a, np.zeros(2, np.int64), 1)


def apply(lattice, values, out, factor=1.0):
    lattice.apply(values, out, symmetric=True, factor=factor, accumulate=False, threads=0)


def ordered(lattice, scores, offsets, extents, mass, levels, out):
    given = {"offsets": offsets, "extents": extents, "mass": mass, "symmetric": True}
    out[...] = 0
    lattice.ordered(scores, out, levels, **given, factor=1.0, threads=0)


@pytest.mark.parametrize("sigma", [0.7, 3.0])  # lattices larger than the planes, and smaller
@pytest.mark.parametrize("labels", [1, 3, 8, 21, 40])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_sum_of_filters_is_the_sum(sigma, labels, symmetric):
    rng = np.random.default_rng(0)
    positions = np.stack(np.meshgrid(np.arange(23.0), np.arange(31.0), indexing="ij"), -1)
    features = positions.reshape(-1, 2) / sigma
    colours = np.concatenate([features / 4, rng.random((len(features), 1))], 1)
    lattices = [core().Lattice.build(np.ascontiguousarray(f), 0) for f in (features, colours)]
    factors = [0.7, 0.2]
    y, phi, out = (rng.random((labels, len(features)), dtype=np.float32) for _ in range(3))
    own = rng.random(len(features), dtype=np.float32)
    expected = np.zeros_like(y)
    for lattice, factor in zip(lattices, factors, strict=True):
        lattice.apply(y, expected, symmetric=symmetric, factor=factor, accumulate=True, threads=0)
    total = core().LatticeSum(tuple(lattices), factors, symmetric)
    total.apply(y, out, 0)
    np.testing.assert_allclose(out, expected, rtol=3e-6, atol=1e-6)
    core().MeanField(total, phi, own).step(y, out, False, 0)
    np.testing.assert_allclose(out, softmax(expected - own * y - phi), rtol=2e-5, atol=1e-7)
    once = y.copy()
    core().MeanField(total, phi, None).step(once, once, False, 1)  # in place
    np.testing.assert_allclose(once, softmax(expected - phi), rtol=2e-5, atol=1e-7)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("weights", ["none", "same", "different"])
@pytest.mark.parametrize("labels", [2, 21, 40])
@pytest.mark.parametrize("symmetric", [True, False])
def test_mean_field_has_the_same_bits_for_any_number_of_threads(weights, labels, symmetric):
    """One thread splats what it has just computed; several compute each step on its own."""
    rng = np.random.default_rng(0)
    positions = np.stack(np.meshgrid(np.arange(60.0), np.arange(71.0), indexing="ij"), -1)
    features = positions.reshape(-1, 2) / 3
    colours = np.concatenate([features / 9, 3 * rng.random((len(features), 3))], 1)
    lattices = [core().Lattice.build(np.ascontiguousarray(f), 0) for f in (features, colours)]
    columns, rows = rng.random((2, len(features)), dtype=np.float32)
    for lattice in lattices if weights != "none" else ():
        lattice.weigh(columns, columns if weights == "same" else rows, 0)
    total = core().LatticeSum(tuple(lattices), [1.0, 3.0], symmetric)
    start, phi = rng.random((2, labels, len(features)), dtype=np.float32)
    own = rng.random(len(features), dtype=np.float32) if symmetric else None

    def iterated(threads, more):
        steps, y = core().MeanField(total, phi, own), start.copy()
        for left in (3, 2, 1, 0):
            steps.step(y, y, more and left > 0, threads[left % len(threads)])
        return y

    expected = iterated([1], more=False)
    for threads in ([1], [2], [3], [1, 1, 3]):
        np.testing.assert_array_equal(iterated(threads, more=True), expected)


@pytest.mark.parametrize("sigma", [0.7, 3.0])
@pytest.mark.parametrize("labels", [1, 3, 21, 40])
def test_energy_and_icm_moves_of_a_labelling(sigma, labels):
    """At once or by planes of indicators, they are what the matrix of the filters says."""
    rng = np.random.default_rng(0)
    features = np.stack(np.meshgrid(np.arange(9.0), np.arange(8.0), indexing="ij"), -1) / sigma
    lattice = core().Lattice.build(features.reshape(-1, 2), 0)
    n = 72
    matrix = np.zeros((n, n), np.float32)
    apply(lattice, np.eye(n, dtype=np.float32), matrix, 0.3)
    mass, own = matrix.sum(1), np.diag(matrix).copy()
    phi = rng.random((labels, n), dtype=np.float32)
    x = rng.integers(0, max(1, labels - 2), n)  # some labels that nobody has
    same = x[:, None] == x
    total = core().LatticeSum((lattice,), [0.3], True)
    best, gain = np.empty(n, np.int64), np.empty(n, np.float32)
    sums = total.potts_icm_moves(phi, x, mass=mass, own=own, best=best, gain=gain, threads=0)
    others = matrix - np.diag(own)
    costs = phi + np.stack([others @ (x != i) for i in range(labels)])
    now = costs[x, np.arange(n)]
    np.testing.assert_allclose(gain, now - costs.min(0), rtol=0, atol=1e-5)
    np.testing.assert_allclose(costs[best, np.arange(n)], costs.min(0), rtol=0, atol=1e-5)
    assert sums[0] == pytest.approx(phi[x, np.arange(n)].sum(), rel=1e-6)
    assert sums[1] == pytest.approx((matrix * ~same).sum(), rel=1e-5, abs=1e-4)
    assert sums[2] == (gain > 0).sum()


def test_labels_outside_the_planes_are_refused():
    total = core().LatticeSum((core().Lattice.build(np.zeros((4, 1)), 0),), [1.0], True)
    phi, some = np.zeros((2, 4), np.float32), np.zeros(4, np.float32)
    best, gain = np.empty(4, np.int64), np.empty(4, np.float32)
    for wrong in (2, -1):
        labels = np.array([0, 1, wrong, 0])
        with pytest.raises(ValueError, match="labels"):
            total.potts_icm_moves(phi, labels, mass=some, own=some, best=best, gain=gain, threads=0)
        with pytest.raises(ValueError, match="labels"):
            total.pairs_double(labels, 2, None, 0)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("channels", [1, 5, 21, 37])
def test_levels_that_a_channel_does_not_reach_change_nothing(channels, hard):
    """Channels of many ranges at once are what each would be alone, over all levels."""
    rng = np.random.default_rng(channels)
    n, count = 60, 12
    lattice = core().Lattice.build(rng.random((n, 2)) * 4, 0)
    matrix = np.zeros((n, n), np.float32)
    apply(lattice, np.eye(n, dtype=np.float32), matrix)
    width = rng.choice([0.0, 0.05, 0.3, 1.0, 1.4], (channels, 1))
    scores = np.float32(rng.random((channels, 1)) + width * (rng.random((channels, n)) - 0.5))
    extents = np.stack([scores.min(1), scores.max(1)], 1)
    out = np.full_like(scores, 7)
    levels = Levels(count, 0.0, count - 1.0, hard)
    ordered(lattice, scores, None, extents, matrix.sum(1), levels, out)
    t = np.clip(scores * np.float32(count - 1), 0, count - 1).astype(np.float64)
    t = np.floor(t) if hard else t
    ramps = np.clip(t[:, None] - np.arange(count - 1)[:, None], 0, 1)  # mass above each level
    above = np.concatenate([np.ones((channels, 1, n)), ramps, np.zeros((channels, 1, n))], 1)
    share = above[:, :-1] - above[:, 1:]
    sign = np.sign(np.arange(count)[:, None] - np.arange(count))
    s = np.einsum("cla,lm,cmb->cab", share, sign, share)
    np.testing.assert_allclose(out, (matrix * s).sum(2), rtol=0, atol=1e-4)


@pytest.mark.parametrize("hard", [False, True])
def test_offsets_are_added_to_the_scores(hard):
    """Filtering the sum and adding while filtering give the same bits."""
    rng = np.random.default_rng(0)
    lattice = core().Lattice.build(rng.random((500, 3)) * 5, 0)
    scores, offsets = rng.random((2, 7, 500), dtype=np.float32)
    mass = np.empty((1, 500), np.float32)
    apply(lattice, np.ones((1, 500), np.float32), mass)
    levels = Levels(9, 0.0, 4.0, hard)
    extents, known = np.empty((2, 7, 2), np.float32)
    core().extents(scores + offsets, None, extents, 0)
    core().extents(scores, offsets, known, 0)
    np.testing.assert_array_equal(known, extents)
    summed, added = np.empty((2, 7, 500), np.float32)
    ordered(lattice, scores + offsets, None, extents, mass[0], levels, summed)
    ordered(lattice, scores, offsets, extents, mass[0], levels, added)
    assert summed.any()
    np.testing.assert_array_equal(added, summed)


def test_sum_at(planes, column, labels):
    u = planes[0]
    own = u[labels, np.arange(u.shape[1])].astype(np.float64)
    assert core().sum_at(u, labels, None, 0) == pytest.approx(own.sum(), rel=1e-12, abs=1e-9)
    weighted = (column * own).sum()
    assert core().sum_at(u, labels, column, 0) == pytest.approx(weighted, rel=1e-12, abs=1e-9)
    labels[-1] = len(u)
    with pytest.raises(ValueError, match="labels"):
        core().sum_at(u, labels, None, 0)


def test_undecided(planes):
    y = np.abs(planes[0]) % 1
    out = np.empty(len(y))
    core().undecided(y, out, 0)
    np.testing.assert_allclose(out, (y * (1.0 - y)).sum(1, dtype=np.float64), **CLOSE)
    core().undecided(np.rint(y), out, 0)
    assert not out.any()


def test_accumulate(planes):
    total, y = planes[:2]
    expected = total + y
    core().accumulate(y, total, 0)
    np.testing.assert_array_equal(total, expected)
