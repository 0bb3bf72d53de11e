"""The layer: parity with the model on NumPy arrays, shapes, dtypes, bad input."""

import copy
import warnings

import numpy as np
import pytest
import torch

import densecrf
from densecrf.solvers import loop
from densecrf.torch import DenseCRF
from densecrf.torch import layer as module


@pytest.fixture(params=["core", "torch"], autouse=True)
def solver(request, monkeypatch):
    """Let torch alone solve, or the compiled core where it can."""
    if request.param == "torch":
        monkeypatch.setattr(module, "core_takes", lambda *_: False)


@pytest.fixture
def batch(generator, device):
    logits = 2 * torch.randn(2, 4, 10, 12, generator=generator)
    image = 255 * torch.rand(2, 3, 10, 12, generator=generator)
    return logits.to(device), image.to(device)


def layer(**options):
    weights = {"spatial_weight": 3, "bilateral_weight": 10} | options
    return DenseCRF(spatial_sigma=2.1, bilateral_sigma_xy=5.3, bilateral_sigma_color=61, **weights)


def model(logits, image, compatibility=None):
    kernels = [
        densecrf.Spatial(2.1, weight=3),
        densecrf.Bilateral(np.moveaxis(image.cpu().numpy(), 0, -1), 5.3, 61, weight=10),
    ]
    return densecrf.DenseCRF.from_logits(logits.cpu().numpy(), kernels, compatibility=compatibility)


@pytest.mark.parametrize(
    "compatibility", [None, [[0.0, 1, 2, 1], [1, 0, 1, 1], [2, 1, 0, 3], [1, 1, 3, 0]]]
)
def test_mean_field_agrees_with_numpy(compatibility, batch):
    pytest.importorskip("densecrf._native")
    logits, image = batch
    costs = None if compatibility is None else torch.tensor(compatibility)
    refined = layer(compatibility=costs)(logits=logits, image=image)
    torch.testing.assert_close(refined.exp().sum(1), torch.ones_like(refined[:, 0]))
    for item in range(2):
        crf = model(logits[item], image[item], compatibility)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = crf.solve("mf5").marginals
        np.testing.assert_allclose(refined[item].exp().cpu(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_frank_wolfe_agrees_with_numpy(batch):
    pytest.importorskip("densecrf._native")
    logits, image = batch
    refined = layer(method="efw", iterations=4)(logits=logits, image=image)
    torch.testing.assert_close(refined.exp().sum(1), torch.ones_like(refined[:, 0]))
    for item in range(2):
        crf = model(logits[item], image[item])
        options = {"iterations": 4, "tolerance": 0.0, "step": 0.5}
        expected = crf.solve("efw", **options).marginals
        np.testing.assert_allclose(refined[item].exp().cpu(), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("method", ["efw", "lp", "prox-lp", "dc-neg"])
def test_other_methods_return_log_probabilities(method, batch):
    logits, image = batch
    refined = layer(method=method)(logits=logits, image=image)
    assert refined.shape == logits.shape
    torch.testing.assert_close(refined.exp().sum(1), torch.ones_like(refined[:, 0]))


@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_solve_certifies_each_item(batch):
    pytest.importorskip("densecrf._native")
    logits, image = batch
    result = layer().solve(logits=logits, image=image)
    assert result.labels.shape == (2, 10, 12)
    assert result.marginals.shape == logits.shape
    for item in range(2):
        crf = model(logits[item], image[item])
        expected = crf.solve("lp")
        assert result.energy[item] == pytest.approx(expected.energy, rel=1e-5)
        assert result.lower_bound[item] == pytest.approx(expected.lower_bound, rel=1e-4)
        assert result.energy[item] == pytest.approx(crf.energy(result.labels[item].cpu()), rel=1e-5)
        assert result.gap[item] <= 1e-3 or not result.converged[item]
    assert layer().solve(logits=logits, image=image, method="mf5").gap == [None, None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype, batch):
    logits, image = batch
    refined = layer()(logits=logits.to(dtype), image=image.to(torch.uint8))
    assert refined.dtype == dtype
    expected = layer()(logits=logits.to(dtype).float(), image=image.to(torch.uint8))
    torch.testing.assert_close(refined.float(), expected, rtol=1e-2, atol=1e-1)


def test_items_do_not_mix(batch):
    logits, image = batch
    both = layer()(logits=logits, image=image)
    alone = [layer()(logits=logits[i : i + 1], image=image[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(both, torch.cat(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grid", [(9,), (6, 5, 4)])
@pytest.mark.parametrize("channels", [1, 4])
def test_any_number_of_axes_and_channels(grid, channels, generator, device):
    logits = torch.randn(2, 3, *grid, generator=generator).to(device)
    image = 255 * torch.rand(2, channels, *grid, generator=generator).to(device)
    assert layer()(logits=logits, image=image).shape == logits.shape


def test_a_deviation_for_each_axis(batch):
    logits, image = batch
    one = DenseCRF(spatial_sigma=[2.0, 2.0], bilateral_sigma_color=[6.0] * 3)
    torch.testing.assert_close(
        one(logits=logits, image=image), DenseCRF(spatial_sigma=2.0)(logits=logits, image=image)
    )
    with pytest.raises(ValueError, match="spatial_sigma: 3 numbers for an image of 2 axes"):
        DenseCRF(spatial_sigma=[1.0, 1.0, 1.0])(logits=logits, image=image)


def test_weights_of_zero_leave_kernels_out(batch):
    logits, image = batch
    bare = DenseCRF(spatial_weight=0, bilateral_weight=0)
    torch.testing.assert_close(bare(logits=logits, image=image), torch.log_softmax(logits, 1))


def test_parameters_are_what_is_learned():
    crf = DenseCRF(learn=["weights", "sigmas", "compatibility"], compatibility=1 - torch.eye(3))
    names = {name for name, _ in crf.named_parameters()}
    assert names == {
        "log_spatial_weight",
        "log_bilateral_weight",
        "log_spatial_sigma",
        "log_bilateral_sigma_xy",
        "log_bilateral_sigma_color",
        "costs",
    }
    assert not list(DenseCRF().parameters())
    copy.deepcopy(crf).load_state_dict(crf.state_dict())


def test_compiled_models_may_hold_the_layer(batch):
    logits, image = batch
    crf = layer()
    compiled = torch.compile(lambda x, i: crf(logits=2 * x, image=i) + 1, backend="eager")
    torch.testing.assert_close(compiled(logits, image), crf(logits=2 * logits, image=image) + 1)


def test_autocast_does_not_reach_inside(batch):
    logits, image = batch
    with torch.autocast(logits.device.type, dtype=torch.bfloat16):
        inside = layer()(logits=logits, image=image)
    torch.testing.assert_close(inside, layer()(logits=logits, image=image))


class Foreign:
    """Another library's array, of which all that is known is DLPack's protocol."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("convert", [Foreign, torch.Tensor.numpy], ids=["dlpack", "numpy"])
def test_arrays_of_other_libraries(convert, batch):
    logits, image = (x.cpu() for x in batch)
    refined = layer()(logits=convert(logits), image=convert(image))
    torch.testing.assert_close(refined, layer()(logits=logits, image=image))
    result = layer().solve(logits=convert(logits), image=convert(image), method="mf5")
    torch.testing.assert_close(result.labels, refined.argmax(1))


def test_the_model_takes_other_libraries_arrays(batch):
    logits, image = (x[0].cpu() for x in batch)
    colours = image.movedim(0, -1).contiguous()
    models = [
        densecrf.DenseCRF(convert(logits), [densecrf.Bilateral(convert(colours), 5.3, 61)])
        for convert in (Foreign, torch.Tensor.numpy, lambda x: x)
    ]
    for crf in models:
        np.testing.assert_array_equal(crf.unary, models[0].unary)
        np.testing.assert_array_equal(
            crf.kernels[0].features(crf.shape), models[0].kernels[0].features(crf.shape)
        )


def test_numpy_input_on_a_device(batch):
    pytest.importorskip("densecrf._native")
    crf = model(batch[0][0], batch[1][0])
    there, here = crf.solve("lp", device=batch[0].device), crf.solve("lp")
    assert isinstance(there.labels, np.ndarray)
    assert there.energy == pytest.approx(here.energy, rel=1e-5)
    assert there.lower_bound == pytest.approx(here.lower_bound, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, i: (x[0, 0], i), r"logits: shape \(10, 12\); give \(N, C, \*spatial\)"),
        (lambda x, i: (x, i[:, :, :5]), r"image: shape .*interpolate"),
        (lambda x, i: (x, i[:1]), "image: 1 images for 2 items"),
        (lambda x, i: (x[:0], i[:0]), r"logits: shape \(0, 4, 10, 12\) holds nothing"),
        (lambda x, i: (x[:, :1], i), "fewer than 2 classes"),
        (lambda x, i: (x.argmax(1, keepdim=True).expand(-1, 2, -1, -1), i), "labels"),
        (lambda x, i: (x.masked_fill(x == x[1, 2, 3, 4], float("nan")), i),
         r"logits\[1, 2, 3, 4\]=nan"),
        (lambda x, i: (x, i.masked_fill(i == i[0, 1, 2, 3], float("inf"))),
         r"image\[0, 1, 2, 3\]=inf"),
        (lambda _, i: ([1.0], i), "logits: a list; give a tensor"),
        (lambda x, i: (x, i.to("meta")), "image: on meta, but logits on"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", ["forward", "solve"])
def test_bad_input_is_named(change, message, call, batch):
    logits, image = change(*batch)
    with pytest.raises(ValueError, match=message):
        getattr(layer(), call)(logits=logits, image=image)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "qp"}, "method"),
        ({"iterations": 0}, "iterations"),
        ({"normalization": "before"}, "normalization"),
        ({"learn": ["weight"]}, "Did you mean 'weights'"),
        ({"learn": ["compatibility"]}, "to start from"),
        ({"spatial_weight": -1}, "spatial_weight"),
        ({"spatial_sigma": 0}, "spatial_sigma"),
        ({"compatibility": torch.ones(3)}, r"shape \(3,\); give \(C, C\)"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        DenseCRF(**options)


def test_a_compatibility_of_another_size(batch):
    logits, image = batch
    with pytest.raises(ValueError, match="4 classes, but a compatibility of 3"):
        DenseCRF(compatibility=torch.eye(3))(logits=logits, image=image)


def test_ctrl_c_ends_all_items_with_the_best_so_far(batch, monkeypatch):
    logits, image = batch
    take, steps = loop.Outcome.take, []

    def pressed(outcome, *arguments):
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        take(outcome, *arguments)

    monkeypatch.setattr(loop.Outcome, "take", pressed)
    result = layer().solve(logits=logits, image=image, gap=0.0)
    assert sum(result.iterations) == 2  # of the first item, or on a GPU one of each
    assert not any(result.converged)
    assert result.labels.shape == (2, 10, 12)


def test_out_of_memory_is_tried_again_and_then_said(batch, monkeypatch):
    logits, image = batch
    asked = []

    def refined(self, logits, image, workspace):
        asked.append(workspace)
        if len(asked) < 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return logits

    monkeypatch.setattr(DenseCRF, "_refined", refined)
    with pytest.warns(UserWarning, match="smaller workspace"):
        layer()(logits=logits, image=image)
    assert asked[0] is None
    assert asked[1] > asked[2]

    def hopeless(workspace):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with (
        pytest.warns(UserWarning, match="smaller workspace"),
        pytest.raises(MemoryError, match="3 pixels do not fit"),
    ):
        module.computed(hopeless, torch.device("cpu"), 2, "3 pixels")


def test_checking_the_input_may_run_out_of_memory_too(batch, monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    # A device's tensors are looked at when their problem is made, the others before.
    name = "check_all_finite" if batch[0].device.type == "cpu" else "total"
    monkeypatch.setattr(module, name, full)
    with (
        pytest.warns(UserWarning, match="smaller workspace"),
        pytest.raises(MemoryError, match="do not fit"),
    ):
        layer().solve(logits=batch[0], image=batch[1])


def test_huge_logits_are_no_infinities(batch):
    logits, image = batch
    refined = layer()(logits=1e38 * logits.sign(), image=image)  # their sum is beyond float32
    assert torch.isfinite(refined.exp()).all()


def test_a_small_workspace_gives_the_same_answer(batch):
    logits, image = batch
    crf = layer()
    problem, tight = crf.problem(logits, image), crf.problem(logits, image, 1)
    y = problem.unary_marginals()
    torch.testing.assert_close(problem.apply(y), tight.apply(y))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_silent_fallback():
    crf = densecrf.DenseCRF(np.eye(2)[:, None], [])
    with pytest.raises(ValueError, match="sees no CUDA device"):
        crf.solve("mf5", device="cuda")
    with pytest.raises(ValueError, match="device='gpu'"):
        crf.solve("mf5", device="gpu")
    exact = densecrf.DenseCRF(np.eye(2)[:, None], [], filter="exact")
    with pytest.raises(ValueError, match="filter='exact'"):
        exact.solve("mf5", device="cpu")


@pytest.mark.parametrize(
    ("name", "value"), [("gap", 5), ("time_limit", -1), ("max_iterations", 0.5)]
)
def test_limits_are_checked(batch, name, value):
    logits, image = batch
    with pytest.raises(ValueError, match=name):
        layer().solve(logits=logits, image=image, **{name: value})


def test_a_model_with_label_costs_is_the_same_energy_here():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (12, 15, 3)).astype(np.uint8)
    logits = rng.normal(size=(4, 12, 15)).astype(np.float32)
    model = densecrf.Parameters(2, 1.0, 8, 30, 2.0, label_costs=(1.0, 0.5, 0.3, 0.8))
    layer = densecrf.torch.DenseCRF.from_model(model, shape=(12, 15))
    pixels = torch.from_numpy(image.transpose(2, 0, 1).copy())[None].float()
    here = layer.solve(logits=torch.from_numpy(logits)[None], image=pixels)
    there = densecrf.refine(image, logits, model=model, kind="logits", axis=0)
    assert here.energy[0] == pytest.approx(there.energy, rel=2e-3)
    assert here.gap[0] < 0.01


def test_a_model_says_how_its_kernels_are_normalised():
    of = DenseCRF.from_model
    assert of("manga", shape=(12, 15)).normalization == "none"
    assert of("manga", shape=(12, 15), normalization="symmetric").normalization == "symmetric"
    assert of("deeplab", shape=(12, 15)).normalization == "symmetric"
