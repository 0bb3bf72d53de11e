"""A picture for the tests of the app."""

import numpy as np


def scene(height=96, width=128, seed=0):
    """Return a picture of three regions that differ in colour."""
    rng = np.random.default_rng(seed)
    image = np.empty((height, width, 3))
    image[:] = (70, 120, 190)
    image[height // 2 :] = (90, 150, 70)
    y, x = np.mgrid[:height, :width]
    image[(y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2] = (200, 80, 60)
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)
