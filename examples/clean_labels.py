"""An annotation with half of its pixels wrong, and a corner that nobody labelled."""

import numpy as np
from scipy.cluster.vq import kmeans2
from show import row, save, tint
from skimage import color, data, filters

import densecrf

TONES = 4  # labels: clusters of colour
image = np.ascontiguousarray(data.coffee()[::2, ::2])
lab = color.rgb2lab(filters.gaussian(image, 2, channel_axis=-1)).reshape(-1, 3)
truth = kmeans2(lab, TONES, seed=3, minit="++")[1].reshape(image.shape[:2])

rng = np.random.default_rng(0)
given = np.where(rng.random(truth.shape) < 0.5, rng.integers(0, TONES, truth.shape), truth)
given[:40, :60] = 255  # nobody labelled this corner

crf = densecrf.DenseCRF.from_labels(
    given,
    TONES,
    [
        densecrf.Spatial(sigma=2, weight=1),
        densecrf.Bilateral(image, sigma_xy=20, sigma_color=12, weight=4),
    ],
    confidence=0.55,
)
result = crf.solve("lp", gap=1e-3)
print(result)

figure = row(
    {
        "photograph": image,
        f"given: {(given == truth).mean():.1%} right": tint(given),
        f"found: {(result.labels == truth).mean():.1%} right": tint(result.labels),
        "the truth": tint(truth),
    },
    width=2.4,
)
save(figure, "clean_labels")
