import numpy as np
import pytest
import torch

from densecrf.operators import LatticeFilter
from densecrf.torch import Lattice


@pytest.mark.parametrize("d", [2, 3, 5])
def test_same_operator_as_the_native_lattice(d, device):
    pytest.importorskip("densecrf._native")
    rng = np.random.default_rng(d)
    features = (5 * rng.random((2000, d))).astype(np.float32)
    scores = rng.random((2000, 4), dtype=np.float32)
    native = LatticeFilter(features)
    lattice = Lattice.build(torch.from_numpy(features).to(device))
    rows = torch.from_numpy(scores.T.copy()).to(device)
    assert lattice.vertices == native.vertices
    np.testing.assert_allclose(
        lattice.apply(rows).cpu().T, native.apply(scores), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        lattice.ordered(rows).cpu().T, native.ordered(scores, rescale=False), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(lattice.diagonal().cpu(), native.diagonal(), rtol=1e-5)
