"""K in double precision by Triton's kernels: the same stored numbers, whatever does the sums."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from densecrf.operators.levels import Levels, ordered_by_ramps
from densecrf.operators.torch.dispatch import has_triton
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.operators.triton.units import Wanted
from densecrf.torch.problem import torch_problem

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

PIXELS, LABELS = 20, 3
WEIGHTS = [1.5, 0.3]
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def make(order, normalized, workspace, device, generator):
    features = [(3 * torch.rand(PIXELS, d, generator=generator)).to(device) for d in (1, 2)]
    like = torch.zeros(LABELS, PIXELS, device=device)
    given = {"order": order, "normalized": normalized, "workspace": workspace}
    return TensorPairwise(features, WEIGHTS, like, engine="triton", **given)


@pytest.fixture(
    params=[("symmetric", True, None), ("forward", True, 2500), ("forward", False, None)],
    ids=["symmetric", "forward in blocks", "forward, not normalised"],
)
def pairwise(request, device, generator):
    return make(*request.param, device, generator)


def matrix(pairwise):
    """The symmetrised K by NumPy, from the stored numbers."""
    total = 0
    for weight, kernel in zip(WEIGHTS, pairwise.kernels, strict=True):
        source = kernel.source
        corner = source.topology.corner.cpu().numpy()
        splat = np.zeros((source.vertices, PIXELS))
        for a, corners in enumerate(corner):
            np.add.at(splat[:, a], corners, source.corner_weight[a].double().cpu().numpy())
        forward = np.eye(source.vertices)
        for sides in source.topology.neighbour.cpu().numpy():
            blur = np.eye(source.vertices)
            for side in sides:
                v = np.flatnonzero(side >= 0)
                blur[v, side[v]] += 0.5
            forward = blur @ forward
        g = kernel.g.double().cpu().numpy()
        k = splat.T @ (forward + forward.T) @ splat / 2 * source.scale
        total = total + weight * g[:, None] * k * g
    return total


def plain(pairwise):
    """The same numbers, filtered by plain torch operations."""
    other = TensorPairwise([], [], pairwise._like)
    stored = [(w, g, replace(lattice, triton=False)) for w, g, lattice in pairwise.double_terms]
    other.double_terms = stored
    return other


@pytest.mark.parametrize("channels", [1, 3, 10])
def test_plain(channels, pairwise, device, generator):
    values = torch.randn(channels, PIXELS, dtype=torch.float64, generator=generator)
    got = pairwise.apply_double(values.to(device))
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, plain(pairwise).apply_double(values.to(device)), **CLOSE)
    np.testing.assert_allclose(got.cpu(), values.numpy() @ matrix(pairwise).T, **CLOSE)


@pytest.mark.parametrize(("labels", "hard"), [(LABELS, False), (9, False), (2, True)])
def test_ordered(labels, hard, pairwise, device, generator):
    u = 2.5 * torch.rand(labels, PIXELS, dtype=torch.float64, generator=generator)
    levels = Levels(6, 0.1, 2.0, hard=hard)
    got = pairwise.ordered_double(u.to(device), levels)
    torch.testing.assert_close(got, plain(pairwise).ordered_double(u.to(device), levels), **CLOSE)
    k = matrix(pairwise)
    wanted = ordered_by_ramps(np, lambda v: v @ k.T, k.sum(1), u.numpy(), levels)
    np.testing.assert_allclose(got.cpu(), wanted, **CLOSE)


def test_overlaps(pairwise, device, generator):
    labels = torch.randint(0, 40, (2, PIXELS), generator=generator)
    names = list(range(39))  # more than a unit has, and not all
    wanted = [Wanted(0, names, plane=plane) for plane in range(2)]
    found = pairwise.double_filter.overlaps(labels.to(device), wanted)
    sums = (torch.cat(found.sums).cpu() * torch.tensor(found.factors, dtype=torch.float64)).tolist()
    k = matrix(pairwise)
    for plane, x in enumerate(labels.numpy()):
        agree = (x[:, None] == x) & (x < 39)
        mass = sum(s for s, own in zip(sums, found.owners, strict=True) if own == plane)
        assert mass == pytest.approx((k * agree).sum(), rel=1e-12)


def test_lattices_are_not_copied(pairwise):
    pairwise.mass_double  # noqa: B018 - it is what filters first
    assert "_double_kernels" not in vars(pairwise)
    for (lattice, scales), kernel in zip(
        pairwise.double_filter._terms, pairwise.kernels, strict=True
    ):
        assert lattice.corner_weight is kernel.source.corner_weight
        assert lattice.entry_weight is kernel.source.entry_weight
        assert scales.g.data_ptr() == kernel.g.data_ptr()


def test_an_energy_is_one_filter_call(device, generator, monkeypatch):
    pairwise = make("symmetric", True, None, device, generator)
    unary = torch.rand(5, PIXELS, generator=generator).to(device)
    problem = torch_problem(unary, pairwise)
    labels = torch.tensor([0, 3], device=device).repeat(PIXELS // 2)
    calls = []
    apply = pairwise.double_filter.apply
    monkeypatch.setattr(pairwise.double_filter, "apply", lambda v: calls.append(len(v)) or apply(v))
    x = labels.cpu().numpy()
    pairs = (matrix(pairwise) * (x[:, None] != x)).sum()
    assert problem.pairwise.pairs_double(labels, 5, None) == pytest.approx(pairs, rel=1e-12)
    assert calls == [2]  # the labels that occur
