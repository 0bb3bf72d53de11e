"""A network's coarse logits, at an eighth of the resolution, refined along the image's edges."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

image = np.ascontiguousarray(data.astronaut()[:240, 100:340])
grid = np.mgrid[4:240:8, 4:240:8]  # the output grid of a network of stride 8


def blob(x, y, rx, ry):
    """Return a score of being inside an ellipse, from -1 outside to 1 inside."""
    distance = ((grid[1] - x) / rx) ** 2 + ((grid[0] - y) / ry) ** 2
    return np.tanh(2 * (1 - distance))


# Three maps (wall; face and hair; suit) as a network might give them: coarse and noisy.
face, suit = blob(125, 95, 65, 85), blob(112, 262, 105, 95)
logits = np.stack([-np.maximum(face, suit), face, suit]) * 2
logits += np.random.default_rng(0).normal(0, 0.4, logits.shape)

# Naming the label axis lets scores of a lower resolution be resized to the image.
result = densecrf.refine(image, logits, axis=0, kind="logits", model="deeplab", gap=1e-2)
print(result)

coarse = logits.argmax(0).repeat(8, 0).repeat(8, 1)
figure = row(
    {
        "photograph": image,
        "network output": tint(coarse, image),
        f"refined, proven to {100 * result.gap:.2f} %": tint(result.labels, image),
    },
    names=("wall", "face and hair", "suit"),
)
save(figure, "refine_network")
