"""Class activation maps to pseudo-labels: a warm spot on the cat's face becomes a mask."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

image = np.ascontiguousarray(data.chelsea()[::2, ::2])  # 150 × 226
y, x = np.mgrid[: image.shape[0], : image.shape[1]]
cam = np.exp(-(((x - 105) / 62) ** 2 + ((y - 78) / 58) ** 2))  # from 0 to 1, strongest at the nose

seeds = np.where(cam > 0.4, 1, np.where(cam < 0.15, 0, 255)).astype(np.uint8)  # 255: unsure
# The preset "cam" has a stronger bilateral kernel; "afa" keeps closer to the seeds.
result = densecrf.refine(image, seeds, model="afa", scale_sigmas=True, gap=0.02)
print(result)

figure = row(
    {
        "photograph": image,
        "activation map": cam,
        "hard labels, white: unsure": tint(seeds, image),
        "pseudo-labels": tint(result.labels, image),
    },
    width=2.4,
)
save(figure, "cam_pseudo_labels")
