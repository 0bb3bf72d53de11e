"""The kernels that are ever compiled: a short list, whatever the images are."""

import pytest
import torch

from densecrf.operators.torch.dispatch import has_triton, interpreted
from densecrf.problem.certificate import Potentials, lower_bound
from densecrf.torch import DenseCRF, warm_up

from .conftest import build_by_torch

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

from densecrf.operators.triton import launch
from densecrf.operators.triton.variants import variants


def operations(number):
    """Make every kind of step on a small random problem; return the number of its labels."""
    generator = torch.Generator().manual_seed(number)

    def draw(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    labels, channels = draw(2, 12), draw(1, 3)
    grid = [draw(1, 2) for _ in range(draw(1, 2))]
    logits = draw(1, 9) * torch.randn(1, labels, *grid, generator=generator)
    image = 255 * torch.rand(1, channels, *grid, generator=generator)
    weights = {"spatial_weight": draw(0, 3), "bilateral_weight": draw(1, 4)}
    crf = DenseCRF(
        spatial_sigma=draw(1, 3),
        bilateral_sigma_xy=draw(1, 9),
        normalization=("symmetric", "none")[number % 2],
        **weights,
    )
    with torch.no_grad():
        problem = crf.problem(logits, image, workspace=(None, 2000)[draw(0, 9) == 0])
        y = problem.response(problem.unary_marginals())
        r = problem.flow(y, None, draw(1, 30))
        z = problem.update_multipliers(None, y, 48.0, 16.0)
        r += problem.flow(y, z, draw(1, 9)) + problem.dual_point(y, 5, ("soft", "hard")[number % 2])
        y, *_ = problem.descend(y, r, 1 / problem.lipschitz, y)
        y = problem.steps.project(problem.steps.extrapolate(y, r, 0.5))
        problem.lower_bound(problem.update_multipliers(z, y, 48.0, 16.0))
        problem.steps.inner(y, r)
        problem.steps.compare(y, problem.steps.argmax(y), None)
        problem.steps.raised_argmax(y, 1, 0.1)
        x = problem.icm_moves(problem.steps.argmax(y)).labels
        lower_bound(problem, Potentials(y, z, float(draw(1, 6))))
        problem.energy(x)
    return labels


@pytest.mark.skipif(not interpreted(), reason="launches are counted in Triton's interpreter")
@pytest.mark.parametrize("count", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_random_problems_launch_nothing_else(count, by_triton, monkeypatch):
    before = dict(launch._compiled)
    launch._compiled.clear()
    try:
        labels = [operations(number) for number in range(2)]
        build_by_torch(monkeypatch)
        labels += [operations(number) for number in range(2, count)]
        found = launch.launched()
    finally:
        launch._compiled.update(before)
    assert len(found) > 40
    assert found <= {each.key for each in variants(labels)}


def test_the_list_is_short_and_without_repetition():
    listed = [each.key for each in variants([21])]
    assert len(listed) == len(set(listed)) < 150
    assert len(list(variants([21, 30, 17]))) == len(listed)
    more = len(list(variants([2, 21])))
    assert len(listed) < more < len(listed) + 9


def test_kernels_are_not_specialised_on_numbers():
    """Else a size of 1, or one that 16 divides, would be compiled anew."""
    for each in variants([21]):
        function = getattr(each.kernel, "fn", each.kernel)
        numbers = [
            name
            for name, given in zip(function.__code__.co_varnames, each.arguments, strict=False)
            if isinstance(given, int)
        ]
        assert set(numbers) <= set(_unspecialised(each.kernel)), each.kernel


def _unspecialised(kernel):
    if hasattr(kernel, "do_not_specialize"):
        return kernel.do_not_specialize or ()
    return kernel.kwargs.get("do_not_specialize") or ()


def test_warming_up_without_a_gpu_does_nothing():
    assert warm_up("cpu", labels=3) == 0
    with pytest.raises(ValueError, match="labels"):
        warm_up("cpu", labels=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nothing_compiles_after_warming_up():
    from triton import knobs

    assert warm_up("cuda", labels=range(2, 13)) > 80
    compiled = []
    knobs.compilation.listener = lambda **what: compiled.append(what["cache_hit"])
    try:
        generator = torch.Generator().manual_seed(3)
        for labels, side in ((2, 40), (7, 65), (12, 33)):
            logits = 3 * torch.randn(1, labels, side, side, generator=generator).cuda()
            image = 255 * torch.rand(1, 3, side, side, generator=generator).cuda()
            DenseCRF().solve(logits=logits, image=image)
    finally:
        knobs.compilation.listener = None
    assert not compiled
