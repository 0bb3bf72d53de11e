"""`torch.export` of the layer: what is saved and loaded again has the same output and gradients."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import densecrf
from densecrf.model.label_prior import LabelPrior
from densecrf.torch import DenseCRF
from densecrf.torch import export as exported
from densecrf.torch import layer as module

if not hasattr(torch.compiler, "is_exporting"):
    pytest.skip("this torch has no sign of an export", allow_module_level=True)

from torch.export import Dim, export, load, save

SOURCE = Path(__file__).resolve().parents[2] / "src"
CLASSES = 3


class Network(nn.Module):
    """A convolution and the layer."""

    def __init__(self, crf):
        super().__init__()
        self.scores = nn.Conv2d(3, CLASSES, 1)
        self.crf = crf

    def forward(self, image):
        return self.crf(logits=self.scores(image / 255), image=image)


def layer(**options):
    sigmas = {"spatial_sigma": 1.0, "bilateral_sigma_xy": (3.0, 2.5), "bilateral_sigma_color": 60.0}
    return DenseCRF(spatial_weight=0.7, bilateral_weight=0.9, **sigmas, **options)


def costly():
    """A layer with costs by label and a prior, as models that were adapted have."""
    prior = LabelPrior((0.2, 0.3, 0.5), (0.4, 0.1, 0.3), (0.0, 0.2, -0.1))
    costs = {"label_costs": (1.0, 0.5, 0.8), "prior": prior}
    return DenseCRF.from_model(densecrf.Parameters(1.0, 0.7, 3.0, 60.0, 0.9, **costs), shape=(5, 4))


COSTS = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
LAYERS = {
    "mean field": layer,
    "linear program": lambda: layer(method="lp", normalization="none"),
    "dc-neg": lambda: layer(method="dc-neg", learn=["weights"]),
    "fixed costs": lambda: layer(compatibility=COSTS, iterations=2),
    "all learned": lambda: layer(
        compatibility=COSTS, learn=["weights", "sigmas", "compatibility"], iterations=2
    ),
    "one kernel": lambda: DenseCRF(spatial_weight=0.0, learn=["weights"]),
    "label costs and prior": costly,
}


@pytest.fixture
def image(generator):
    return 255 * torch.rand(2, 3, 5, 4, generator=generator)


def network(name):
    torch.manual_seed(0)
    return Network(LAYERS[name]())


@pytest.mark.parametrize("name", LAYERS)
def test_a_saved_program_has_the_layers_output(name, image, tmp_path):
    ours = network(name)
    if name == "all learned":
        with torch.no_grad():
            ours.crf.log_bilateral_weight += 0.5
            ours.crf.costs[0, 1] += 0.3
    save(export(ours, (image,)), tmp_path / "program.pt2")
    program = load(tmp_path / "program.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(program(image), ours(image), rtol=0, atol=0)


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_may_differ_from_those_of_the_example(strict, image, generator):
    ours = network("mean field")
    sizes = {"image": {0: Dim("items"), 2: Dim("height"), 3: Dim("width")}}
    program = export(ours, (image,), dynamic_shapes=sizes, strict=strict).module()
    other = 255 * torch.rand(3, 3, 7, 6, generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(program(other), ours(other), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"logits\[0, 0, 0, 0\]=nan"):
        program(torch.full_like(other, float("nan")))


@pytest.mark.parametrize("name", ["mean field", "linear program", "all learned"])
def test_programs_have_the_layers_gradients(name, image):
    ours = network(name).double()
    image = image.double()
    program = export(ours, (image,)).module()
    for each in (ours, program):
        each(image)[:, 0].square().mean().backward()
    got = {key: each.grad for key, each in program.named_parameters()}
    expected = {key: each.grad for key, each in ours.named_parameters()}
    assert expected["scores.weight"].abs().sum() > 0
    torch.testing.assert_close(got, expected)


def test_second_derivatives_of_programs_are_refused(image):
    program = export(network("mean field"), (image,)).module()
    loss = program(image)[:, 0].square().mean()
    (gradient,) = torch.autograd.grad(loss, program.scores.bias, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_operator_is_what_it_declares(generator, monkeypatch):
    monkeypatch.setattr(module, "core_takes", lambda *_: False)
    crf = layer(learn=["weights"], iterations=1)
    logits = torch.randn(1, CLASSES, 3, 3, generator=generator, requires_grad=True)
    tensors = (getattr(crf, name, None) for name in exported.NAMES)
    given = (logits, torch.rand(1, 2, 3, 3), *tensors, crf._settings())
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    found = torch.library.opcheck(torch.ops.densecrf.refine.default, given, test_utils=checks)
    assert set(found.values()) == {"SUCCESS"}


PROGRAM = """
import sys
import torch
import densecrf.torch
program = torch.export.load(sys.argv[1]).module()
torch.save(program(torch.load(sys.argv[2])), sys.argv[3])
"""


def test_another_process_runs_the_program(image, tmp_path):
    ours = network("mean field")
    save(export(ours, (image,)), tmp_path / "program.pt2")
    torch.save(image, tmp_path / "image.pt")
    paths = [str(tmp_path / name) for name in ("program.pt2", "image.pt", "out.pt")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", PROGRAM, *paths], check=True, env=environment)
    with torch.no_grad():
        torch.testing.assert_close(torch.load(tmp_path / "out.pt"), ours(image))
