"""Fuzz of every public door: an answer, or a ValueError or MemoryError that names the argument."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from densecrf import ArgumentError, Bilateral, DenseCRF, Features, LabelTree, Spatial, validation
from densecrf.operators import ORDERS, ExactFilter, GridFilter, LatticeFilter

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

NUMBERS = st.one_of(
    st.sampled_from(
        [0, -1, 1, 2, 3, 1e-10, 1e-310, 5e-324, 1e30, 1e300, -0.0, 2**31, 2**63, -(2**63), 10**400]
    ),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-3, 300),
)
OBJECTS = st.sampled_from(
    [
        None,
        "text",
        b"bytes",
        "",
        (),
        [],
        {},
        {1: 2},
        object(),
        Spatial,
        print,
        3 + 4j,
        np.datetime64("2020-01-01"),
        [[1], [2, 3]],
        [None, 1],
        ["1", "2"],
        np.array([1, "a", None], object),
        np.zeros((2, 3), "S3"),
        np.zeros(3, [("x", float)]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.ma.masked_array([[1.0, 2.0]], [[False, True]]),
    ]
)
VIRTUAL = st.builds(
    lambda shape, dtype: np.broadcast_to(np.zeros((), dtype), shape),
    st.sampled_from(
        [(2, 2**40), (2**40, 2), (2**21, 2**20), (6, 2**45), (2, 2**40, 3), (2**58, 2)]
    ),
    st.sampled_from([np.uint8, np.float32, np.float64, np.bool_]),
)
ARRAYS = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements=None,
)
NEAR = hnp.arrays(  # of the right shape for a grid of 2 × 3, with any values
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from([(2, 2, 3), (2, 3), (6,), (6, 2), (2, 3, 2), (1, 2, 3)]),
    elements=st.floats(allow_nan=True, allow_infinity=True, width=32),
)
ANYTHING = st.one_of(NUMBERS, OBJECTS, ARRAYS, NEAR, VIRTUAL, st.lists(NUMBERS, max_size=3))
UNARY = np.arange(12.0).reshape(2, 2, 3) / 7
POINTS = np.arange(12.0).reshape(6, 2) / 3


@contextlib.contextmanager
def only_named_errors(*names: str):
    """Let pass answers, and errors of the two kinds whose message names one of the arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        caught = None
        try:
            yield
        except (ValueError, MemoryError) as error:
            caught = error
    if caught is not None:
        assert type(caught) in (ValueError, ArgumentError, MemoryError)
        assert any(name in str(caught) for name in names)


def mostly(valid, other=ANYTHING):
    """Return the valid value half of the time, so that the arguments behind it are reached."""
    return st.one_of(st.just(valid), other)


@FUZZ
@given(mostly(2.0), mostly(1.0), mostly((2, 3), st.tuples(st.integers(1, 4), st.integers(1, 4))))
def test_spatial(sigma, weight, shape):
    with only_named_errors("sigma", "weight"):
        features = Spatial(sigma, weight).features(shape)
        assert np.isfinite(features).all()


@FUZZ
@given(
    mostly(UNARY[0]),
    mostly(2.0),
    mostly(1.0),
    mostly(1.0),
    mostly(None, st.one_of(NUMBERS, OBJECTS)),
)
def test_bilateral(image, sigma_xy, sigma_color, weight, channel_axis):
    with only_named_errors("image", "sigma", "weight", "channel_axis"):
        kernel = Bilateral(image, sigma_xy, sigma_color, weight, channel_axis)
        assert np.isfinite(kernel.features((2, 3))).all()


@FUZZ
@given(mostly(POINTS), mostly(1.0))
def test_features(values, weight):
    with only_named_errors("features", "weight"):
        assert np.isfinite(Features(values, weight).features((2, 3))).all()


@FUZZ
@given(
    mostly(UNARY),
    mostly([Spatial(1.0)], st.one_of(ANYTHING, st.lists(ANYTHING, max_size=2))),
    mostly("symmetric"),
    mostly("lattice"),
    mostly(None),
    mostly(None),
)
def test_model(unary, kernels, normalization, engine, compatibility, ignore):
    with only_named_errors(
        "unary", "kernels", "normalization", "filter", "compatibility", "ignore", "shape", "sigma"
    ):
        crf = DenseCRF(
            unary, kernels, normalization, engine, compatibility=compatibility, ignore=ignore
        )
        crf.energy(np.zeros(crf.shape, int))


@FUZZ
@given(ANYTHING, st.booleans())
def test_labellings_and_marginals(value, relaxed):
    crf = DenseCRF(UNARY, [Spatial(1.0)])
    with only_named_errors("labels", "y:"):
        energy = crf.relaxed_energy(value) if relaxed else crf.energy(value)
        assert not np.isnan(energy)


@FUZZ
@given(mostly(np.full((2, 2, 3), 0.5)), mostly(0), mostly(1e-5))
def test_from_probabilities(p, axis, clip):
    with only_named_errors("probabilities", "axis", "clip", "unary"):
        DenseCRF.from_probabilities(p, [], axis=axis, clip=clip)


@FUZZ
@given(
    mostly(UNARY),
    mostly(0),
    mostly(None, st.one_of(ANYTHING, st.tuples(NUMBERS, NUMBERS))),
    mostly([Spatial(1)]),
)
def test_from_logits(logits, axis, shape, kernels):
    with only_named_errors("logits", "axis", "shape", "unary", "kernels"):
        DenseCRF.from_logits(logits, kernels, axis=axis, shape=shape)


@FUZZ
@given(mostly(np.zeros((2, 3), int)), mostly(2), mostly(0.7), mostly(255))
def test_from_labels(labels, n_labels, confidence, void):
    with only_named_errors("labels", "confidence", "void", "unary"):
        DenseCRF.from_labels(labels, n_labels, confidence=confidence, void=void)


@FUZZ
@given(mostly(3), mostly([([0, 1], 1.0)]), mostly(1.0))
def test_label_tree(labels, groups, leaf):
    with only_named_errors("labels", "groups", "leaf"):
        LabelTree(labels, groups, leaf).matrix()


@FUZZ
@given(mostly(POINTS), mostly("symmetric"), mostly(None), st.booleans())
def test_filters_of_features(features, blur, threads, exact):
    with only_named_errors("features", "blur", "threads"):
        operator = ExactFilter(features) if exact else LatticeFilter(features, blur, threads)
        assert np.isfinite(operator.apply(np.ones(operator.n))).all()


@FUZZ
@given(mostly((2, 3), st.one_of(ANYTHING, st.tuples(NUMBERS, NUMBERS))), mostly(1.0), mostly(1e-4))
def test_grid_filter(shape, sigma, tolerance):
    with only_named_errors("shape", "sigma", "tolerance"):
        operator = GridFilter(shape, sigma, tolerance)
        if operator.n < 1000:
            assert np.isfinite(operator.apply(np.ones(operator.n))).all()


@pytest.mark.parametrize(
    "operator", [ExactFilter(POINTS), LatticeFilter(POINTS), GridFilter((2, 3), 1.0)]
)
@FUZZ
@given(data=st.data())
def test_filtering(operator, data):
    value = data.draw(mostly(np.arange(6.0)))
    threads = data.draw(mostly(None))
    with only_named_errors("values", "threads"):
        assert operator.apply(value, threads=threads).dtype == np.float32
    weights = data.draw(mostly(None))
    levels = data.draw(mostly(10))
    order = data.draw(st.one_of(st.sampled_from(ORDERS), OBJECTS))
    with only_named_errors("scores", "weights", "levels", "order", "threads"):
        operator.ordered(value, weights, levels=levels, order=order, threads=threads)


@FUZZ
@given(
    st.sampled_from(["init", "gap", "time_limit", "max_iterations", "threads"]),
    st.one_of(NUMBERS, OBJECTS, ARRAYS, NEAR),
)
def test_solve(argument, value):
    crf = DenseCRF(UNARY, [Spatial(1.0)])
    with only_named_errors(argument, "labels"):
        crf.solve("mf5", **{argument: value})


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 2**31), (2, 2**16, 2**15), (2, 2**11, 2**11, 2**10)])
def test_more_pixels_than_32_bits_can_name(shape):
    unary = np.broadcast_to(np.uint8(0), shape)
    with pytest.raises(MemoryError, match=r"unary: .* pixels, more than 2147483647"):
        DenseCRF(unary)


def test_more_numbers_than_memory():
    with pytest.raises(MemoryError, match=r"unary: .* GiB"):
        DenseCRF(np.broadcast_to(np.float64(0), (2**20, 2**20)))
    with pytest.raises(MemoryError, match=r"features: .*pixels"):
        LatticeFilter(np.broadcast_to(np.float32(0), (2**31, 1)))
    with pytest.raises(MemoryError, match=r"values: .* GiB"):
        LatticeFilter(POINTS).apply(np.broadcast_to(0.0, (6, 2**40)))
    with pytest.raises(MemoryError, match=r"shape: .* pixels"):
        GridFilter((2**20, 2**20), 1.0)
    with pytest.raises(MemoryError, match="n_labels"):
        DenseCRF.from_labels(np.zeros((2, 3), int), 2**40)
    with pytest.raises(MemoryError, match="shape"):
        DenseCRF.from_logits(UNARY, shape=(2**20, 2**20))


def test_numbers_that_leave_no_memory_to_solve(monkeypatch):
    monkeypatch.setattr(validation, "physical_memory", lambda: 64)
    assert DenseCRF.from_labels(np.zeros(2, int), 4).n_labels == 4
    with pytest.raises(MemoryError, match=r"n_labels: 5 × 2 .* over half of"):
        DenseCRF.from_labels(np.zeros(2, int), 5)


def test_more_levels_than_memory():
    points = np.random.default_rng(0).random((200_000, 2)) * 1e5
    operator = LatticeFilter(points)
    with pytest.raises(MemoryError, match="levels=65536: the workspace"):
        operator.ordered(np.ones(operator.n), levels=65536)


def test_adaptive_lists_beyond_their_limit_are_refused(monkeypatch):
    monkeypatch.setattr("densecrf.operators.lattice.MAX_ADAPTIVE_ENTRIES", 100)
    operator = LatticeFilter(np.random.default_rng(0).random((500, 3)))
    with pytest.raises(MemoryError, match='order="adaptive"'):
        operator.ordered(np.random.default_rng(0).random(500), order="adaptive")


# --- features that try the lattice ---------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5, 20, 64])
@pytest.mark.parametrize("magnitude", [1e3, 1e5, 1e6])
def test_features_of_a_million_standard_deviations_work(d, magnitude):
    """Two clusters at opposite corners: each filters itself as it would near the origin."""
    rng = np.random.default_rng(0)
    cluster = np.round(rng.random((20, d)) * 16) / 16
    corner = magnitude - 1
    points = np.concatenate([cluster + corner, cluster - corner - 1])
    operator = LatticeFilter(points)
    matrix = operator.apply(np.eye(40))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    assert (matrix[:20, 20:] == 0).all()
    assert (np.diag(matrix) > 0).all()


@pytest.mark.parametrize("value", [1.1e6, -1e7, np.finfo(np.float32).max])
def test_features_beyond_are_refused(value):
    points = POINTS.copy()
    points[3, 1] = value
    for engine in (LatticeFilter, ExactFilter, Features):
        with pytest.raises(ValueError, match=r"features: a value of .* standard deviations"):
            engine(points)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 20])
def test_equal_features_share_everything(d):
    operator = LatticeFilter(np.full((500, d), 0.37))
    matrix = operator.apply(np.eye(500, 3))
    assert np.ptp(matrix) == 0
    np.testing.assert_allclose(operator.mass, 500 * matrix[0, 0], rtol=1e-4)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_points_on_lattice_vertices_and_faces(d):
    """Ties of ranks and zero weights: still symmetric, with the exact diagonal."""
    step = np.sqrt(np.arange(1, d + 1) * np.arange(2, d + 2)) / (np.sqrt(2 / 3) * (d + 1))
    whole = np.stack(np.meshgrid(*[np.arange(3)] * d), -1).reshape(-1, d)
    points = np.concatenate([whole * step, whole * step * (d + 1) / 2])
    operator = LatticeFilter(points)
    matrix = operator.apply(np.eye(operator.n))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    np.testing.assert_allclose(operator.diagonal(), np.diag(matrix), rtol=1e-5)
    assert matrix.min() >= 0


def test_keys_that_differ_in_high_bits_alone_do_not_collide():
    """Keys whose low bits agree fill the hash table as evenly as others."""
    points = np.zeros((4096, 2))
    points[:, 0] = (np.arange(4096) - 2048) * 256 * np.sqrt(3)  # multiples of 2^8 periods
    operator = LatticeFilter(points)
    matrix = operator.apply(np.eye(4096, 5))
    assert np.count_nonzero(matrix) == 5
