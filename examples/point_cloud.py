"""A point cloud: features are positions, heights and normals; there is no image at all."""

import numpy as np
from matplotlib.figure import Figure
from show import COLORS, save

import densecrf

rng = np.random.default_rng(0)
floor = np.column_stack([rng.random((2500, 2)) * 4, np.zeros(2500)])
wall = np.column_stack([rng.random(1500) * 4, np.full(1500, 4.0), rng.random(1500) * 2])
angle, height = rng.random(900) * 2 * np.pi, rng.random(900)
column = np.column_stack([1 + 0.3 * np.cos(angle), 2 + 0.3 * np.sin(angle), 1.4 * height])
sphere = rng.normal(size=(900, 3))
sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
points = np.concatenate([floor, wall, column, [2.8, 1.8, 0.6] + 0.55 * sphere])
normals = np.concatenate(
    [
        np.tile([0.0, 0.0, 1.0], (2500, 1)),
        np.tile([0.0, -1.0, 0.0], (1500, 1)),
        np.column_stack([np.cos(angle), np.sin(angle), np.zeros(900)]),
        sphere,
    ]
)
truth = np.repeat([0, 1, 2, 3], [2500, 1500, 900, 900])
points = points + rng.normal(0, 0.02, points.shape)

# A classifier that is right three times in five.
noisy = np.where(rng.random(len(truth)) < 0.6, truth, rng.integers(0, 4, len(truth)))
crf = densecrf.DenseCRF.from_labels(
    noisy,
    4,
    [
        densecrf.Features(points / 0.15, weight=2),  # within 15 cm
        densecrf.Features(np.hstack([points / 0.4, normals / 0.4]), weight=4),  # and facing alike
    ],
    confidence=0.6,
)
result = crf.solve("lp", gap=1e-2)
print(result)

figure = Figure(figsize=(9, 3.9), layout="constrained")
for place, (title, labels) in enumerate({"given": noisy, "found": result.labels}.items(), 1):
    axes = figure.add_subplot(1, 2, place, projection="3d")
    axes.scatter(*points.T, c=[COLORS[label] for label in labels], s=3, depthshade=False)
    axes.set_title(f"{title}: {(labels == truth).mean():.1%} right")
    axes.set_box_aspect((4, 4, 2), zoom=1.35)
    axes.view_init(22, -62)
    axes.set_axis_off()
save(figure, "point_cloud")
