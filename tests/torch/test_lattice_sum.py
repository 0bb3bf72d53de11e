import pytest
import torch

from densecrf.operators.torch.lattice_sum import merge
from densecrf.torch import Lattice, apply_sum, ordered_sum

FACTORS = [2.0, 0.5, 3.0]
PIXELS = 16


@pytest.fixture
def lattices(engine, device, generator):
    features = [(3 * torch.rand(PIXELS, d, generator=generator)).to(device) for d in (2, 4, 3)]
    return Lattice.build_all(features, engine=engine)


@pytest.mark.parametrize("normalized", [True, False])
def test_one_pass_equals_the_sum(normalized, lattices, device, generator):
    merged, g = merge(lattices, FACTORS, normalized=normalized)
    alone = [each.normalized() if normalized else each for each in lattices]
    scores = torch.rand(3, PIXELS, generator=generator).to(device)
    torch.testing.assert_close(merged.apply(scores), apply_sum(alone, FACTORS, scores))
    torch.testing.assert_close(
        merged.ordered(scores, levels=3),
        ordered_sum(alone, FACTORS, scores, levels=3),
        rtol=1e-4,
        atol=1e-4,
    )
    for each, own in zip(lattices, g, strict=True):
        expected = each.mass.rsqrt() if normalized else torch.ones_like(own)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
