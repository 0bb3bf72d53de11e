"""A network whose output flickers from frame to frame, refined frame by frame and as one clip."""

import numpy as np
from show import row, save, tint
from skimage import data

import densecrf

FRAMES = 8
rng = np.random.default_rng(0)
photo = np.ascontiguousarray(data.astronaut()[:240, 100:340])
frames = np.clip(photo + rng.normal(0, 6, (FRAMES, *photo.shape)), 0, 255).astype(np.uint8)
grid = np.mgrid[4:240:8, 4:240:8]  # the output grid of a network of stride 8


def blob(x, y, rx, ry):
    """Return a score of being inside an ellipse, from -1 outside to 1 inside."""
    distance = ((grid[1] - x) / rx) ** 2 + ((grid[0] - y) / ry) ** 2
    return np.tanh(2 * (1 - distance))


# Wall; face and hair; suit: of each frame with a noise of its own.
face, suit = blob(125, 95, 65, 85), blob(112, 262, 105, 95)
logits = np.stack([-np.maximum(face, suit), face, suit]) * 2
logits = logits + rng.normal(0, 0.8, (FRAMES, *logits.shape))

options = {"kind": "logits", "axis": 0, "gap": 1e-2}
alone = np.stack(
    [densecrf.refine(f, z, **options).labels for f, z in zip(frames, logits, strict=True)]
)
clip = densecrf.refine_video(frames, logits, **options)
print(clip)


def panel(labels):
    """Return a title and a frame's labels, white where they are not those of the frame before."""
    changed = labels[1:] != labels[:-1]
    title = f"{changed.sum() / len(changed):.0f} pixels change"
    return title, tint(np.where(changed[3], 255, labels[4]), frames[4])


network = logits.argmax(1).repeat(8, 1).repeat(8, 2)
pictures = {}
for name, labels in (("network", network), ("frame by frame", alone), ("clip", clip.labels)):
    title, picture = panel(labels)
    pictures[f"{name}: {title}"] = picture
save(row(pictures, names=("wall", "face and hair", "suit")), "video")
