"""MONAI's block and a multi-label scribble optimiser, in MONAI's own pipelines."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecrf.drop_in.monai import CRF, ApplyDenseCRFOptimisationd  # noqa: E402
from densecrf.operators import LatticeFilter  # noqa: E402


@pytest.fixture(scope="module")
def monai():
    return pytest.importorskip("monai", reason="MONAI is not installed")


def test_signature_is_that_of_monai(monai):
    from monai.networks.blocks import CRF as Original

    theirs = {p.name: p.default for p in inspect.signature(Original).parameters.values()}
    assert {p.name: p.default for p in inspect.signature(CRF).parameters.values()} == theirs
    forward = inspect.signature(Original.forward).parameters
    assert list(inspect.signature(CRF.forward).parameters) == list(forward)


LINE = ([[0.8, 0.9, 0.6, 0.2, 0.3], [0.1, 0.3, 0.5, 0.8, 0.7]],) * 2
GREY = ([[1, 1, 1, 0.5, 0]], [[1, 1, 0.5, 0, 0]])


def plane():
    """Two corners and the diagonal between the others; the corners are the reference."""
    y, x = np.indices((5, 5))
    corners = [(y >= 3) & (x >= 3), (y < 2) & (x < 2)]
    return [[*corners, abs(y + x - 4) <= 1]], [corners[::-1]]


def cube():
    """Two corners; three levels of grey."""
    z, y, x = np.indices((5, 5, 5))
    least, most = np.minimum(np.minimum(z, y), x), np.maximum(np.maximum(z, y), x)
    grey = np.where(least >= 2, 1.0, np.where(most <= 2, 0.5, 0))
    grey[2, 2, 2] = 0.8
    return [[most < 2, least >= 3]], [[grey]]


#: MONAI's own test cases on the CPU (tests/networks/blocks/test_crf_cpu.py, 1.5): input, reference,
#: iterations, standard deviation of the colour, compatibility.
PUBLISHED = {
    "line": (LINE, GREY, 5, 0.5, None),
    "line, matrix": (LINE, GREY, 5, 0.5, 2 * torch.eye(2)),
    "plane": (*plane(), 5, 0.5, None),
    "cube": (*cube(), 2, 0.1, None),
}
VALUES = json.loads(Path(__file__).with_name("monai_crf.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values_of_monai(name):
    logits, reference, iterations, colour, matrix = PUBLISHED[name]
    crf = CRF(iterations, 1.0, 0.3, 5.0, colour, 5.0, 1.0, matrix)
    found = crf(*(torch.tensor(np.array(x, np.float32)) for x in (logits, reference)))
    expected = np.array(VALUES[name])  # all classes but the last
    np.testing.assert_allclose(found[:, :-1], expected, atol=2e-6)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 7), (4, 5, 6)])
@pytest.mark.parametrize("compatible", [False, True])
def test_update_by_hand(shape, compatible):
    """The formula, with the NumPy lattice in the place of torch's."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 20, *shape)).astype(np.float32)  # more classes than MONAI's 16
    image = rng.random((2, 3, *shape)).astype(np.float32)
    matrix = rng.normal(size=(20, 20)).astype(np.float32) if compatible else None
    crf = CRF(2, 0.7, 1.3, 4.1, 0.3, 2.3, 1.5, None if matrix is None else torch.tensor(matrix))
    found = crf(torch.tensor(logits), torch.tensor(image)).numpy()
    grid = np.indices(shape, np.float64).reshape(len(shape), -1).T
    for item in range(2):
        colours = image[item].reshape(3, -1).T.astype(np.float64)
        alike = np.concatenate([grid / 4.1, colours / 0.3], 1)
        similar, near = (
            LatticeFilter(features.astype(np.float32), "forward")
            for features in (alike, grid / 2.3)
        )
        score = logits[item].reshape(20, -1).T
        q = _softmax(score)
        for _ in range(2):
            received = 0.7 * similar.apply(q) / similar.mass[:, None]
            received += 1.3 * near.apply(q) / near.mass[:, None]
            q = _softmax(score + 1.5 * (received if matrix is None else received @ matrix))
        np.testing.assert_allclose(found[item].reshape(20, -1).T, q, atol=2e-4)


def _softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_gradients_reach_the_logits():
    logits = torch.randn(1, 2, 4, 4, dtype=torch.float32, requires_grad=True)
    CRF(iterations=2)(logits, torch.rand(1, 1, 4, 4))[0, 0].sum().backward()
    assert float(logits.grad.abs().sum()) > 0


def test_gradients_are_those_of_the_blur_in_one_direction():
    reference = torch.rand(
        1, 1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    logits = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(1, 2, 3, 4).requires_grad_()
    crf = CRF(2, bilateral_color_sigma=0.2, bilateral_spatial_sigma=1.3, gaussian_spatial_sigma=0.9)
    assert torch.autograd.gradcheck(lambda x: crf(x, reference), logits, atol=1e-7)


def test_wrong_input_says_what_to_do():
    with pytest.raises(ValueError, match="image: shape"):
        CRF()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 5, 4))
    with pytest.raises(ValueError, match="bilateral_color_sigma=0"):
        CRF(bilateral_color_sigma=0)


@pytest.fixture
def volume():
    """Three stacked slabs with noise, and one stroke in each."""
    rng = np.random.default_rng(0)
    truth = np.zeros((8, 16, 18), np.int64)
    truth[:, 6:], truth[:, 11:] = 1, 2
    image = (np.array([0.2, 0.5, 0.8])[truth] + rng.normal(0, 0.05, truth.shape))[None]
    strokes = np.zeros((1, *truth.shape), np.uint8)
    strokes[0, 3, 2, 3:9], strokes[0, 3, 8, 3:9], strokes[0, 3, 13, 3:9] = 2, 3, 4
    return truth, image.astype(np.float32), strokes


def test_three_labels_of_strokes_on_a_volume_in_a_monai_pipeline(monai, volume):
    from monai.transforms import AsDiscreted, Compose, EnsureTyped, ScaleIntensityd

    truth, image, strokes = volume
    pipeline = Compose(
        [
            EnsureTyped(keys=("image", "scribbles")),
            ScaleIntensityd(keys="image"),
            ApplyDenseCRFOptimisationd(labels=(2, 3, 4), sigma_xy=6, sigma_color=0.15),
            AsDiscreted(keys="pred", to_onehot=3),
        ]
    )
    out = pipeline({"image": image, "scribbles": strokes})
    assert out["pred"].shape == (3, *truth.shape)
    assert (np.asarray(out["pred"]).argmax(0) == truth).mean() > 0.97
    assert out["pred_result"].gap <= 1e-3


def test_strokes_overrule_the_network(volume):
    truth, image, strokes = volume
    prob = np.full((3, *truth.shape), 0.2, np.float32)
    np.put_along_axis(prob, truth[None], 0.6, 0)
    strokes[0, 5, 2, 3:9] = 4  # where the network says 0
    out = ApplyDenseCRFOptimisationd(prob="prob", labels=(2, 3, 4))(
        {"image": image, "scribbles": strokes, "prob": prob}
    )
    assert (np.asarray(out["pred"])[0, 5, 2, 3:9] == 2).all()


def test_missing_and_wrong_entries(volume):
    _, image, strokes = volume
    with pytest.raises(KeyError, match="scribbles"):
        ApplyDenseCRFOptimisationd()({"image": image})
    with pytest.raises(ValueError, match=r"give \(3, 8, 16, 18\), labels first"):
        ApplyDenseCRFOptimisationd(prob="prob", labels=(2, 3, 4))(
            {"image": image, "scribbles": strokes, "prob": np.full((2, 8, 16, 18), 0.5)}
        )
