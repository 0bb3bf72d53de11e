"""SimpleCRF's two functions: its arguments, its layouts, its labels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from densecrf.drop_in.simplecrf import denseCRF, denseCRF3D

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (9, 14, 3), dtype=np.uint8)
P = RNG.dirichlet(np.ones(3), (9, 14))
PARAM = {
    "MaxIterations": 2.0,
    "PosW": 2.0,
    "PosRStd": 2.0,
    "PosCStd": 4.0,
    "PosZStd": 1.0,
    "BilateralW": 4.0,
    "BilateralRStd": 5.0,
    "BilateralCStd": 9.0,
    "BilateralZStd": 2.0,
    "BilateralModsStds": (10.0, 20.0),
    "ModalityNum": 2,
}


#: Labels that SimpleCRF 0.2.1.1 returned for `scene`, as the digits of one number: image or volume,
#: number of labels, number of channels, whether the probabilities are one-hot.
IMAGES = {
    ((12, 16), 2, 3, True): 0xE7781F1D8471160537F1F1520E81878C16ADC44E4C06173F,
    (
        (11, 17),
        3,
        3,
        True,
    ): 0xAFA5B25E38A6E445CC520EDC7416FFB42D084B2F25E45E4708DE35E07C57D241DB06509927,
    (
        (11, 17),
        3,
        3,
        False,
    ): 0x144FE1CF5C2D3DA588937701EC9D3F8DFB8FAE77629D10AE5995BEDE6DB92D146E1852C20C6,
    ((9, 14), 2, 3, False): 0x3DFF3BFE5FFDFFE7FFBFFE5FF73FCEFF,
}
VOLUMES = {
    ((5, 7, 5), 2, 1, False): 0x5D80F217786091DB5B88BF49F5D044371B8E3985C348,
    ((4, 6, 7), 2, 1, False): 0xA09A91840C16C80800460218081DC7418B471AF4F,
    ((4, 5, 7), 2, 2, False): 0x88004602180C1DC7418B479EF4FBF7CF4B,
}


def scene(shape, labels, channels, one_hot):
    """Two halves of different brightness with noise, and noisy probabilities."""
    random = np.random.RandomState(0).random_sample
    right = np.indices(shape)[-1] * 2 >= shape[-1]
    image = (100 * random((*shape, channels)) + 60 * right[..., None]).astype(np.uint8)
    p = random((*shape, labels)) ** 2 + 1e-3
    p = (p / p.sum(-1, keepdims=True)).astype(np.float32)
    return image, np.eye(labels, dtype=np.float32)[p.argmax(-1)] if one_hot else p


def assert_labels(found, number, labels):
    assert found.dtype == np.int8
    expected = []
    for _ in range(found.size):
        number, digit = divmod(number, labels)
        expected.append(digit)
    np.testing.assert_array_equal(found.ravel(), expected[::-1])


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_image_has_simplecrfs_labels(case):
    image, p = scene(*case)
    found = denseCRF.densecrf(image, p, (4.0, 20, 30, 3.0, 3, 5.0))
    assert_labels(found, IMAGES[case], case[1])


@pytest.mark.parametrize("case", VOLUMES, ids=str)
@pytest.mark.filterwarnings("ignore:I. shape")
def test_volume_has_simplecrfs_labels(case):
    _, labels, channels, _ = case
    volume, p = scene(*case)
    param = PARAM | {"BilateralModsStds": (20.0, 30.0)[:channels], "ModalityNum": channels}
    assert_labels(denseCRF3D.densecrf3d(volume, p, param), VOLUMES[case], labels)


def test_only_volumes_whose_positions_are_exchanged_are_warned_of():
    param = PARAM | {"BilateralModsStds": (20.0,), "ModalityNum": 1}
    with pytest.warns(UserWarning, match=r"I: shape \(4, 6, 7\): .* exchanged"):
        denseCRF3D.densecrf3d(*scene((4, 6, 7), 2, 1, False), param)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        denseCRF3D.densecrf3d(*scene((5, 7, 5), 2, 1, False), param)


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
