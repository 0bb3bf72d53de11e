"""Train a small network on a few scribbled pixels, without and with the dense CRF loss.

Synthetic pictures, one network for all of them, labels at one pixel in two hundred. The loss on the
scribbles does not constrain the other pixels; the CRF loss makes neighbours of one colour agree.
Draws both results. Needs Matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap
from show import darken
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from densecrf.torch import DenseCRFLoss

CLASSES, VOID = 4, 255
COLOURS = torch.tensor([[196.0, 120, 90], [96, 150, 90], [90, 120, 180], [190, 180, 110]])


def pictures(count: int, side: int, share: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return labels, noisy images, and scribbles: labels at some pixels, VOID elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, CLASSES, 5, 5, generator=generator)
    labels = interpolate(coarse, size=(side, side), mode="bicubic").argmax(1)
    image = COLOURS[labels].movedim(-1, 1)
    image = (image + 34 * torch.randn(image.shape, generator=generator)).clamp(0, 255)
    known = torch.rand(labels.shape, generator=generator) < share
    return labels, image, torch.where(known, labels, torch.full_like(labels, VOID))


def trained(image: Tensor, scribbles: Tensor, loss: DenseCRFLoss | None, steps: int) -> nn.Module:
    """Return a network trained on the scribbles and, if given, the CRF loss."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, CLASSES, 1),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = network(image / 255)
        value = cross_entropy(logits, scribbles, ignore_index=VOID)
        if loss is not None:
            value = value + loss(logits=logits, image=image)
        value.backward()
        optimizer.step()
    return network


def main() -> None:
    """Train twice, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out") / "torch_scribbles.png")
    parser.add_argument("--form", choices=["quadratic", "lp"], default="lp")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--side", type=int, default=64, help="of the pictures, in pixels")
    parser.add_argument("--share", type=float, default=0.005, help="of pixels with a label")
    arguments = parser.parse_args()
    _, image, scribbles = pictures(4, arguments.side, arguments.share, seed=1)
    labels, fresh, _ = pictures(4, arguments.side, arguments.share, seed=2)
    loss = DenseCRFLoss(
        arguments.form, bilateral_sigma_xy=12, bilateral_sigma_color=40, bilateral_weight=1.5
    )
    results = {}
    for name, extra in (("scribbles alone", None), ("with the CRF loss", loss)):
        network = trained(image, scribbles, extra, arguments.steps)
        with torch.no_grad():
            results[name] = network(fresh / 255).argmax(1)
        print(f"{name}: {(results[name] == labels).float().mean():.3f} of unseen pixels right")
    draw(arguments.output, image, scribbles, fresh, labels, results)
    print(arguments.output)


def draw(
    path: Path,
    image: Tensor,
    scribbles: Tensor,
    fresh: Tensor,
    labels: Tensor,
    results: dict[str, Tensor],
) -> None:
    """Draw a training picture with its scribbles, and an unseen one with both results."""
    colours = ListedColormap(["#c4785a", "#60965a", "#5a78b4", "#beb46e"])
    figure, axes = plt.subplots(1, 5, figsize=(13, 3), constrained_layout=True)
    axes[0].imshow(image[0].movedim(0, -1) / 255, alpha=0.6)
    y, x = (scribbles[0] != VOID).nonzero(as_tuple=True)
    axes[0].scatter(x, y, c=scribbles[0][y, x], cmap=colours, s=22, edgecolors="black", vmax=3)
    axes[0].set_title("training: scribbles")
    axes[1].imshow(fresh[0].movedim(0, -1) / 255)
    axes[1].set_title("unseen picture")
    for axis, (name, result) in zip(axes[2:], results.items(), strict=False):
        axis.imshow(result[0], cmap=colours, vmin=0, vmax=3)
        share = float((result[0] == labels[0]).float().mean())
        axis.set_title(f"{name}: {100 * share:.1f} %")
    axes[4].imshow(labels[0], cmap=colours, vmin=0, vmax=3)
    axes[4].set_title("truth")
    for axis in axes:
        axis.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    for each in (path, path.with_stem(f"{path.stem}-dark")):
        figure.savefig(each, dpi=110)
        darken(figure)


if __name__ == "__main__":
    main()
