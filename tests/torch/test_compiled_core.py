"""CPU tensors without gradients: solved by the compiled core, with torch's results."""

import warnings

import pytest
import torch

from densecrf.torch import DenseCRF, problem
from densecrf.torch import layer as module

pytest.importorskip("densecrf._native")


@pytest.fixture
def batch(generator):
    logits = 2 * torch.randn(2, 4, 10, 12, generator=generator)
    return {"logits": logits, "image": 255 * torch.rand(2, 3, 10, 12, generator=generator)}


@pytest.fixture
def solved(monkeypatch):
    """The calls of the compiled core's problem."""
    calls = []
    build = module.core_problem
    monkeypatch.setattr(module, "core_problem", lambda *given: calls.append(1) or build(*given))
    return calls


def layer(**options):
    sigmas = {"spatial_sigma": 2.1, "bilateral_sigma_xy": (5.3, 4.0), "bilateral_sigma_color": 61}
    return DenseCRF(spatial_weight=3, bilateral_weight=10, **sigmas, **options)


@pytest.mark.parametrize("costs", [None, (1 - torch.eye(4)).square() * torch.arange(1.0, 5)])
@pytest.mark.parametrize("method", ["mf5", "mf", "efw", "dc-neg", "lp"])
def test_same_results_as_by_torch(method, costs, batch, solved, monkeypatch):
    crf = layer(method=method, compatibility=None if method == "lp" else costs)
    refined, found = crf(**batch), crf.solve(**batch, method=method)
    assert len(solved) == 4  # two items, twice
    monkeypatch.setattr(module, "core_takes", lambda *_: False)
    torch.testing.assert_close(refined, crf(**batch), rtol=1e-3, atol=2e-3)
    expected = crf.solve(**batch, method=method)
    assert found.energy == pytest.approx(expected.energy, rel=1e-5)
    torch.testing.assert_close(found.labels, expected.labels)


def test_the_input_stays_as_it_was(batch, solved):
    before = {name: tensor.clone() for name, tensor in batch.items()}
    layer()(**batch)
    layer().solve(**batch)
    assert solved
    torch.testing.assert_close(batch, before, rtol=0, atol=0)


def test_tensors_that_numpy_has_no_dtype_for(batch, solved):
    half = {name: tensor.bfloat16() for name, tensor in batch.items()}
    assert layer()(**half).dtype == torch.bfloat16
    assert solved


def test_gradients_and_float64_are_left_to_torch(batch, solved):
    logits, image = batch["logits"], batch["image"]
    layer()(logits=logits.double(), image=image)
    assert layer(learn=["weights"])(**batch).requires_grad
    assert layer()(logits=logits.clone().requires_grad_(), image=image).requires_grad
    assert not solved
    with torch.no_grad():
        layer(learn=["weights"])(**batch)
    assert len(solved) == 2


def test_without_the_core_torch_solves_and_says_so_once(batch, monkeypatch):
    def missing():
        raise ImportError("the compiled core is not installed")

    monkeypatch.setattr(problem, "core", missing)
    problem._has_core.cache_clear()
    with pytest.warns(UserWarning, match="CPU tensors are solved slowly"):
        layer()(**batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer()(**batch)
    problem._has_core.cache_clear()
