"""Training through the layer and with the loss, at toy size."""

import torch
from torch import nn
from torch.nn.functional import interpolate, nll_loss

from densecrf.torch import DenseCRF, DenseCRFLoss

CLASSES, SIDE = 3, 16
COLOURS = torch.tensor([[220.0, 60, 60], [60, 200, 80], [70, 90, 230]])


def pictures(count, generator):
    """Smooth random regions: their labels, a clean image, and noisy evidence for each class."""
    coarse = torch.randn(count, CLASSES, 4, 4, generator=generator)
    labels = interpolate(coarse, size=(SIDE, SIDE), mode="bicubic").argmax(1)
    image = COLOURS[labels].movedim(-1, 1)
    image = image + 12 * torch.randn(image.shape, generator=generator)
    evidence = nn.functional.one_hot(labels, CLASSES).movedim(-1, 1).float()
    return labels, image, evidence + 0.9 * torch.randn(evidence.shape, generator=generator)


def trained(layer, steps=45):
    """Train a 1 x 1 convolution, followed by the layer if any; return both."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.Conv2d(CLASSES, CLASSES, 1)
    parameters = [*network.parameters(), *(layer.parameters() if layer else ())]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    for _ in range(steps):
        labels, image, evidence = pictures(4, generator)
        optimizer.zero_grad()
        nll_loss(scores(network, layer, image, evidence), labels).backward()
        optimizer.step()
    return network


def scores(network, layer, image, evidence):
    logits = network(evidence)
    return layer(logits=logits, image=image) if layer else torch.log_softmax(logits, 1)


def accuracy(network, layer):
    labels, image, evidence = pictures(12, torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float((scores(network, layer, image, evidence).argmax(1) == labels).float().mean())


def test_a_network_with_the_layer_learns_weights_and_beats_one_without():
    alone = accuracy(trained(None), None)
    layer = DenseCRF(
        spatial_sigma=1.5,
        spatial_weight=0.1,
        bilateral_sigma_xy=6.0,
        bilateral_sigma_color=30.0,
        bilateral_weight=0.1,
        iterations=3,
        learn=["weights"],
    )
    together = accuracy(trained(layer), layer)
    assert layer.log_bilateral_weight.exp() > 1
    assert together > alone + 0.2


def test_the_loss_teaches_what_scribbles_leave_open():
    """A network that sees image and position, trained on a few pixels of one picture."""
    labels, image, _ = pictures(1, torch.Generator().manual_seed(5))
    order = torch.randperm(SIDE * SIDE, generator=torch.Generator().manual_seed(6))
    known = torch.zeros(SIDE * SIDE, dtype=torch.bool)
    for label in range(CLASSES):
        known[order[labels.reshape(-1)[order] == label][:6]] = True
    known = known.view(labels.shape)
    line = torch.linspace(-1, 1, SIDE)
    where = torch.stack(torch.meshgrid(line, line, indexing="ij"))[None]
    noisy = image / 255 + 0.5 * torch.randn(image.shape, generator=torch.Generator().manual_seed(7))
    inputs = torch.cat([noisy, where], 1)

    def result(extra):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(5, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, CLASSES, 1)
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            logits = network(inputs)
            loss = nll_loss(torch.log_softmax(logits, 1).movedim(1, -1)[known], labels[known])
            if extra is not None:
                loss = loss + extra(logits=logits, image=image)
            loss.backward()
            optimizer.step()
        return float((network(inputs).argmax(1) == labels).float().mean())

    settings = {"bilateral_sigma_xy": 6.0, "bilateral_sigma_color": 30.0, "bilateral_weight": 0.6}
    scribbles_alone = result(None)
    for form in ("quadratic", "lp"):
        assert result(DenseCRFLoss(form, **settings)) > scribbles_alone + 0.08
