"""A slide in tiles: solved one by one, with seams, and as one image, without."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from show import row, save, tint
from skimage import data
from skimage.transform import resize

import densecrf

warnings.simplefilter("ignore", densecrf.ArgumentWarning)  # strong weights show the seams
image = np.ascontiguousarray(data.immunohistochemistry())
SIDE, KERNELS = 128, {"sigma": 2, "weight": 1, "sigma_xy": 6, "sigma_color": 15}

# Scores of brown stain as a network of stride 16 might give them.
brown = (image[..., 0].astype(float) - image[..., 2] - 20) / 20
coarse = brown.reshape(32, 16, 32, 16).mean((1, 3))
coarse += np.random.default_rng(0).normal(0, 0.5, coarse.shape)
logit = resize(coarse, image.shape[:2], order=1)
p = (1 / (1 + np.exp(-logit))).astype(np.float32)

tiles = np.zeros(image.shape[:2], int)
for y in range(0, 512, SIDE):
    for x in range(0, 512, SIDE):
        window = np.s_[y : y + SIDE, x : x + SIDE]
        alone = densecrf.refine(image[window], p[window], bilateral_weight=4, **KERNELS)
        tiles[window] = alone.labels

# The same call takes files, and images that do not fit into memory.
with tempfile.TemporaryDirectory() as folder:
    result = densecrf.large.refine(
        image, p, out=Path(folder) / "labels.npy", tile=SIDE, bilateral_weight=4, **KERNELS
    )
    print(result)
    labels = np.array(result.labels)

figure = row(
    {
        "slide": image,
        "tiles solved one by one": tint(tiles, image),
        f"whole image, proven to {100 * result.gap:.2f} %": tint(labels, image),
    },
    names=("tissue", "stained"),
)
save(figure, "large")
