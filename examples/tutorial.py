"""The picture of the tutorial: a network's labels, mean field, and the linear program."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf.drop_in.pydensecrf.densecrf as dcrf
import densecrf.drop_in.pydensecrf.utils as utils

image = np.ascontiguousarray(data.coffee()[40:340:2, 120:520:2])  # 150 × 200, RGB
height, width = image.shape[:2]
rng = np.random.default_rng(0)
y, x = np.mgrid[:height, :width]
inside = ((x - 95) / 80) ** 2 + ((y - 80) / 70) ** 2 < 1
logit = 2.5 * (2.0 * inside - 1) + rng.normal(0, 2, (height, width))
foreground = 1 / (1 + np.exp(-logit))
probabilities = np.stack([1 - foreground, foreground]).astype(np.float32)

crf = dcrf.DenseCRF2D(width, height, 2)
crf.setUnaryEnergy(utils.unary_from_softmax(probabilities))
crf.addPairwiseGaussian(sxy=3, compat=3)
crf.addPairwiseBilateral(sxy=60, srgb=13, rgbim=image, compat=10)
mean_field = np.argmax(crf.inference(5), axis=0).reshape(height, width)
result = crf.solve("lp")
print(result)

figure = row(
    {
        "network output": tint(probabilities.argmax(0), image),
        "mean field, no bound": tint(mean_field, image),
        f"linear program, proven to {100 * result.gap:.2f} %": tint(result.labels, image),
    },
    names=("table", "cup"),
)
save(figure, "tutorial")
