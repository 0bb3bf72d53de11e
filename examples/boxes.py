"""From a box to the object in it: colours inside and around it, and the way from its sides."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

image = np.ascontiguousarray(data.coffee()[::2, ::2])  # 200 × 300
x0, y0, x1, y1 = box = 83, 7, 215, 168  # the cup with its spoon

result = densecrf.from_box(image, box)
print(result)

shown, cut_out = image.copy(), image.copy()
shown[y0:y1, [x0, x1 - 1]] = shown[[y0, y1 - 1], x0:x1] = (255, 220, 0)
cut_out[result.labels == 0] //= 4
figure = row(
    {
        "box": shown,
        "colours and ways alone": tint(result.crf.unary.argmin(0).reshape(image.shape[:2]), image),
        f"object, proven to {100 * result.gap:.2f} %": cut_out,
    }
)
save(figure, "boxes")
