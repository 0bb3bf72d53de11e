"""Random problems: in batches by the kernels, and one by one by plain operations."""

from dataclasses import dataclass, field

import pytest
import torch

import densecrf
from densecrf.operators.torch.dispatch import has_triton
from densecrf.torch import DenseCRF

from .conftest import build_by_torch

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

from densecrf.steps.lockstep import Lockstep

ITEMS = 3  # of a batch, of different sizes
PROVEN = 1e-6  # gap at which the labelling is the optimum


@dataclass(frozen=True)
class Case:
    """One batch: a method with its iterations, and what the problems are."""

    method: str
    iterations: int
    labels: int = 3
    most: tuple[int, ...] = (3,)  # pixels along each axis
    spatial: float = 0.4
    bilateral: float = 0.7
    settings: dict = field(default_factory=dict)
    label_costs: tuple[float, ...] | None = None

    def layer(self):
        if self.label_costs is not None:
            numbers = (1.5, self.spatial, 2.0, 80.0, self.bilateral)
            model = densecrf.Parameters(*numbers, label_costs=self.label_costs)
            return DenseCRF.from_model(model, shape=self.most)
        return DenseCRF(
            spatial_sigma=1.5,
            spatial_weight=self.spatial,
            bilateral_sigma_xy=2.0,
            bilateral_sigma_color=80.0,
            bilateral_weight=self.bilateral,
            **self.settings,
        )

    def problems(self, generator):
        """Random logits and images, of one to `most` pixels along each axis."""
        logits, images = [], []
        for _ in range(ITEMS):
            grid = [int(torch.randint(1, each + 1, (), generator=generator)) for each in self.most]
            logits.append(1.5 * torch.randn(self.labels, *grid, generator=generator))
            images.append(255 * torch.rand(1, *grid, generator=generator))
        return logits, images


COSTS = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
CASES = {
    "two labels": Case("lp", 3, labels=2, spatial=0),
    "two kernels": Case("lp", 2),
    "not normalised": Case("lp", 2, spatial=0, settings={"normalization": "none"}),
    "five labels": Case("lp", 2, labels=5, most=(2, 2), bilateral=0),
    "tree costs": Case("lp", 2, bilateral=0, label_costs=(1.0, 0.5, 0.8)),
    "mean field": Case("mf", 4, labels=4, most=(3, 2), spatial=0),
    "quadratic": Case("qp", 2, spatial=0),
    "Frank-Wolfe": Case("efw", 4, spatial=0),
    "matrix of costs": Case("mf5", 5, bilateral=0, settings={"compatibility": COSTS}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_a_batch_has_the_answers_of_its_items(case, device, request):
    generator = torch.Generator().manual_seed(list(CASES).index(case))
    own = CASES[case]
    logits, images = own.problems(generator)
    options = {"method": own.method, "gap": 0.0, "max_iterations": own.iterations}
    single = one_by_one(own.layer(), logits, images, options)
    request.getfixturevalue("by_triton")
    monkeypatch = request.getfixturevalue("monkeypatch")
    build_by_torch(monkeypatch)
    joined, run = [], Lockstep.run
    monkeypatch.setattr(Lockstep, "run", lambda *given: joined.append(1) or run(*given))
    there = {"logits": [x.to(device) for x in logits], "image": [x.to(device) for x in images]}
    batch = own.layer().solve(**there, **options)
    assert joined == [1]
    assert len({x[0].numel() for x in logits}) > 1
    for item, expected in enumerate(single):
        check(batch, item, expected)
    same = [a == b.iterations[0] for a, b in zip(batch.iterations, single, strict=True)]
    assert sum(same) >= ITEMS - 1  # a proof may come one iteration earlier or later


def one_by_one(crf, logits, images, options):
    """Solve each item by itself, by plain torch operations on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("densecrf.torch.layer.core_takes", lambda *_: False)
        pairs = zip(logits, images, strict=True)
        return [crf.solve(logits=[x], image=[i], **options) for x, i in pairs]


def check(batch, item, expected):
    """Compare an item of a batch with its result alone."""
    assert batch.energy[item] == pytest.approx(expected.energy[0], rel=1e-5, abs=1e-5)
    bounds = batch.lower_bound[item], expected.lower_bound[0]
    assert (bounds[0] is None) == (bounds[1] is None)
    if bounds[1] is not None:
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-5, abs=1e-5)
        if max(batch.gap[item], expected.gap[0]) <= PROVEN:
            assert torch.equal(batch.labels[item].cpu(), expected.labels[0])
    if batch.iterations[item] == expected.iterations[0]:
        marginals = batch.marginals[item].cpu()
        torch.testing.assert_close(marginals, expected.marginals[0], rtol=1e-3, atol=1e-4)
