import numpy as np
import pytest
import torch

import densecrf
from densecrf.torch import DenseCRFLoss, Lattice

GRID = (8, 9)


@pytest.fixture
def inputs(generator, device):
    logits = torch.randn(2, 3, *GRID, generator=generator)
    image = 255 * torch.rand(2, 3, *GRID, generator=generator)
    return logits.to(device), image.to(device)


def loss(form, **options):
    settings = {"spatial_sigma": 3.0, "spatial_weight": 0.5, "bilateral_sigma_xy": 3.1}
    settings["bilateral_sigma_color"] = 87.0
    return DenseCRFLoss(form, **settings, **options)


def model(image, labels):
    kernels = [
        densecrf.Spatial(3, weight=0.5),
        densecrf.Bilateral(np.moveaxis(image.cpu().numpy(), 0, -1), 3.1, 87, weight=1),
    ]
    return densecrf.DenseCRF(np.zeros((labels, *GRID)), kernels)


@pytest.mark.parametrize("form", ["quadratic", "lp"])
def test_certain_probabilities_cost_the_potts_energy(form, inputs):
    pytest.importorskip("densecrf._native")
    logits, image = inputs
    labels = logits.argmax(1)
    certain = 200.0 * torch.nn.functional.one_hot(labels, 3).movedim(-1, 1)
    values = loss(form, reduction="none")(logits=certain, image=image)
    for item in range(2):
        energy = model(image[item], 3).energy(labels[item].cpu().numpy())
        assert values[item].item() == pytest.approx(energy / np.prod(GRID), rel=1e-4)


def test_the_lp_form_is_the_relaxed_energy(inputs):
    pytest.importorskip("densecrf._native")
    logits, image = inputs
    values = loss("lp", levels=200, reduction="none")(logits=logits, image=image)
    y = torch.softmax(logits, 1).cpu().numpy()
    for item in range(2):
        relaxed = model(image[item], 3).relaxed_energy(y[item])
        assert values[item].item() == pytest.approx(relaxed / np.prod(GRID), rel=1e-2)


@pytest.mark.parametrize("form", ["quadratic", "lp"])
def test_pixels_outside_take_no_part(form, inputs):
    logits, image = inputs
    roi = torch.ones(2, *GRID, device=logits.device)
    roi[:, :, 6:] = 0
    void = torch.zeros(2, 1, *GRID, dtype=torch.bool, device=logits.device)
    void[:, :, 0] = True
    one = loss(form)(logits=logits, image=image, roi=roi, void=void)
    changed = logits.clone()
    changed[..., 6:] = 5.0
    changed[:, 0, 0] = 7.0
    other = loss(form)(logits=changed, image=image, roi=roi, void=void)
    torch.testing.assert_close(one, other)
    assert loss(form)(logits=logits, image=image, roi=0 * roi) == 0


def test_no_kernels_cost_nothing(inputs):
    logits, image = inputs
    nothing = DenseCRFLoss(spatial_weight=0, bilateral_weight=0)
    assert nothing(logits=logits, image=image) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: k.update(logits=k["logits"].argmax(1, keepdim=True)), "labels have no gradient"),
        (lambda k: k.update(roi=torch.ones(3, 3)), r"roi: shape \(3, 3\); give \(2, 8, 9\)"),
        (lambda k: k.update(void=[1]), "void: a list"),
        (lambda k: k["logits"].__setitem__((0, 0, 0, 1), float("nan")), r"logits\[0, 0, 0, 1\]"),
        (lambda k: k["image"].__setitem__((1, 0, 0, 1), float("nan")), r"image\[1, 0, 0, 1\]"),
    ],
)
def test_bad_input_is_named(change, message, inputs):
    arguments = {"logits": inputs[0].clone(), "image": inputs[1].clone()}
    change(arguments)
    with pytest.raises(ValueError, match=message):
        DenseCRFLoss()(**arguments)


def test_out_of_memory_is_tried_again(inputs, monkeypatch):
    logits, image = inputs
    expected = DenseCRFLoss()(logits=logits, image=image)
    build, asked = Lattice.build_all, []

    def tight(features, *, workspace=None):
        asked.append(workspace)
        if len(asked) < 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return build(features, workspace=workspace)

    monkeypatch.setattr(Lattice, "build_all", tight)
    with pytest.warns(UserWarning, match="smaller workspace"):
        torch.testing.assert_close(DenseCRFLoss()(logits=logits, image=image), expected)
    assert asked[0] is None
    assert asked[1] > asked[2]
