"""Blocks of a lattice's pixels: each the submatrix of the whole filter, none mixed with another."""

import pytest
import torch

from densecrf.operators.levels import Levels
from densecrf.operators.torch.blocks import block_diagonal
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.torch import Lattice

PIXELS = 20


@pytest.fixture
def places(generator, device):
    """Return the blocks and pixels of four blocks, of which one is empty and one a single pixel."""
    parts = [torch.randperm(PIXELS, generator=generator)[:k].sort().values for k in (4, 12, 0, 1)]
    block = torch.cat([torch.full((len(part),), i) for i, part in enumerate(parts)])
    return block.to(device), torch.cat(parts).to(device)


def submatrices(matrix, places):
    """Return the block-diagonal matrix."""
    block, pixel = places
    return torch.where(block[:, None] == block, matrix[pixel][:, pixel], 0.0)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_blocks_are_submatrices(engine, device, generator, places, d):
    features = 2 * torch.randn(PIXELS, d, generator=generator)
    whole = Lattice.build(features.to(device), engine=engine)
    part = block_diagonal(whole, *places, 4)
    every = whole.apply(torch.eye(PIXELS, device=device))
    expected = submatrices(every, places)
    found = part.apply(torch.eye(len(expected), device=device))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(part.diagonal(), expected.diagonal(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(part.mass, expected.sum(1), rtol=1e-5, atol=1e-5)


def test_blocks_of_a_sum_of_kernels_keep_its_normalisation(engine, device, generator, places):
    features = [torch.randn(PIXELS, d, generator=generator).to(device) for d in (2, 3)]
    like = torch.zeros(2, PIXELS, device=device)
    whole = TensorPairwise(features, [2.0, 0.5], like, engine=engine)
    part = whole.blocks(*places, 4)
    ones = torch.eye(PIXELS, dtype=torch.float64, device=device)
    expected = submatrices(whole.apply_double(ones), places)
    own = torch.eye(part.n, dtype=torch.float64, device=device)
    torch.testing.assert_close(part.apply_double(own), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.apply(own.float()), expected.float(), rtol=1e-5, atol=1e-6)
    diagonal = expected.diagonal().float()
    torch.testing.assert_close(part.diagonal, diagonal, rtol=1e-5, atol=1e-6)

    t = 5 * torch.rand(1, part.n, generator=generator).to(device)
    levels = Levels(6, 0.0, 1.0, hard=True)
    order = torch.sign(t[0].floor()[:, None] - t[0].floor())
    r = 0.5 * (expected * order).sum(1, keepdim=True).T
    balanced = r - r.sum() / expected.sum() * expected.sum(1)
    torch.testing.assert_close(part.ordered(t, levels).double(), balanced, rtol=1e-4, atol=1e-5)
