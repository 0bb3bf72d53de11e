"""From too weak to too strong: one image, one network output, four strengths of the model."""

import warnings

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

warnings.simplefilter("ignore", densecrf.ArgumentWarning)  # of the strength that is too much
image = np.ascontiguousarray(data.coffee()[40:340:2, 120:520:2])
height, width = image.shape[:2]
y, x = np.mgrid[4:height:8, 4:width:8]  # the output grid of a network of stride 8
cup = np.tanh(3 * (1 - np.hypot((x - 95) / 80, (y - 80) / 70)))
logits = np.stack([-cup, cup]) + np.random.default_rng(0).normal(0, 0.6, (2, *cup.shape))

panels = {"photograph": image}
for strength in (0, 1, 5, 40):
    result = densecrf.refine(image, logits, axis=0, kind="logits", strength=strength, gap=0.02)
    print(result)
    panels[f"strength {strength}"] = tint(result.labels, image)
save(row(panels, width=2.4, names=("table", "cup")), "parameters")
