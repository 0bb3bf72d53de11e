import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf.torch.pixelwise import (
    lower_bound,
    mean_field_update,
    project_simplex,
    proximal_step,
)


@pytest.mark.parametrize("labels", [1, 2, 21, 150])
def test_projection_satisfies_the_optimality_conditions(labels, engine, device, generator):
    z = (5 * torch.randn(labels, 70, generator=generator)).to(device)
    y = project_simplex(z, engine=engine)
    torch.testing.assert_close(y.sum(0), torch.ones(70, device=device), rtol=0, atol=1e-5)
    assert (y >= 0).all()
    # z - y is constant on the support and no larger off it.
    tau = torch.where(y > 0, z - y, -torch.inf).amax(0)
    assert ((z - y - tau).abs()[y > 0] < 1e-5).all()
    assert (z <= tau + 1e-5)[y == 0].all()


def test_projection_of_large_numbers(engine, device):
    z = torch.tensor([[1e6, 0.5], [1e6, 0.5], [-1e6, 0.0]], device=device)
    expected = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]], device=device)
    torch.testing.assert_close(project_simplex(z, engine=engine), expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**31))
def test_projection_is_idempotent(labels, seed):
    generator = torch.Generator().manual_seed(seed)
    y = project_simplex(torch.randn(labels, 9, generator=generator, dtype=torch.float64))
    torch.testing.assert_close(project_simplex(y), y)


def test_mean_field_update(engine, device, generator):
    phi, message = (torch.randn(21, 90, generator=generator).to(device) for _ in range(2))
    torch.testing.assert_close(
        mean_field_update(phi, message, factor=2.0, engine=engine),
        torch.softmax(2 * message - phi, 0),
    )


@pytest.mark.parametrize("items", [1, 3])
def test_lower_bound(items, engine, device, generator):
    phi, r = (torch.randn(5, 300, generator=generator).to(device) for _ in range(2))
    expected = (phi.double() + 0.5 * r.double()).amin(0).view(items, -1).sum(1)
    got = lower_bound(phi, r, factor=0.5, items=items, engine=engine)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("labels", [2, 21])
def test_proximal_step(labels, engine, device, generator):
    centre, previous, phi, r = (
        torch.randn(labels, 120, generator=generator).to(device) for _ in range(4)
    )
    step = torch.rand(120, generator=generator).to(device)
    momentum = torch.tensor([0.0, 0.7, 0.9], device=device)
    y, ahead, bound = proximal_step(
        centre, previous, phi, r, step, momentum, factor=0.5, engine=engine
    )
    gradient = phi + 0.5 * r
    expected = project_simplex(centre - step * gradient, engine="torch")
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        ahead,
        expected + momentum.repeat_interleave(40) * (expected - previous),
        atol=1e-5,
        rtol=1e-5,
    )
    torch.testing.assert_close(
        bound, lower_bound(phi, r, factor=0.5, items=3, engine=engine), rtol=1e-6, atol=1e-6
    )
