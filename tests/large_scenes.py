"""Images and probabilities for the tests of tiles."""

import numpy as np

import densecrf
from densecrf.model.compatibility import with_label_costs
from densecrf.model.parameters import Parameters

SHAPE = (44, 56)
MODEL = Parameters(sigma=2, weight=3, sigma_xy=5, sigma_color=20, bilateral_weight=5)


def scene(shape, labels=3, seed=0):
    """A textured image with an edge, and probabilities."""
    rng = np.random.default_rng(seed)
    image = rng.normal(100, 12, (*shape, 3))
    image[tuple(slice(side // 2, None) for side in shape)] += 80
    p = rng.random((labels, *shape)) ** 3 + 0.02
    return np.clip(image, 0, 255).astype(np.uint8), (p / p.sum(0)).astype(np.float32)


def crowd(shape=SHAPE, labels=3):
    """An image with regions that the probabilities roughly know."""
    image, p = scene(shape, labels)
    centre = np.linspace(0, shape[-1], labels + 2)[1:-1]
    distance = abs(np.arange(shape[-1]) - centre.reshape(-1, *[1] * len(shape)))
    p = p * np.exp(-distance / 4)
    return image, (p / p.sum(0)).astype(np.float32)


def in_memory(image, p, normalization="symmetric", costs=None):
    kernels = MODEL.kernels(image)
    crf = densecrf.DenseCRF.from_probabilities(p, kernels, normalization=normalization)
    return crf if costs is None else with_label_costs(crf, costs)
