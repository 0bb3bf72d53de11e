"""A filter among some pixels is the submatrix of the filter among all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf.operators import ExactFilter, Filter, GridFilter, LatticeFilter
from densecrf.operators.levels import Levels

SHAPE = (9, 11)
N = SHAPE[0] * SHAPE[1]


def build(engine: str, rng: np.random.Generator) -> Filter:
    if engine == "grid":
        return GridFilter(SHAPE, 2.0)
    features = rng.normal(size=(N, 5)) * rng.uniform(0.2, 1.5)
    if engine == "exact":
        return ExactFilter(features)
    return LatticeFilter(features, "forward" if engine == "forward" else "symmetric")


def matrix(filter_: Filter) -> np.ndarray:
    return filter_.apply(np.eye(filter_.n))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("engine", ["exact", "lattice", "forward", "grid"])
@given(seed=st.integers(0, 10_000), share=st.floats(0.02, 1.0))
@settings(max_examples=10, deadline=None)
def test_restricted_is_the_submatrix(engine: str, weighted: bool, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    whole = build(engine, rng)
    if weighted:
        columns, rows = rng.uniform(0.5, 2, (2, N)).astype(np.float32)
        whole = whole.weighted(columns, rows)
    pixels = np.flatnonzero(rng.uniform(size=N) < share)
    if not len(pixels):
        pixels = np.array([seed % N])
    part = whole.restricted(pixels)
    wanted = matrix(whole)[np.ix_(pixels, pixels)]
    assert part.n == len(pixels)
    np.testing.assert_allclose(matrix(part), wanted, atol=1e-6)
    np.testing.assert_allclose(part.mass, wanted.sum(1), atol=1e-4)
    if not weighted and engine != "forward":
        np.testing.assert_allclose(part.diagonal(), np.diag(wanted), atol=1e-6)

    scores = rng.uniform(size=(2, len(pixels))).astype(np.float32)
    for hard in (False, True):
        levels = Levels(6, 0.0, 5.0, hard)
        out = part.ordered_planes(scores, levels)
        t = levels.of(scores)
        whole_levels = np.arange(6)
        membership = np.maximum(0, 1 - np.abs(t[:, :, None] - whole_levels))
        sign = np.sign(whole_levels[:, None] - whole_levels)
        s = np.einsum("cah,hg,cbg->cab", membership, sign, membership)
        np.testing.assert_allclose(out, (wanted * s).sum(2), atol=1e-4)
    exact = part.ordered_exactly(scores, "adaptive", 10)
    s = np.sign(scores[:, :, None] - scores[:, None, :])
    np.testing.assert_allclose(exact, (wanted * s).sum(2), atol=1e-4)


def test_a_restricted_lattice_is_smaller() -> None:
    axis = np.arange(80.0) / 3
    features = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    whole = LatticeFilter(features)
    part = whole.restricted(np.arange(100))
    assert part.vertices < whole.vertices / 10
    assert part.restricted(np.array([3, 7])).n == 2


def test_the_core_refuses_pixels_out_of_order() -> None:
    whole = LatticeFilter(np.random.default_rng(0).normal(size=(6, 2)))
    for pixels in ([2, 1], [1, 1], [-1, 2], [4, 6]):
        with pytest.raises(ValueError, match="pixels"):
            whole.restricted(np.array(pixels))
