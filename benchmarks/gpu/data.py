"""The problems: the paper's two images, and sixteen of MSRC-21 with a network's logits."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu.timing import DEVICE

SIZE = (500, 375)
#: Standard deviations of the kernels, whatever the package's default is: figures stay comparable.
SIGMAS = {"spatial_sigma": 3.0, "bilateral_sigma_xy": 60.0, "bilateral_sigma_color": 13.0}
FLOOR = 1e-5
PAPER = ("2_14_s", "4_11_s")
NETWORK = (
    *("10_12_s", "10_17_s", "10_19_s", "10_1_s", "10_23_s", "10_25_s", "10_26_s", "10_29_s"),
    *("10_4_s", "12_5_s", "15_8_s", "18_10_s", "1_2_s", "3_6_s", "6_21_s", "9_15_s"),
)


def pack(shared, folder):
    """Gather what the measurements need from the shared data into one folder of NAME.npz."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for name in PAPER:
        data = np.load(shared / "msrc_paper" / f"{name}.npz")
        probs = data["probs"].astype(np.float32)
        np.savez_compressed(folder / f"{name}.npz", image=data["image"], probs=probs)
    for name in NETWORK:
        image = np.asarray(Image.open(shared / "msrc" / "images" / f"{name}.png").convert("RGB"))
        logits = np.load(shared / "msrc" / "logits" / f"{name}.npz")["logits"]
        np.savez_compressed(folder / f"{name}.npz", image=image, logits=logits)


def resized(array, size):
    """Resize (h, w, c) to a (1, c, *size) tensor on the device."""
    tensor = torch.from_numpy(np.moveaxis(array.astype(np.float32), 2, 0).copy())[None]
    interpolate = torch.nn.functional.interpolate
    return interpolate(tensor.to(DEVICE), size=size, mode="bilinear", align_corners=False)


def load(folder: Path, name, size=SIZE, doubly=False):
    """Logits and image of one file, (1, L, *size) and (1, 3, *size).

    Of the paper's images: unaries -log p or, `doubly`, -log softmax(p) as its program has them.
    """
    data = np.load(folder / f"{name}.npz")
    image = resized(data["image"], size).round()
    if "logits" in data:
        return resized(data["logits"], size), image
    probs = resized(data["probs"], size)
    return (probs if doubly else probs.clamp(min=FLOOR).log()), image


def paper_batch(folder, size=SIZE):
    """Sixteen problems of the paper's images: both, both unaries, four mirrorings of each."""
    logits, images = [], []
    for name in PAPER:
        for doubly in (False, True):
            one, image = load(folder, name, size, doubly)
            for axes in ((), (2,), (3,), (2, 3)):
                logits.append(one.flip(axes))
                images.append(image.flip(axes))
    return torch.cat(logits), torch.cat(images)


def network_batch(folder, size=SIZE):
    pairs = [load(folder, name, size) for name in NETWORK]
    logits, images = (torch.cat(each) for each in zip(*pairs, strict=True))
    return logits, images
