import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from densecrf.torch import Lattice, apply_sum, ordered_sum

from . import oracle


def make(n, d, generator, spread=2.0):
    return spread * torch.rand(n, d, generator=generator)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("order", ["symmetric", "forward"])
def test_apply_equals_the_matrix(d, order, engine, device, generator):
    n = 30 if d < 4 else 8
    features = make(n, d, generator)
    values = torch.randn(3, n, generator=generator)
    lattice = Lattice.build(features.to(device), order=order, engine=engine)
    expected = values.double().numpy() @ oracle.kernel(features.numpy(), order).T
    np.testing.assert_allclose(
        lattice.apply(values.to(device)).cpu(), expected, rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize(("levels", "soft"), [(10, True), (10, False), (2, True), (2, False)])
def test_ordered_equals_the_definition(d, levels, soft, engine, device, generator):
    features = make(10, d, generator)
    scores = torch.rand(5, 10, generator=generator) ** 2
    scores[:, :4] = torch.tensor([0.0, 1.0, 2 / 3, -0.5])  # ends, a whole level, out of range
    lattice = Lattice.build(features.to(device), engine=engine)
    expected = oracle.ordered(oracle.kernel(features.numpy()), scores.numpy(), levels, soft)
    got = lattice.ordered(scores.to(device), levels=levels, soft=soft)
    np.testing.assert_allclose(got.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert (got.abs() <= lattice.mass * (1 + 1e-5)).all()


def test_twenty_dimensions(engine, device, generator):
    features = make(4, 20, generator, spread=6.0)
    lattice = Lattice.build(features.to(device), engine=engine)
    values = torch.randn(2, 4, generator=generator)
    expected = values.double().numpy() @ oracle.kernel(features.numpy()).T
    np.testing.assert_allclose(lattice.apply(values.to(device)).cpu(), expected, atol=2e-5)


def test_keys_longer_than_one_word_do_not_collide(engine, device, generator):
    features = make(10, 12, generator, spread=3000.0)
    features[5:] = features[:5] + 0.05 * torch.randn(5, 12, generator=generator)
    lattice = Lattice.build(features.to(device), engine=engine)
    expected = oracle.kernel(features.numpy())
    np.testing.assert_allclose(
        lattice.apply(torch.eye(10, device=device)).cpu(), expected, atol=2e-4
    )


def test_features_a_million_deviations_away(engine, device):
    near = torch.tensor([[0.0, 0.0], [0.25, 0.5], [0.75, 0.25]])
    far = torch.cat([near, near + 1e6])
    lattice = Lattice.build(far.to(device), engine=engine)
    expected = oracle.kernel(far.numpy())
    np.testing.assert_allclose(
        lattice.apply(torch.eye(6, device=device)).cpu(), expected, atol=1e-6
    )


def test_items_of_a_batch_never_mix(engine, device, generator):
    features = torch.stack([make(25, 3, generator) for _ in range(3)])
    values = torch.randn(2, 75, generator=generator).to(device)
    batch = Lattice.build(features.to(device), engine=engine).apply(values)
    for i in range(3):
        part = slice(25 * i, 25 * (i + 1))
        alone = Lattice.build(features[i].to(device), engine=engine).apply(values[:, part])
        torch.testing.assert_close(batch[:, part], alone, rtol=1e-5, atol=1e-5)


def test_vertex_with_many_segments_of_pixels(engine, device, generator):
    features = torch.cat([0.01 * make(1000, 2, generator), make(5, 2, generator)])
    scores = torch.rand(3, 1005, generator=generator).to(device)
    lattice = Lattice.build(features.to(device), engine=engine)
    reference = Lattice.build(features.double(), engine="torch")
    torch.testing.assert_close(
        lattice.ordered(scores).cpu(), reference.ordered(scores.cpu()).float(), rtol=1e-4, atol=2e-2
    )


def test_symmetric_order_is_exactly_symmetric(engine, device, generator):
    lattice = Lattice.build(make(20, 5, generator).to(device), engine=engine)
    matrix = lattice.apply(torch.eye(20, device=device))
    torch.testing.assert_close(matrix, matrix.T, rtol=1e-6, atol=1e-7)
    assert (matrix >= 0).all()


def test_same_bits_every_time(engine, device, generator):
    features = make(25, 3, generator).to(device)
    scores = torch.rand(4, 25, generator=generator).to(device)
    first, second = (
        Lattice.build(features, engine=engine).ordered(scores, levels=4) for _ in range(2)
    )
    assert torch.equal(first, second)


def test_small_workspace_changes_nothing(engine, device, generator):
    features = make(20, 2, generator).to(device)
    scores = torch.rand(3, 20, generator=generator).to(device)
    whole = Lattice.build(features, engine=engine).ordered(scores)
    parts = Lattice.build(features, engine=engine, workspace=1).ordered(scores)
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-4)


def test_more_labels_than_lanes(engine, device, generator):
    features = make(30, 2, generator)
    scores = torch.rand(70, 30, generator=generator)
    got = Lattice.build(features.to(device), engine=engine).ordered(scores.to(device))
    expected = oracle.ordered(oracle.kernel(features.numpy()), scores.numpy(), 10, True)
    np.testing.assert_allclose(got.cpu(), expected, atol=1e-4)


def test_sum_of_kernels(engine, device, generator):
    first, second = (
        Lattice.build(make(10, d, generator).to(device), engine=engine).normalized() for d in (2, 3)
    )
    scores = torch.rand(3, 10, generator=generator).to(device)
    torch.testing.assert_close(
        ordered_sum([first, second], [3.0, 10.0], scores, levels=3),
        3 * first.ordered(scores, levels=3) + 10 * second.ordered(scores, levels=3),
        rtol=1e-5,
        atol=1e-5,
    )
    torch.testing.assert_close(
        apply_sum([first, second], [3.0, 10.0], scores),
        3 * first.apply(scores) + 10 * second.apply(scores),
        rtol=1e-5,
        atol=1e-5,
    )


def test_normalized_is_the_normalised_matrix(engine, device, generator):
    features = make(40, 3, generator)
    matrix = oracle.kernel(features.numpy())
    root = np.sqrt(matrix.sum(1))
    lattice = Lattice.build(features.to(device), engine=engine).normalized()
    eye = torch.eye(40, device=device)
    np.testing.assert_allclose(lattice.apply(eye).cpu(), matrix / root / root[:, None], atol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_diagonal(d, engine, device, generator):
    features = make(20, d, generator, spread=4.0)
    lattice = Lattice.build(features.to(device), engine=engine).normalized()
    matrix = lattice.apply(torch.eye(20, device=device))
    torch.testing.assert_close(lattice.diagonal(), matrix.diagonal(), rtol=1e-5, atol=1e-6)


def test_double_precision_on_the_plain_path(generator):
    features = make(40, 3, generator).double()
    lattice = Lattice.build(features)
    assert lattice.mass.dtype == torch.float64
    matrix = lattice.apply(torch.eye(40, dtype=torch.float64))
    np.testing.assert_allclose(matrix, oracle.kernel(features.numpy()).T, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 30), st.floats(0.01, 50), st.integers(0, 2**31), st.booleans()
)
def test_ordered_is_antisymmetric(d, n, spread, seed, soft):
    generator = torch.Generator().manual_seed(seed)
    lattice = Lattice.build(make(n, d, generator, spread).double())
    scores = torch.rand(2, n, generator=generator, dtype=torch.float64)
    assert lattice.ordered(scores, soft=soft).sum(1).abs().max() < 1e-9 * n


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(3), "shape"),
        (torch.zeros(0, 2), "nothing to filter"),
        (torch.zeros(3, 2, dtype=torch.int64), "dtype"),
        (torch.zeros(3, 65), "at most 64"),
        (torch.tensor([[0.0, 1.0], [float("nan"), 0.0]]), r"features\[1, 0\]=nan"),
        (torch.tensor([[0.0, float("inf")]]), r"features\[0, 1\]=inf"),
        (torch.tensor([[1e30, 0.0]]), "too far"),
    ],
)
def test_bad_features_are_named(features, message, engine, device):
    with pytest.raises(ValueError, match=message):
        Lattice.build(features.to(device), engine=engine)


def test_bad_arguments_are_named(device):
    lattice = Lattice.build(torch.zeros(4, 2, device=device))
    with pytest.raises(ValueError, match=r"\(channels, 4\)"):
        lattice.apply(torch.zeros(4, 2, device=device))
    with pytest.raises(ValueError, match="levels=1"):
        lattice.ordered(torch.zeros(2, 4, device=device), levels=1)
    with pytest.raises(ValueError, match="order='sideways'"):
        Lattice.build(torch.zeros(4, 2), order="sideways")
    with pytest.raises(ValueError, match="engine='magic'"):
        Lattice.build(torch.zeros(4, 2), engine="magic")


def test_several_lattices_built_together(engine, device, generator):
    features = [make(10, d, generator).to(device) for d in (2, 8, 3)]
    features[1] *= 3000  # keys of several words among keys of one
    values = torch.randn(2, 10, generator=generator).to(device)
    for f, together in zip(features, Lattice.build_all(features, engine=engine), strict=True):
        assert torch.equal(together.apply(values), Lattice.build(f, engine=engine).apply(values))
    with pytest.raises(ValueError, match="differ in pixels"):
        Lattice.build_all([features[0], features[1][:5]], engine=engine)
