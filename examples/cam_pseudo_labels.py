"""Class activation maps to pseudo-labels: a warm spot on the cat's face becomes a mask."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

image = np.ascontiguousarray(data.chelsea()[::2, ::2])  # 150 × 226
y, x = np.mgrid[: image.shape[0], : image.shape[1]]
cam = np.exp(-(((x - 105) / 62) ** 2 + ((y - 78) / 58) ** 2))  # from 0 to 1, strongest at the nose

scores = densecrf.with_background(cam[None], power=3)
# The preset "cam" has a stronger bilateral kernel; "afa" keeps closer to the map.
result = densecrf.refine(image, scores, model="afa", scale_sigmas=True)
print(result)

figure = row(
    {
        "photograph": image,
        "activation map": cam,
        "labels": tint(result.labels, image),
        "pseudo-labels, white: unsure": tint(result.confident(0.95), image),
    },
    width=2.4,
)
save(figure, "cam_pseudo_labels")
