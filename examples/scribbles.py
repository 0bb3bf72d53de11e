"""From a few strokes to all pixels: a colour model of each label, and what is near and alike."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf
from densecrf.model.scribbles import scribble_unary

image = np.ascontiguousarray(data.rocket()[60:420:2, 120:540:2])  # 180 × 210
strokes = np.full(image.shape[:2], 255)  # 255: nothing drawn
strokes[8:11, 10:200] = strokes[60:63, 50:90] = strokes[90:93, 115:145] = 0  # the sky
strokes[110:113, 2:30] = strokes[120:123, 175:205] = strokes[150:152, 60:85] = 0
strokes[50:160, 101:103] = strokes[170:174, 84:115] = 1  # the rocket and what is lit
strokes[60:70, 162:164] = strokes[100:160, 36:38] = strokes[165:168, 30:40] = 1

crf = densecrf.DenseCRF(
    scribble_unary(image, strokes, certainty=0.95),
    [
        densecrf.Spatial(sigma=2, weight=3),
        densecrf.Bilateral(image, sigma_xy=15, sigma_color=10, weight=8),
    ],
)
result = crf.solve("lp", gap=1e-3)
print(result)

shown = np.where((strokes == 255)[..., None], image, tint(strokes)).astype(np.uint8)
figure = row(
    {
        "strokes": shown,
        "distances and colours alone": tint(crf.unary.argmin(0).reshape(crf.shape), image),
        f"labels, proven to {100 * result.gap:.2f} %": tint(result.labels, image),
    }
)
save(figure, "scribbles")
