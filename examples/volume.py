"""A 3-D volume with thick slices: nothing changes but the number of axes."""

import numpy as np
from show import row, save, tint

import densecrf

HU = (-200.0, 0.0, 120.0, 300.0)  # what air, body, organ and bone measure
rng = np.random.default_rng(0)
z, y, x = np.mgrid[:16, :96, :96]


def ellipsoid(cz, cy, cx, rz, ry, rx):
    """Return which voxels are inside."""
    return ((z - cz) / rz) ** 2 + ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1


truth = np.zeros(z.shape, int)  # air
truth[ellipsoid(8, 48, 48, 9, 40, 44)] = 1  # body
truth[ellipsoid(8, 44, 32, 5, 18, 13)] = 2  # organs
truth[ellipsoid(7, 46, 66, 4, 15, 11)] = 2
truth[ellipsoid(8, 72, 49, 20, 6, 6)] = 3  # bone
volume = np.array(HU)[truth] + rng.normal(0, 60, truth.shape)
scores = np.stack([-(((volume - mean) / 60) ** 2) / 2 for mean in HU])

spacing = np.array([4.0, 1.0, 1.0])  # millimetres a voxel
crf = densecrf.DenseCRF.from_logits(
    scores,
    [
        densecrf.Spatial(sigma=2.0 / spacing, weight=4),
        densecrf.Bilateral(volume, sigma_xy=5.0 / spacing, sigma_color=90, weight=2),
    ],
)
result = crf.solve("lp", gap=1e-2)
print(result)

alone = scores.argmax(0)
right = [f"{(labels == truth).mean():.1%} right" for labels in (alone, result.labels)]
grey = np.clip((volume[8] + 300) / 2.6, 0, 255).astype(np.uint8)
figure = row(
    {
        "slice 8 of 16": grey,
        f"each voxel alone: {right[0]}": tint(alone[8]),
        f"all voxels: {right[1]}": tint(result.labels[8]),
        "across the slices": tint(result.labels[:, 48].repeat(4, 0)),
    },
    width=2.4,
)
save(figure, "volume")
