"""SimpleCRF's two functions: its arguments, its layouts, the numbers of the facade."""

from __future__ import annotations

import numpy as np
import pytest

from densecrf.pydensecrf import utils
from densecrf.pydensecrf.densecrf import DenseCRF, DenseCRF2D
from densecrf.simplecrf import denseCRF, denseCRF3D

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (9, 14, 3), dtype=np.uint8)
P = RNG.dirichlet(np.ones(3), (9, 14))
PARAM = {
    "MaxIterations": 3.0,
    "PosW": 2.0,
    "PosRStd": 2.0,
    "PosCStd": 3.0,
    "PosZStd": 1.0,
    "BilateralW": 4.0,
    "BilateralRStd": 5.0,
    "BilateralCStd": 6.0,
    "BilateralZStd": 2.0,
    "BilateralModsStds": (10.0, 20.0),
    "ModalityNum": 2,
}


def test_image_equals_the_same_model_of_the_facade():
    d = DenseCRF2D(14, 9, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(np.moveaxis(P, -1, 0)))
    d.addPairwiseBilateral(sxy=30, srgb=13, rgbim=IMAGE, compat=10)
    d.addPairwiseGaussian(sxy=3, compat=2)
    expected = d.inference(5).argmax(0).reshape(9, 14)
    found = denseCRF.densecrf(IMAGE, P, (10.0, 30, 13, 2.0, 3, 5.0))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


def test_volume_of_two_modalities_equals_the_same_model_of_the_facade():
    volume = RNG.integers(0, 256, (4, 9, 14, 2)).astype(np.float32)
    p = RNG.dirichlet(np.ones(3), (4, 9, 14))
    z, y, x = np.indices((4, 9, 14), np.float32).reshape(3, -1)
    d = DenseCRF(4 * 9 * 14, 3)
    d.setUnaryEnergy(utils.unary_from_softmax(np.moveaxis(p, -1, 0)))
    d.addPairwiseEnergy(np.stack([z, y / 2, x / 3]), compat=2)
    first, second = volume.reshape(-1, 2).T
    d.addPairwiseEnergy(np.stack([z / 2, y / 5, x / 6, first / 10, second / 20]), compat=4)
    expected = d.inference(3).argmax(0).reshape(4, 9, 14)
    np.testing.assert_array_equal(denseCRF3D.densecrf3d(volume, p, PARAM), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: denseCRF.densecrf(IMAGE, P.transpose(2, 0, 1), (1,) * 6), "P: shape"),
        (lambda: denseCRF.densecrf(IMAGE, P, (1, 2, 3)), "param="),
        (lambda: denseCRF3D.densecrf3d(IMAGE, P[None], PARAM), "P: shape"),
        (lambda: denseCRF3D.densecrf3d(IMAGE[None], P[None], PARAM), "ModalityNum=2"),
        (lambda: denseCRF3D.densecrf3d(IMAGE[None], P[None], {"PosW": 1}), "lacks MaxIterations"),
    ],
)
def test_wrong_arguments_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
