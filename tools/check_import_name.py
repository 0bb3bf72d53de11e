"""Check an installed densecrf-pydensecrf: an unmodified script finds pydensecrf and its numbers."""

import numpy as np
import pydensecrf.densecrf as dcrf
from pydensecrf.utils import unary_from_softmax

p = np.full((2, 4, 6), 0.2, np.float32)
p[0, :, :3] = p[1, :, 3:] = 0.8
image = np.zeros((4, 6, 3), np.uint8)
image[:, 3:] = 200
d = dcrf.DenseCRF2D(6, 4, 2)
d.setUnaryEnergy(unary_from_softmax(p))
d.addPairwiseGaussian(sxy=3, compat=3)
d.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
Q = d.inference(5)
labels = np.argmax(Q, axis=0).reshape(4, 6)
assert dcrf.__name__ == "densecrf.drop_in.pydensecrf.densecrf", dcrf.__name__
assert (labels == (image[..., 0] > 0)).all(), labels
print("pydensecrf is provided by", dcrf.__name__)
