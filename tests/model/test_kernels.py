"""Kernels: images of any shape, dtype and layout become features."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf import Bilateral, Features, Spatial

RNG = np.random.default_rng(0)


def test_spatial_features_are_positions_over_sigma_last_axis_first():
    features = Spatial(sigma=(2.0, 4.0)).features((3, 5))
    y, x = np.mgrid[:3, :5]
    np.testing.assert_allclose(features, np.stack([x.ravel() / 4, y.ravel() / 2], 1))
    assert features.dtype == np.float32


def test_volumes_take_a_sigma_for_each_axis():
    features = Spatial(sigma=(5, 1, 2)).features((2, 3, 4))
    z, y, x = np.mgrid[:2, :3, :4]
    np.testing.assert_allclose(
        features, np.stack([x.ravel() / 2, y.ravel(), z.ravel() / 5], 1), rtol=1e-6
    )


def test_bilateral_features_are_positions_then_colours():
    image = RNG.integers(0, 256, (3, 4, 3), dtype=np.uint8)
    features = Bilateral(image, sigma_xy=2, sigma_color=(5, 10, 20)).features((3, 4))
    y, x = np.mgrid[:3, :4]
    np.testing.assert_allclose(features[:, 0], x.ravel() / 2)
    np.testing.assert_allclose(features[:, 1], y.ravel() / 2)
    np.testing.assert_allclose(features[:, 2:], image.reshape(-1, 3) / [5, 10, 20], rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 4, 12])
def test_any_number_of_channels(channels):
    image = RNG.random((4, 5, channels))
    assert Bilateral(image, 3, 0.1).features((4, 5)).shape == (20, 2 + channels)


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 4, 5)])
def test_grey_images_need_no_channel_axis(shape):
    image = RNG.random(shape)
    with_axis = Bilateral(image[..., None], 3, 0.1).features(shape)
    np.testing.assert_array_equal(Bilateral(image, 3, 0.1).features(shape), with_axis)


def test_channel_axis_can_be_named():
    image = RNG.random((4, 5, 3))
    expected = Bilateral(image, 3, 0.1).features((4, 5))
    first = Bilateral(np.moveaxis(image, -1, 0), 3, 0.1, channel_axis=0)
    np.testing.assert_array_equal(first.features((4, 5)), expected)
    negative = Bilateral(np.moveaxis(image, -1, 1), 3, 0.1, channel_axis=-2)
    np.testing.assert_array_equal(negative.features((4, 5)), expected)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int16, np.uint64, np.float16, np.float32, np.float64, ">f4"]
)
def test_any_dtype(dtype):
    image = RNG.integers(0, 2, (4, 5, 3)).astype(dtype)
    features = Bilateral(image, 3, 0.5).features((4, 5))
    np.testing.assert_allclose(features[:, 2:], image.reshape(-1, 3).astype(float) / 0.5)


def test_any_layout():
    image = RNG.random((4, 6, 3)).astype(np.float32)
    expected = Bilateral(image, 3, 0.1).features((4, 6))
    padded = np.zeros((8, 12, 6), np.float32)
    padded[::2, ::2, ::2] = image
    for view in (np.asfortranarray(image), padded[::2, ::2, ::2], image[::-1][::-1]):
        np.testing.assert_array_equal(Bilateral(view, 3, 0.1).features((4, 6)), expected)
    assert not padded[::2, ::2, ::2].flags.contiguous


def test_lists_are_images_too():
    assert Bilateral([[0, 1], [2, 3]], 1, 1).features((2, 2)).shape == (4, 3)


def test_features_keep_single_precision_and_widen_the_rest():
    single = np.ones((3, 2), np.float32)
    assert Features(single).features((3,)).dtype == np.float32
    assert Features(single.astype(np.int8)).features((3,)).dtype == np.float64
    strided = np.asfortranarray(RNG.random((6, 4)))[::2]
    assert Features(strided).features((3,)).flags.c_contiguous


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spatial(sigma=(1, 2)).check((3, 4, 5)), "sigma=.*one for each of the 3 axes"),
        (lambda: Spatial(sigma=1e-10).check((3, 4)), "sigma=1e-10: .*give 2e-06"),
        (lambda: Spatial(sigma=0), "sigma=.*greater than 0"),
        (lambda: Spatial(sigma=[]).check((3, 4)), "sigma=.*give one number"),
        (lambda: Spatial(1, weight=-1), "weight=-1: .*0 or greater"),
        (lambda: Spatial(1, weight=np.nan), "weight=nan"),
        (lambda: Spatial(1, weight=1e300), "weight=1e.300"),
        (lambda: Spatial("3"), "sigma: dtype"),
        (lambda: Bilateral(np.zeros((4, 5, 3)), 1, 1).check((5, 4)), r"image: shape \(4, 5, 3\)"),
        (lambda: Bilateral(np.zeros((4, 5, 3)), 1, (1, 2)).check((4, 5)), "sigma_color=.*3 chann"),
        (lambda: Bilateral(np.ones((4, 5)), 1, 1e-9).check((4, 5)), "sigma_color=1e-09"),
        (lambda: Bilateral(np.full((4, 5), np.nan), 1, 1), "image: 20 of 20 values are not finite"),
        (lambda: Bilateral(np.zeros((0, 5)), 1, 1), "image: shape .* no pixels"),
        (lambda: Bilateral(np.zeros((4, 5)), 1, 1, channel_axis=2), "channel_axis=2"),
        (lambda: Bilateral(None, 1, 1), "image: dtype object"),
        (lambda: Features(np.zeros((4, 0))), "features: shape"),
        (lambda: Features(np.zeros(4)), "features: shape .* 1 axes, not 2"),
        (lambda: Features(np.full((4, 2), 1e7)), "features: a value of 1e.07"),
        (lambda: Features(np.zeros((4, 2))).check((5,)), "features: 4 rows for 5 pixels"),
    ],
)
def test_bad_kernels_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
