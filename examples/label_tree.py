"""Some confusions are worse than others: Potts against a tree of labels."""

import numpy as np
from show import row, save, tint

import densecrf

rng = np.random.default_rng(1)
y, x = np.mgrid[:120, :160]
truth = np.where(y > 78, 2, 0)  # 0 sky, 1 cloud, 2 grass, 3 tree
truth[((x - 50) / 34) ** 2 + ((y - 30) / 14) ** 2 < 1] = 1
truth[((x - 118) / 18) ** 2 + ((y - 70) / 28) ** 2 < 1] = 3
image = np.array([[120, 170, 230], [150, 190, 235], [95, 150, 70], [75, 125, 60]])[truth]
image = np.clip(image + rng.normal(0, 14, image.shape), 0, 255).astype(np.uint8)

logits = 1.1 * (np.arange(4)[:, None, None] == truth) + rng.normal(0, 1.0, (4, *truth.shape))
kernels = [
    densecrf.Spatial(sigma=3, weight=3),
    densecrf.Bilateral(image, sigma_xy=20, sigma_color=16, weight=6),
]
# Sky and cloud, grass and tree: 0.3 within a group, 1 across.
tree = densecrf.LabelTree(4, [([0, 1], 0.7), ([2, 3], 0.7)], leaf=0.3)
potts = densecrf.DenseCRF.from_logits(logits, kernels).solve("lp", gap=1e-2)
nested = densecrf.DenseCRF.from_logits(logits, kernels, compatibility=tree).solve("lp", gap=1e-2)
print(tree.matrix())
print(nested)

figure = row(
    {
        "picture": image,
        "unaries alone": tint(logits.argmax(0)),
        f"Potts: {(potts.labels == truth).mean():.1%} correct": tint(potts.labels),
        f"tree: {(nested.labels == truth).mean():.1%} correct": tint(nested.labels),
    },
    width=2.4,
)
save(figure, "label_tree")
