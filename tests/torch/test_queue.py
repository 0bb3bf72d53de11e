"""Items on a device that advance together: `refine_many` has the answers of `refine`."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import densecrf
from densecrf.operators.torch.dispatch import has_triton
from densecrf.steps.lockstep import Lockstep
from densecrf.steps.triton import TritonBatch
from densecrf.torch import queue

from .conftest import build_by_torch

if not has_triton():
    pytest.skip("Triton is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _on_device(by_triton, monkeypatch):
    build_by_torch(monkeypatch)
    monkeypatch.setattr(queue, "use_triton", lambda _: True)


def items(*sizes, labels=3):
    """Random scores and images of a row of pixels each."""
    rng = np.random.default_rng(len(sizes))
    scores = [rng.dirichlet(np.ones(labels), (1, n)).transpose(2, 0, 1) for n in sizes]
    images = [rng.integers(0, 255, (1, n, 3), np.uint8) for n in sizes]
    return images, scores


OPTIONS = {"sigma": 2.0, "sigma_xy": 2.0, "sigma_color": 60.0, "max_iterations": 2, "gap": 0.0}


def test_each_item_has_its_own_answer(device, monkeypatch):
    """Strengths of the default model follow each image: weights differ within a batch."""
    made, make = [], TritonBatch.descend

    def descend(self, runs, asked):
        made.append(len(runs))
        return make(self, runs, asked)

    monkeypatch.setattr(TritonBatch, "descend", descend)
    images, scores = items(3, 2, 3)
    scores[1] = np.kron(scores[1], np.ones((1, 1, 2)))[:, :, :4]
    images[1] = images[1].repeat(2, 1)
    options = {**OPTIONS, "device": device}
    alone = [densecrf.refine(*pair, **options) for pair in zip(images, scores, strict=True)]
    made.clear()
    found = list(densecrf.refine_many(images, scores, workers=3, **options))
    assert max(made) == 3
    for one, other in zip(alone, found, strict=True):
        assert other, other
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.energy == pytest.approx(other.energy, rel=1e-9)
        assert one.lower_bound == pytest.approx(other.lower_bound, rel=1e-9)
        np.testing.assert_allclose(one.marginals, other.marginals, atol=1e-5)


def test_weights_of_each_item_are_its_own(device):
    images, scores = items(3, 3)
    weights = (0.5, 4.0)
    crfs = [
        densecrf.DenseCRF(
            np.ascontiguousarray(-np.log(p)), [densecrf.Bilateral(image, 2.0, 60.0, weight)]
        )
        for image, p, weight in zip(images, scores, weights, strict=True)
    ]

    def solved(crf):
        return crf.solve("lp", gap=0.0, max_iterations=2, device=device)

    alone = [solved(crf) for crf in crfs]
    with queue.DeviceQueue(device, 2) as shared, ThreadPoolExecutor(2) as threads:
        found = list(threads.map(shared.shared_by(solved), crfs))
    for number, one in enumerate(alone):
        assert one.energy == pytest.approx(found[number].energy, rel=1e-9)
        assert one.lower_bound == pytest.approx(found[number].lower_bound, rel=1e-9)


def test_failures_and_other_numbers_of_labels_do_not_end_the_others(device):
    images, scores = items(2, 3, 2, 2)
    scores[1] = scores[1][:, :, :2]
    scores[2] = np.concatenate([scores[2], scores[2]]) / 2  # six labels
    found = list(densecrf.refine_many(images, scores, workers=4, device=device, **OPTIONS))
    kinds = [type(each).__name__ for each in found]
    assert kinds == ["Result", "Failure", "Result", "Result"]
    assert found[2].marginals.shape[0] == 6


def test_a_step_that_fails_is_the_failure_of_its_items(device, monkeypatch):
    make = TritonBatch.descend

    def descend(self, runs, asked):
        if any(len(given[0]) == 2 for given in asked):
            raise MemoryError("two labels")
        return make(self, runs, asked)

    monkeypatch.setattr(TritonBatch, "descend", descend)
    images, scores = items(2, 2, labels=3)
    scores[0] = scores[0][:2] / scores[0][:2].sum(0)
    found = list(densecrf.refine_many(images, scores, workers=2, device=device, **OPTIONS))
    assert isinstance(found[0].error, MemoryError)
    assert found[1].iterations == 2


def test_items_are_read_as_room_is_made_and_no_thread_stays(device):
    images, scores = items(*[2] * 9)
    read = []

    def reading():
        for image in images:
            read.append(image)
            yield image

    options = {**OPTIONS, "method": "mf5", "device": device, "max_iterations": 1}
    stream = densecrf.refine_many(reading(), scores, workers=2, **options)
    next(stream)
    assert len(read) <= 6
    stream.close()
    assert "densecrf-device" not in [each.name for each in threading.enumerate()]


def test_errors_of_the_queue_are_those_of_all_that_wait(device, monkeypatch):
    monkeypatch.setattr(Lockstep, "advance", lambda _: 1 / 0)
    images, scores = items(2, 2, 2)
    found = list(densecrf.refine_many(images, scores, device=device))
    assert [type(each.error).__name__ for each in found] == ["ZeroDivisionError"] * 3


def test_grad_mode_is_left_alone(device):
    images, scores = items(2, 2)
    list(densecrf.refine_many(images, scores, device=device, **OPTIONS))
    assert torch.is_grad_enabled()
