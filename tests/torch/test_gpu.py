"""What only a real GPU can show: memory that runs out, other libraries' arrays, other streams."""

import os
import warnings

import numpy as np
import pytest
import torch

import densecrf
from densecrf.torch import DenseCRF, DenseCRFLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def inputs(side, labels=21):
    generator = torch.Generator(device="cuda").manual_seed(0)
    logits = torch.randn(1, labels, side, side, device="cuda", generator=generator)
    image = 255 * torch.rand(1, 3, side // 16, side // 16, device="cuda", generator=generator)
    return logits, torch.nn.functional.interpolate(image, scale_factor=16.0)


@pytest.fixture
def limit():
    """Limit this process's memory on the device, in bytes, for a while."""
    total = torch.cuda.get_device_properties(0).total_memory

    def to(most):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / total))

    yield to
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_memory_that_runs_out(limit):
    logits, image = inputs(1024)
    crf = DenseCRF()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    expected = crf.solve(logits=logits, image=image, max_iterations=3)
    peak = torch.cuda.max_memory_allocated()
    limit(0.9 * peak)
    with pytest.warns(UserWarning, match="out of device memory .* smaller workspace"):
        result = crf.solve(logits=logits, image=image, max_iterations=3)
    assert result.energy[0] == pytest.approx(expected.energy[0], rel=1e-5)
    limit(3 * logits.nbytes)
    with (
        pytest.warns(UserWarning, match="smaller workspace"),
        pytest.raises(MemoryError, match="do not fit in the device's memory"),
    ):
        crf.solve(logits=logits, image=image, max_iterations=3)
    with (
        pytest.warns(UserWarning, match="smaller workspace"),
        pytest.raises(MemoryError, match="do not fit in the device's memory"),
    ):
        DenseCRFLoss("lp")(logits=logits, image=image)
    limit(2 * peak)
    assert crf(logits=logits, image=image).shape == logits.shape  # nothing is broken


def test_tensors_must_be_on_one_device():
    logits, image = inputs(32, 3)
    for one, other in ((logits.cpu(), image), (logits, image.cpu())):
        for call in (DenseCRF(), DenseCRF().solve, DenseCRFLoss()):
            with pytest.raises(ValueError, match="move one of them"):
                call(logits=one, image=other)


@pytest.mark.parametrize("library", ["cupy", "jax"])
def test_arrays_of_other_libraries(library, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip(library)
    logits, image = inputs(32, 3)
    convert = module.from_dlpack if library == "cupy" else module.dlpack.from_dlpack
    refined = DenseCRF()(logits=convert(logits), image=convert(image))
    torch.testing.assert_close(refined, DenseCRF()(logits=logits, image=image))
    with pytest.raises(ValueError, match=r"unary: .*is on a GPU"):
        densecrf.DenseCRF(convert(logits[0]), [])


def test_numpy_input_comes_back_as_numpy():
    logits, image = inputs(48, 4)
    colours = np.moveaxis(image[0].cpu().numpy(), 0, -1)
    crf = densecrf.DenseCRF.from_logits(
        logits[0].cpu().numpy(), [densecrf.Bilateral(colours, 20, 30, weight=2)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there, here = crf.solve("lp", device="cuda"), crf.solve("lp", device="cpu")
    assert isinstance(there.labels, np.ndarray)
    assert there.energy == pytest.approx(here.energy, rel=1e-5)
    assert there.lower_bound == pytest.approx(here.lower_bound, rel=1e-4)


def test_other_streams_and_repetitions_give_the_same_bits():
    logits, image = inputs(64, 5)
    crf = DenseCRF()
    first = crf.solve(logits=logits, image=image)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        again = crf.solve(logits=logits, image=image)
    stream.synchronize()
    assert (first.energy, first.lower_bound) == (again.energy, again.lower_bound)
    assert torch.equal(first.marginals, again.marginals)


def test_nothing_of_another_backend_is_needed():
    assert os.environ.get("TRITON_INTERPRET", "0") == "0"
    problem = DenseCRF().problem(*inputs(32, 3))
    assert problem.pairwise.pairwise.merged.triton
