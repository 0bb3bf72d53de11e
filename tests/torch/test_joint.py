"""Batches: items that advance together have the answers that each has by itself."""

import pytest
import torch

from densecrf import deadline
from densecrf.operators.torch import lattice, pixelwise
from densecrf.operators.torch.dispatch import has_triton
from densecrf.steps import lockstep
from densecrf.steps.lockstep import Lockstep
from densecrf.steps.triton import TritonBatch
from densecrf.torch import DenseCRF, batches
from densecrf.torch import layer as module

from .conftest import build_by_torch

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")


def items(count, generator, device, most=3, labels=3):
    """Random problems in one dimension, of one to `most` pixels."""
    sizes = torch.randint(1, most + 1, (count,), generator=generator).tolist()
    logits = [2 * torch.randn(labels, size, generator=generator) for size in sizes]
    images = [255 * torch.rand(1, size, generator=generator) for size in sizes]
    return [x.to(device) for x in logits], [x.to(device) for x in images]


def layer(**options):
    settings = {"spatial_weight": 0.0, "bilateral_weight": 1.5} | options
    return DenseCRF(bilateral_sigma_xy=2.0, bilateral_sigma_color=80.0, **settings)


@pytest.fixture
def built_by_torch(monkeypatch):
    build_by_torch(monkeypatch)


def test_together_and_one_by_one_make_the_same_steps(
    device, generator, by_triton, built_by_torch, monkeypatch
):
    crf = layer(spatial_weight=0.5)
    logits, images = items(3, generator, device)
    both = []
    for most in (batches.TOGETHER, 0, 12):  # all, one, or some at a time
        monkeypatch.setattr(batches, "TOGETHER", most)
        both.append(crf.solve(logits=logits, image=images, gap=0.0, max_iterations=1))
    first = both[0]
    for other in both[1:]:
        assert first.energy == pytest.approx(other.energy, rel=1e-12)
        assert first.lower_bound == pytest.approx(other.lower_bound, rel=1e-12)
        assert first.iterations == other.iterations
        for a, b in zip(first.marginals, other.marginals, strict=True):
            assert torch.equal(a, b)


def test_runs_of_different_length_and_their_interruption():
    steps, made = Lockstep(), []

    def together_(runs, numbers):
        made.append(tuple(runs))
        if len(made) == 4:
            raise KeyboardInterrupt
        return [number + 1 for number in numbers]

    def run(number, most):
        try:
            while number < most:
                number = steps.ask("step", together_, number)
        except KeyboardInterrupt:
            return -number
        return number

    assert steps.run([lambda: run(0, 2), lambda: run(0, 9), lambda: run(5, 8)]) == [2, -3, 8]
    assert made == [(0, 1, 2), (0, 1, 2), (1, 2), (1,)]


def test_a_run_that_ends_makes_room_for_the_next():
    steps, made = Lockstep(room=4), []

    def together_(runs, numbers):
        made.append(tuple(runs))
        return [number - 1 for number in numbers]

    def run(number, size):
        steps.make_room(size)
        while number:
            number = steps.ask("step", together_, number)
        return len(made)

    runs = [lambda given=given: run(*given) for given in ((3, 2), (1, 2), (2, 3), (1, 9))]
    assert steps.run(runs) == [3, 1, 5, 6]
    assert made == [(0, 1), (0,), (0,), (2,), (2,), (3,)]


def test_a_run_that_was_interrupted_ends_the_others():
    steps = Lockstep()

    def run(most):
        made = 0
        try:
            while made < most:
                made = steps.ask("step", lambda _, numbers: [n + 1 for n in numbers], made)
            return "interrupted" if most == 2 else made
        except KeyboardInterrupt:
            return steps.ask("last", lambda _, numbers: numbers, -made)

    runs = [lambda most=most: run(most) for most in (1, 2, 9)]
    assert steps.run(runs, lambda answer: answer == "interrupted") == [1, "interrupted", -2]


@pytest.fixture
def coroutines(monkeypatch):
    """All coroutines that are made."""
    made, make = [], lockstep.greenlet
    monkeypatch.setattr(lockstep, "greenlet", lambda call: made.append(make(call)) or made[-1])
    return made


def test_an_error_of_one_run_ends_all(coroutines):
    steps = Lockstep()

    def run(number):
        while True:
            number = steps.ask("step", lambda _, numbers: [n - 1 for n in numbers], number)
            if number == 0:
                raise MemoryError(number)

    with pytest.raises(MemoryError):
        steps.run([lambda n=n: run(n) for n in (7, 3, 5)])
    assert [each.dead for each in coroutines] == [True] * 3


def test_a_run_may_ask_for_room_again_and_begin_late():
    steps = Lockstep(room=4)

    def run():
        for size in (3, 9, 1):
            steps.make_room(size)
        return steps.ask("step", lambda runs, _: list(runs), None)

    steps.begin(5, run)
    assert not steps.advance()
    steps.begin(7, run)
    ended = {}
    while len(steps):
        ended |= steps.advance()
    assert ended == {5: 5, 7: 7}


def test_an_error_of_a_step_is_that_of_the_runs_that_asked():
    steps = Lockstep()

    def bad(runs, numbers):
        raise MemoryError(list(runs))

    def run(kind, step):
        try:
            return steps.ask(kind, step, 1)
        except MemoryError as error:
            return str(error)

    def good(_, numbers):
        return numbers

    runs = [lambda: run("a", bad), lambda: run("b", good), lambda: run("a", bad)]
    assert steps.run(runs) == ["[0, 2]", 1, "[0, 2]"]


@pytest.fixture
def batch(device, by_triton, built_by_torch):
    """Solve items together that take 4, 30 and 2 iterations; what is found must hold."""
    logits, images = [], []
    for seed, size in ((8, 3), (9, 3), (20, 2)):
        own = torch.Generator().manual_seed(seed)
        logits.append(torch.randn(3, size, generator=own).to(device))
        torch.randn(3, 2, generator=own)
        images.append(255 * torch.rand(1, size, generator=own).to(device))
    with pytest.MonkeyPatch.context() as patch:
        for each in (lattice, module, pixelwise):
            patch.setattr(each, "use_triton", lambda *_: False)
        optima = layer().solve(logits=logits, image=images, gap=0.0)

    def solve(**limits):
        result = layer().solve(logits=logits, image=images, gap=0.0, **limits)
        for item, energy in enumerate(optima.energy):
            assert result.energy[item] >= energy - 1e-6
            assert result.iterations[item] >= 1
            assert result.lower_bound[item] <= energy + 1e-6
            assert result.labels[item].shape == logits[item].shape[1:]
        return result

    return solve


def test_ctrl_c_among_items_ends_all_with_their_best(batch, coroutines, monkeypatch):
    make, made = TritonBatch.descend, []

    def pressed(self, runs, asked):
        made.append(len(runs))
        if len(made) == 3:
            raise KeyboardInterrupt
        return make(self, runs, asked)

    monkeypatch.setattr(TritonBatch, "descend", pressed)
    result = batch()
    assert made[0] == 3
    assert len(made) == 3
    assert not result.converged[1]
    assert all(each.dead for each in coroutines)


def test_a_time_limit_among_items_ends_each_with_its_best(batch, coroutines, monkeypatch):
    """The clock advances by one second with each step of all."""
    make, clock = TritonBatch.descend, [100.0]
    monkeypatch.setattr(deadline, "perf_counter", lambda: clock[0])

    def slow(self, runs, asked):
        clock[0] += 1.0
        return make(self, runs, asked)

    monkeypatch.setattr(TritonBatch, "descend", slow)
    result = batch(time_limit=5.0)
    assert clock[0] <= 105.0
    assert not result.converged[1]
    assert all(each.dead for each in coroutines)


def test_late_steps_wait_for_the_others():
    steps, made = Lockstep(), []

    def make(name):
        def together_(runs, _):
            made.append((name, tuple(runs)))
            return [None] * len(runs)

        return together_

    def run(rounding):
        for _ in range(2):
            if rounding:
                steps.ask("round", make("round"), None)
            steps.ask("flow", make("flow"), None, late=True)

    steps.run([lambda: run(False), lambda: run(True)])
    assert made == [("round", (1,)), ("flow", (0, 1))] * 2


def test_lists_are_checked(device):
    logits, images = [torch.zeros(2, 3)], [torch.zeros(1, 3)]
    with pytest.raises(ValueError, match="image: 0 images for 1 logits"):
        layer().solve(logits=logits, image=[])
    with pytest.raises(ValueError, match="items differ in classes"):
        layer().solve(logits=[*logits, torch.zeros(3, 3)], image=[*images, *images])
    bad = torch.full((2, 3), float("nan"))
    with pytest.raises(ValueError, match=r"logits\[1\]\[0, 0\]=nan"):
        layer().solve(logits=[*logits, bad], image=[*images, *images])
    lists = layer().solve(logits=logits * 2, image=images * 2)
    assert [x.shape for x in lists.labels] == [(3,), (3,)]
    assert lists.marginals[0].shape == (2, 3)
