"""Coarse masks of all coins in a picture, refined at once."""

import numpy as np
from show import row, save
from skimage import data, filters, measure, morphology

import densecrf

image = data.coins()[:, 8:]
smooth = filters.gaussian(image, 1)
bright = smooth > filters.threshold_local(smooth, 101)
found = measure.label(morphology.remove_small_objects(morphology.opening(bright, np.ones((5, 5)))))
truth = [morphology.convex_hull_image(found == i) for i in range(1, found.max() + 1)]
truth = np.stack([mask for mask in truth if mask.sum() > 700 and mask.any(0).sum() < 100])


def blocks(mask, side=10):
    """Return a mask in blocks, as discovery by patches makes them."""
    height, width = (length - length % side for length in mask.shape)
    means = mask[:height, :width].reshape(height // side, side, -1, side).mean((1, 3))
    out = np.zeros_like(mask)
    out[:height, :width] = (means >= 0.5).repeat(side, 0).repeat(side, 1)
    return out


given = np.stack([blocks(mask) for mask in truth])
refined = densecrf.refine_masks(image, given)
print(refined)


def drawn(masks):
    """Return the masks over the picture, each in a colour of its own."""
    colors = np.random.default_rng(4).integers(60, 256, (len(masks), 3))
    out = np.repeat(image[..., None], 3, 2).astype(float)
    for mask, color in zip(masks, colors, strict=True):
        out[mask] = 0.35 * out[mask] + 0.65 * color
    return out.astype(np.uint8)


def overlap(masks):
    """Return the mean intersection over union with the truth."""
    return np.mean([(m & t).sum() / (m | t).sum() for m, t in zip(masks, truth, strict=True)])


figure = row(
    {
        f"{len(given)} masks in blocks, IoU {overlap(given):.2f}": drawn(given),
        f"refined, IoU {overlap(refined.masks):.2f}": drawn(refined.masks),
    },
    width=4.2,
)
save(figure, "masks")
