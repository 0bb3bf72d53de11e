"""The layer among what training is made of: compilers, mixed precision, several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from densecrf.torch import DenseCRF

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Network(nn.Module):
    """A convolution and the layer, which learns its weights."""

    def __init__(self, **options):
        super().__init__()
        self.scores = nn.Conv2d(3, 2, 1)
        self.crf = DenseCRF(
            spatial_sigma=1.0,
            bilateral_sigma_xy=3.0,
            bilateral_sigma_color=60.0,
            iterations=2,
            learn=["weights"],
            **options,
        )

    def forward(self, image):
        return self.crf(logits=self.scores(image / 255), image=image)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def image(generator):
    return 255 * torch.rand(2, 3, 5, 4, generator=generator)


def gradients(network, run, image):
    network.zero_grad()
    run(image)[:, 0].float().square().mean().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def test_a_compiled_network_has_the_same_gradients(network, image):
    compiled = torch.compile(network, backend="aot_eager")
    torch.testing.assert_close(
        gradients(network, compiled, image), gradients(network, network, image)
    )


def test_mixed_precision_reaches_the_network_and_not_the_layer(network, image):
    def mixed(image):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return network(image)

    assert mixed(image).dtype == torch.bfloat16
    got, expected = gradients(network, mixed, image), gradients(network, network, image)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.02)


def test_a_state_comes_back(network, image, tmp_path):
    with torch.no_grad():
        network.crf.log_bilateral_weight += 0.7
    torch.save(network.state_dict(), tmp_path / "state.pt")
    other = Network()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.testing.assert_close(other(image), network(image))
    torch.save(network, tmp_path / "network.pt")
    whole = torch.load(tmp_path / "network.pt", weights_only=False)
    torch.testing.assert_close(whole(image), network(image))


@pytest.mark.parametrize("method", ["mf5", "efw", "dc-neg", "lp"])
def test_second_derivatives_are_refused(method, image):
    torch.manual_seed(0)
    network = Network(method=method)
    out = network(image)[:, 0].square().mean()
    (gradient,) = torch.autograd.grad(out, network.scores.bias, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


WORKER = """
import sys
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
sys.path[:0] = {paths}
from test_in_training import Network, gradients

rank = int(sys.argv[1])
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method="file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(rank)  # they differ until the first process's parameters are sent around
network = Network()
parallel = DistributedDataParallel(network)
images = torch.load("{images}")
found = gradients(network, parallel, images[rank : rank + 1])
if rank == 0:
    torch.save((network.state_dict(), found), "{answer}")
distributed.destroy_process_group()
"""


def test_two_processes_have_the_gradients_of_one(image, tmp_path):
    """The mean of the gradients of two halves of a batch is that of the batch."""
    torch.save(image, tmp_path / "images.pt")
    script = tmp_path / "worker.py"
    script.write_text(
        WORKER.format(
            paths=[str(SOURCE), str(Path(__file__).parent)],
            meeting=tmp_path / "meeting",
            images=tmp_path / "images.pt",
            answer=tmp_path / "answer.pt",
        )
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    running = [
        subprocess.Popen([sys.executable, script, str(rank)], env=environment) for rank in (0, 1)
    ]
    assert [each.wait(timeout=300) for each in running] == [0, 0]
    state, found = torch.load(tmp_path / "answer.pt", weights_only=True)
    network = Network()
    network.load_state_dict(state)
    torch.testing.assert_close(found, gradients(network, network, image), rtol=1e-4, atol=1e-6)
