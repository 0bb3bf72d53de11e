from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf.model import resample
from densecrf.model.resample import resize_bilinear

extents = st.integers(1, 7)


def brute_force(plane: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The tent-weighted sum over clamped neighbours, sample by sample."""
    out = np.zeros(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            y = (i + 0.5) * plane.shape[0] / shape[0] - 0.5
            x = (j + 0.5) * plane.shape[1] / shape[1] - 0.5
            for p in range(-1, plane.shape[0] + 1):
                for q in range(-1, plane.shape[1] + 1):
                    weight = max(0, 1 - abs(y - p)) * max(0, 1 - abs(x - q))
                    row = np.clip(p, 0, plane.shape[0] - 1)
                    column = np.clip(q, 0, plane.shape[1] - 1)
                    out[i, j] += weight * plane[row, column]
    return out


@settings(deadline=None)
@given(extents, extents, extents, extents, st.integers(0, 10_000))
def test_equals_brute_force(h: int, w: int, height: int, width: int, seed: int) -> None:
    maps = np.random.default_rng(seed).normal(size=(2, h, w))
    expected = np.stack([brute_force(plane, (height, width)) for plane in maps])
    np.testing.assert_allclose(resize_bilinear(maps, (height, width)), expected, atol=1e-12)


@pytest.mark.parametrize("block_bytes", [1, 100, 1000])
def test_blocks_do_not_change_the_bits(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    maps = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    whole = resize_bilinear(maps, (23, 17))
    monkeypatch.setattr(resample, "_BLOCK_BYTES", block_bytes)
    np.testing.assert_array_equal(resize_bilinear(maps, (23, 17)), whole)


def test_constants_stay_exact_and_same_size_is_the_identity() -> None:
    assert (resize_bilinear(np.full((2, 3, 4), 0.1, np.float16), (7, 9)) == np.float16(0.1)).all()
    maps = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(resize_bilinear(maps, (3, 4)), maps)


def test_takes_volumes_any_type_and_any_strides() -> None:
    volume = np.arange(2 * 3 * 4 * 5).reshape(5, 4, 3, 2).T
    out = resize_bilinear(volume, (6, 4, 5))
    assert out.shape == (2, 6, 4, 5)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, resize_bilinear(np.ascontiguousarray(volume), (6, 4, 5)))
    assert resize_bilinear(volume.astype(np.float64), (6, 4, 5)).dtype == np.float64


@pytest.mark.parametrize(
    ("old", "new"), [((4,), ()), ((2, 3, 4), (5,)), ((2, 3, 4), (0, 4)), ((2, 0, 4), (3, 4))]
)
def test_refuses_shapes_that_do_not_fit(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot resize"):
        resize_bilinear(np.zeros(old), new)
