import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf.operators.torch.pixelwise import (
    Spans,
    balanced,
    descend,
    icm_moves,
    inner,
    lower_bound,
    mean_field_update,
    project_simplex,
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
    phi, received, y = (torch.randn(21, 90, generator=generator).to(device) for _ in range(3))
    own = torch.rand(90, generator=generator).to(device)
    torch.testing.assert_close(
        mean_field_update(phi, received, y, own, engine=engine),
        torch.softmax(received - own * y - phi, 0),
    )


def test_lower_bound(engine, device, generator):
    phi, r = (torch.randn(5, 300, generator=generator).to(device) for _ in range(2))
    expected = (phi.double() + 0.5 * r.double()).amin(0)
    got = lower_bound(phi, r, factor=0.5, engine=engine)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, expected.sum().view(1), rtol=1e-6, atol=1e-6)
    if engine == "triton":
        runs = [(0, 20), (20, 270), (290, 10)]
        got = lower_bound(phi, r, factor=0.5, engine=engine, spans=Spans.of(runs, device))
        wanted = [expected[first : first + count].sum() for first, count in runs]
        torch.testing.assert_close(got, torch.stack(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("labels", [2, 21])
def test_descend(labels, engine, device, generator):
    v, previous, phi, r = (
        torch.randn(labels, 120, generator=generator).to(device) for _ in range(4)
    )
    step, lipschitz = (torch.rand(120, generator=generator).to(device) for _ in range(2))
    y, sums = descend(v, phi, r, previous, step, lipschitz, engine=engine)
    expected = project_simplex(v - step * (phi + r), engine="torch")
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
    turn = (lipschitz * (v - expected) * (expected - previous)).double().sum()
    wanted = [lower_bound(phi, r)[0], ((phi + r) * v).double().sum(), turn]
    torch.testing.assert_close(sums[0], torch.stack(wanted), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [1, -1, 0, -1, -1]])
def test_icm_moves(rows, engine, device, generator):
    phi = torch.randn(5, 130, generator=generator).to(device)
    received = torch.rand(max(rows) + 1, 130, generator=generator).to(device)
    labels = torch.randint(0, 5, (130,), generator=generator).to(device)
    row = torch.tensor(rows, dtype=torch.int32, device=device)
    itself = torch.rand(130, generator=generator).to(device)
    best, gain, sums = icm_moves(phi, received, itself, row[None], labels, engine=engine)
    agreeing = torch.stack([received[i] if i >= 0 else 0 * received[0] for i in rows])
    for pixel, label in enumerate(labels.tolist()):
        agreeing[label, pixel] -= itself[pixel]
    cost = phi - agreeing
    own = cost.gather(0, labels[None])[0]
    torch.testing.assert_close(gain, own - cost.amin(0))
    torch.testing.assert_close(best, torch.where(gain > 0, cost.argmin(0), labels))
    expected = [
        phi.gather(0, labels[None]).sum(),
        agreeing.gather(0, labels[None]).sum(),
        agreeing.sum(),
        (gain > 0).sum(),
        (row[labels] < 0).sum(),
    ]
    wanted = torch.stack([x.double() for x in expected])
    torch.testing.assert_close(sums[0], wanted, rtol=1e-6, atol=1e-5)


def test_sums(engine, device, generator):
    u, v = (torch.randn(3, 5000, generator=generator).to(device) for _ in range(2))
    mass = torch.rand(5000, generator=generator).to(device)
    total = mass.double().sum()
    expected = u - (u.double().sum(1) / total).float()[:, None] * mass
    torch.testing.assert_close(balanced(u.clone(), mass, total), expected)
    torch.testing.assert_close(inner(u, v, engine=engine), (u.double() * v.double()).sum())


def test_projection_where_numbers_overflow(engine, device):
    largest = torch.finfo(torch.float32).max
    z = torch.tensor([[largest, -largest, float("inf"), float("nan"), -float("inf")]] * 2)
    z = torch.cat([z, torch.full((4, 5), -0.9 * largest)]).to(device)
    y = project_simplex(z, engine=engine)
    assert (y >= 0).all()
    torch.testing.assert_close(y.sum(0), torch.ones(5, device=device))
    torch.testing.assert_close(y, project_simplex(z, engine="torch"))
    everywhere = torch.full((3, 2), float("nan"), device=device)
    assert (project_simplex(everywhere, engine=engine).sum(0) - 1).abs().max() < 1e-6


def test_a_step_that_overflows_ends_on_the_simplex(engine, device):
    huge = torch.tensor([[3e38, -3e38, 1.0], [-3e38, 3e38, 2.0], [3e38, 3e38, 3.0]], device=device)
    v = torch.full((3, 3), 1 / 3, device=device)
    ones = torch.full((3,), 10.0, device=device)
    y, _ = descend(v, huge, huge, v, ones, ones, engine=engine)
    assert (y >= 0).all()
    torch.testing.assert_close(y.sum(0), torch.ones(3, device=device))
