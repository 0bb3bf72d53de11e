"""Direct launches by private functions where they are the known ones, Triton's own elsewhere."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from densecrf.operators.torch import dispatch
from densecrf.operators.torch.lattice import Lattice
from densecrf.operators.triton import launch as module


class Compiled:
    """What Triton returns for a kernel; notes how it is run."""

    function, packed_metadata = "code", "packed"

    def __init__(self):
        self.runs = []

    def run(self, *arguments):
        self.runs.append(arguments)


class Kernel:
    """A jitted kernel that only notes its public launches."""

    def __init__(self):
        self.launches, self.compiled = [], Compiled()
        self.fn = self

    def __getitem__(self, grid):
        def run(*arguments, **options):
            self.launches.append((grid, arguments, options))
            return self.compiled

        return run


@pytest.fixture
def on_a_device(monkeypatch):
    """As if there were a GPU: kernels are not interpreted, streams have a number."""
    decide = module.direct
    decide.cache_clear()
    monkeypatch.setattr(module, "interpreted", lambda: False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 77, raising=False)
    compiler = SimpleNamespace(CompiledKernel=Compiled)
    monkeypatch.setattr(module, "import_module", lambda _: compiler)
    yield monkeypatch
    decide.cache_clear()


def launches_of(kernel, tensors, times):
    plans = module.Plans()
    for x in tensors[:times]:
        work = lambda x=x: module.launch(kernel, (2,), [x, 5], {"BLOCK": 8}, warps=2)  # noqa: E731
        plans.run("kind", [x], work)


@pytest.mark.parametrize(
    ("found", "kernels", "direct"),
    [
        ("2.1.0", False, None),
        ("3.2.0", False, None),
        ("3.3.0", True, True),
        ("3.9.1", True, True),
        ("3.4.1+git12", True, True),
        ("3.10.0", True, False),
        ("4.0.0", True, False),
    ],
)
def test_the_version_decides(on_a_device, found, kernels, direct):
    """Old Tritons are not used, new ones by their public launch."""
    on_a_device.setattr(dispatch, "version", lambda _: found)
    dispatch.triton_version.cache_clear()
    try:
        assert dispatch.has_triton() == kernels
        assert direct is None or module.direct() == direct
    finally:
        dispatch.triton_version.cache_clear()


def test_a_missing_private_function_means_the_public_launch(on_a_device):
    on_a_device.setattr(module, "import_module", lambda _: SimpleNamespace())
    assert not module.direct()
    module.direct.cache_clear()
    on_a_device.undo()
    on_a_device.setattr(module, "interpreted", lambda: False)
    on_a_device.delattr(torch._C, "_cuda_getCurrentRawStream", raising=False)
    assert not module.direct()


def test_direct_launches_pass_addresses_and_constants(on_a_device):
    on_a_device.setattr(module, "direct", lambda: True)
    kernel = Kernel()
    tensors = [torch.zeros(64) for _ in range(3)]
    launches_of(kernel, tensors, 3)
    assert len(kernel.launches) == 1  # the first compiles
    expected = [
        (2, 1, 1, 77, "code", "packed", None, None, None, x.data_ptr(), 5, 8) for x in tensors[1:]
    ]
    assert kernel.compiled.runs == expected


def test_direct_launches_follow_public_ones(on_a_device):
    kernel, x = Kernel(), torch.zeros(64)
    for direct in (False, True, True):
        on_a_device.setattr(module, "direct", lambda direct=direct: direct)
        module.launch(kernel, (2,), [x, 5], {"BLOCK": 8}, warps=2)
    assert len(kernel.launches) == 2
    assert len(kernel.compiled.runs) == 1


def test_public_launches_pass_tensors_and_options(on_a_device):
    on_a_device.setattr(module, "direct", lambda: False)
    kernel = Kernel()
    tensors = [torch.zeros(64) for _ in range(3)]
    launches_of(kernel, tensors, 3)
    assert not kernel.compiled.runs
    assert [grid for grid, _, _ in kernel.launches] == [(2, 1, 1)] * 3
    for x, (_, arguments, options) in zip(tensors, kernel.launches, strict=True):
        assert arguments[0] is x
        assert arguments[1:] == (5,)
        assert options == {"BLOCK": 8, "num_warps": 2}


def test_a_known_launcher_is_called_without_triton_in_between(on_a_device):
    on_a_device.setattr(module, "triton_version", lambda: module.KNOWN_LAUNCHER)
    launched = []
    inner = lambda *arguments: launched.append(arguments)  # noqa: E731
    launcher = SimpleNamespace(
        launch=inner,
        launch_pdl="dependent",
        launch_cooperative_grid="cooperative",
        global_scratch_size=0,
        profile_scratch_size=0,
    )
    compiled = SimpleNamespace(run=launcher, function="code", packed_metadata="packed")
    run, head = module._runner(compiled)
    run(2, 1, 1, 77, *head, 5)
    hooks = ("packed", None, None, None)
    expected = (2, 1, 1, 77, "code", "cooperative", "dependent", None, None, *hooks, 5)
    assert launched == [expected]
    launcher.global_scratch_size = 8
    assert module._runner(compiled) == (launcher, ("code", *hooks))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_both_ways_compute_the_same_bits(monkeypatch):
    features = torch.rand(4000, 5, generator=torch.Generator().manual_seed(0)).cuda() * 4
    values = torch.rand(21, 4000, generator=torch.Generator().manual_seed(1)).cuda()
    found = []
    for direct in (True, False):
        monkeypatch.setattr(module, "direct", lambda direct=direct: direct)
        lattice = Lattice.build(features)
        found.append([lattice.apply(values) for _ in range(3)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
